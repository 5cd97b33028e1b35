# SPDX-License-Identifier: Apache-2.0
"""What the ranks run. Each function gets its rank and the number of ranks, and checks its own results."""

import contextlib
import ctypes
import importlib
import importlib.util
import os
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

LIBRARY = Path(importlib.util.find_spec("cann_cpu").submodule_search_locations[0]) / "lib64" / "libhccl.so"
TYPES = {"int8": 0, "int16": 1, "int32": 2, "float16": 3, "float32": 4, "int64": 5, "uint64": 6, "uint8": 7,
         "uint16": 8, "uint32": 9, "float64": 10, "bfloat16": 11}  # fmt: skip
REDUCED = [
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "bfloat16",
]  # as CANN documents it of Atlas A2 and A3
NO_PRODUCT = ["int16", "bfloat16"]
NOT_MOVED = {"int128": 12, "hifloat8": 14, "float8_e4m3fn": 15, "float8_e5m2": 16, "float8_e8m0fnu": 17}
OPERATIONS = {"sum": np.add, "product": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
# Nothing; one; an odd few; many; more than is sent in one message and folded at a time.
COUNTS = [0, 1, 7, 4801, 40003]


class Communicator:
    """libhccl itself, on the current stream."""

    def __init__(self, rank, size, root_info):
        self.make(
            rank, size, "HcclCommInitRootInfo", size, ctypes.create_string_buffer(root_info, len(root_info)), rank
        )

    def make(self, rank, size, function, *arguments):
        self.library = ctypes.CDLL(str(LIBRARY))
        self.rank, self.size = rank, size
        self.handle = ctypes.c_void_p()
        self.check(getattr(self.library, function)(*arguments, ctypes.byref(self.handle)))

    def check(self, code):
        if code:
            acl = ctypes.CDLL(str(LIBRARY.parent / "libascendcl.so"))
            acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
            raise RuntimeError(f"{code}: {(acl.aclGetRecentErrMsg() or b'').decode()}")

    def call(self, name, *arguments):
        stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
        converted = [
            ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else (ctypes.c_uint64 * len(a))(*a)
            if isinstance(a, list) else ctypes.c_uint64(a) for a in arguments
        ]  # fmt: skip
        self.check(getattr(self.library, name)(*converted, self.handle, stream))

    def sum_of_ranks(self):
        """The sum of 1 to size, if everything is well."""
        data = on_device(np.array([self.rank + 1], dtype=np.int32))
        self.call("HcclAllReduce", data, data, 1, TYPES["int32"], 0)
        return from_device(data, np.zeros(1, np.int32))[0]

    def destroy(self):
        torch.npu.synchronize()
        self.check(self.library.HcclCommDestroy(self.handle))


@contextlib.contextmanager
def variables(**values):
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def root_info(rank, size, here=None):
    """The root info of `size` ranks, with `here` of them on this host."""
    buffer = ctypes.create_string_buffer(4108)
    with variables(**({} if here is None else {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(here)})):
        assert ctypes.CDLL(str(LIBRARY)).HcclGetRootInfo(buffer) == 0
    return buffer.raw


def on_device(array):
    """The bytes of an array in device memory, which is there even for an array of none."""
    data = torch.from_numpy(np.frombuffer(array.tobytes() + b"\0", dtype=np.uint8).copy())
    return data.npu()


def from_device(tensor, like):
    return np.frombuffer(tensor.cpu().numpy()[: like.nbytes].tobytes(), dtype=like.dtype)


def values(name, count, rank):
    """Random values of a type, the same wherever they are asked for; bfloat16 as the bits of it."""
    random = np.random.default_rng([TYPES[name], count, rank])
    if "int" in name:
        limits = np.iinfo(name)
        return random.integers(limits.min, limits.max, count, dtype=name, endpoint=True)
    floats = random.standard_normal(count)
    if count > 3:
        floats[3] = np.nan if rank == 1 else floats[3]
    if name == "bfloat16":
        return torch.from_numpy(floats).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    return floats.astype(name)


def reduced(name, operation, arrays):
    """The reduction in the order of the ranks; of 16 bits in float32, rounded once."""
    if name == "bfloat16":
        arrays = [(array.astype(np.uint32) << 16).view(np.float32) for array in arrays]
    if name == "float16":
        arrays = [array.astype(np.float32) for array in arrays]
    result = arrays[0]
    with np.errstate(all="ignore"):
        for array in arrays[1:]:
            result = OPERATIONS[operation](result, array)
    if name == "bfloat16":
        return torch.from_numpy(result).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    return result.astype(name)


def check(name, found, expected, what):
    if name == "bfloat16":
        found, expected = [(array.astype(np.uint32) << 16).view(np.float32) for array in (found, expected)]
    np.testing.assert_array_equal(found, expected, err_msg=what)


def reductions(rank, size, root_info, transport):
    """Every type and reduction that is there, by every collective that reduces; gives the bytes of all results."""
    os.environ["CANN_CPU_HCCL_TRANSPORT"] = transport
    comm = Communicator(rank, size, root_info)
    all_bits = []
    for name in REDUCED:
        number = TYPES[name]
        for code, operation in enumerate(OPERATIONS):
            if operation == "product" and name in NO_PRODUCT:
                continue
            for count in COUNTS if name in ("float32", "bfloat16") else COUNTS[2:4]:
                what = f"{operation} of {count} {name}"
                arrays = [values(name, count, other) for other in range(size)]
                expected = reduced(name, operation, arrays)
                data = on_device(arrays[rank])
                result = torch.zeros_like(data)
                comm.call("HcclAllReduce", data, result, count, number, code)
                in_place = data.clone()
                comm.call("HcclAllReduce", in_place, in_place, count, number, code)
                root = count % size
                at_root = torch.zeros_like(data)
                comm.call("HcclReduce", data, at_root, count, number, code, root)
                check(name, from_device(result, expected), expected, what)
                check(name, from_device(in_place, expected), expected, what + " in place")
                assert from_device(in_place, expected).tobytes() == from_device(result, expected).tobytes()
                if rank == root:
                    check(name, from_device(at_root, expected), expected, what + " at a root")
                all_bits.append(from_device(result, expected).tobytes())

                part = count // size
                scattered = on_device(expected[:part])
                comm.call("HcclReduceScatter", data, scattered, part, number, code)
                mine = expected[rank * part : (rank + 1) * part]
                check(name, from_device(scattered, mine), mine, what + " scattered")
                over_input = data.clone()
                comm.call("HcclReduceScatter", over_input, over_input, part, number, code)
                check(name, from_device(over_input, mine), mine, what + " scattered over the input")

                if operation == "product" or name == "int64":
                    continue
                counts = [part + (other == 0) * (count - part * size) for other in range(size)]
                offsets = [sum(counts[:other]) for other in range(size)]
                mine = expected[offsets[rank] : offsets[rank] + counts[rank]]
                scattered = on_device(mine)
                comm.call("HcclReduceScatterV", data, counts, offsets, scattered, counts[rank], number, code)
                check(name, from_device(scattered, mine), mine, what + " scattered unevenly")
    comm.destroy()
    return b"".join(all_bits)


def not_served(rank, size, root_info, soc, int64):
    """What the chip neither reduces nor moves is rejected by name; `int64`: what an uneven scatter of that says."""
    comm = Communicator(rank, size, root_info)
    data = on_device(np.zeros(4, np.int64))

    def error(function, *arguments):
        return error_of(lambda: comm.call(function, data, *arguments))

    for name, number in TYPES.items():
        for code, operation in enumerate(OPERATIONS):
            text = f"5: {{}}: there is no {operation} of {name} on {soc}"
            if name not in REDUCED or (operation == "product" and name in NO_PRODUCT):
                assert error("HcclAllReduce", data, 1, number, code) == text.format("HcclAllReduce")
                assert error("HcclReduce", data, 1, number, code, 0) == text.format("HcclReduce")
                assert error("HcclReduceScatter", data, 1, number, code) == text.format("HcclReduceScatter")
            if name not in REDUCED or operation == "product":
                uneven = error("HcclReduceScatterV", [1], [0], data[8:], 1, number, code)
                assert uneven == text.format("HcclReduceScatterV")
    for name, number in NOT_MOVED.items():
        assert error("HcclAllReduce", data, 1, number, 0) == f"5: HcclAllReduce: there is no sum of {name} on {soc}"
        for function, *arguments in (
            ("HcclBroadcast", 1, number, 0),
            ("HcclAllGather", data, 1, number),
            ("HcclAlltoAll", 1, number, data[8:], 1, number),
            ("HcclSend", 1, number, 0),
        ):
            text = f"5: {function}: {name} is not moved between chips of {soc}"
            assert error(function, *arguments) == text
    assert error("HcclReduceScatterV", [1], [0], data[8:], 1, TYPES["int64"], 0) == int64
    assert comm.sum_of_ranks() == 1
    comm.destroy()


def moves(rank, size, root_info, transport):
    """Every type, by every collective that moves."""
    os.environ["CANN_CPU_HCCL_TRANSPORT"] = transport
    comm = Communicator(rank, size, root_info)
    types = {name: (number, 2 if name == "bfloat16" else np.dtype(name).itemsize) for name, number in TYPES.items()}
    for name, (number, width) in types.items():
        for count in COUNTS if name == "float16" else [5, 4801]:
            what = f"{count} {name}"

            def of(other, count=count, width=width):
                random = np.random.default_rng([other, count, width])
                return random.integers(0, 256, count * width, dtype=np.uint8)

            def same(tensor, expected, what=what):
                np.testing.assert_array_equal(from_device(tensor, expected), expected, err_msg=what)

            everything = np.concatenate([of(other) for other in range(size)])
            data = on_device(of(rank))
            room = on_device(np.zeros_like(everything))

            root = count % size
            cast = data.clone()
            comm.call("HcclBroadcast", cast, count, number, root)
            same(cast, of(root))

            gathered = room.clone()
            comm.call("HcclAllGather", data, gathered, count, number)
            same(gathered, everything)

            counts = [count - other if count > size else count for other in range(size)]
            offsets = [sum(counts[:other]) for other in range(size)]
            gathered = room.clone()
            comm.call("HcclAllGatherV", data, counts[rank], gathered, counts, offsets, number)
            same(gathered, np.concatenate([of(other)[: counts[other] * width] for other in range(size)]))

            mine = on_device(np.zeros_like(of(rank)))
            comm.call("HcclScatter", on_device(everything), mine, count, number, root)
            same(mine, of(rank))

            part = count // size
            cells = [[of(a)[b * part * width : (b + 1) * part * width] for b in range(size)] for a in range(size)]
            turned = room.clone()
            comm.call("HcclAlltoAll", data, part, number, turned, part, number)
            same(turned, np.concatenate([cells[other][rank] for other in range(size)]))

            # Rank a sends max(part - a - b, 0) elements to rank b.
            matrix = [[max(part - a - b, 0) for b in range(size)] for a in range(size)]
            sent = np.concatenate([cells[rank][b][: matrix[rank][b] * width] for b in range(size)])
            came = np.concatenate([cells[a][rank][: matrix[a][rank] * width] for a in range(size)])
            turned = room.clone()
            comm.call(
                "HcclAlltoAllVC", on_device(sent), [cell for row in matrix for cell in row], number, turned, number
            )
            same(turned, came)
            sends, receives = matrix[rank], [matrix[a][rank] for a in range(size)]
            turned = room.clone()
            comm.call("HcclAlltoAllV", on_device(sent), sends, [sum(sends[:b]) for b in range(size)], number,
                      turned, receives, [sum(receives[:a]) for a in range(size)], number)  # fmt: skip
            same(turned, came)

            # Rank 0's elements, once round.
            back = on_device(np.zeros_like(of(rank)))
            if rank == 0:
                comm.call("HcclSend", data, count, number, 1)
            comm.call("HcclRecv", back, count, number, (rank - 1) % size)
            if rank > 0:
                comm.call("HcclSend", back, count, number, (rank + 1) % size)
            same(back, of(0))
            comm.call("HcclBarrier")
    comm.destroy()


# Through torch.distributed.
def join(rank, size, store, timeout=None):
    """Makes a group that stays."""
    import torch_npu

    options = torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options()
    if timeout is not None:
        options.hccl_config = {"hccl_exec_timeout": timeout}
    dist.init_process_group("hccl", init_method=f"file://{store}", rank=rank, world_size=size,
                            pg_options=options, timeout=timedelta(seconds=60))  # fmt: skip


@contextlib.contextmanager
def process_group(rank, size, store, timeout=None):
    join(rank, size, store, timeout)
    try:
        yield
    finally:
        dist.destroy_process_group()


def in_group(rank, size, case, store, timeout=None, **arguments):
    os.environ["CANN_CPU_HCCL_TRANSPORT"] = "auto"
    module, _, name = case.rpartition(".")
    with process_group(rank, size, store, timeout):
        return getattr(importlib.import_module(module or "cases"), name)(rank, size, **arguments)


def equal(found, expected):
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0)


