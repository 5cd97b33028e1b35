# SPDX-License-Identifier: Apache-2.0
"""Registers the operators' converters with torchair, as soon as torchair is imported and not before.

An operator whose schema and prototype agree needs no converter here. This folder has the converters of the others.
"""

import importlib
import importlib.abc
import importlib.machinery
import pkgutil
import sys
import types
from collections.abc import Callable

from ..on_bases import on_bases
from ..prototypes import ge_type, operators

# torchair is part of torch_npu, which also registers it as "torchair", or it is a separate package.
_TORCHAIR = ("torch_npu.dynamo.torchair", "torchair")


_packages: list[str] = []


def ge_api(package: str) -> types.ModuleType:
    """The Graph Engine API generated from a package's prototypes. It needs torchair."""
    return importlib.import_module(f"{package}.converter.auto_generated_ge_raw_custom_ops")


def maps(*names: str) -> Callable[[Callable], Callable]:
    """Decorates an operator's own converter, below its registration, with the arguments, inputs and attributes in which
    the schema and the prototype differ. They must agree in the others."""

    def mark(converter):
        converter.mapped = names
        return converter

    return mark


def _register_converters(package: str) -> None:
    from ._on_bases import register_on_bases
    from ._plain import register_plain

    converters = importlib.import_module(f"{package}.converter")
    for module in pkgutil.iter_modules(converters.__path__):
        if not module.name.startswith(("_", "auto_generated")):
            importlib.import_module(f"{converters.__name__}.{module.name}")
    api = ge_api(package)
    for name, overloads in operators(package).items():
        for op in overloads:
            if not hasattr(op, "_ge_converter") and ge_type(name) in api.IR:
                register_plain(op, getattr(api, ge_type(name)), api.IR[ge_type(name)])
    for each in on_bases(package):
        register_on_bases(each)


class _AfterTorchair(importlib.abc.MetaPathFinder):
    """Lets the import of torchair end with the import of the converters."""

    def find_spec(self, fullname, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(fullname, path) if fullname in _TORCHAIR else None
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                for package in _packages:
                    _register_converters(package)

            spec.loader.exec_module = exec_module
        return spec


def register(package: str) -> None:
    """Registers a package's converters now if torchair is imported, else when it will be: importing it takes seconds.

    torch.compile imports torchair before it asks for a converter. Without torchair nothing happens. The operators are
    those of the library with the package's name. Their own converters are in modules of its subpackage `converter`.
    """
    _packages.append(package)
    if any(isinstance(sys.modules.get(name), types.ModuleType) for name in _TORCHAIR):
        _register_converters(package)
    elif not any(isinstance(finder, _AfterTorchair) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterTorchair())
