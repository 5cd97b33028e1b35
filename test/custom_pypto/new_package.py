# SPDX-License-Identifier: Apache-2.0
"""Builds an operator package faster than its setup.py does: without optimisation, and common headers only once."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "probe"))
import build as probe

HEADERS = {
    "csrc": (
        "ATen/core/functional.h",
        "ATen/ops/empty.h",
        "torch/csrc/autograd/custom_function.h",
        "operator.h",
    ),
    "opp": ("ATen/ATen.h", "cann_cpu/op.h"),
}
NINJA = """
rule header
  command = g++ -x c++-header {flags} $options -c $in -o $out
rule compile
  command = g++ {flags} {warnings} -include $header $options -c $in -o $out
rule link
  command = g++ -shared -o $out $in $libraries
""".format(
    flags="-std=c++20 -O0 -fPIC -fvisibility=hidden",
    warnings="-Wall -Wextra -Werror -Winvalid-pch",
)


def _ninja(folder: Path, package: str, library: str) -> str:
    torch, torch_npu, cann, custom_pypto = map(probe._folder, ("torch", "torch_npu", "cann_cpu", "custom_pypto"))
    aclnn = folder / "build/opp/aclnn"
    of_torch = " ".join(f"-isystem {path}" for path in probe._torch_includes(torch))
    extension = probe.extension_includes()
    for sources in (probe.CSRC, probe.OPP):  # as they are installed
        extension = extension.replace(f"-I{sources} ", f"-I{custom_pypto / sources.name} ")
    options = {
        "csrc": f"{extension} -isystem {aclnn}",
        "opp": f"-I{aclnn} -isystem {cann / 'include'} {of_torch} -DAT_PER_OPERATOR_HEADERS -Wmissing-declarations",
    }
    linked = {
        "csrc": f"{probe._libraries(torch_npu / 'lib', 'torch_npu')} -L{custom_pypto} -l:{library}",
        "opp": probe._libraries(cann / "lib64", "nnopbase", "ascendcl"),
    }
    targets = {
        "csrc": (f"{package}/{package}_lib.so", sorted(folder.glob(f"{package}/csrc/*.cpp"))),
        "opp": (
            f"{package}/opp/vendors/{package}/op_api/lib/libcust_opapi.so",
            sorted(folder.glob("opp/op_api/*.cpp")),
        ),
    }
    lines = [NINJA]
    for part, (target, sources) in targets.items():
        lines.append(f"build {part}.h.gch: header {part}.h\n  options = {options[part]}")
        for source in sources:
            lines.append(f"build {part}/{source.stem}.o: compile {source} | {part}.h.gch")
            lines.append(f"  header = {part}.h\n  options = {options[part]} -DTORCH_EXTENSION_NAME={package}_lib")
        objects = " ".join(f"{part}/{source.stem}.o" for source in sources)
        libraries = f"{linked[part]} {probe._libraries(torch / 'lib', 'torch', 'torch_cpu', 'torch_python', 'c10')}"
        lines.append(f"build {target}: link {objects}\n  libraries = {libraries}")
    return "\n".join(lines) + "\n"


def build(folder: Path, package: str) -> Path:
    """Makes an importable package, with its operator package in PACKAGE/opp; gives the folder that it lies in."""
    from custom_pypto import operator_package

    made = folder / "build"
    made.mkdir(exist_ok=True)
    for part, headers in HEADERS.items():
        (made / f"{part}.h").write_text("".join(f"#include <{header}>\n" for header in headers))
    (made / "build.ninja").write_text(_ninja(folder, package, operator_package.LIBRARY))
    environment = os.environ | {"CCACHE_DISABLE": "1"}
    options = {"CMAKE_BUILD_TYPE": "Debug", "ASCEND_HOME_PATH": operator_package.cann_home()}
    options |= {"Python_EXECUTABLE": sys.executable, "custom_pypto_DIR": operator_package.HERE / "cmake"}
    defines = [f"-D{name}={value}" for name, value in options.items()]
    for command in (
        ["cmake", "-S", folder / "opp", "-B", made / "opp", "-G", "Ninja", *defines],
        ["cmake", "--build", made / "opp", "--target", "aclnn_headers", "ge_api", "cust_opsproto_rt2.0"],
        [sys.executable, "-m", "ninja", "-C", made],
    ):
        subprocess.run(command, check=True, stdout=sys.stderr, env=environment)
    vendor = made / package / "opp/vendors" / package
    platform_folder = f"{platform.system()}/{platform.machine()}".lower()
    shutil.copytree(folder / package, made / package, ignore=shutil.ignore_patterns("csrc"), dirs_exist_ok=True)
    for file, place in {
        "auto_generated_ge_raw_custom_ops.py": made / package / "converter",
        "libcust_opsproto_rt2.0.so": vendor / "op_proto/lib" / platform_folder,
    }.items():
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(made / "opp" / file, place)
    return made
