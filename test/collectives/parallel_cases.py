# SPDX-License-Identifier: Apache-2.0
"""What the ranks run to divide the operators among them: each makes the whole of it from one seed, computes its part,
and compares what all have made together with what the operator makes of the whole."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from cases import equal, error_of

TEST = Path(__file__).parents[1]
sys.path[:0] = [str(TEST / "support"), str(TEST / "custom_pypto")]

import calls  # noqa: E402
import references  # noqa: E402

import custom_pypto  # noqa: E402
from custom_pypto import parallel  # noqa: E402
from custom_pypto.modes import MODES  # noqa: E402
from custom_pypto.parallel import sharding  # noqa: E402


def integers(*sizes):
    """Few different numbers: many scores are equal, and all are exact."""
    return torch.randint(-1, 2, sizes).float()


# ---- context parallelism

SHAPES = {"heads": 4, "depth": 16, "block_size": 16}
SEQUENCES = {
    "long and short": {"key_lengths": [700, 1, 90], "count": 64},
    "fewer keys than are selected": {"key_lengths": [40, 3], "count": 256},
    "a rank without keys": {"key_lengths": [16, 7], "count": 8, "on_first": True},
    "no keys at all": {"key_lengths": [0, 33], "count": 8},
    "ties": {"key_lengths": [500, 30], "count": 100, "values": integers},
    "equal scores only": {"key_lengths": [300], "count": 70, "values": lambda *sizes: torch.ones(*sizes)},
    "prefill": {"key_lengths": [130, 20], "count": 32, "queries": 20},
    "prefill, packed, ties": {"key_lengths": [130, 64], "count": 32, "queries": 9, "query_lengths": [9, 4],
                              "layout_query": "TND", "values": integers},
    "every query sees all": {"key_lengths": [100, 40], "count": 50, "queries": 3, "sparse_mode": 0},
    "float16, two key heads": {"key_lengths": [200], "count": 20, "dtype": torch.float16, "key_heads": 2},
}  # fmt: skip


def on(device, arguments):
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}


def divided(arguments, caches, rank, size, on_first=False):
    """The arguments with this rank's blocks alone. The blocks of a sequence lie on all ranks, or all on the first."""
    blocks = arguments["key"].shape[0]
    each = blocks if on_first else -(-blocks // size)
    own = {"block_table": parallel.own_blocks(arguments["block_table"], each)}
    for name in caches & arguments.keys():
        part = arguments[name][rank * each : (rank + 1) * each]
        own[name] = torch.cat([part, part.new_full((each - len(part), *part.shape[1:]), 7)])
    return arguments | own


def sequences(key_lengths, count, on_first=False, sparse_mode=3, **shapes):
    """The indexer's and the attention's arguments of the same sequences."""
    indexer = references.lightning_indexer_inputs(key_lengths, **SHAPES | shapes)
    rest = {
        k: v for k, v in indexer.items() if k.startswith(("layout_query", "actual_seq_lengths_query", "block_table"))
    }
    query, key = indexer["query"], indexer["key"]
    attention = rest | {
        "query": torch.randn(*query.shape[:-2], 6, 24).to(query.dtype),
        "key": torch.randn(*key.shape[:-1], 24).to(key.dtype),
        "value": torch.randn(*key.shape[:-1], 16).to(key.dtype),
        "scale_value": 0.3,
        "actual_seq_lengths_kv": indexer["actual_seq_lengths_key"],
        "sparse_mode": sparse_mode,
    }
    return indexer | {"sparse_count": count, "sparse_mode": sparse_mode}, attention


def context(rank, size, seed):
    for name, shapes in SEQUENCES.items():
        torch.manual_seed(seed)
        try:
            one_context(rank, size, **shapes)
        except Exception as error:
            raise AssertionError(f"{name}: {error}") from error


def one_context(rank, size, on_first=False, **shapes):
    indexer, attention = sequences(**shapes)
    whole = custom_pypto.npu_lightning_indexer_pto(**on("npu", indexer))
    mine = on("npu", divided(indexer, {"key"}, rank, size, on_first))
    selected, scores = parallel.lightning_indexer(**mine, return_value=True)
    assert selected.dtype == torch.int32 and torch.equal(selected.cpu(), whole.cpu()), (
        "other keys than one rank selects"
    )
    equal(parallel.lightning_indexer(**mine), selected.cpu())
    exact = {"weights": indexer["weights"].float(), "return_value": True}
    equal(scores, custom_pypto.npu_lightning_indexer_pto(**on("npu", indexer | exact))[1].cpu())
    if rank == 0:
        judged = {name: value for name, value in indexer.items() if name != "sparse_count"}
        references.check_lightning_indexer(selected.cpu(), **judged, values=scores.cpu())

    attention |= {"sparse_indices": selected.cpu()}
    for sinks in None, torch.randn(attention["query"].shape[-2]):
        check_attention(rank, size, attention | {"attention_sinks": sinks}, on_first)


def check_attention(rank, size, attention, on_first):
    """Compares with the reference, within the rounding of each part and of the result."""
    mine = divided(attention, {"key", "value"}, rank, size, on_first)
    out, lse = parallel.sparse_flash_attention(**on("npu", mine), return_softmax_lse=True)
    equal(parallel.sparse_flash_attention(**on("npu", mine)), out.cpu())
    everyones = [torch.empty_like(out) for _ in range(size)]
    dist.all_gather(everyones, out)
    assert all(torch.equal(one.view(torch.int16), out.view(torch.int16)) for one in everyones), "other bits elsewhere"
    expected, expected_lse = references.sparse_flash_attention(**attention, return_softmax_lse=True)
    references.check_softmax_lse(lse.cpu(), expected_lse)
    part, part_lse = references.sparse_flash_attention(
        **mine | {"attention_sinks": attention["attention_sinks"] if rank == 0 else None}, return_softmax_lse=True
    )
    share = (part_lse - expected_lse).exp().nan_to_num()[..., None]
    parts = (part * share).abs().float().npu()
    dist.all_reduce(parts)
    half = torch.finfo(out.dtype).eps / 2
    bound = half * (parts.cpu().double() + expected.abs()) * 1.02 + 1e-4
    assert ((out.cpu().double() - expected).abs() <= bound).all(), (out.cpu().double() - expected).abs().max()


def attention_as_large_as_the_model_s(rank, size):
    """Results of many tokens are small beside what the operator's tolerance allows, and within it."""
    torch.manual_seed(3)
    shapes = {"count": 2048, "heads": 4, "depth": 64, "rope_depth": 16}
    arguments = references.sparse_flash_attention_inputs([3000, 2100], **shapes)
    mine = divided(arguments, {"key", "value", "key_rope"}, rank, size)
    out = parallel.sparse_flash_attention(**on("npu", mine))
    scattered = parallel.sparse_flash_attention(**on("npu", mine), scatter_heads=True)
    equal(scattered, out.chunk(size, -2)[rank].cpu())
    references.check_attention(out.cpu(), references.sparse_flash_attention(**arguments))


def quantised(rank, size):
    torch.manual_seed(5)
    for key_lengths in [400, 90], [5, 40]:
        arguments = references.lightning_indexer_quant_inputs(key_lengths, queries=2, **SHAPES) | {"sparse_count": 50}
        whole = custom_pypto.npu_lightning_indexer_quant_pto(**on("npu", arguments))
        mine = divided(arguments, {"key", "key_dequant_scale"}, rank, size)
        equal(parallel.lightning_indexer_quant(**on("npu", mine)), whole.cpu())


def written(rank, size):
    """Each rank writes the tokens whose slots are its own."""
    torch.manual_seed(6)
    arguments = references.reshape_and_cache_inputs(9, cache=(2 * size, 8), keys_only=True)
    mine = slice(2 * rank, 2 * rank + 2)
    cache = arguments["key_cache"][mine].npu()
    slots = parallel.own_slots(arguments["slot_mapping"], 2, 8).npu()
    custom_pypto.reshape_and_cache(arguments["key"].npu(), key_cache=cache, slot_mapping=slots)
    equal(cache, references.reshape_and_cache(**arguments)[0][mine])


def merged_rows(rank, size, seed, rows):
    """Selections of every kind against the rule itself: by score, NaN first, and of equal scores by position."""
    shared = torch.Generator().manual_seed(seed)
    count, keys = 7, 30
    kinds = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, torch.inf, -torch.inf, torch.nan])
    scores = kinds[torch.randint(len(kinds), (rows, keys), generator=shared)]
    owner = torch.randint(size + 1, (rows, keys), generator=shared)  # the last is nobody

    def best(row, mask):
        key = scores[row].nan_to_num(nan=torch.inf, posinf=3e38, neginf=-3e38)
        order = sorted(torch.nonzero(mask).flatten().tolist(), key=lambda i: (-key[i].item(), i))[:count]
        positions = torch.tensor(order + [-1] * (count - len(order)), dtype=torch.int32)
        return positions, torch.where(positions < 0, -torch.inf, scores[row][positions])

    mine = [best(row, owner[row] == rank) for row in range(rows)]
    expected = [best(row, owner[row] < size) for row in range(rows)]
    positions, values = parallel.merge_selections(*(torch.stack(each).npu() for each in zip(*mine, strict=True)))
    equal(positions, torch.stack([each for each, _ in expected]))
    torch.testing.assert_close(
        values.cpu(), torch.stack([each for _, each in expected]), rtol=0, atol=0, equal_nan=True
    )


