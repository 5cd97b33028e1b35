# SPDX-License-Identifier: Apache-2.0
"""Registers the operators' converters with torchair, as soon as torchair is imported and not before.

An operator whose schema and prototype agree has a converter by their names. The converters of the others are modules of
PACKAGE.converter.
"""

import importlib
import importlib.abc
import importlib.machinery
import inspect
import pkgutil
import sys
import types
from collections.abc import Callable

import torch

from .on_bases import on_bases
from .prototypes import Prototype, ge_type, operators

# torchair is part of torch_npu, which also registers it as "torchair", or it is a separate package.
_TORCHAIR = ("torch_npu.dynamo.torchair", "torchair")


_after_torchair: list[Callable[[], None]] = []


def ge_api(package: str) -> types.ModuleType:
    """The Graph Engine API generated from a package's prototypes. It needs torchair."""
    try:
        return importlib.import_module(f"{package}.converter.auto_generated_ge_raw_custom_ops")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.converter":
            raise
        return types.SimpleNamespace(IR={})  # all operators of the package are in Python


def maps(*names: str) -> Callable[[Callable], Callable]:
    """Decorates an operator's own converter, below its registration, with the arguments, inputs and attributes in which
    the schema and the prototype differ. They must agree in the others."""

    def mark(converter):
        converter.mapped = names
        return converter

    return mark


def _register_converters(package: str) -> None:
    converters = importlib.import_module(f"{package}.converter")
    for module in pkgutil.iter_modules(converters.__path__):
        if not module.name.startswith(("_", "auto_generated")):
            importlib.import_module(f"{converters.__name__}.{module.name}")
    api = ge_api(package)
    for name, overloads in operators(package).items():
        for op in overloads:
            if not hasattr(op, "_ge_converter") and ge_type(name) in api.IR:
                _register_plain(op, getattr(api, ge_type(name)), api.IR[ge_type(name)])
    for each in on_bases(package):
        each.register_converter()


def _register_plain(op: torch._ops.OpOverload, function: Callable, ir) -> None:
    """Lets the operator become a node that `function`, of the generated Graph Engine API, adds to the graph.

    Arguments that are not given or None are left to the prototype: an optional input is absent, an attribute has its
    default. Outputs with an input's name are not among the results: torchair finds by the name what they write.
    """
    from torchair import register_fx_node_ge_converter
    from torchair.ge._ge_graph import torch_type_to_ge_type

    prototype = Prototype.of(ir)
    arguments = [argument.name for argument in op._schema.arguments]
    results = len(op._schema.returns)
    sizes = [name for name, presence in prototype.outputs.items() if presence == "dynamic"]
    parameters = [*inspect.signature(function).parameters][len(prototype.inputs) :]
    of_sizes, of_attributes = parameters[: len(sizes)], parameters[len(sizes) :]

    def size(output: str, given: dict, meta_outputs) -> int:
        if output in prototype.inputs:
            return len(given[output])
        return len(meta_outputs if results == 1 else meta_outputs[[*prototype.outputs].index(output)])

    def convert(*args, meta_outputs=None, **kwargs):
        given = dict(zip(arguments, args, strict=False)) | kwargs
        inputs = [given.get(name) for name in prototype.inputs]
        inputs = [
            [] if value is None and presence == "dynamic" else value
            for value, presence in zip(inputs, prototype.inputs.values(), strict=True)
        ]
        keywords = {name: size(output, given, meta_outputs) for name, output in zip(of_sizes, sizes, strict=True)}
        for parameter, name in zip(of_attributes, prototype.attributes, strict=False):
            value = given.get(name)
            if value is not None:
                keywords[parameter] = torch_type_to_ge_type(value) if isinstance(value, torch.dtype) else value
        outputs = function(*inputs, **keywords)
        if results == 0:
            return None
        if len(prototype.outputs) == 1:
            return outputs
        return outputs[0] if results == 1 else tuple(outputs[:results])

    convert.plain = True
    register_fx_node_ge_converter(op)(convert)


class _AfterTorchair(importlib.abc.MetaPathFinder):
    """Lets the import of torchair end with the import of the converters."""

    def find_spec(self, fullname, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(fullname, path) if fullname in _TORCHAIR else None
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                for run in _after_torchair:
                    run()

            spec.loader.exec_module = exec_module
        return spec


def register(package: str) -> None:
    """Registers a package's converters.

    The operators are those of the library with the package's name. Their own converters are in modules of its
    subpackage `converter`.
    """
    when_torchair(lambda: _register_converters(package))


def when_torchair(run: Callable[[], None]) -> None:
    """Registers converters now if torchair is imported, else when it will be: importing it takes seconds.

    torch.compile imports torchair before it asks for a converter. Without torchair nothing happens.
    """
    _after_torchair.append(run)
    if any(isinstance(sys.modules.get(name), types.ModuleType) for name in _TORCHAIR):
        run()
    elif not any(isinstance(finder, _AfterTorchair) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterTorchair())
