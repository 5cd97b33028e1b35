"""Builds what these tests run against: an operator package, and harnesses on the engine's sources and library."""

import os
import pathlib
import platform
import subprocess
import sysconfig

import pytest

HERE = pathlib.Path(__file__).parent
CANN_CPU = HERE.parents[2] / "cann_cpu"
SITE_PACKAGES = pathlib.Path(sysconfig.get_path("purelib"))
TORCH = SITE_PACKAGES / "torch"
LIBRARIES = SITE_PACKAGES / "cann_cpu" / "lib64"


def compile_cpp(output, sources, *flags):
    command = ["g++", "-std=c++20", "-O1", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{CANN_CPU / 'headers'}",
               f"-I{CANN_CPU / 'graph_engine'}", "-isystem", str(TORCH / "include"), *map(str, sources), "-o",
               str(output), *flags]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-4000:]
    return output


@pytest.fixture(scope="session")
def operator_package(tmp_path_factory):
    """The folder of an installed operator package."""
    root = tmp_path_factory.mktemp("package")
    prototypes = root / "op_proto" / "lib" / "linux" / platform.machine()
    functions = root / "op_api" / "lib"
    for folder in (prototypes, functions):
        folder.mkdir(parents=True)
    compile_cpp(prototypes / "libcust_opsproto_rt2.0.so", [HERE / "package" / "op_proto.cpp"], "-shared")
    compile_cpp(functions / "libcust_opapi.so", [HERE / "package" / "op_api.cpp"], "-shared", f"-L{TORCH / 'lib'}",
                f"-L{LIBRARIES}", "-ltorch_cpu", "-lc10", "-lnnopbase", "-lascendcl")
    return root


@pytest.fixture
def package_environment(operator_package):
    """The environment of a process that finds the operator package."""
    return {**os.environ, "ASCEND_CUSTOM_OPP_PATH": str(operator_package)}
