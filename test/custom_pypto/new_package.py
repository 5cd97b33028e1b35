# SPDX-License-Identifier: Apache-2.0
"""Builds an operator package faster than its setup.py does: without optimisation, and common headers only once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "probe"))
import build as probe

HEADERS = (
    "ATen/core/functional.h",
    "ATen/ops/empty.h",
    "torch/csrc/autograd/custom_function.h",
    "operator.h",
)
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
    torch, torch_npu, custom_pypto = map(probe._folder, ("torch", "torch_npu", "custom_pypto"))
    extension = probe.extension_includes().replace(str(probe.CSRC), str(custom_pypto / "csrc"))
    options = f"{extension} -isystem {folder / 'build/opp/autogen'}"
    linked = f"{probe._libraries(torch_npu / 'lib', 'torch_npu')} -L{custom_pypto} -l:{library}"
    lines = [NINJA, f"build csrc.h.gch: header csrc.h\n  options = {options}"]
    sources = sorted(folder.glob(f"{package}/csrc/*.cpp"))
    for source in sources:
        lines.append(f"build csrc/{source.stem}.o: compile {source} | csrc.h.gch")
        lines.append(f"  header = csrc.h\n  options = {options} -DTORCH_EXTENSION_NAME={package}_lib")
    objects = " ".join(f"csrc/{source.stem}.o" for source in sources)
    libraries = f"{linked} {probe._libraries(torch / 'lib', 'torch', 'torch_cpu', 'torch_python', 'c10')}"
    lines.append(f"build {package}/{package}_lib.so: link {objects}\n  libraries = {libraries}")
    return "\n".join(lines) + "\n"


def build(folder: Path, package: str) -> Path:
    """Makes an importable package, with its operator package in PACKAGE/opp; gives the folder that it lies in."""
    from custom_pypto import operator_package
    from custom_pypto.graph import codegen

    made = folder / "build"
    made.mkdir(exist_ok=True)
    (made / "csrc.h").write_text("".join(f"#include <{header}>\n" for header in HEADERS))
    (made / "build.ninja").write_text(_ninja(folder, package, operator_package.LIBRARY))
    cann = f"-DASCEND_CANN_PACKAGE_PATH={operator_package.cann_home()}"

    def run(*command) -> None:
        subprocess.run(command, check=True, stdout=sys.stderr, env=os.environ | {"CCACHE_DISABLE": "1"})

    run("cmake", "-S", folder / "opp", "-B", made / "opp", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", cann)
    run("cmake", "--build", made / "opp", "--target", "binary", "package")
    run(sys.executable, "-m", "ninja", "-C", made)
    run(*(made / "opp").glob("custom_opp_*.run"), f"--install-path={made / package / 'opp'}", "--quiet")
    shutil.copytree(folder / package, made / package, ignore=shutil.ignore_patterns("csrc"), dirs_exist_ok=True)
    api = codegen.api(made / "opp/autogen/op_proto.h")
    (made / package / "converter/auto_generated_ge_raw_custom_ops.py").write_text(api)
    return made
