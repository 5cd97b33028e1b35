# SPDX-License-Identifier: Apache-2.0
"""Packages of several authors in one environment, with custom_pypto's own."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import aclnn
import author
import pytest
from operator_project import run

CALLS = """
import ctypes, os, sys, torch, torch_npu, aclnn, custom_pypto
from custom_pypto import custom_pypto_lib
x = torch.arange(4.0).half()
print(custom_pypto.add_custom(x.npu(), x.npu()).tolist())  # which loads its library
def called(library, function):
    try:
        y = torch.zeros_like(x).npu()
        aclnn.call(library, function, x.npu(), y)
        return (y.cpu() - x).unique().tolist()
    except (AttributeError, OSError) as error:
        return type(error).__name__
for function in ("aclnnOnlyFirst", "aclnnOnlySecond", "aclnnOfBoth"):
    # As the helper of many an extension finds it, and as torch_npu does.
    print([called("libcust_opapi.so", function), called(custom_pypto_lib.library_of(function, ""), function)])
print(custom_pypto.add_custom(x.npu(), x.npu()).tolist())
print(called("libcust_opapi.so", "aclnnAddCustom"))
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    own = {"AddCustom": {"adds": 7}}  # the name of one of custom_pypto's
    first = author.project(folder / "first", "first", OnlyFirst={"adds": 1}, OfBoth={"adds": 2}, **own)
    second = author.project(folder / "second", "second", OnlySecond={"adds": 3}, OfBoth={"adds": 4})
    return {each.name: author.install(each, folder / f"opp_{each.name}") for each in (first, second)}


def said(program, *packages, **variables):
    libraries = ":".join(f"{package}/op_api/lib" for package in packages)
    environment = {**os.environ, "PYTHONPATH": str(Path(aclnn.__file__).parent), "LD_LIBRARY_PATH": libraries}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment | variables, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [ast.literal_eval(line) if line[0] in "[('" else line for line in done.stdout.splitlines()]


DOUBLED = [0.0, 2.0, 4.0, 6.0]


def test_each_is_found_by_the_name_of_its_library_and_by_torch_npu(packages):
    first, second = packages["first"], packages["second"]
    found = said(CALLS, first, second, ASCEND_CUSTOM_OPP_PATH=f"{first}:{second}")
    assert found == [DOUBLED, [[1.0], [1.0]], ["AttributeError", [3.0]], [[2.0], [2.0]], DOUBLED, [7.0]]
    found = said(CALLS, second, first, ASCEND_CUSTOM_OPP_PATH=f"{second}:{first}")
    assert found == [DOUBLED, ["AttributeError", [1.0]], [[3.0], [3.0]], [[4.0], [4.0]], DOUBLED, "AttributeError"]


def test_what_a_removed_operator_leaves_in_the_build_folder_is_not_packed(packages, tmp_path):
    package = packages["second"]
    project = package.parents[2] / "second"
    assert {path.name for path in package.glob("op_*/**/*only_second*")} == {"only_second", "aclnn_only_second.h"}
    for file in project.glob("op_*/only_second*"):
        file.unlink()
    run("cmake", project / "build_out")
    run("cmake", "--build", project / "build_out", "--target", "binary", "package")
    rebuilt = author.unpack(project, tmp_path)
    assert [path.name for path in rebuilt.glob("op_*/**/*") if "second" in path.name.lower()] == []
    assert {path.name for path in rebuilt.glob("op_*/**/*of_both*")} == {"of_both", "aclnn_of_both.h"}
