# SPDX-License-Identifier: Apache-2.0
"""The host's functions for the tilings of Ascend C's libraries, compiled as projects of operators compile them."""

from pathlib import Path

from operator_project import CANN, run

SAID = """\
SoftMax 6 40 8 240
SoftmaxFlashV2 6 40 8 0
LayerNorm 2 3 40 37
RmsNorm 1 2 3 40 37
TopK 64 192
work buffers 32 32 32 32 32 32 32
elements 0 32
Sort 512 0
"""


def test_a_host_is_told_shapes_and_work_buffers(tmp_path):
    source, program = Path(__file__).with_name("library_tilings.cpp"), tmp_path / "program"
    libraries = [f"-L{CANN}/lib64", "-lregister", "-ltiling_api", f"-Wl,-rpath,{CANN}/lib64"]
    options = ["-std=c++11", "-Wall", "-Wextra", "-Werror", f"-isystem{CANN}/include"]
    run("g++", *options, source, "-o", program, *libraries)
    assert run(program) == SAID
