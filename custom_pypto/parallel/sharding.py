# SPDX-License-Identifier: Apache-2.0
"""Shards the operators for DTensors, by a table of the sizes by which each may be divided.

The operator's table of arguments (csrc/arguments) specifies which argument has which size in which dimension, so a
division needs only the names of sizes. The result of a call equals that of the whole tensors. Sharded tensors stay
sharded: placements of a call that are no division of the operator are rejected and not silently gathered. Replicated
tensors are divided as the others require, which costs nothing, and partial sums are reduced first.
"""

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.library import register_torch_dispatch
from torch.utils._python_dispatch import _disable_current_modes

from ..arguments import Row, checked
from . import context

NOWHERE = 2**31 - 1  # the number of a block that no rank has, which the kernels reject


@dataclass
class Call:
    """A call of an operator with DTensors; `own` are the arguments of this rank."""

    op: torch._ops.OpOverload
    mesh: DeviceMesh
    arguments: dict[str, Any]
    rows: dict[str, Row]
    own: dict[str, Any] = field(default_factory=dict)

    def reject(self, argument: str, what: str) -> NoReturn:
        raise RuntimeError(f"{self.op._schema.name}: '{argument}' {what}")

    def tensors(self) -> list[tuple[str, DTensor]]:
        return [(name, value) for name, value in self.arguments.items() if isinstance(value, DTensor)]

    def sizes_of(self, argument: str) -> list[str]:
        """What its dimensions may be divided by: of columns that are N heads of D the heads, which come first, and of a
        size that is T or less T, where it is no less."""
        names = []
        for i, name in enumerate(self.rows[argument].names):
            most = name.removesuffix(" or less")
            less = most != name and self.arguments[argument].shape[i] != self.size(most)
            names.append(name if less else most.split(" * ")[0])
        return names

    def has(self, size: str, *arguments: str) -> bool:
        return all(size in self.sizes_of(name) for name in arguments if name in self.rows)

    def size(self, name: str) -> int:
        """The size in the whole tensors."""
        for argument, tensor in self.tensors():
            if name in self.rows[argument].names:
                return int(tensor.shape[self.rows[argument].names.index(name)])
        return 0

    def part(self, name: str, dim: int) -> tuple[int, int]:
        """Where this rank's part of a size begins that is sharded over a dimension of the mesh, and how long it is."""
        size, chunk = self.size(name), -(-self.size(name) // self.mesh.size(dim))
        first = min(self.mesh.get_local_rank(dim) * chunk, size)
        return first, min(chunk, size - first)


@dataclass(frozen=True)
class Division:
    """A way to divide an operator: all of its tensors by their sizes of these names."""

    sizes: frozenset[str]
    asked: frozenset[str] = frozenset()
    """The sizes that a call must have sharded. The others are then also divided."""
    when: Callable[[Call], bool] = lambda call: True
    adapt: Callable[[Call, int], None] = lambda call, dim: None
    """Changes the rank's arguments to what they mean there, for a dimension of the mesh."""
    run: Callable[[Call, dist.ProcessGroup], Any] | None = None
    """Computes the result, where it takes an exchange; otherwise the operator does."""

    def fits(self, call: Call, sharded: Collection[str]) -> bool:
        return self.asked <= {*sharded} <= self.sizes and self.when(call)


# ---- what a division changes beside the shapes


def heads(call: Call, dim: int) -> None:
    """Heads of queries must stay with those of keys, and the columns of a head together."""
    ranks = call.mesh.size(dim)
    for argument, _ in call.tensors():
        for size in {"N", "Nv", "N1", "N2"} & {*call.sizes_of(argument)}:
            if call.size(size) % ranks and (size, call.size(size)) != ("N2", 1):
                call.reject(argument, f"must have heads that {ranks} ranks divide, but {size} is {call.size(size)}")


def tokens(size: str, key_lengths: str) -> Callable[[Call, int], None]:
    """The rank's last query token need not be the last one of its sequence: then it sees fewer keys."""

    def adapt(call: Call, dim: int) -> None:
        first, count = call.part(size, dim)
        ends, keys, key = (call.own.get(name) for name in ("actual_seq_lengths_query", key_lengths, "key"))
        if ends is not None:
            call.own["actual_seq_lengths_query"] = (ends - first).clamp(0, count)
        if call.own["sparse_mode"] == 3:
            missing = (call.size(size) if ends is None else ends) - (first + count)
            missing = max(missing, 0) if ends is None else missing.clamp(min=0)
            if keys is None:
                keys = torch.full((key.shape[0],), key.shape[1], dtype=torch.int32, device=key.device)
            call.own[key_lengths] = (keys - missing).clamp(min=0)

    return adapt


def blocks(numbers: Sequence[str], slots: Sequence[str], elsewhere: int) -> Callable[[Call, int], None]:
    """Numbers of blocks and of slots are those in the caches of all ranks, and become those in the rank's own."""

    def adapt(call: Call, dim: int) -> None:
        first, count = call.part("blocks", dim)
        for names, unit in (numbers, 1), (slots, call.size("block_size")):
            for name in names:
                call.own[name] = context.own(call.own[name], first * unit, count * unit, elsewhere)

    return adapt


def rows_of_sequences(call: Call, dim: int) -> None:
    _, rows = call.part("num_seqs", dim)
    call.own |= {"num_seqs": rows, "num_queries": rows}


# ---- what takes an exchange


def select(indexer: Callable, *positional: str) -> Callable[[Call, dist.ProcessGroup], Any]:
    def run(call: Call, group: dist.ProcessGroup) -> Any:
        own = dict(call.own)
        wanted = own.pop("return_value", None)
        dtype = own["weights"].dtype if own["query"].is_floating_point() else torch.float32
        first = [own.pop(name) for name in positional]
        indices, values = indexer(*first, group=group, return_value=True, **own)
        return (
            indices if wanted is None else (indices, values.to(dtype) if wanted else values.new_empty(0, dtype=dtype))
        )

    return run


def attend(call: Call, group: dist.ProcessGroup) -> Any:
    own = dict(call.own)
    wanted = own.pop("return_softmax_lse", None)
    out, lse = context.sparse_flash_attention(group=group, return_softmax_lse=True, **own)
    return out if wanted is None else (out, lse if wanted else lse.new_empty(0))


# ---- the table


def padded(call: Call) -> bool:
    return call.arguments.get("layout_query", "BSND") == "BSND"


def reading(key_lengths: str, run: Callable, *more: Division) -> list[Division]:
    """What the indexers and the attention have in common."""
    table = ["block_table"]
    return [
        Division(frozenset({"B"}), when=padded),
        Division(frozenset({"S1"}), adapt=tokens("S1", key_lengths)),
        Division(frozenset({"T"}), when=lambda call: call.has("blocks", "key"), adapt=tokens("T", key_lengths)),
        Division(frozenset({"N1", "N2"}), when=lambda call: call.size("N2") > 1, adapt=heads),
        Division(frozenset({"blocks"}), adapt=blocks(table, [], -1), run=run),
        Division(frozenset({"B", "blocks"}), frozenset({"B"}), when=padded, adapt=blocks(table, [], NOWHERE)),
        *more,
    ]


def writing(tokens: Sequence[str], rows: str, numbers: Sequence[str], slots: Sequence[str]) -> list[Division]:
    """The divisions of an operator that writes to caches: each rank has some blocks, or the blocks of its tokens."""
    return [
        Division(frozenset({size, "blocks"}), frozenset({size}), adapt=blocks(numbers, slots, NOWHERE),
                 when=lambda call, size=size: call.has(size, rows, *numbers, *slots))
        for size in tokens
    ]  # fmt: skip


INDEXER = ("query", "key", "weights")
SCALES = ("query_dequant_scale", "key_dequant_scale")
ONE_HEAD = Division(frozenset({"N1"}), when=lambda call: call.size("N2") == 1, adapt=heads)
IN_CACHE = {
    size: Division(frozenset({size}), when=lambda call, of=(size, *both): call.has(*of), adapt=heads)
    for size, both in (("N", ("key", "key_cache")), ("Nv", ("value", "value_cache")))
}
BOTH_IN_CACHE = Division(
    frozenset({"N", "Nv"}), when=lambda call: all(each.when(call) for each in IN_CACHE.values()), adapt=heads
)

DIVISIONS: dict[str, list[Division]] = {
    "npu_lightning_indexer_pto": reading("actual_seq_lengths_key", select(context.lightning_indexer, *INDEXER)),
    "npu_lightning_indexer_quant_pto": reading(
        "actual_seq_lengths_key", select(context.lightning_indexer_quant, *INDEXER, *SCALES)
    ),
    "npu_sparse_flash_attention_pto": reading("actual_seq_lengths_kv", attend, ONE_HEAD),
    "npu_lightning_indexer_prolog_pto": [
        Division(frozenset({"blocks"}), adapt=blocks([], ["idx_k_cache_index"], -1)),
        *writing(["T", "B"], "token_x", [], ["idx_k_cache_index"]),
    ],
    "npu_sparse_attention_pto": [
        Division(frozenset({"N"}), adapt=heads),
        *writing(["B"], "x", ["block_table"], ["cache_index"]),
    ],
    "reshape_and_cache": [
        Division(frozenset({"blocks"}), adapt=blocks([], ["slot_mapping"], -1)),
        *writing(["T", "B"], "key", [], ["slot_mapping"]),
        *IN_CACHE.values(),
        BOTH_IN_CACHE,
    ],
    "advance_step_flashattn": [
        Division(
            frozenset({"num_seqs", "num_queries"}),
            when=lambda call: call.arguments["num_seqs"] == call.arguments["num_queries"],
            adapt=rows_of_sequences,
        )
    ],
    "add_custom": [Division(frozenset({f"d{i}"})) for i in range(1, 65)],
    "add_custom_backward": [Division(frozenset({f"d{i}"})) for i in range(1, 65)],
}
"""By which sizes, as its table of arguments names them, each operator may be divided."""

_ALL_TOKENS = (
    "what the tokens of other ranks write would be missing in the rank's caches; also shard the caches by blocks"
)
_RUNNING = "the lengths of packed sequences are running totals, which cannot be cut; give them in layout 'BSND'"
REASONS = {
    ("npu_lightning_indexer_pto", "N1"): "the score of a key is a sum over the heads that share it",
    ("npu_lightning_indexer_quant_pto", "N1"): "the score of a key is a sum over the heads that share it",
    ("npu_lightning_indexer_pto", "T"): _RUNNING,
    ("npu_lightning_indexer_quant_pto", "T"): _RUNNING,
    ("npu_sparse_flash_attention_pto", "T"): _RUNNING,
    ("npu_lightning_indexer_pto", "B"): _RUNNING,
    ("npu_lightning_indexer_quant_pto", "B"): _RUNNING,
    ("npu_sparse_flash_attention_pto", "B"): _RUNNING,
    ("npu_lightning_indexer_prolog_pto", "N"): "the weights are scaled with the number of heads",
    ("npu_sparse_attention_pto", "blocks"): "it selects and attends in one; call the operators that it consists of",
    ("advance_step_flashattn", "num_seqs"): "its rows of padding follow those of all sequences",
}
"""Why an operator cannot be divided by a size. Errors about written arguments explain themselves."""


def why_not(call: Call, size: str) -> str:
    operator = call.op._schema.name.split("::")[1]
    reason = REASONS.get((operator, size))
    if reason is None and size in ("T", "B", "S1", "S") and any(row.use == "written" for row in call.rows.values()):
        reason = _ALL_TOKENS
    ways = ", ".join(dict.fromkeys("+".join(sorted(each.sizes)) for each in DIVISIONS[operator]))
    return reason or f"the operator may be divided by {ways}"


# ---- a call


def dispatch(cls: type, op: torch._ops.OpOverload, types: Sequence[type], args: tuple, kwargs: dict | None) -> Any:
    """What DTensor does with a call of an operator."""
    with torch.no_grad():  # which is above
        call = _call(op, args, kwargs or {})
        divisions = [_division(call, dim) for dim in range(call.mesh.ndim)]
        for name, value in call.arguments.items():
            call.own[name] = _own(call, name, value, divisions) if isinstance(value, DTensor) else value
        run = None
        for dim, division in enumerate(divisions):
            if division is not None:
                division.adapt(call, dim)
                run = functools.partial(division.run, group=call.mesh.get_group(dim)) if division.run else run
        results = run(call) if run else op(**call.own)
        return _whole(call, divisions, results)


def _call(op: torch._ops.OpOverload, args: tuple, kwargs: dict) -> Call:
    schema = op._schema.arguments
    arguments = {each.name: each.default_value for each in schema if each.has_default_value()}
    arguments |= dict(zip((each.name for each in schema), args, strict=False)) | kwargs
    arguments = {each.name: arguments[each.name] for each in schema}
    mesh = next(value.device_mesh for value in arguments.values() if isinstance(value, DTensor))
    call = Call(op, mesh, arguments, {})
    for name, value in arguments.items():
        if isinstance(value, DTensor) and value.device_mesh != mesh:
            call.reject(name, f"must be on the mesh of the others, {mesh}, but is on {value.device_mesh}")
        if isinstance(value, Tensor) and not isinstance(value, DTensor) and value.dim():
            call.reject(name, "must be a DTensor, as the others are, but is a tensor; make it one, of Replicate()")
    call.rows = _rows(op, tuple((name, _described(value)) for name, value in arguments.items()))
    return call


@dataclass(frozen=True)
class _Shape:
    sizes: tuple[int, ...]
    dtype: torch.dtype


def _described(value: Any) -> Any:
    return _Shape(tuple(map(int, value.shape)), value.dtype) if isinstance(value, Tensor) else value


@functools.lru_cache(maxsize=1024)
def _rows(op: torch._ops.OpOverload, arguments: tuple) -> dict[str, Row]:
    """The table of arguments of a call; dimensions that broadcast, which it does not name, count from the last."""
    with _disable_current_modes():
        meta = {
            name: torch.empty(value.sizes, dtype=value.dtype, device="meta") if isinstance(value, _Shape) else value
            for name, value in arguments
        }
        results: list[Any] = []
        rows = checked(lambda: results.append(op(**meta)))
    if op._schema.name not in ("custom_pypto::add_custom", "custom_pypto::add_custom_backward"):
        return rows
    shapes = {name: value for name, value in meta.items() if isinstance(value, Tensor)}
    made = results[0] if isinstance(results[0], tuple) else (results[0],)
    whole = made[0].shape

    def names(tensor: Tensor) -> tuple[str, ...]:
        ends = range(tensor.dim(), 0, -1)
        return tuple(f"d{i}" if tensor.shape[-i] == whole[-i] else "1" for i in ends)

    return {name: Row(name, "read", (), names(tensor)) for name, tensor in shapes.items()} | {
        f"result {i}": Row(f"result {i}", "result", (), names(tensor)) for i, tensor in enumerate(made)
    }


def _division(call: Call, dim: int) -> Division | None:
    """The least that divides what is sharded over a dimension of the mesh; None where nothing is."""
    sharded: dict[str, tuple[str, Placement]] = {}
    for name, tensor in call.tensors():
        placement = tensor.placements[dim]
        if type(placement) is Shard:
            sharded.setdefault(call.sizes_of(name)[placement.dim], (name, placement))
        elif not isinstance(placement, Partial | Replicate):
            call.reject(name, f"must be Shard, Replicate or Partial, but is {placement!r} over mesh dimension {dim}")
    if not sharded:
        return None
    operator = call.op._schema.name.split("::")[1]
    fits = [each for each in DIVISIONS[operator] if each.fits(call, sharded)]
    if not fits:
        alone = [size for size in sharded if not any(each.fits(call, {size}) for each in DIVISIONS[operator])]
        size = (alone or [*sharded])[0]
        name, placement = sharded[size]
        beside = "".join(f", beside '{other}' by its {what}" for what, (other, _) in sharded.items() if what != size)
        call.reject(name, f"is {placement!r} over mesh dimension {dim}, by its {size}{beside}: {why_not(call, size)}")
    return min(fits, key=lambda each: len(each.sizes))


def _placements(call: Call, name: str, divisions: Sequence[Division | None]) -> list[Placement]:
    sizes = call.sizes_of(name)
    return [
        next((Shard(i) for i, size in enumerate(sizes) if division is not None and size in division.sizes), Replicate())
        for division in divisions
    ]


def _own(call: Call, name: str, value: DTensor, divisions: Sequence[Division | None]) -> Tensor:
    placements = _placements(call, name, divisions)
    if len(shards := [each for each in placements if isinstance(each, Shard)]) != len({*shards}):
        call.reject(name, f"is sharded by one size over two dimensions of the mesh: {value.placements}")
    if call.rows[name].use == "written" and tuple(placements) != tuple(value.placements):
        dim = next(i for i, each in enumerate(placements) if each != value.placements[i])
        size = next(iter(sorted(divisions[dim].sizes))) if divisions[dim] else ""
        reason = f": {why_not(call, size)}" if size else ""
        call.reject(name, f"is written, and must be {placements[dim]!r} over mesh dimension {dim} as the others are"
                          f" placed, but is {value.placements[dim]!r}{reason}")  # fmt: skip
    return value.redistribute(call.mesh, placements).to_local()


def _whole(call: Call, divisions: Sequence[Division | None], results: Any) -> Any:
    rows = [name for name, row in call.rows.items() if row.use == "result"]

    def whole(name: str, own: Tensor) -> DTensor:
        placements = _placements(call, name, divisions)
        sizes = list(own.shape)
        for each in placements:
            if isinstance(each, Shard):
                sizes[each.dim] = call.size(call.rows[name].names[each.dim])
        stride = torch.empty(sizes, device="meta").stride()
        return DTensor.from_local(own, call.mesh, placements, run_check=False, shape=torch.Size(sizes), stride=stride)

    if results is None or results == ():
        return None
    if isinstance(results, Tensor):
        return whole(rows[0], results)
    return tuple(whole(name, own) for name, own in zip(rows, results, strict=True))


for _operator in DIVISIONS:
    _packet = getattr(torch.ops.custom_pypto, _operator)
    for _overload in _packet.overloads():
        _op = getattr(_packet, _overload)
        if not _op.has_kernel_for_dispatch_key(torch.DispatchKey.CompositeImplicitAutograd):
            register_torch_dispatch(_op._name.removesuffix(".default"), DTensor, dispatch)
