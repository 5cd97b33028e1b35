# SPDX-License-Identifier: Apache-2.0
"""Projects in the layouts of CANN's toolkit, built by its own CMake lists with ASCEND_HOME_PATH set, and run."""

import os
import platform
import re
import subprocess
from pathlib import Path

import pytest
from cann_cpu import activation

CMAKE = f"{activation.HOME}/compiler/tikcpp/ascendc_kernel_cmake"


def test_kernels_are_launched_by_a_program_with_checks_and_without(project, toolkit):
    folder = project("launch")
    for checks in "01":
        toolkit.command(folder / "program", ASCENDC_CPU_CHECKS=checks)


def test_kernels_are_optimized_without_a_build_type_too(project, toolkit):
    commands = toolkit.command("ninja", "-C", project("launch"), "-t", "commands", "libscale_kernels.so")
    assert re.search(r" -O2 .* -c \S+/scale\.cpp", commands)


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "generator"), [("STATIC", "Unix Makefiles"), ("OBJECT", "Ninja")])
def test_the_other_types_of_libraries_launch_as_well(project, toolkit, kind, generator):
    folder = project("launch", generator, TYPE=kind)
    toolkit.command(folder / "program")
    assert (folder / "lib" / "libscale_kernels.a").is_file() == (kind == "STATIC")  # where CANN puts it


def test_kernels_run_in_a_program_of_the_host(project, toolkit):
    toolkit.command(project("launch", RUN_MODE="cpu") / "program")


@pytest.mark.parametrize("mode", ["npu", "cpu"])
def test_kernels_are_compiled_for_the_soc_and_choose_it(project, toolkit, mode):
    toolkit.command(project("launch", RUN_MODE=mode, SOC_VERSION="Ascend310B1") / "program")


def test_a_program_in_the_language_asc(project, toolkit):
    folder = project("asc", prefixes=CMAKE)
    libraries = {"LD_LIBRARY_PATH": activation.LIBRARIES}
    assert toolkit.command(folder / "program", **libraries) == "16640\n"  # four times 1 to 64, doubled


def test_a_project_with_a_language_of_its_own_for_kernels(toolkit, tmp_path):
    path = {"PATH": f"{toolkit.home}/bin:{os.environ['PATH']}"}
    toolkit.command("cmake", "-S", Path(__file__).parent / "cce", "-B", tmp_path, "-G", "Unix Makefiles", **path)
    toolkit.command("cmake", "--build", tmp_path, **path)
    toolkit.command(tmp_path / "program", LD_LIBRARY_PATH=activation.LIBRARIES, ASCENDC_CPU_CHECKS="1")


@pytest.mark.nightly
def test_a_matrix_product_with_its_tiling(project, toolkit):
    folder = project("matmul", prefixes=CMAKE)
    libraries = {"LD_LIBRARY_PATH": activation.LIBRARIES, "ASCENDC_CPU_CHECKS": "1"}
    assert toolkit.command(folder / "program", **libraries) == "96832\n"  # 48 times 0 to 63, and 1 for each


def test_a_build_does_again_what_a_change_reaches_and_no_more(project, toolkit):
    folder = project("launch")
    assert "no work to do" in toolkit.command("cmake", "--build", folder)
    header = folder / "include/scale_kernels/aclrtlaunch_scale.h"
    before = header.stat().st_mtime_ns
    source = os.path.join(os.path.dirname(__file__), "launch/scale.h")
    os.utime(source)
    planned = toolkit.command("ninja", "-n", "-C", folder)
    for built in ("scale_kernels.dir/scale.cpp.o", "scale_binary.dir/scale.cpp.o", "main.cpp.o", "aclrtlaunch headers"):
        assert built in planned
    toolkit.command("cmake", "--build", folder)
    assert header.stat().st_mtime_ns == before, "what includes the header would be compiled again"
    assert "no work to do" in toolkit.command("cmake", "--build", folder)


def test_what_is_installed(project, toolkit, tmp_path):
    toolkit.command("cmake", "--install", project("launch"), "--prefix", tmp_path)
    installed = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    headers = {
        f"include/scale_kernels/aclrtlaunch_{name}.h" for name in ("scale", "scale_by", "scale_by_3", "until_set")
    }
    assert installed == headers | {"bin/program", "lib/libscale_kernels.so", "fatbin/scale_binary/scale_binary.o"}
    libraries = {"LD_LIBRARY_PATH": f"{tmp_path}/lib:{activation.LIBRARIES}"}
    toolkit.command(tmp_path / "bin/program", **libraries)


@pytest.mark.parametrize("mode", ["npu", "cpu"])
def test_a_soc_that_is_not_served_ends_the_configuration(toolkit, tmp_path, mode):
    project = ["cmake", "-S", os.path.join(os.path.dirname(__file__), "launch"), "-B", tmp_path, "-G", "Ninja"]
    options = [f"-DRUN_MODE={mode}", "-DSOC_VERSION=Ascend610"]
    done = subprocess.run([*project, *options], env=toolkit.environment(), capture_output=True, text=True)
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert re.search(r"SOC_VERSION is Ascend610; cann_cpu serves Ascend310B1 .*Ascend910B1", said)


