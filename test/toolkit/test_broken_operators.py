# SPDX-License-Identifier: Apache-2.0
"""What an author has got wrong is named: by a call's error, or before the process ends."""

import os
import signal
import sys
from pathlib import Path

import aclnn
import author
import fresh
import pytest

VALUES = "tiling.set_size(context->GetInputTensor(0)->GetData<float>()[0]);"
NULL = "*reinterpret_cast<volatile uint32_t*>(16) = data.size;"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken")
    operators = {
        "Plus": {},
        "InPlace": {"outputs": ""},
        "ReadsValues": {"tiling": VALUES},
        "WritesNowhere": {"kernel": NULL},
    }
    package = author.install(author.project(folder / "project", **operators), folder / "opp")
    return str(package / "op_api/lib/libcust_opapi.so")


def ended(library, program):
    """A process that calls functions of the library on the tensor x."""
    start = "import ctypes, sys, torch, torch_npu, aclnn\nx = torch.ones(8, device='npu')\n"
    environment = {**os.environ, "PYTHONPATH": str(Path(aclnn.__file__).parent)}
    command = [sys.executable, "-c", start + program, library]
    return fresh.run(command, env=environment)


def test_an_operator_without_outputs_runs(library):
    done = ended(library, "aclnn.call(sys.argv[1], 'aclnnInPlace', x)\nprint(x.cpu().unique().tolist())")
    assert done.stdout == "[2.0]\n", done.stderr


def test_tiling_that_reads_values_of_the_device_is_named(library):
    done = ended(library, "aclnn.call(sys.argv[1], 'aclnnReadsValues', x, x)")
    assert done.returncode == -signal.SIGSEGV
    said = "aclnnReadsValues: the function of SetTiling crashed (Segmentation fault) for x float32[8], y float32[8]; "
    assert said + "GetData() is null for x, whose values lie on the device: .ValueDepend(OPTIONAL)" in done.stderr


def test_a_kernel_that_crashes_is_named(library):
    done = ended(library, "aclnn.call(sys.argv[1], 'aclnnWritesNowhere', x, x)")
    assert done.returncode == -signal.SIGSEGV
    assert "writes_nowhere, block 0: crashed (Segmentation fault)" in done.stderr


def test_an_output_without_memory_is_named(library):
    program = """
class Null(torch.Tensor):
    def untyped_storage(self):
        return self
    def nbytes(self):
        return 32
    def data_ptr(self):
        return 0
try:
    aclnn.call(sys.argv[1], "aclnnPlus", x, x.as_subclass(Null))
except aclnn.Rejected as error:
    print(*error.args)
"""
    said = "161001 aclnnPlus: y has no device memory; aclSetTensorAddr gives it some"
    done = ended(library, program)
    assert said in done.stdout, done.stderr
