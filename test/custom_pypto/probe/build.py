# SPDX-License-Identifier: Apache-2.0
"""Builds the probe, an operator package and its extension, into build/probe; only what changed is compiled."""

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

from filelock import FileLock

from custom_pypto.operator_package import CURRENT_VERSION, LIBRARY

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = ROOT / "build" / "probe"
CSRC = ROOT / "custom_pypto" / "csrc"

NINJA = """
rule compile
  command = g++ -std=c++20 -O0 -fPIC -fvisibility=hidden -MD -MF $out.d -c $in -o $out $includes
  depfile = $out.d
rule link
  command = g++ -shared -o $out $in $libraries
build opapi.o: compile {here}/opapi.cpp
  includes = {package_includes}
build op_api/lib/libcust_opapi.so: link opapi.o
  libraries = {package_libraries}
build extension.o: compile {here}/extension.cpp
  includes = {extension_includes}
build authored.o: compile {here}/authored.cpp
  includes = {extension_includes}
build extension.so: link extension.o authored.o
  libraries = {extension_libraries}
"""


def _folder(package: str) -> Path:
    return Path(importlib.util.find_spec(package).submodule_search_locations[0])


def _libraries(folder: Path, *names: str) -> str:
    return " ".join([f"-L{folder} -Wl,-rpath,{folder}", *(f"-l{name}" for name in names)])


def extension_includes() -> str:
    """The options with which a file that calls EXEC_NPU_CMD is compiled."""
    torch, torch_npu, cann = _folder("torch"), _folder("torch_npu"), _folder("cann_cpu")
    includes = [*_torch_includes(torch), torch_npu / "include"]
    includes += [torch_npu / "include/third_party" / part for part in ("acl/inc", "hccl/inc", "op-plugin")]
    includes += [cann / "include", sysconfig.get_path("include")]
    defines = f"-DCURRENT_VERSION={CURRENT_VERSION} -DAT_PER_OPERATOR_HEADERS"
    return f"-I{CSRC} {defines} " + " ".join(f"-isystem {path}" for path in includes)


def _torch_includes(torch: Path) -> list[Path]:
    return [torch / "include", torch / "include/torch/csrc/api/include"]


def build() -> tuple[Path, Path]:
    """Returns the operator package, for ASCEND_CUSTOM_OPP_PATH, and the extension, to load after custom_pypto."""
    torch, torch_npu, cann = _folder("torch"), _folder("torch_npu"), _folder("cann_cpu")
    torch_libraries = _libraries(torch / "lib", "torch", "torch_cpu", "c10")
    text = NINJA.format(
        here=HERE,
        package_includes=" ".join(f"-isystem {path}" for path in [*_torch_includes(torch), cann / "include"]),
        package_libraries=f"{torch_libraries} {_libraries(cann / 'lib64', 'nnopbase', 'ascendcl')}",
        extension_includes=extension_includes(),
        extension_libraries=f"{torch_libraries} {_libraries(torch_npu / 'lib', 'torch_npu')} "
        + _libraries(_folder("custom_pypto"), f":{LIBRARY}"),
    )
    BUILD.mkdir(parents=True, exist_ok=True)
    with FileLock(BUILD / "lock"):  # tests run side by side
        (BUILD / "build.ninja").write_text(text)
        subprocess.run([sys.executable, "-m", "ninja", "-C", BUILD], check=True, stdout=sys.stderr)
    return BUILD, BUILD / "extension.so"


if __name__ == "__main__":
    print(*build())
