# SPDX-License-Identifier: Apache-2.0
"""`python -m cann_cpu project FOLDER` on projects in several layouts, whole ones and broken ones."""

import re
import shutil
import sys
from pathlib import Path

import author
import pytest
from cann_cpu.toolkit.project import remedy
from operator_project import run

HERE = Path(__file__).parent

# A program of the calls that an author's own test makes; it compares with x + 1, or with what `ADDS` says.
MAIN = r"""
#include <cstdio>
#include <vector>

#include "acl/acl.h"
#include "aclnn_plus.h"

#define CHECK(call) \
  if (const int code = (call)) return std::printf("%s gives %d\n", #call, code), 1

int main() {
  CHECK(aclInit(nullptr));
  CHECK(aclrtSetDevice(0));
  const std::vector<int64_t> shape{8, 2048}, strides{2048, 1};
  std::vector<float> values(8 * 2048, 1.5f);
  const size_t bytes = values.size() * sizeof(float);
  void *x = nullptr, *y = nullptr, *workspace = nullptr;
  CHECK(aclrtMalloc(&x, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclrtMalloc(&y, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclrtMemcpy(x, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
  const auto tensor = [&](void* data) {
    return aclCreateTensor(shape.data(), 2, ACL_FLOAT, strides.data(), 0, ACL_FORMAT_ND, shape.data(), 2, data);
  };
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnPlusGetWorkspaceSize(X_OF_THE_CALL, tensor(y), &size, &executor));
  if (size != 0) CHECK(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclnnPlus(workspace, size, executor, nullptr));
  CHECK(aclrtSynchronizeDevice());
  CHECK(aclrtMemcpy(values.data(), bytes, y, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
  for (const float value : values) {
    if (value != 1.5f + ADDS) return std::printf("result error: %f\n", value), 1;
  }
  std::printf("test pass\n");
  return 0;
}
"""
LISTS = """cmake_minimum_required(VERSION 3.16)
project(plus_test CXX)
set(VENDOR $ENV{ASCEND_HOME_PATH}/opp/vendors/customize/op_api)
include_directories($ENV{ASCEND_HOME_PATH}/include ${VENDOR}/include)
link_directories($ENV{ASCEND_HOME_PATH}/lib64 ${VENDOR}/lib)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/../output)
add_executable(plus_test main.cpp)
target_compile_definitions(plus_test PRIVATE ADDS=1 X_OF_THE_CALL=tensor\\(x\\))
target_link_libraries(plus_test cust_opapi nnopbase ascendcl)
"""
SCRIPT = """#!/bin/bash
toolkit=/usr/local/Ascend/latest
if [ -d "$HOME/Ascend/ascend-toolkit/latest" ]; then toolkit=$HOME/Ascend/ascend-toolkit/latest; fi
source $toolkit/bin/setenv.bash
rm -rf $HOME/ascend/log
cd "$(dirname "$0")"
rm -rf build && mkdir build && cd build
cmake ../src > /dev/null && make > /dev/null && cd ../output && ./plus_test
"""


def program(folder):
    (folder / "src").mkdir(parents=True)
    (folder / "src/main.cpp").write_text(MAIN)
    (folder / "src/CMakeLists.txt").write_text(LISTS)
    (folder / "run.sh").write_text(SCRIPT)
    return folder


SETUP = """from setuptools import Extension, setup
setup(name="plus_ops", version="1", ext_modules=[Extension("plus_lib", ["plus.c"])])
"""
MODULE = """#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "plus_lib"};
PyMODINIT_FUNC PyInit_plus_lib(void) { return PyModule_Create(&module); }
"""
CASES = """import ctypes, sys
import torch, torch_npu
import plus_lib
import aclnn
data = {"case1": torch.ones(4), "case2": torch.zeros(3, 5).half()}
x = data["case" + sys.argv[1]]
y = torch.zeros_like(x).npu()
aclnn.call("libcust_opapi.so", "aclnnPlus", x.npu(), y)
print("test pass" if torch.equal(y.cpu(), x + 1) else "[ERROR] result error")
"""
ONE_FAILS = """import sys
import plus_lib
said = {"case1": "test pass", "case2": "[ERROR] result error"}
print(said["case" + sys.argv[1]])
"""


def check(folder, *options, fails=False):
    """The table's lines, by name: verdict, and what it says; and all of it."""
    where = {"TMPDIR": str(folder.parent)} if fails else {}  # what it leaves
    said = run(sys.executable, "-m", "cann_cpu", "project", folder, *options, fails=fails, **where)
    assert "Traceback" not in said
    rows = re.findall(r"^  (\S.*?) +(ok|note|FAILED|not run) +(.*)$", said, re.MULTILINE)
    return {name: (verdict, text) for name, verdict, text in rows}, said