def torch_collectives(rank, size):
    """What torch_npu makes of the collectives: averages, lists, objects, functional ones, coalesced pairs."""
    mine = torch.arange(6, dtype=torch.float32).reshape(2, 3) + rank
    whole = torch.stack([mine - rank + other for other in range(size)])

    average = mine.npu()
    dist.all_reduce(average, dist.ReduceOp.AVG)
    equal(average, whole.sum(0) / size)
    for dtype in (torch.int32, torch.uint8):
        average = torch.tensor([rank, 7 * rank + 1]).to(dtype).npu()
        dist.all_reduce(average, dist.ReduceOp.AVG)
        total = size * (size - 1) // 2
        equal(average, torch.tensor([total // size, (7 * total + size) // size], dtype=dtype))

    flags = torch.tensor([rank == 0, False, True]).npu()
    dist.all_reduce(flags)
    equal(flags, torch.tensor([True, False, True]))

    listed = [torch.empty(2, 3).npu() for _ in range(size)]
    dist.all_gather(listed, mine.npu())
    equal(torch.stack(listed), whole)

    uneven = [torch.empty(other + 1, dtype=torch.int64).npu() for other in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1,), rank).npu())
    for other in range(size):
        equal(uneven[other], torch.full((other + 1,), other))

    part = torch.empty(2, 3).npu()
    dist.reduce_scatter(part, [mine.npu() * (other + 1) for other in range(size)])
    equal(part, whole.sum(0) * (rank + 1))

    dist.scatter(part, list(whole.npu()) if rank == 1 else None, src=1)
    equal(part, whole[rank])

    turned = torch.empty(size, dtype=torch.int64).npu()
    dist.all_to_all_single(turned, (torch.arange(size) + 10 * rank).npu())
    equal(turned, torch.arange(size) * 10 + rank)

    sends = [rank + other for other in range(size)]
    cut = torch.empty(sum(sends)).npu()
    dist.all_to_all_single(cut, torch.full((sum(sends),), float(rank)).npu(), sends, sends)
    equal(cut, torch.cat([torch.full((rank + other,), float(other)) for other in range(size)]))

    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank * 1000})
    assert [one["rank"] for one in objects] == list(range(size)) and len(objects[-1]["text"]) == 1000 * (size - 1)

    received = torch.empty(30000).npu()
    pairs = [dist.P2POp(dist.isend, torch.full((30000,), float(rank)).npu(), (rank + 1) % size),
             dist.P2POp(dist.irecv, received, (rank - 1) % size)]  # fmt: skip
    for work in dist.batch_isend_irecv(pairs):
        work.wait()
    equal(received, torch.full((30000,), float((rank - 1) % size)))

    view = torch.zeros(4, 6).npu()
    row = view[1]
    row.fill_(rank)
    dist.all_reduce(row)
    equal(view, torch.zeros(4, 6).index_fill_(0, torch.tensor([1]), sum(range(size))))
    dist.barrier()


