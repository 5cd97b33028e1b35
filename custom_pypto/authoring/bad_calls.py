# SPDX-License-Identifier: Apache-2.0
"""Calls of an operator with one bad argument, from a good call and the table of the operator's arguments."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import Row


@dataclass(frozen=True)
class Bad:
    """A call with one argument that is not as it should be."""

    argument: str
    what: str
    arguments: Callable[[str], dict[str, Any]]
    """Makes them on a device."""
    certain: bool
    """The table rejects it; otherwise it may also be a good call."""


def bad_calls(arguments: dict[str, Any], rows: dict[str, Row], required: set[str]) -> Iterator[Bad]:
    """Each argument of a good call in turn: tensors of another dtype, rank and size, in the memory of what is written,
    and none; lists of them with one such, or shorter; attributes that no table has."""
    named = Counter(name for row in rows.values() if row.use != "result" for name in row.names)
    tensors = [name for name, value in arguments.items() if isinstance(value, Tensor)]

    def is_shared(size: str) -> bool:
        return named[size] > 1 or size == "1" or size in arguments or any(sign in size for sign in "*+")

    def bad(name: str, what: str, value: Any, certain: bool) -> Bad:
        return Bad(name, what, lambda device: on(device, arguments | {name: value}), certain)

    for name, value in arguments.items():
        row = rows.get(name)
        if isinstance(value, Tensor):
            others = other_tensors(value, row, is_shared)
            others += [("none", None, row is not None and len(tensors) > 1)] * (name in required)
        elif isinstance(value, list | tuple) and value and isinstance(value[0], Tensor):
            first = other_tensors(value[0], None, is_shared)
            others = [(f"[0] {what}", [other, *value[1:]], False) for what, other, _ in first]
            others.append(("without its last", [*value[:-1]], False))
        else:
            others = other_attributes(value, row)
        yield from (bad(name, *other) for other in others)
        if row is not None and row.use == "written":
            other = next((other for other in tensors if other != name), None)
            if other is not None:
                yield Bad(name, f"in the memory of '{other}'", in_one_memory(arguments, name, other), True)


def on(device: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments in separate memory on a device."""
    return torch.utils._pytree.tree_map_only(Tensor, lambda tensor: tensor.to(device), arguments)


def other_tensors(tensor: Tensor, row: Row | None, is_shared: Callable[[str], bool]) -> list[tuple[str, Tensor, bool]]:
    """Tensors that are not what this one is, each in one thing, which is said, and whether that is certainly wrong."""
    others = []
    for dtype in (torch.complex64, torch.int16, torch.float32):
        allowed = row is None or str(dtype).removeprefix("torch.") in row.dtypes
        if dtype != tensor.dtype:
            others.append((f"of dtype {dtype}", tensor.to(dtype), not allowed))
    names = row.names if row is not None else ()
    if names:
        others += [("of 4 dimensions more", tensor[None, None, None, None], True)]
        others += [("without dimensions", tensor.flatten()[0], True)]
    else:
        others += [("with a dimension more", tensor[None], False)]
    for d, size in enumerate(tensor.shape):
        larger = torch.cat([tensor, tensor.narrow(d, 0, 1)], d)
        others.append((f"of size {size + 1} in dimension {d}", larger, bool(names) and is_shared(names[d])))
    return others


def other_attributes(value: Any, row: Row | None) -> list[tuple[str, Any, bool]]:
    """Values that the attribute may not have, if it is known which."""
    if row is None:
        return []
    if row.use == "at least":
        other = type(value)(float(row.names[0]) - 1)
    else:
        other = 1 + max(map(int, row.names)) if row.names[0].isdecimal() else ""
    return [(f"= {other!r}", other, True)]


def in_one_memory(arguments: dict[str, Any], *names: str) -> Callable[[str], dict[str, Any]]:
    """Makes the arguments on a device, those of these names in the same memory."""

    def make(device: str) -> dict[str, Any]:
        sizes = {name: arguments[name].numel() * arguments[name].element_size() for name in names}
        memory = torch.zeros(max(sizes.values()), dtype=torch.uint8, device=device)
        views = {name: memory[: sizes[name]].view(arguments[name].dtype) for name in names}
        return on(device, arguments) | {name: view.view(arguments[name].shape) for name, view in views.items()}

    return make
