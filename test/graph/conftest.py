# SPDX-License-Identifier: Apache-2.0
"""Runs the generator on a header of prototypes."""

import importlib.util
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from custom_pypto.graph import codegen


def load(path: Path) -> types.ModuleType:
    """A generated Graph Engine API as a module."""
    import torch_npu  # noqa: F401  (has torchair)

    spec = importlib.util.spec_from_file_location("ge_api", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def ge_api() -> Callable[[Path, Path], types.ModuleType]:
    """ge_api(header, directory): the Graph Engine API that is generated from a header, as a module in the directory."""

    def made(header: Path, directory: Path) -> types.ModuleType:
        module = directory / "ge_api.py"
        module.write_text(codegen.api(header))
        return load(module)

    return made
