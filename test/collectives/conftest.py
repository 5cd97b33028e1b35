# SPDX-License-Identifier: Apache-2.0
import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def _load(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_ranks = _load("ranks")


@pytest.fixture(scope="session")
def ranks():
    """Four ranks; a test uses the first two, three or all of them."""
    started = _ranks.Ranks(4)
    yield started
    started.end()


@pytest.fixture
def free_port():
    return _ranks.free_port
