"""Registers the operators' converters with torchair, as soon as torchair is imported and not before."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types

_CONVERTERS = (
    "add_custom",
    "npu_lightning_indexer_pto",
    "npu_lightning_indexer_prolog_pto",
    "npu_sparse_attention_pto",
    "npu_sparse_flash_attention_pto",
    "reshape_and_cache",
    "advance_step_flashattn",
)
# torchair comes inside torch_npu, which makes it known as "torchair" too, or as a package of its own.
_TORCHAIR = ("torch_npu.dynamo.torchair", "torchair")


def _import_converters() -> None:
    for name in _CONVERTERS:
        importlib.import_module(f"{__name__}.{name}")


class _AfterTorchair(importlib.abc.MetaPathFinder):
    """Lets the import of torchair end with the import of the converters."""

    def find_spec(self, fullname, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(fullname, path) if fullname in _TORCHAIR else None
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                _import_converters()

            spec.loader.exec_module = exec_module
        return spec


def register() -> None:
    """Registers the converters now if torchair is imported, else when it will be: importing it takes seconds.

    torch.compile imports torchair before it asks for a converter. Without torchair nothing happens.
    """
    if any(isinstance(sys.modules.get(name), types.ModuleType) for name in _TORCHAIR):
        _import_converters()
    elif not any(isinstance(finder, _AfterTorchair) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterTorchair())
