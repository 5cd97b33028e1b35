# SPDX-License-Identifier: Apache-2.0
"""Samples: calls of an operator and how to judge its results; what a difference is, in words."""

import importlib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only


@dataclass(frozen=True)
class Samples:
    """Calls of an operator, and how to judge its results, for the checks and the tests of it."""

    calls: dict[str, Callable[[], dict[str, Any]]]
    """By name: functions that create the arguments by name, on the CPU, each time with other numbers."""
    judge: Callable[[tuple, tuple, dict[str, Any]], Any]
    """Takes the results, the written arguments after the call, and all arguments before it. Raises AssertionError."""


def close_to(reference: Callable) -> Callable[[tuple, tuple, dict[str, Any]], None]:
    """A judge: results, then written arguments, equal those of the reference within the precision of their dtypes."""

    def judge(results: tuple, written: tuple, arguments: dict[str, Any]) -> None:
        actual, expected = tree_leaves((results, written)), tree_leaves(reference(**arguments))
        assert len(actual) == len(expected), f"it gives {len(actual)} tensors, the reference {len(expected)}"
        names = tensor_names(results, written)
        for name, got, want in zip(names, actual, expected, strict=True):
            found = difference(got, want.to(got.dtype), *TOLERANCES.get(got.dtype, (0.0, 0.0)))
            assert found is None, f"{name} {found}"

    return judge


# dtype: relative and absolute, those of torch.testing.assert_close
TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}


def difference(got: Tensor, want: Tensor, rtol: float = 0.0, atol: float = 0.0) -> str | None:
    """How a tensor is not the wanted one, in words: form, or how many elements, and the worst of them; or None."""
    if form(got) != form(want):
        return f"is {form(got)[0]}, and not {form(want)[0]}"
    got, want = got.detach().cpu(), want.detach().cpu()
    exact = rtol == atol == 0
    if exact:
        wrong = (got != want) & ~(got.isnan() & want.isnan())
    else:
        wrong = ~torch.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    if not wrong.any():
        return None
    wide = torch.complex128 if got.is_complex() else torch.float64
    off = (got.to(wide) - want.to(wide)).abs().nan_to_num(math.inf, math.inf).where(wrong, torch.tensor(-1.0))
    worst = [int(i) for i in torch.unravel_index(off.argmax(), off.shape)]
    place = f" at {worst}" if worst else ""
    tolerance = "" if exact else f" by more than {got.dtype} allows (rtol {rtol:g}, atol {atol:g})"
    value, wanted = got[tuple(worst)].item(), want[tuple(worst)].item()
    return (
        f"({dtype_name(got)}) differs in {int(wrong.sum())} of {got.numel()} elements{tolerance}, most{place}: "
        f"{value} instead of {wanted}"
    )


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def tensor_names(results: tuple, written: tuple, written_names: list[str] | None = None) -> list[str]:
    """What to call each tensor that a call has given and written."""
    parts = [(f"result {i}", value) for i, value in enumerate(results)]
    for i, value in enumerate(written):
        parts.append((f"argument '{written_names[i]}'" if written_names else f"written argument {i}", value))
    return [
        name if isinstance(value, Tensor) else f"{name}[{i}]"
        for name, value in parts
        for i, _ in enumerate(tree_leaves(value))
    ]


def gradients_of(reference: Callable, calls: dict[str, Callable], results: list[str], tensors: list[str]) -> Samples:
    """The samples of a backward. It takes gradients of the reference's results, by these names, and the arguments of
    the calls. It returns the gradients of these tensors, which PyTorch computes from the reference. A tensor that is
    not given, or not a floating-point tensor, has an empty or a zero gradient."""

    def call(make: Callable) -> dict[str, Any]:
        arguments = make()
        dtype = floating_tensors(arguments)[0].dtype
        given = tree_leaves(reference(**arguments))
        grads = [torch.randn(result.shape).to(dtype) for result in given]
        named = dict(zip(results, grads, strict=True)) if len(results) == len(grads) else {results[0]: grads}
        return named | arguments

    def judge(actual: tuple, written: tuple, arguments: dict[str, Any]) -> None:
        given = {name: value for name, value in arguments.items() if name not in results}
        given = tree_map_only(Tensor, lambda t: t.double().requires_grad_() if t.is_floating_point() else t, given)
        outputs = tree_leaves(reference(**given))
        grads = tree_leaves([arguments[name] for name in results])
        torch.autograd.backward(outputs, [grad.to(out.dtype) for grad, out in zip(grads, outputs, strict=True)])
        for got, tensor in zip(tree_leaves(actual), tree_leaves(list(map(given.get, tensors))), strict=True):
            want = torch.empty(0) if tensor is None else tensor.grad
            want = (torch.zeros_like(tensor) if want is None else want).to(got.dtype)
            found = difference(got, want, *TOLERANCES.get(got.dtype, (0.0, 0.0)))
            assert found is None, f"gradient {found}"

    return Samples({name: partial(call, make) for name, make in calls.items()}, judge)


def load_samples(package: str, folder: Path) -> dict[str, tuple[Samples, str]]:
    """The samples of the operators of a package, of all files test/PACKAGE/*_calls.py in the folder, and their file.

    These files may import each other, and modules of test/ and test/support/.
    """
    tests = folder / "test" / package
    found = {}
    places = [str(tests), str(tests.parent), str(tests.parent / "support")]
    sys.path[:0] = places
    try:
        for file in sorted(tests.glob("*_calls.py")):
            samples = getattr(importlib.import_module(file.stem), "SAMPLES", {})
            found |= {name: (of_it, str(file.relative_to(folder))) for name, of_it in samples.items()}
    finally:
        del sys.path[: len(places)]
    return found


def same(left, right) -> bool:
    """Whether tensors, or lists and tuples of them, are bitwise equal."""
    left, right = tree_leaves(left), tree_leaves(right)
    if len(left) != len(right):
        return False
    for a, b in zip(left, right, strict=True):
        if not isinstance(a, Tensor):
            if a != b:
                return False
        elif form(a) != form(b) or not torch.equal(_bits(a), _bits(b)):
            return False
    return True


def _bits(tensor: Tensor) -> Tensor:
    # Not contiguous(): a tensor of one element keeps its strides.
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)


def form(value) -> list[str]:
    """Shape and dtype of every tensor in it, in words."""
    return [f"{list(t.shape)} {str(t.dtype).removeprefix('torch.')}" for t in tensors_in(value)]


def tensors_in(value) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def floating_tensors(values) -> list[Tensor]:
    return [tensor for tensor in tensors_in(values) if tensor.is_floating_point()]