def asynchronous(rank, size):
    """Work that is waited for late, kernels before and after, several groups that cross, several streams."""
    rest = dist.new_group(list(range(1, size)))
    first = dist.new_group([0, size - 1])
    everything = dist.new_group()
    tensors = [torch.full((20000,), float(rank + i)).npu() for i in range(12)]
    works = []
    for i, tensor in enumerate(tensors):
        tensor.mul_(2)
        group = [None, everything][i % 2]
        works.append(dist.all_reduce(tensor, group=group, async_op=True))
        if rank > 0:
            works.append(dist.all_reduce(torch.ones(3).npu(), group=rest, async_op=True))
        if rank in (0, size - 1):
            works.append(dist.broadcast(torch.ones(3).npu(), src=0, group=first, async_op=True))
    for work in works:
        work.wait()
    for i, tensor in enumerate(tensors):
        tensor.add_(1)
        equal(tensor, torch.full((20000,), 2.0 * sum(other + i for other in range(size)) + 1))

    streams = [torch.npu.Stream() for _ in range(3)]
    results = []
    for i, stream in enumerate(streams):
        with torch.npu.stream(stream):
            tensor = torch.full((5000,), float(i + rank)).npu()
            dist.all_reduce(tensor, group=[None, everything][i % 2])
            results.append(tensor * 3)
    torch.npu.synchronize()
    for i, result in enumerate(results):
        equal(result, torch.full((5000,), 3.0 * sum(i + other for other in range(size))))


