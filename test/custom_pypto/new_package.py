# SPDX-License-Identifier: Apache-2.0
"""Builds an operator package faster than its setup.py does: without optimisation, and each library as one unit."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "probe"))
import build as probe

FLAGS = "-std=c++20 -O0 -fPIC -fvisibility=hidden -Wall -Wextra -Werror"


def unit(sources: Iterable[Path]) -> str:
    """The text of source files as one file. Each has a namespace around its code, as all define the same helpers."""
    texts = ["namespace ops {}\n"]  # of definitions; it may be another's file that fills it
    for source in sources:
        text = source.read_text()
        code = max(found.end() for found in re.finditer(r"^#(include|endif).*\n", text, flags=re.MULTILINE))
        line = text.count("\n", 0, code) + 1
        texts += [f'#line 1 "{source}"\n', text[:code]]
        texts += [f"namespace of_{source.stem} {{\nnamespace ops {{\nusing namespace ::ops;\n}}\n"]
        texts += [f'#line {line} "{source}"\n', text[code:], f"}}  // namespace of_{source.stem}\n"]
    return "".join(texts)


def _of_units(opp: Path, copy: Path) -> Path:
    """A copy of an operator package's sources, with one file for the host and one for the CPU's kernels."""
    shutil.copytree(opp, copy, ignore=shutil.ignore_patterns("*.cpp"))
    shutil.copytree(opp / "op_kernel", copy / "op_kernel", dirs_exist_ok=True)
    for part in ("op_host", "cpu"):
        if sources := sorted(opp.glob(f"{part}/*.cpp")):
            (copy / part / "all.cpp").write_text(unit(sources))
    return copy


def build(folder: Path, package: str) -> Path:
    """Makes an importable package, with its operator package in PACKAGE/opp; gives the folder that it lies in."""
    from custom_pypto import operator_package
    from custom_pypto.graph import codegen

    made = folder / "build"
    (made / package).mkdir(parents=True)
    cann = f"-DASCEND_CANN_PACKAGE_PATH={operator_package.cann_home()}"

    def run(*command) -> None:
        subprocess.run(command, check=True, stdout=sys.stderr)

    sources = _of_units(folder / "opp", made / "sources")
    unoptimised = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=")
    run("cmake", "-S", sources, "-B", made / "opp", "-G", "Ninja", *unoptimised, cann)
    run("cmake", "--build", made / "opp", "--target", "binary", "package")
    run(*(made / "opp").glob("custom_opp_*.run"), f"--install-path={made / package / 'opp'}", "--quiet")

    extension = made / "csrc.cpp"
    extension.write_text(unit(sorted(folder.glob(f"{package}/csrc/*.cpp"))))
    torch, torch_npu, custom_pypto = map(probe._folder, ("torch", "torch_npu", "custom_pypto"))
    options = probe.extension_includes().replace(str(probe.CSRC), str(custom_pypto / "csrc"))
    options += f" -isystem {made / 'opp/autogen'} -DTORCH_EXTENSION_NAME={package}_lib"
    libraries = f"{probe._libraries(torch_npu / 'lib', 'torch_npu')} -L{custom_pypto} -l:{operator_package.LIBRARY}"
    libraries += f" {probe._libraries(torch / 'lib', 'torch', 'torch_cpu', 'torch_python', 'c10')}"
    library = ("-shared", "-o", made / package / f"{package}_lib.so")
    run("g++", *FLAGS.split(), *options.split(), extension, *library, *libraries.split())

    shutil.copytree(folder / package, made / package, ignore=shutil.ignore_patterns("csrc"), dirs_exist_ok=True)
    api = codegen.api(made / "opp/autogen/op_proto.h")
    (made / package / "converter/auto_generated_ge_raw_custom_ops.py").write_text(api)
    return made
