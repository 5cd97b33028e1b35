# SPDX-License-Identifier: Apache-2.0
"""The runtime's own tests: libascendcl.so through ctypes, with a device set, and tasks written in C++."""

import ctypes
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import acl as acl_module

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def cann_cpu_lib():
    """The folder of the installed libraries."""
    return Path(importlib.util.find_spec("cann_cpu").submodule_search_locations[0]) / "lib64"


@pytest.fixture
def acl():
    """The runtime with device 0 set in this thread."""
    acl_module.call("aclrtSetDevice", 0)
    return acl_module


@pytest.fixture
def context(acl):
    """A context of the test's own: ACL_STOP_ON_FAILURE, which torch_npu sets, holds for a context for good."""
    before = acl.get("aclrtGetCurrentContext", ctypes.c_void_p)
    context = acl.make("aclrtCreateContext", 0)
    yield context
    acl.call("aclrtDestroyContext", context)
    acl.call("aclrtSetCurrentContext", before)


@pytest.fixture(scope="session")
def tasks(cann_cpu_lib, tmp_path_factory):
    """tasks.cpp, compiled; calls go through acl.status()."""
    binary = tmp_path_factory.mktemp("tasks") / "tasks.so"
    subprocess.run(
        ["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
         f"-I{cann_cpu_lib.parent}/include", f"-I{HERE.parents[2]}/cann_cpu/runtime/include",
         str(HERE / "tasks.cpp"), "-o", str(binary),
         f"-L{cann_cpu_lib}", "-lascendcl"],
        check=True,
    )  # fmt: skip
    return ctypes.CDLL(str(binary))


@pytest.fixture
def counter():
    """A 64-bit integer that tasks count in."""
    return ctypes.c_int64(0)


@pytest.fixture
def stream(acl):
    with acl.stream() as made:
        yield made


@pytest.fixture
def side(acl):
    with acl.stream() as made:
        yield made