def captured(rank, size):
    """Collectives between kernels in a graph that is replayed, and eager ones in between."""
    x = torch.zeros(9000).npu()
    gathered = torch.zeros(size * 9000).npu()
    dist.all_reduce(torch.ones(1).npu())
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = x * 2
        dist.all_reduce(y)
        dist.all_gather_into_tensor(gathered, y + rank)
        total = gathered.sum()
    for step in range(4):
        x.fill_(float(step + rank))
        graph.replay()
        eager = torch.full((3,), float(step)).npu()
        dist.all_reduce(eager)
        torch.npu.synchronize()
        expected = 2.0 * sum(step + other for other in range(size))
        equal(y, torch.full((9000,), expected))
        equal(total, torch.tensor(9000.0 * sum(expected + other for other in range(size))))
        equal(eager, torch.full((3,), float(step * size)))


def in_graphs(rank, size, mode):
    """Collectives between kernels in a compiled function are bitwise equal to eager."""
    import torch.distributed._functional_collectives as functional

    from custom_pypto.modes import MODES

    group = dist.group.WORLD

    def all_of_them(x):
        made = [
            functional.all_reduce(x + 1, "sum", group),
            functional.all_reduce((x + 1).float(), "product", group),
            functional.all_reduce(x, "max", group),
            functional.all_reduce(x, "min", group),
            functional.all_gather_tensor(x * 3, 0, group),
            functional.reduce_scatter_tensor(x * 3, "sum", 0, group),
            functional.all_to_all_single(x, None, None, group),
            functional.broadcast(x, size - 1, group),
        ]
        return [functional.wait_tensor(one) * 2 for one in made]

    torch._dynamo.reset()
    compiled = MODES[mode](all_of_them)
    for rows, dtype in ((4, torch.bfloat16), (6, torch.bfloat16), (4, torch.int32)):
        random = torch.Generator().manual_seed(rank + rows)
        x = (torch.randn(rows * size, 5, generator=random) * 9).to(dtype).npu()
        expected = all_of_them(x)
        for _ in range(2):
            for i, (found, eager) in enumerate(zip(compiled(x), expected, strict=True)):
                assert torch.equal(found.cpu(), eager.cpu()), f"result {i} of {rows} rows of {dtype} in {mode}"


