# SPDX-License-Identifier: Apache-2.0
"""Builds what these tests run against: an operator package, and harnesses on the engine's sources and library."""

import ctypes
import os
import pathlib
import subprocess
import sys
import sysconfig

import pytest
from operator_package import build

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))  # for models.py
CANN_CPU = HERE.parents[2] / "cann_cpu"
SITE_PACKAGES = pathlib.Path(sysconfig.get_path("purelib"))
TORCH = SITE_PACKAGES / "torch"
LIBRARIES = SITE_PACKAGES / "cann_cpu" / "lib64"


def compile_cpp(output, sources, *flags):
    command = [
        "g++",
        "-std=c++20",
        "-O1",
        "-fPIC",
        "-Wall",
        "-Wextra",
        "-Werror",
        *(f"-I{folder}" for folder in [CANN_CPU, CANN_CPU / "common", *CANN_CPU.glob("*/include")]),
        "-isystem",
        str(TORCH / "include"),
        *map(str, sources),
        "-o",
        str(output),
        *flags,
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-4000:]
    return output


@pytest.fixture(scope="session")
def operator_package(tmp_path_factory):
    """The folder of an installed operator package."""
    return build(HERE / "package", tmp_path_factory.mktemp("package"))


@pytest.fixture
def package_environment(operator_package):
    """The environment of a process that finds the operator package."""
    return {**os.environ, "ASCEND_CUSTOM_OPP_PATH": str(operator_package)}


@pytest.fixture(scope="session")
def rule_library(tmp_path_factory):
    """The evaluator of inference rules with a C interface."""
    sources = [CANN_CPU / f"{name}.cpp" for name in ("graph_engine/packages/inference_rule", "common/json")]
    output = tmp_path_factory.mktemp("rule") / "librule.so"
    json = f"-isystem{sysconfig.get_path('purelib')}/nlohmann_json/include"
    return ctypes.CDLL(str(compile_cpp(output, [HERE / "harness" / "rule.cpp", *sources], "-shared", json)))


@pytest.fixture(scope="session")
def session_library(tmp_path_factory):
    """ge::Session with a C interface, compiled with the string ABI that torchair's compatibility library has."""
    import torch
    import torch_npu  # noqa: F401  it has loaded libge_runner when the harness is

    torch.npu.set_device(0)
    torch.npu.synchronize()
    output = tmp_path_factory.mktemp("session") / "libsession.so"
    compile_cpp(
        output,
        [HERE / "harness" / "session.cpp"],
        "-shared",
        "-D_GLIBCXX_USE_CXX11_ABI=0",
        f"-L{LIBRARIES}",
        "-lge_runner",
        "-lascendcl",
        "-Wl,--allow-shlib-undefined",
    )
    return ctypes.CDLL(str(output))


PROTOTYPE = """
#include "graph/operator_reg.h"
namespace ge {
REG_OP(Relu)
    .INPUT(x, TensorType({DT_FLOAT}))
    .OUTPUT(y, TensorType({DT_FLOAT}))
    .REQUIRED_ATTR(of_the_program, Int)
    .OP_END_FACTORY_REG(Relu)
}
"""


@pytest.fixture
def prototypes_of_a_program(tmp_path):
    """A library that registers its prototype for Relu, as MindSpore's do for all types."""
    (source := tmp_path / "prototype.cpp").write_text(PROTOTYPE)
    return compile_cpp(tmp_path / "libprototype.so", [source], "-shared", f"-L{LIBRARIES}", "-lge_runner", "-lregister")
