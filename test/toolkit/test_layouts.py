# SPDX-License-Identifier: Apache-2.0
"""Projects as msopgen has written them from CANN 7 to 9, and a program that calls what they build, by old folders."""

import os
import platform
import shutil
from pathlib import Path

import aclnn
import pytest
import torch
from operator_project import CANN, run

LAYOUTS = Path(__file__).parent / "layouts"


def sourced(command, **variables):
    """What a command says in a shell that has sourced set_env.sh."""
    return run("bash", "-ec", f"source {CANN}/set_env.sh; {command}", **variables)


@pytest.fixture(scope="module", params=["7", "8.0", "8.2", "9"])
def package(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"layout{request.param}")
    defined = f"-DLAYOUT={request.param} -DCMAKE_INSTALL_PREFIX={folder}/opp"
    sourced(f"cmake -S {LAYOUTS} -B {folder}/build -G 'Unix Makefiles' {defined}")
    targets = "--target package" if request.param == "9" else "--target install"
    said = sourced(f"cmake --build {folder}/build --target binary; cmake --build {folder}/build {targets}")
    assert "warning:" not in said, said
    return folder / "opp/vendors/customize"


def test_a_project_builds_and_runs(package, tmp_path):
    variables = {"DDK_PATH": str(CANN), "NPU_HOST_LIB": f"{CANN}/runtime/lib64/stub", "PACKAGE": str(package)}
    sourced(f"cmake -S {LAYOUTS}/program -B {tmp_path}; cmake --build {tmp_path}", **variables)
    libraries = f"{package}/op_api/lib:{CANN}/lib64"
    said = run(tmp_path / "execute_op", LD_LIBRARY_PATH=libraries, ASCEND_CUSTOM_OPP_PATH=str(package))
    assert said.splitlines() == ["DT_FLOAT of 4 bytes, ND", "known again: 1", "5 5"]


def test_the_host_tiles_for_a_library_of_the_kernel(package):
    x, out = torch.randn(5, 24), torch.empty(5, 24).npu()
    aclnn.call(str(package / "op_api/lib/libcust_opapi.so"), "aclnnRowSoftmax", x.npu(), out)
    assert torch.allclose(out.cpu(), x.softmax(1), atol=1e-6)


def test_a_definition_that_cannot_be_built_leaves_nothing_of_an_earlier_one(tmp_path):
    project = shutil.copytree(LAYOUTS, tmp_path / "project")
    configure = f"cmake -S {project} -B {tmp_path}/build -DLAYOUT=8.0"
    sourced(configure)
    definition = project / "op_host/row_softmax.cpp"
    definition.write_text(definition.read_text().replace('Output("y")', 'Output("y z")'))
    said = run("bash", "-ec", f"source {CANN}/set_env.sh; {configure}", fails=True)
    assert "op_build: RowSoftmax: the name of one of its outputs is 'y z'" in said
    assert not {file.suffix for file in (tmp_path / "build/autogen").iterdir()} & {".h", ".cpp", ".cc"}


# What public scripts, CMake lists and Makefiles name of an installed toolkit, of CANN 5 to 9.
NAMED = [
    *(f"{part}/include/acl/acl.h" for part in ("acllib", "atc", "compiler", "fwkacllib", "hccl", "runtime", "toolkit")),
    "{machine}-linux/include/acl/acl.h",
    "{machine}-linux/runtime/include/acl/acl.h",
    "latest/lib64/libascendcl.so",
    "latest/lib64/driver/libascend_hal.so",
    "runtime/lib64/stub/libascendcl.so",
    "acllib/lib64/stub/libascendcl.so",
    "runtime/lib64/stub/linux/{machine}/libascendcl.so",
    "atc/lib64/libge_runner.so",
    "compiler/lib64/libacl_op_compiler.so",
    "{machine}-linux/devlib/libascendcl.so",
    "{machine}-linux/devlib/linux/{machine}/libascendcl.so",
    "bin/ccec",
    "compiler/ccec_compiler/bin/ccec",
    "{machine}-linux/ccec_compiler/bin/bisheng",
    "tools/bisheng_compiler/bin/bisheng",
    "compiler/bin/setenv.bash",
    "toolkit/python/site-packages/bin/msopgen",
    "tools/tikcpp/ascendc_kernel_cmake/ascendc.cmake",
    "{machine}-linux/tikcpp/ascendc_kernel_cmake/ascendc.cmake",
    "lib64/cmake/ASCConfig.cmake",
    "compiler/tikcpp/tikcfw/kernel_operator.h",
    "compiler/tikcpp/tikcfw/interface/kernel_operator.h",
    "{machine}-linux/asc/include/kernel_operator.h",
]


def test_folders_have_the_names_that_they_have_had():
    run("python", "-m", "cann_cpu", "home")
    named = [name.format(machine=platform.machine()) for name in NAMED]
    assert [name for name in named if not os.path.exists(CANN / name)] == []
    assert all((CANN / name).resolve().is_relative_to(CANN.resolve()) for name in named)


@pytest.mark.parametrize("folder", ["tools/tikcpp/ascendc_kernel_cmake", "lib64/cmake"])
def test_a_package_of_cmake_finds_the_toolkit_through_a_link(folder, tmp_path):
    text = f'find_package(ASC REQUIRED NO_DEFAULT_PATH PATHS {CANN}/{folder})\nmessage("${{CANN_CPU_HOME}}")'
    (tmp_path / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.16)\nproject(p CXX)\n{text}\n")
    assert f"{CANN.resolve()}\n" in run("cmake", "-S", tmp_path, "-B", tmp_path / "build")


def test_links_are_made_wherever_the_toolkit_lies_and_may_be_moved_with_it(tmp_path):
    home = tmp_path / "the toolkit"
    for part in ("bin", "include", "lib64", "compiler/tikcpp/ascendc_kernel_cmake", "python"):
        (home / part).mkdir(parents=True)
    shutil.copy2(CANN / "bin/link_folders", home / "bin")
    for _ in range(2):
        assert run(home / "bin/link_folders") == ""
    moved = home.rename(tmp_path / "moved")
    links = [
        Path(folder, name) for folder, names, _ in os.walk(moved) for name in names if Path(folder, name).is_symlink()
    ]
    assert len(links) > 30 and all(link.resolve().is_relative_to(moved) for link in links)
    assert (moved / "runtime/include").samefile(moved / "include")


def test_a_toolkit_that_may_not_be_written_says_so_and_is_served_without_links(tmp_path):
    (tmp_path / "bin").mkdir()
    shutil.copy2(CANN / "bin/link_folders", tmp_path / "bin")
    (tmp_path / "acllib").write_text("in the way")
    assert "acllib" in run(tmp_path / "bin/link_folders", fails=True)