def patched_in_graphs(rank, size):
    """What torchair puts into a graph for torch.distributed's own functions."""
    import torch_npu
    import torchair

    before, after = (rank - 1) % size, (rank + 1) % size
    counts = [other + 1 for other in range(size)]

    def even_parts_and_to_all(x, uneven):
        total = x.clone()
        dist.all_reduce(total)
        gathered = torch.empty(size * x.shape[0], x.shape[1], device=x.device)
        dist.all_gather_into_tensor(gathered, x)
        part = torch.empty(x.shape[0] // size, x.shape[1], device=x.device)
        dist.reduce_scatter_tensor(part, x)
        cast = x.clone()
        dist.broadcast(cast, src=1)
        turned = torch.empty_like(x)
        dist.all_to_all_single(turned, x)
        cut = torch.empty(size * (rank + 1), x.shape[1], device=x.device)
        dist.all_to_all_single(cut, uneven, [rank + 1] * size, counts)
        return total, gathered, part, cast, turned, cut

    def uneven_parts(x, uneven):
        together = torch.empty_like(uneven)
        torch_npu.distributed.all_gather_into_tensor_uneven(together, x[: rank + 1].clone(), counts)
        share = torch.empty(rank + 1, x.shape[1], device=x.device)
        torch_npu.distributed.reduce_scatter_tensor_uneven(share, uneven, counts)
        return together, share

    def round_trip(x):
        received = torch.empty_like(x)
        if rank == 0:
            dist.send(x, after)
        dist.recv(received, before)
        if rank > 0:
            dist.send(received + 1, after)
        return received + 0

    random = torch.Generator().manual_seed(rank)
    x = torch.randn(2 * size, 3, generator=random).npu()
    uneven = torch.randn(size * (size + 1) // 2, 3, generator=random).npu()
    backend = torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())
    for function, *arguments in (
        (even_parts_and_to_all, x, uneven),
        (uneven_parts, x, uneven),
        (uneven_parts, x[:, :0], uneven[:, :0]),
        (round_trip, x),
    ):
        torch._dynamo.reset()
        expected = function(*arguments)
        found = torch.compile(function, backend=backend, dynamic=False, fullgraph=True)(*arguments)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def disagreeing_graphs(rank, size):
    """A collective in a graph on which the ranks disagree."""
    import torch.distributed._functional_collectives as functional

    from custom_pypto.modes import MODES

    def total(x):
        return functional.wait_tensor(functional.all_reduce(x, "sum", dist.group.WORLD)) + 1

    torch._dynamo.reset()
    x = torch.ones(4 + 4 * (rank == 1)).npu()
    return error_of(lambda: MODES["GE static"](total)(x).cpu())


def random_sequences(rank, size, seed, count):
    """Many collectives from a seed that all ranks share, on groups that cross."""
    shared = np.random.default_rng(seed)
    groups = [(list(range(size)), None), *[(members, dist.new_group(members)) for members in ([0, 1], [1, 2], [0, 2])]]
    for _ in range(count):
        members, group = groups[shared.integers(len(groups))]
        kind = ["sum", "gather", "broadcast", "scatter"][shared.integers(4)]
        elements = int(shared.choice([1, 3, 100, 3000, 9001]))
        base = int(shared.integers(1000))
        if rank not in members:
            continue
        mine = torch.full((elements,), base + rank).npu()
        if kind == "sum":
            dist.all_reduce(mine, group=group)
            equal(mine, torch.full((elements,), sum(base + other for other in members)))
        elif kind == "gather":
            into = torch.empty(len(members) * elements, dtype=torch.int64).npu()
            dist.all_gather_into_tensor(into, mine, group=group)
            equal(into, torch.tensor([base + other for other in members]).repeat_interleave(elements))
        elif kind == "broadcast":
            dist.broadcast(mine, src=members[-1], group=group)
            equal(mine, torch.full((elements,), base + members[-1]))
        else:
            parts = torch.cat([torch.full((elements,), base + rank + i) for i in range(len(members))]).npu()
            dist.reduce_scatter_tensor(mine, parts, group=group)
            equal(mine, torch.full((elements,), sum(base + other + members.index(rank) for other in members)))


def model():
    """A small one with add_custom in it, the same on all ranks."""
    import custom_pypto  # noqa: F401

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(16, 32)
            self.second = torch.nn.Linear(32, 4)
            self.offset = torch.nn.Parameter(torch.zeros(4))

        def forward(self, x):
            y = self.second(torch.relu(self.first(x)))
            return torch.ops.custom_pypto.add_custom(y, self.offset.expand_as(y).contiguous())

    torch.manual_seed(1)
    return Model().npu()


def sharded(model, mesh):
    from torch.distributed.fsdp import fully_shard

    fully_shard(model.first, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.5)


def train(model, optimizer, data, target):
    """The losses of some steps."""
    losses = []
    for _ in range(5):
        loss = ((model(data.npu()) - target.npu()) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def data_of(rank, size, same=False):
    """All of it, and the rank's part."""
    torch.manual_seed(0)
    data, target = torch.randn(8, 16), torch.randn(8, 4)
    mine = slice(None) if same else slice(rank * 8 // size, (rank + 1) * 8 // size)
    return (data, target), (data[mine], target[mine])


def training(rank, size):
    """DDP and FSDP2 train what one rank trains on all of the data: close, as sums have another order; and bitwise equal
    where every rank has all of the data, so that each averages equal gradients."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.nn.parallel import DistributedDataParallel

    mesh = init_device_mesh("npu", (size,))
    for same in False, True:
        everything, mine = data_of(rank, size, same)
        one = model()
        alone = train(one, optimizer_of(one), *everything).cpu()
        assert alone[-1] < 0.8 * alone[0]
        for wrapped in DistributedDataParallel(model(), device_ids=[rank]), sharded(model(), mesh):
            losses = train(wrapped, optimizer_of(wrapped), *mine)
            dist.all_reduce(losses, dist.ReduceOp.AVG)
            if same:
                equal(losses, alone)
            else:
                torch.testing.assert_close(losses.cpu(), alone)

    whole = torch.arange(12.0).reshape(4, 3)
    distributed = distribute_tensor(whole.npu(), mesh, [Shard(0)])
    equal(distributed.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    equal(distributed.sum().full_tensor(), whole.sum())


def state_of(model, optimizer):
    from torch.distributed.checkpoint.state_dict import get_state_dict

    weights, momenta = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": momenta}


def save(rank, size, folder):
    """Trains a sharded model, saves it with its optimizer, and gives the losses of what comes after."""
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import init_device_mesh

    _, mine = data_of(rank, size, same=True)
    trained = sharded(model(), init_device_mesh("npu", (size,)))
    optimizer = optimizer_of(trained)
    train(trained, optimizer, *mine)
    checkpoint.save(state_of(trained, optimizer), checkpoint_id=folder)
    return train(trained, optimizer, *mine).tolist()


def load(rank, size, folder):
    """Goes on from there on so many ranks, in a model that is sharded where they are several."""
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import set_state_dict
    from torch.distributed.device_mesh import init_device_mesh

    _, mine = data_of(rank, size, same=True)
    loaded = model() if size == 1 else sharded(model(), init_device_mesh("npu", (size,)))
    with torch.no_grad():
        for parameter in loaded.parameters():
            parameter.zero_()
    optimizer = optimizer_of(loaded)
    state = state_of(loaded, optimizer)
    checkpoint.load(state, checkpoint_id=folder)
    set_state_dict(loaded, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return train(loaded, optimizer, *mine).tolist()


class Config(ctypes.Structure):
    """The beginning of HcclCommConfig, as a caller of an old header has it."""

    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint32), ("version", ctypes.c_uint32),
                ("reserved", ctypes.c_uint64), ("buffer_size", ctypes.c_uint32), ("deterministic", ctypes.c_uint32),
                ("name", ctypes.c_char * 128)]  # fmt: skip


class WholeConfig(Config):
    _fields_ = [("udi", ctypes.c_char * 128), ("expansion", ctypes.c_uint32), ("traffic", ctypes.c_uint32),
                ("service", ctypes.c_uint32), ("world_rank", ctypes.c_uint32), ("job", ctypes.c_uint64),
                ("zero_copy", ctypes.c_uint8), ("timeout", ctypes.c_int32), ("algorithm", ctypes.c_char * 1600),
                ("retry", ctypes.c_char * 50), ("retry_parameters", ctypes.c_char * 128),
                ("buffer_name", ctypes.c_char * 128), ("qos", ctypes.c_uint32),
                ("window", ctypes.c_uint64)]  # fmt: skip


def parts(rank, size, root_info, transport):
    """Communicators of some of the ranks, with a name; and groups of calls."""
    os.environ["CANN_CPU_HCCL_TRANSPORT"] = transport
    comm = Communicator(rank, size, root_info)
    library, text = comm.library, ctypes.create_string_buffer(128)
    for members in ([0, 2], [2, 1], [0, 2]):
        if rank not in members:
            continue
        part = object.__new__(Communicator)
        part.library, part.handle = library, ctypes.c_void_p()
        config = Config(ctypes.sizeof(Config), 0xF0F0F0F0, 1, 0, 0, 0, f"part {members}".encode())
        ids = (ctypes.c_uint32 * 2)(*members)
        comm.check(library.HcclCreateSubCommConfig(ctypes.byref(comm.handle), 2, ids, ctypes.c_uint64(7),
                                                   members.index(rank), ctypes.byref(config),
                                                   ctypes.byref(part.handle)))  # fmt: skip
        comm.check(library.HcclGetCommName(part.handle, text))
        assert text.value.decode() == f"part {members}"
        number = ctypes.c_uint32(9)
        comm.check(library.HcclGetRankId(part.handle, ctypes.byref(number)))
        assert number.value == members.index(rank)
        data = on_device(np.array([rank + 1], dtype=np.int32))
        part.call("HcclAllReduce", data, data, 1, TYPES["int32"], 0)
        assert from_device(data, np.zeros(1, np.int32))[0] == sum(members) + 2
        part.destroy()

    # All send to all in one group: alone, each call would wait for a later one.
    mine = on_device(np.array([rank], dtype=np.int64))
    room = [on_device(np.array([-1], dtype=np.int64)) for _ in range(size)]
    assert library.HcclGroupStart() == 0
    for other in range(size):
        comm.call("HcclSend", mine, 1, TYPES["int64"], other)
    for other in range(size):
        comm.call("HcclRecv", room[other], 1, TYPES["int64"], other)
    assert library.HcclGroupEnd() == 0
    assert [from_device(one, np.zeros(1, np.int64))[0] for one in room] == list(range(size))
    assert library.HcclGroupEnd() != 0

    # What is rejected at the call.
    for arguments, words in {
        ("HcclAllReduce", mine, mine, 1, 14, 0): "there is no sum of hifloat8",
        ("HcclAllReduce", mine, mine, 1, 99, 0): "dataType is 99, which is not an HcclDataType",
        ("HcclAllReduce", mine, mine, 1, 4, 7): "op is 7; expected 0 to 3",
        ("HcclBroadcast", mine, 1, 4, size): f"root is {size}; the communicator has {size} ranks",
        ("HcclSend", 0, 1, 4, 0): "sendBuf is null",
        ("HcclAlltoAll", mine, 1, 4, mine, 1, 2): "sendType is float32, recvType is int32",
        ("HcclAlltoAll", mine, 1, 5, room[0], 2, 5): "recvCount is 2, sendCount is 1; they must be the same",
        ("HcclAlltoAll", mine, 1, 5, mine, 1, 5): "sendBuf and recvBuf are one buffer",
    }.items():
        try:
            comm.call(*arguments)
        except RuntimeError as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"{arguments[0]} was taken")
    comm.destroy()


def of_table(rank, size, path, config=None):
    comm = object.__new__(Communicator)
    path = os.fsencode(path)
    if config is None:
        comm.make(rank, size, "HcclCommInitClusterInfo", path, rank)
    else:
        comm.make(rank, size, "HcclCommInitClusterInfoConfig", path, rank, ctypes.byref(config))
    return comm


def rank_table(rank, size, path, port, secret):
    """Communicators of a rank table: one, another one beside it, a part of it, and one after them."""
    with variables(HCCL_IF_BASE_PORT=str(port), CANN_CPU_HCCL_SECRET=secret):
        communicators_of_table(rank, size, path)


def communicators_of_table(rank, size, path):
    text = ctypes.create_string_buffer(128)
    first = of_table(rank, size, path)
    second = of_table(rank, size, path, Config(ctypes.sizeof(Config), 0xF0F0F0F0, 1, 0, 0, 0, b"of a table"))
    second.check(second.library.HcclGetCommName(second.handle, text))
    assert text.value == b"of a table"
    assert second.sum_of_ranks() == first.sum_of_ranks() == size * (size + 1) // 2
    if rank > 0:
        part = object.__new__(Communicator)
        ids = (ctypes.c_uint32 * (size - 1))(*range(1, size))
        part.make(rank - 1, size - 1, "HcclCreateSubCommConfig", ctypes.byref(first.handle), size - 1, ids,
                  ctypes.c_uint64(1), rank - 1, None)  # fmt: skip
        assert part.sum_of_ranks() == size * (size - 1) // 2
        part.destroy()
    first.destroy()
    second.destroy()
    third = of_table(rank, size, path)
    assert third.sum_of_ranks() == size * (size + 1) // 2
    third.destroy()


def table_error(rank, size, path, asked=0):
    return error_of(lambda: of_table(asked, size, path))


def table_with_secret(rank, size, path, port, secret):
    with variables(HCCL_IF_BASE_PORT=str(port), CANN_CPU_HCCL_SECRET=secret, HCCL_CONNECT_TIMEOUT="3"):
        return error_of(lambda: of_table(rank, size, path))


def set_transport(rank, size, transport):
    os.environ["CANN_CPU_HCCL_TRANSPORT"] = transport


def sum_once(rank, size, root_info, transport):
    set_transport(rank, size, transport)
    return sum_as(rank, size, root_info, rank)


def sum_as(rank, size, root_info, own):
    comm = Communicator(own, size, root_info)
    found = int(comm.sum_of_ranks())
    comm.destroy()
    return found


staying = []


def sum_of_stay(rank, size, root_info):
    staying.append(Communicator(rank, size, root_info))
    return int(staying[0].sum_of_ranks())


def leave(rank, size):
    staying.pop().destroy()


def init_error(rank, size, root_info):
    return error_of(lambda: Communicator(rank, size, root_info).destroy())


def alone(rank, size, root_info, transport):
    """Makes a communicator to which nobody else comes."""
    set_transport(rank, size, transport)
    with variables(HCCL_CONNECT_TIMEOUT="1"):
        return init_error(rank, size, root_info)


def several_roots(rank, size, root_infos):
    infos = b"".join(root_infos)
    comm = object.__new__(Communicator)
    config = Config(ctypes.sizeof(Config), 0xF0F0F0F0, 1)
    wrong = error_of(lambda: comm.make(rank, size, "HcclCommInitRootInfoScalable", size, size + 1, infos, rank, 0,
                                       ctypes.byref(config)))  # fmt: skip
    assert f"nRoot is {size + 1}; expected 1 to {size} (nRanks)" in wrong, wrong
    comm.make(rank, size, "HcclCommInitRootInfoScalable", size, len(root_infos), infos, rank, size % len(root_infos),
              ctypes.byref(config))  # fmt: skip
    assert comm.sum_of_ranks() == size * (size + 1) // 2
    comm.destroy()


def resumed(rank, size, root_info, transport):
    """A communicator is of use again after an error and after it was suspended, when all ranks resume it."""
    os.environ["CANN_CPU_HCCL_TRANSPORT"] = transport
    comm = Communicator(rank, size, root_info)
    library, expected = comm.library, size * (size + 1) // 2
    room = on_device(np.zeros(2, dtype=np.int32))
    for _ in range(2):
        assert comm.sum_of_ranks() == expected
        comm.call("HcclAllReduce", room, room, 1 + (rank == 1), TYPES["int32"], 0)
        assert "the ranks disagree in the count" in error_of(torch.npu.synchronize)
        assert "the communicator failed before" in error_of(comm.sum_of_ranks)
        comm.check(library.HcclCommResume(comm.handle))
        assert comm.sum_of_ranks() == expected
        if rank < 2:  # messages are counted anew
            comm.call(("HcclSend", "HcclRecv")[rank], room, 1, TYPES["int32"], 1 - rank)
        torch.npu.synchronize()
    comm.check(library.HcclCommSuspend(comm.handle))
    error = ctypes.c_int()
    comm.check(library.HcclGetCommAsyncError(comm.handle, ctypes.byref(error)))
    assert error.value == 22  # HCCL_E_SUSPENDING
    assert "it is suspended, until all ranks call HcclCommResume" in error_of(comm.sum_of_ranks)
    comm.check(library.HcclCommResume(comm.handle))
    assert comm.sum_of_ranks() == expected
    torch.npu.synchronize()

    # A rank that does not resume it is named.
    alone = ""
    if rank == 0:
        os.environ["HCCL_CONNECT_TIMEOUT"] = "1"
        alone = error_of(lambda: comm.check(library.HcclCommResume(comm.handle)))
        os.environ["HCCL_CONNECT_TIMEOUT"] = "60"
    comm.check(library.HcclCommDestroy(comm.handle))
    return alone


def leaves_early(rank, size, root_info, transport, late_root):
    """Rank 0 begins a broadcast and leaves; rank 1 notices it by what it sends, and only then rank 2 comes."""
    os.environ["CANN_CPU_HCCL_TRANSPORT"] = transport
    comm = Communicator(rank, size, root_info)
    count = 1 << 25  # more than a connection takes without a reader
    data = torch.zeros(count, dtype=torch.int8).npu()
    torch.npu.synchronize()
    time.sleep([0, 0, 1][rank])
    comm.call("HcclBroadcast", data, count, TYPES["int8"], late_root if rank == 2 else 1)
    time.sleep([0.3, 0.6, 0.6][rank])
    if rank == 0:
        comm.check(comm.library.HcclCommSuspend(comm.handle))
        comm.check(comm.library.HcclCommDestroy(comm.handle))
    text = error_of(lambda: None)
    if rank > 0:
        comm.check(comm.library.HcclCommDestroy(comm.handle))
    return text


def algorithm_error(rank, size, root_info, text):
    """What a communicator of one rank says of hcclAlgo."""
    config = WholeConfig(ctypes.sizeof(WholeConfig), 0xF0F0F0F0, 10, timeout=-1, algorithm=text.encode())
    comm = object.__new__(Communicator)
    info = ctypes.create_string_buffer(root_info, len(root_info))
    try:
        comm.make(0, 1, "HcclCommInitRootInfoConfig", 1, info, 0, ctypes.byref(config))
    except RuntimeError as error:
        return str(error)
    comm.destroy()
    return ""


def two_devices(rank, size):
    """One process with two ranks."""
    library = ctypes.CDLL(str(LIBRARY))
    handles, devices = (ctypes.c_void_p * 2)(), (ctypes.c_int32 * 2)(0, 1)
    assert library.HcclCommInitAll(2, devices, handles) == 0
    tensors = [torch.full((5000,), float(i + 1), device=f"npu:{i}") for i in range(2)]
    for i in range(2):
        with torch.npu.device(i):
            stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
            data = ctypes.c_void_p(tensors[i].data_ptr())
            code = library.HcclAllReduce(data, data, ctypes.c_uint64(5000), TYPES["float32"], 0,
                                         ctypes.c_void_p(handles[i]), stream)  # fmt: skip
            assert code == 0
    for tensor in tensors:
        equal(tensor, torch.full((5000,), 3.0))
    for handle in handles:
        assert library.HcclCommDestroy(ctypes.c_void_p(handle)) == 0


# What goes wrong: the text of the error that each rank got.
def error_of(action):
    try:
        action()
        torch.npu.synchronize()
    except RuntimeError as error:
        return str(error)
    return ""


def differing(rank, size, what):
    dist.all_reduce(torch.ones(1).npu())
    odd = rank == 1
    actions = {
        "size": lambda: dist.all_reduce(torch.ones(8 if odd else 4).npu()),
        "dtype": lambda: dist.all_reduce(torch.ones(4, dtype=torch.int32 if odd else torch.float32).npu()),
        "reduction": lambda: dist.all_reduce(torch.ones(4).npu(), dist.ReduceOp.MAX if odd else dist.ReduceOp.SUM),
        "root": lambda: dist.broadcast(torch.ones(4).npu(), src=1 if odd else 0),
        "order": lambda: dist.broadcast(torch.ones(4).npu(), 0) if odd else dist.all_reduce(torch.ones(4).npu()),
    }
    first = error_of(actions[what])
    # The group cannot be used any more.
    again = error_of(lambda: dist.all_reduce(torch.ones(1).npu()))
    return first, again


def sizes_of_pairs(rank, size):
    if rank > 1:
        return ""
    return error_of(lambda: dist.send(torch.ones(4).npu(), 1) if rank == 0 else dist.recv(torch.ones(6).npu(), 0))


def absent(rank, size):
    """Rank 1 does not come to the second collective."""
    dist.all_reduce(torch.ones(1).npu())
    torch.npu.synchronize()
    return "" if rank == 1 else error_of(lambda: dist.all_reduce(torch.ones(4).npu()))


def join_and_reduce(rank, size, store, timeout=None):
    join(rank, size, store, timeout)
    dist.all_reduce(torch.ones(1).npu())
    torch.npu.synchronize()


def reduce_then_leave(rank, size):
    text = error_of(lambda: dist.all_reduce(torch.ones(100000).npu()))
    dist.destroy_process_group()
    return text


def die(rank, size):
    os._exit(9)
