# SPDX-License-Identifier: Apache-2.0
"""No kernel takes a parameter and ignores it: one that it does not name has a type that says why, or rejects values."""

import pathlib
import re
import subprocess

import pytest
import torch
from aclnn_signatures import TABLE as SOURCES
from aclnn_signatures import parameters
from cann_cpu import activation

FILES = sorted(SOURCES.glob("*.cpp"))


def kernels(text):
    """Name and parameters of every kernel."""
    for found in re.finditer(r"\bACLNN(?:_OF_VALUES)?\(\s*([\w#]+),", text):
        yield found[1], parameters(text[text.index("[](", found.end()) :])


def unused_types(text):
    return set(re.findall(r"using (\w+) = (?:Absent|Ignored)<", text))


def unnamed(text, known):
    """The parameters without a name whose type does not say why."""
    for name, given in kernels(text):
        for parameter in given:
            named = re.search(r"[\w>&] &?\*?\w+$", parameter) is not None
            if not named and parameter not in known and not re.match(r"(Absent|Ignored)<", parameter):
                yield f"{name}: {parameter}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_kernel_uses_every_parameter_or_its_type_says_why_not(file):
    known = unused_types((SOURCES / "table.h").read_text()) | unused_types(file.read_text())
    assert list(unnamed(file.read_text(), known)) == []


def test_a_parameter_without_a_name_is_found():
    text = 'ACLNN(First, [](In self, int64_t, Dtype, Absent<"x", In>, Out out) {});'
    assert list(unnamed(text, {"Dtype"})) == ["First: int64_t"]
    text = "ACLNN(\n Second,\n [](Phase phase, In self, const std::optional<at::Tensor>&, Out out) {});"
    assert list(unnamed(text, set())) == ["Second: const std::optional<at::Tensor>&"]
    assert sum(len(list(kernels(file.read_text()))) for file in FILES) > 300


HEADER = """
#include "cann_cpu/op.h"
extern "C" {
aclnnStatus aclnnFitsGetWorkspaceSize(const aclTensor* self, aclTensor* cacheRef, double scale, const aclTensor* out,
                                      uint64_t* workspaceSize, aclOpExecutor** executor);
decltype(aclnnFitsGetWorkspaceSize) aclnnOnlyReadsGetWorkspaceSize, aclnnOnlyWritesGetWorkspaceSize;
decltype(aclnnFitsGetWorkspaceSize) aclnnTakesAnIntegerGetWorkspaceSize;
}
using at::Tensor;
using cann_cpu::InOut;
"""
KERNELS = {
    "Fits": "const Tensor& self, InOut cache, double scale, Tensor& out",
    "Undeclared": "const Tensor& self, Tensor& out",
    "OnlyReads": "const Tensor& self, const Tensor& cache, double scale, Tensor& out",
    "OnlyWrites": "InOut self, InOut cache, double scale, Tensor& out",
    "TakesAnInteger": "const Tensor& self, InOut cache, int64_t scale, Tensor& out",
}


def test_parameters_that_are_not_those_of_the_header_are_said_in_a_line(tmp_path):
    source = tmp_path / "kernels.cpp"
    source.write_text(HEADER + "".join(f"ACLNN({name}, []({given}) {{}});\n" for name, given in KERNELS.items()))
    includes = [f"-I{activation.HOME}/include", f"-isystem{pathlib.Path(torch.__file__).parent}/include"]
    command = ["g++", "-std=c++20", "-fsyntax-only", *includes, source]
    errors = subprocess.run(command, capture_output=True, text=True, timeout=300).stderr
    found = re.findall(r"the kernel of aclnn(\w+) does not have the parameters of the header: a tensor that is", errors)
    assert found == ["OnlyReads", "OnlyWrites", "TakesAnInteger"]