def rejected(rank, size):
    texts = []
    for call in (
        lambda: parallel.merge_selections(torch.zeros(1, dtype=torch.int32).npu(), torch.zeros(1).bfloat16().npu()),
        lambda: parallel.merge_attentions(torch.zeros(3, 4).bfloat16().npu(), torch.zeros(3).npu(), scatter_heads=True),
    ):
        try:
            call()
        except (TypeError, ValueError) as error:
            texts.append(str(error))
    return texts


def in_graphs(rank, size, mode):
    torch.manual_seed(7)
    indexer, attention = sequences([300, 60], 32, queries=2)
    indexer = on("npu", divided(indexer, {"key"}, rank, size))
    attention = on("npu", divided(attention, {"key", "value"}, rank, size))

    def step(query, attention_query):
        selected = parallel.lightning_indexer(**indexer | {"query": query})
        return selected, parallel.sparse_flash_attention(
            **attention | {"query": attention_query, "sparse_indices": selected}, scatter_heads=True
        )

    graph = MODES[mode](step)
    for _ in range(3):
        queries = torch.randn_like(indexer["query"]), torch.randn_like(attention["query"])
        for query in queries:
            dist.broadcast(query, 0)
        for ours, eager in zip(graph(*queries), step(*queries), strict=True):
            equal(ours, eager.cpu())
    torch._dynamo.reset()


