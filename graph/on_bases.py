# SPDX-License-Identifier: Apache-2.0
"""Lets an operator in a compiled function write to views of tensors, such as ``kv[0]`` and ``kv[1]`` of a KV cache.

torch.compile makes such a call a node that returns the new bases. torchair's Graph Engine mode can neither express one
base for several arguments nor find the views of a base that is a view itself. The call is therefore traced as another
operator, which takes each base once, and for each written argument its base and its geometry in it.
"""

import functools
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._C import _functionalization
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode, PythonFunctionalizeAPI

from .prototypes import is_written, operators, type_of

# What a written argument becomes: the number of its base (-1 without one), its geometry in the base, and its geometry
# in a contiguous tensor of the base's shape, which is how a Graph Engine graph holds the base.
_GEOMETRY = {
    "base": "int",
    "size": "SymInt[]",
    "stride": "SymInt[]",
    "storage_offset": "SymInt",
    "dense_stride": "SymInt[]",
    "dense_storage_offset": "SymInt",
}


@dataclass(frozen=True)
class OnBases:
    """An operator that stands for another one; it takes the bases of its written arguments."""

    op: torch._ops.OpOverload
    original: torch._ops.OpOverload
    written: list[str]
    bases: list[str]
    library: torch.library.Library  # the operator lives as long as this

    @staticmethod
    def define(
        original: torch._ops.OpOverload, written: list[str], count: int, library: torch.library.Library
    ) -> "OnBases":
        taken, returned = str(original._schema).partition("(")[2].rsplit(") -> ", 1)
        for name in written:
            taken = re.sub(rf"Tensor\(\w+!\)\?? {name}(=None)?(, |$)", "", taken)
        taken = taken.rstrip(" ,*")
        bases = [f"base{i}" for i in range(count)]
        texts = [taken] if re.search(r"(^|, )\*, ", taken) else [taken, "*"]
        texts += [f"Tensor({base}!) {base}" for base in bases]
        texts += [f"{type} {name}_{part}" for name in written for part, type in _GEOMETRY.items()]
        name, overload = original.name().partition("::")[2].replace(".", "_"), f"bases{count}"
        schema = f"{name}.{overload}({', '.join(filter(None, texts))}) -> {returned}"
        library.define(schema, tags=torch.Tag.pt2_compliant_tag)
        op = getattr(getattr(getattr(torch.ops, library.ns), name), overload)
        made = OnBases(op, original, written, bases, library)
        library.impl(op, made._call, "CompositeExplicitAutograd")
        return made

    def given(self, arguments: dict[str, Any], bases: list[torch.Tensor], dense: Callable) -> dict[str, Any]:
        """What the operator takes for the original's arguments; `dense` makes the view of a contiguous base."""
        given = arguments | dict(zip(self.bases, bases, strict=True))
        for name in self.written:
            view = given.pop(name, None)
            geometry = (-1, [], [], 0, [], 0)
            if view is not None:
                number = next(i for i, base in enumerate(bases) if base is _base(view))
                in_dense = dense(view, bases[number])
                geometry = (
                    number,
                    view.size(),
                    view.stride(),
                    view.storage_offset(),
                    in_dense.stride(),
                    in_dense.storage_offset(),
                )
            given |= {f"{name}_{part}": value for part, value in zip(_GEOMETRY, geometry, strict=True)}
        return given

    def arguments(self, given: dict[str, Any], view: Callable) -> dict[str, Any]:
        """The original's arguments; `view` makes one of its base and the rest of its geometry."""
        given = dict(given)
        bases = [given.pop(base) for base in self.bases]
        for name in self.written:
            number, *geometry = (given.pop(f"{name}_{part}") for part in _GEOMETRY)
            given[name] = None if number < 0 else view(bases[number], *geometry)
        return given

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        def view(base, size, stride, storage_offset, *_):
            return base.as_strided(size, stride, storage_offset)

        return self.original(**self.arguments(_by_name(self.op, args, kwargs), view))

    def register_converter(self) -> None:
        from torch._higher_order_ops.auto_functionalize import AsStridedViewInfo
        from torchair import register_fx_node_ge_converter
        from torchair._ge_concrete_graph.fx2ge_converter import get_or_auto_gen_converter
        from torchair.ge._ge_graph import ControlTensor, get_default_ge_graph

        def convert(**kwargs):
            copies = []

            def view(base, size, stride, storage_offset, dense_stride, dense_storage_offset):
                copy = AsStridedViewInfo(0, size, dense_stride, dense_storage_offset)
                copies.append((copy, [base]))
                return copy.regenerate_ge_view([base])

            outputs = get_or_auto_gen_converter(self.original)(**self.arguments(kwargs, view))
            node = get_default_ge_graph().op[-1]
            for copy, base in copies:
                last = ControlTensor(get_default_ge_graph().op[-1])
                copy.view_copy(base, dependencies=[last], out_op=node)
            return outputs

        register_fx_node_ge_converter(self.op)(convert)


def _by_name(op: torch._ops.OpOverload, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(zip((argument.name for argument in op._schema.arguments), args, strict=False)) | kwargs


def _base(view: torch.Tensor) -> torch.Tensor:
    base = view._inference_mode_base if torch.is_inference_mode_enabled() else view._base
    return view if base is None else base


def _trace_on_bases(op: torch._ops.OpOverload, written: list[str], by_count: dict[int, OnBases]) -> None:
    """Lets torch.compile trace, where a written argument is a view, the operator on as many bases as there are."""

    def functionalize(mode, *args, **kwargs):
        arguments = _by_name(op, args, kwargs)
        views = [arguments[name] for name in written if arguments.get(name) is not None]
        bases = [*{id(base): base for base in map(_base, views)}.values()]
        whole = len(bases) == len(views) and all(map(operator.is_, bases, views))
        if whole or any(view.dtype != _base(view).dtype for view in views):
            return mode.__torch_dispatch__(op, (FunctionalTensor,), args, kwargs)
        context = PythonFunctionalizeAPI(mode)

        def dense(view, base):
            before = len(_functionalization.get_view_meta_sequence(base.elem))
            steps = _functionalization.get_view_meta_sequence(view.elem)[before:]
            with context.redispatch_to_next():
                image = torch.empty_like(context.unwrap_tensors(base), memory_format=torch.contiguous_format)
                return _functionalization.apply_view_meta_sequence(image, steps)

        it = by_count[len(bases)]
        return mode.__torch_dispatch__(it.op, (FunctionalTensor,), (), it.given(arguments, bases, dense))

    op.py_impl(FunctionalTensorMode)(functionalize)


@functools.cache
def on_bases(package: str) -> list[OnBases]:
    """The operators on bases of a package. The first call defines them."""
    return [each for overloads in operators(package).values() for op in overloads for each in on_bases_of(op)]


@functools.cache
def on_bases_of(op: torch._ops.OpOverload) -> list[OnBases]:
    """The operators on bases that stand for one. The first call defines them, in a library for them alone."""
    library = torch.library.Library(f"{op.namespace}_on_bases", "FRAGMENT")
    written = [each.name for each in op._schema.arguments if is_written(each) and "List" not in type_of(each)]
    by_count = {n: OnBases.define(op, written, n, library) for n in range(1, len(written) + 1)}
    if written:
        _trace_on_bases(op, written, by_count)
    return [*by_count.values()]