def content(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project of an operator with its test beside it, as contests have it."""
    folder = tmp_path_factory.mktemp("project") / "Sample"
    author.project(folder / "Plus", Plus={})
    program(folder / "AclNNInvocation")
    presets = folder / "Plus/CMakePresets.json"
    presets.write_text(presets.read_text().replace("$env{ASCEND_HOME_PATH}", "/usr/local/Ascend/ascend-toolkit/latest"))
    return folder


@pytest.mark.always
def test_a_project_and_its_test_are_green_and_the_folder_stays_as_it_was(project):
    before = content(project)
    rows, said = check(project)
    assert {name: verdict for name, (verdict, _) in rows.items()} == dict.fromkeys(
        ["builds", "loads", "Plus infers", "Plus runs", "Plus checks", "test"], "ok"
    ), said
    assert "a project of operators (msopgen's layout of CANN 8.2 and later, npu_op_package) in Plus" in said
    assert "a test program in AclNNInvocation" in said
    assert "in the copy the toolkit's path is set in AclNNInvocation/run.sh, Plus/CMakePresets.json" in said
    assert "6 of 6 lines passed" in said
    assert rows["Plus runs"][1] == "8 calls drawn from its definition"
    assert content(project) == before


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken") / "Ops"
    operators = {
        "Plus": {},
        "InPlace": {"outputs": ""},
        "ReadsValues": {"tiling": "tiling.set_size(context->GetInputTensor(0)->GetData<float>()[0]);"},
        "Crashes": {"kernel": "*reinterpret_cast<volatile uint32_t*>(16) = data.size;"},
        "Stub": {"kernel": "return;"},
        "OtherKey": {"tiling": "context->SetTilingKey(3);", "kernel": "if (!TILING_KEY_IS(1)) return;"},
        "Beyond": {"kernel": "reinterpret_cast<__gm__ uint8_t*>(y)[data.size * sizeof(DTYPE_X) + 100] = 1;"},
        "Rejects": {"tiling": "return ge::GRAPH_FAILED;"},
        "OneSize": {"kernel": "if (data.size < 1000) return;"},
    }
    return check(author.project(folder, **operators), fails=True)


BROKEN = [
    ("Plus runs", "ok", "8 calls drawn"),
    (
        "InPlace infers",
        "note",
        r"inference op_host/in_place.cpp:20: aclnnInPlace: .* SetInferShape crashed .* no output",
    ),
    ("InPlace runs", "ok", "8 calls drawn"),
    (
        "ReadsValues runs",
        "FAILED",
        r"tiling op_host/reads_values.cpp:7: .* SetTiling crashed .*GetData\(\) is null for x",
    ),
    ("Crashes runs", "FAILED", r"kernel op_kernel/crashes.cpp:5: crashes, block 0: crashed \(Segmentation fault\)"),
    ("Stub runs", "FAILED", r"kernel op_kernel/stub.cpp:5: it wrote nothing to y \(x float16\[8, 2048\]\)"),
    ("OtherKey runs", "FAILED", r"tiling op_host/other_key.cpp:7: 561003: .* the key 3, which was not compiled"),
    ("Beyond runs", "FAILED", r"kernel op_kernel/beyond.cpp:5: it writes past the end of y"),
    ("Beyond checks", "FAILED", r"kernel 507018: .*op_kernel/beyond.cpp:\d+: |as above"),
    ("Rejects runs", "not run", r"no drawn call is accepted.* tiling op_host/rejects.cpp:7: .*SetTiling returned"),
    ("OneSize runs", "ok", r"4 calls .*, 4 of other sizes fail: kernel op_kernel/one_size.cpp:5: it wrote nothing"),
]


@pytest.mark.nightly  # it builds a project of many operators
@pytest.mark.parametrize(("row", "verdict", "text"), BROKEN, ids=[row for row, _, _ in BROKEN])
def test_what_is_broken_is_named_by_its_part_file_and_line(broken, row, verdict, text):
    rows, said = broken
    assert rows[row][0] == verdict, said
    assert re.search(text, rows[row][1]), said


# What is changed in a file, and what the line of the build or of the test says then.
CHANGES = [
    (
        "Plus/op_kernel/plus.cpp",
        "Adds(sum",
        "Add(summ",
        "builds",
        r"kernel Plus/op_kernel/plus.cpp:\d+: .summ. was not",
    ),
    (
        "Plus/op_host/plus.cpp",
        "SetBlockDim(1)",
        "SetBlocks(1)",
        "builds",
        r"tiling Plus/op_host/plus.cpp:\d+: .*SetBlocks",
    ),
    ("Plus/op_host/plus.cpp", "ParamType(REQ", "Kind(REQ", "builds", r"definition Plus/op_host/plus.cpp:\d+: .*Kind"),
    ("Plus/op_host/plus.cpp", ".SetTiling(optiling::TilingFunc)", "", "builds", "Plus: it has no tiling function"),
    (
        "Plus/CMakeLists.txt",
        "npu_op_package(",
        "npu_op_pack(",
        "builds",
        r"build script Plus/CMakeLists.txt:\d+: .*npu_op_pack",
    ),
    ("AclNNInvocation/src/main.cpp", "ADDS)", "ADDS + 1)", "test", r"test: result error: 2\.5"),
    ("AclNNInvocation/src/CMakeLists.txt", r"tensor\(x\)", "nullptr", "test", "aclnnPlus: x is null; it is required"),
]


@pytest.mark.parametrize(
    ("file", "text", "by", "row", "said"), CHANGES, ids=[f"{each[0]} {each[2]}" for each in CHANGES]
)
def test_the_first_cause_of_a_failure(project, tmp_path, file, text, by, row, said):
    copy = Path(shutil.copytree(project, tmp_path / "copy"))
    content = (copy / file).read_text()
    assert text in content
    (copy / file).write_text(content.replace(text, by))
    rows, everything = check(copy, fails=True)
    assert rows[row][0] == "FAILED", everything
    assert re.search(said, rows[row][1]), everything


def test_an_extension_of_torch_is_built_beside_the_project_and_its_cases_run(project, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE.parent / "support"))  # of aclnn
    folder = tmp_path / "sample"
    shutil.copytree(project / "Plus", folder / "Plus")
    (folder / "Case").mkdir()
    for name, text in {"setup.py": SETUP, "plus.c": MODULE, "test_op.py": CASES}.items():
        (folder / "Case" / name).write_text(text)
    rows, said = check(folder)
    assert rows["test"][0] == "ok", said
    assert re.match(r"python3 setup.py build_ext, 2 cases, ", rows["test"][1])


def test_a_case_of_an_extension_that_fails_is_named(tmp_path):
    (tmp_path / "Case").mkdir()
    for name, text in {"setup.py": SETUP, "plus.c": MODULE, "test_op.py": ONE_FAILS}.items():
        (tmp_path / "Case" / name).write_text(text)
    rows, said = check(tmp_path, fails=True)
    assert rows["test"][0] == "FAILED", said
    assert rows["test"][1].startswith("test_op.py 2: test: [ERROR] result error")


def test_an_author_s_files_alone_are_built_by_msopgen_s_build(tmp_path):
    author.project(tmp_path / "made", Plus={})
    for part in ("op_host", "op_kernel"):
        shutil.copytree(tmp_path / "made" / part, tmp_path / "alone" / part)
        (tmp_path / "alone" / part / "CMakeLists.txt").unlink()
    rows, said = check(tmp_path / "alone")
    assert rows["Plus checks"][0] == "ok", said
    assert "op_host and op_kernel alone, with msopgen's build" in said


@pytest.mark.parametrize(("name", "layout"), [("launch", "ascendc_library"), ("asc", "the language ASC")])
def test_kernel_launch_projects_run_with_checks_and_without(name, layout):
    rows, said = check(HERE / name)
    assert rows["test"][0] == "ok", said
    assert f"a kernel launch project ({layout}) in ." in said


def test_a_folder_without_a_project_is_named(tmp_path):
    _, said = check(tmp_path, fails=True)
    assert f"{tmp_path}: no project of operators (CMakeLists.txt and op_host/)" in said
    _, said = check(tmp_path / "nothing", fails=True)
    assert "nothing is not a folder" in said


def test_the_folder_that_is_kept_has_all_that_was_said(tmp_path):
    project = shutil.copytree(HERE / "asc", tmp_path / "asc")
    check(project, "--keep", project / "kept")  # within what is copied
    assert list((project / "kept/logs").glob("*build*.txt"))
    _, said = check(HERE / "asc", "--keep", tmp_path, fails=True)
    assert f"--keep {tmp_path}: the folder is not empty" in said


@pytest.mark.parametrize("module", ["te", "tbe", "tbe.dsl"])
def test_who_asks_for_tbe_learns_what_to_write_instead(module):
    with pytest.raises(ModuleNotFoundError) as raised:
        __import__(module)
    assert "write the kernel in Ascend C" in remedy(f"{type(raised.value).__name__}: {raised.value}")