# ---- DTensor


def distributed(operator, arguments, sizes, mesh):
    """The arguments as DTensors, sharded by these sizes."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    op = overload(operator, arguments)
    described = tuple(
        (each.name, sharding._described(arguments.get(each.name, each.default_value))) for each in op._schema.arguments
    )
    rows = sharding._rows(op, described)
    result = {}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            names = [each.split(" * ")[0] for each in rows[name].names] if name in rows else []
            placement = next((Shard(i) for i, each in enumerate(names) if each in sizes), Replicate())
            value = distribute_tensor(value.npu(), mesh, [placement], src_data_rank=None)
        result[name] = value
    return op, result


def overload(operator, arguments):
    if operator == "reshape_and_cache":
        return getattr(
            torch.ops.custom_pypto.reshape_and_cache, "key" if arguments.get("value") is None else "key_value"
        )
    return calls.overload(operator, arguments)


# What the samples of the operators leave out: heads that two ranks divide, slots in rows.
MORE = {
    ("npu_sparse_attention_pto", "even heads"): lambda: references.sparse_attention_inputs(
        [20, 3], **{"hidden": 56, "q_lora": 40, "heads": 6, "depth": 12, "rope_depth": 10, "kv_lora": 24},
        **{"index_heads": 7, "index_depth": 16, "count": 9, "block_size": 8},
    ),
    ("npu_sparse_flash_attention_pto", "one key head"): lambda: references.sparse_flash_attention_inputs(
        [20, 9], count=7, heads=6, depth=16, rope_depth=4, block_size=8
    ),
    ("reshape_and_cache", "even heads"): lambda: references.reshape_and_cache_inputs(5, heads=4, cache=(6, 8)),
    ("reshape_and_cache", "slots of sequences"): lambda: slots_in_rows(),
}  # fmt: skip


def slots_in_rows():
    arguments = references.reshape_and_cache_inputs((2, 3), cache=(6, 8))
    return arguments | {"slot_mapping": arguments["slot_mapping"].view(2, 3)}


def same(found, expected):
    torch.testing.assert_close(found.cpu(), expected.cpu(), rtol=0, atol=0, equal_nan=True)


def compare(operator, call, arguments, sizes, mesh):
    """A call with DTensors, against the operator on the whole tensors: results, placements and what is written."""
    from torch.distributed.tensor import Shard

    what = f"{operator}, {call}, by {'+'.join(sorted(sizes))}"
    op, given = distributed(operator, arguments, sizes, mesh)
    whole = on("npu", arguments)
    try:
        expected, results = (calls.results(op(**each)) for each in (whole, given))
        for found, want in zip(results, expected, strict=True):
            merged = operator == "npu_sparse_flash_attention_pto" and "blocks" in sizes and "B" not in sizes
            if merged and found.is_floating_point():
                rounding = 2 * torch.finfo(torch.bfloat16).eps if found.dtype == torch.bfloat16 else 1e-5
                torch.testing.assert_close(found.full_tensor().cpu(), want.cpu(), rtol=rounding, atol=rounding)
            else:
                same(found.full_tensor(), want)
            assert found.dtype == want.dtype and found.shape == want.shape
        for name in [each for each in calls.caches_of(operator) if each in arguments]:
            same(given[name].full_tensor(), whole[name])
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    inputs = any(isinstance(p, Shard) for g in given.values() if hasattr(g, "placements") for p in g.placements)
    results_sharded = any(isinstance(p, Shard) for result in results for p in result.placements)
    return inputs, results_sharded


SLOTS = {"npu_lightning_indexer_prolog_pto": "idx_k_cache_index", "npu_sparse_attention_pto": "cache_index",
         "reshape_and_cache": "slot_mapping"}  # fmt: skip
CACHES = {"npu_lightning_indexer_prolog_pto": "idx_k_cache", "npu_sparse_attention_pto": "kv_cache",
          "reshape_and_cache": "key_cache"}  # fmt: skip


def in_own_blocks(operator, arguments):
    """The arguments with the blocks of a sequence and the slots of a token on the rank, of two, that has it."""
    cache, changed = arguments[CACHES.get(operator, "key")], {}
    blocks = -(-len(cache) // 2)  # of the first rank

    def of_ranks(count):
        return torch.arange(count, dtype=torch.int32) // -(-count // 2)

    if "block_table" in arguments:
        table = arguments["block_table"]
        own = table % (len(cache) - blocks) + of_ranks(len(table))[:, None] * blocks
        changed["block_table"] = torch.where(table < 0, table, own)
    if operator in SLOTS:
        slots = arguments[SLOTS[operator]]
        block_size = cache.shape[2 if arguments.get("cache_layout") == "NZ" else 1]
        first = of_ranks(len(slots)).view(-1, *[1] * (slots.dim() - 1)) * blocks * block_size
        room = torch.randperm((len(cache) - blocks) * block_size)[: slots.numel()].view_as(slots)
        changed[SLOTS[operator]] = (first + room).to(slots.dtype)
    return arguments | changed


def divisions(rank, size):
    """Every operator, every call of its samples that a division fits, by every division."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh, made = init_device_mesh("npu", (size,)), {}
    every = {(operator, call): calls.CALLS[operator][call] for operator, call in calls.EVERY_CALL} | MORE
    for (operator, call), make in every.items():
        torch.manual_seed(8)
        arguments = make()
        op = overload(operator, arguments)
        arguments = {name: value for name, value in arguments.items() if name in {a.name for a in op._schema.arguments}}
        for division in sharding.DIVISIONS[operator]:
            if not fits(op, arguments, division, size, mesh):
                continue
            torch.manual_seed(8)
            given = in_own_blocks(operator, arguments) if division.asked else arguments
            given = {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in given.items()}
            compare(operator, call, given, division.sizes, mesh)
            made.setdefault((operator, "+".join(sorted(division.sizes))), []).append(call)
    return made