def test_a_project_of_an_early_cann_that_replays_no_operator(toolkit, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(early)\n"
        "set(tikreplaylib_DIR $ENV{ASCEND_HOME_PATH}/compiler/tikcpp/tikreplaylib/lib/cmake)\n"
        "find_package(tikreplaylib REQUIRED)\nif(REPLAYS)\n"
        "  add_library(replay SHARED early.cpp)\n  target_link_libraries(replay tikreplaylib::ascend910b)\nendif()\n"
    )
    (tmp_path / "early.cpp").write_text("int early;\n")
    build = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja"]
    toolkit.command(*build)
    done = subprocess.run([*build, "-DREPLAYS=1"], env=toolkit.environment(), capture_output=True, text=True)
    assert done.returncode == 1
    assert "tikreplaylib::ascend910b" in done.stderr


def test_a_program_links_the_libraries_that_ascend_s_examples_name(toolkit, tmp_path):
    (tmp_path / "main.cpp").write_text("int main() {}\n")
    names = "tiling_api register platform unified_dlog dl m graph_base ascendcl ascendc_runtime"
    linked = [f"-l{name}" for name in names.split()]
    toolkit.command("g++", tmp_path / "main.cpp", "-o", tmp_path / "program", f"-L{toolkit.home}/lib64", *linked)
    toolkit.command(tmp_path / "program")


@pytest.mark.parametrize("chip", ["ascend910B1", "ascend310p", "ascend910"])
def test_a_project_of_an_early_cann_names_the_chip_as_then(toolkit, tmp_path, chip):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(early CXX)\n"
        "set(tikicpulib_DIR $ENV{ASCEND_HOME_PATH}/tools/tikicpulib/lib/cmake)\nfind_package(tikicpulib REQUIRED)\n"
        f"add_executable(program main.cpp)\ntarget_link_libraries(program tikicpulib::{chip})\n"
    )
    (tmp_path / "main.cpp").write_text(
        '#include <cstdio>\n#include "tikicpulib.h"\nint main() { std::printf("%d\\n", __NPU_ARCH__); }\n'
    )
    toolkit.command("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja")
    toolkit.command("cmake", "--build", tmp_path / "build")
    architectures = {"ascend910B1": "2201", "ascend310p": "2002", "ascend910": "1001"}
    assert toolkit.command(tmp_path / "build/program").strip() == architectures[chip]


def test_the_environment_is_set_once_however_often_it_is_sourced(toolkit):
    home = toolkit.command("python", "-m", "cann_cpu", "home").strip()
    names = [
        "ASCEND_HOME_PATH",
        "ASCEND_TOOLKIT_HOME",
        "ASCEND_OPP_PATH",
        "LD_LIBRARY_PATH",
        "CMAKE_PREFIX_PATH",
        "PATH",
    ]
    script = f"source {home}/bin/setenv.bash; source {home}/set_env.sh; echo " + " ".join(f"${name}" for name in names)
    done = subprocess.run(["env", "-i", "PATH=/usr/bin:/bin", "bash", "-euc", script], capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("", 0)
    said = dict(zip(names, done.stdout.split(), strict=True))
    packages = f"{home}/compiler/tikcpp/ascendc_kernel_cmake:{home}/tools/tikicpulib/lib/cmake"
    assert said == {
        "ASCEND_HOME_PATH": home,
        "ASCEND_TOOLKIT_HOME": home,
        "ASCEND_OPP_PATH": f"{home}/opp",
        "LD_LIBRARY_PATH": f"{home}/lib64",
        "CMAKE_PREFIX_PATH": packages,
        "PATH": f"{home}/tools/profiler/bin:{home}/bin:/usr/bin:/bin",
    }
    for name in ("lib64/libascendcl.so", "include/acl/acl.h", "data/platform_config/Ascend910B3.ini"):
        assert os.path.exists(f"{home}/{platform.machine()}-linux/{name}")


def test_the_page_lists_what_the_toolkit_has(toolkit):
    text = (Path(__file__).parents[2] / "docs/toolkit.md").read_text().partition("the folders that CANN's has")[2]
    listed = dict(re.findall(r"^\| (`\S.*?`) \| (.*) \|$", text, re.MULTILINE))
    commands = {file.name for file in (toolkit.home / "bin").iterdir()} - {"run_module", "link_folders"}
    assert set(re.findall(r"`([\w.]+)`", listed["`bin/`"])) == commands
    libraries = {file.name.removeprefix("lib").removesuffix(".so") for file in (toolkit.home / "lib64").glob("*.so")}
    assert set(re.findall(r"`(\w+)`", listed["`lib64/`"])) == libraries
    files = [file for folder in ("tools", "toolkit", "python") for file in (toolkit.home / folder).rglob("*")]
    files = {file for file in files if file.is_file() and file.suffix in ("", ".py")}
    files -= {*(toolkit.home / "toolkit").glob("*.py")}  # modules of cann_cpu, which CANN has not
    files = {str(file.relative_to(toolkit.home)) for file in files}
    paths = {path for cell in listed for path in re.findall(r"`(\S+)`", cell)}
    assert {path for path in paths if not path.endswith("/")} == files
    assert all((toolkit.home / path).is_dir() for path in paths if path.endswith("/") and "-linux" not in path)