def fits(op, arguments, division, size, mesh):
    """Whether the samples' sizes, some odd and some zero, can be divided so."""
    described = tuple(
        (a.name, sharding._described(arguments.get(a.name, a.default_value))) for a in op._schema.arguments
    )
    rows = sharding._rows(op, described)
    given = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    named = {each.split(" * ")[0] for name in given if name in rows for each in rows[name].names}
    if not division.sizes <= named:
        return False
    _, whole = distributed(op._schema.name.split("::")[1], arguments, set(), mesh)
    defaults = {a.name: a.default_value for a in op._schema.arguments}
    call = sharding.Call(op, mesh, defaults | whole, rows)
    heads = {"N", "Nv", "N1", "N2"} & division.sizes
    return division.when(call) and all(call.size(each) % size == 0 for each in heads)


def add_custom(rank, size):
    """By every dimension, with broadcasting, with gradients, of partial sums, in a compiled function, on a mesh of two
    dimensions."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("npu", (size,))
    x, y = torch.arange(12.0).view(3, 4), torch.arange(4.0)
    add = torch.ops.custom_pypto.add_custom
    for placements, expected in (([Shard(0)], Shard(0)), ([Shard(1)], Shard(1)), ([Replicate()], Replicate())):
        left = distribute_tensor(x.npu(), mesh, placements).requires_grad_()
        right = distribute_tensor(y.npu(), mesh, [Replicate()]).requires_grad_()
        out = add(left, right)
        assert out.placements == (expected,)
        same(out.full_tensor(), x + y)
        (out * out).sum().backward()
        same(left.grad.full_tensor(), 2 * (x + y))
        same(right.grad.full_tensor(), 2 * (x + y).sum(0))
        compiled = torch.compile(lambda a, b: add(a, b) * 2, backend="aot_eager", fullgraph=True)
        same(compiled(left.detach(), right.detach()).full_tensor(), 2 * (x + y))
    partial = DTensor.from_local(torch.full((3, 4), float(rank)).npu(), mesh, [Partial()])
    same(add(partial, distribute_tensor(x.npu(), mesh, [Shard(0)])).full_tensor(), x + sum(range(size)))


def two_dimensions(rank, size):
    """Sequences over one dimension of the mesh, heads over the other."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("data", "heads"))
    torch.manual_seed(9)
    arguments = calls.arguments_of("npu_sparse_flash_attention_pto", "BSND on PA_BSND", "cpu")
    placed = {
        "query": (Shard(0), Shard(2)),
        "key": (Replicate(), Shard(2)),
    }
    given = {
        name: distribute_tensor(value.npu(), mesh, placed.get(name, (Replicate(), Replicate())))
        if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }  # fmt: skip
    out = torch.ops.custom_pypto.npu_sparse_flash_attention_pto(**given)
    assert out.placements == (Shard(0), Shard(2))
    same(out.full_tensor(), torch.ops.custom_pypto.npu_sparse_flash_attention_pto(**on("npu", arguments)))


def rejections(rank, size):
    """The texts of what cannot be divided."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("npu", (size,))

    def text(operator, call, **placements):
        torch.manual_seed(8)
        arguments = calls.arguments_of(operator, call, "cpu")
        op = overload(operator, arguments)
        names = {a.name for a in op._schema.arguments}
        arguments = {name: value for name, value in arguments.items() if name in names}
        given = {
            name: distribute_tensor(value.npu(), mesh, [Shard(placements[name]) if name in placements else Replicate()])
            if isinstance(value, torch.Tensor) and placements.get(name) != "plain" else
            value.npu() if isinstance(value, torch.Tensor) else value
            for name, value in arguments.items()
        }  # fmt: skip
        return error_of(lambda: op(**given))

    indexer, attention = "npu_lightning_indexer_pto", "npu_sparse_flash_attention_pto"
    return {
        "depth": text(indexer, "BSND on PA_BSND", query=3),
        "packed": text(indexer, "TND on TND", query=0),
        "running totals": text(attention, "TND on PA_BSND", block_table=0),
        "tokens to whole caches": text("reshape_and_cache", first_call("reshape_and_cache"), slot_mapping=0),
        "scaled": text(
            "npu_lightning_indexer_prolog_pto", first_call("npu_lightning_indexer_prolog_pto"), weights_proj=1
        ),
        "both": text(attention, "BSND on PA_BSND", query=0, sparse_indices=1),
        "fused blocks": text("npu_sparse_attention_pto", first_call("npu_sparse_attention_pto"), kv_cache=0),
        "fused tokens": text("npu_sparse_attention_pto", first_call("npu_sparse_attention_pto"), x=0),
        "plain": text(attention, "BSND on PA_BSND", block_table="plain"),
        "elsewhere": text(indexer, "BSND on PA_BSND", query=0, key=0),
    }


def first_call(operator):
    return next(iter(calls.CALLS[operator]))


def example(rank, size):
    """examples/parallel_decode.py at small sizes: its exit code, and that where it finds a fault."""
    sys.path.insert(0, str(TEST.parent / "examples"))
    import parallel_decode as example

    small = {"hidden": 96, "q_lora": 64, "kv_lora": 64, "heads": 4, "depth": 32, "rope_depth": 16, "index_heads": 4}
    sizes = example.Sizes(**small, index_depth=32, top=32, page=16, vocabulary=64)

    def run():
        with torch.no_grad():
            return example.decode_in_every_way(sizes, [64, 100, 33, 5], 2, list(example.costs.WAYS), "eager")

    good = run()
    example.EQUAL_LOGITS = -1.0  # not even the same tokens are good enough
    return good, run()
