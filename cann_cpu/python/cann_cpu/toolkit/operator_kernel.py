# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernel of a defined operator: what `opc` and the npu_op_* functions of CMake do.

The kernel file sees what CANN's build of operators gives it: DTYPE_X, ORIG_DTYPE_X and FORMAT_X of each input and
output, and the struct of its tiling data. It is compiled once for all combinations of dtypes and formats that give one
text.
"""

import argparse
import functools
import hashlib
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from ..activation import HOME
from ..ascendc.compiler import LINKED, CompileError, Source, instances_of
from ..chips import architecture_of
from ..names import DTYPES, FORMATS, snake_case


@dataclass(frozen=True)
class Combination:
    """A dtype and a format for each input and output."""

    types: tuple[int, ...]
    formats: tuple[int, ...]

    def options(self, operator: dict) -> list[str]:
        parameters = operator["inputs"] + operator["outputs"]
        inputs = [each["name"] for each in operator["inputs"]]
        options = []
        for i, (each, number, layout) in enumerate(zip(parameters, self.types, self.formats, strict=True)):
            name = each["name"].upper()
            if i >= len(inputs) and each["name"] in inputs:
                name += "_REF"
            dtype = DTYPES[number]
            options += [f"-DDTYPE_{name}={dtype.kernel}", f"-DORIG_DTYPE_{name}=DT_{dtype.ge}"]
            options.append(f"-DFORMAT_{name}=FORMAT_{FORMATS.get(layout, 'ND')}")
        return options


def combinations(operator: dict) -> list[Combination]:
    return [Combination(tuple(types), tuple(formats)) for types, formats in operator["combinations"]]


@dataclass
class Compiled:
    """A kernel file as it is for some combinations."""

    file: Source
    combinations: list[Combination] = field(default_factory=list)


def _numbers() -> str:
    """Dtypes and formats by name, for the preprocessor's conditions."""
    lines = [f"#define DT_{dtype.ge} {number}" for number, dtype in DTYPES.items()]
    lines += [f"#define FORMAT_{name} {number}" for number, name in FORMATS.items()]
    return "\n".join(lines)


@functools.cache
def _structs_of_libraries() -> set[str]:
    """The tilings of Ascend C's libraries, which every kernel knows."""
    headers = ("ascendc/tiling_structs.h", "kernel_tiling/cube_tiling.h")
    texts = (Path(HOME, "include", name).read_text() for name in headers)
    return {name for text in texts for name in re.findall(r"^struct (\w+)", text, flags=re.MULTILINE)}


def tiling_structs(operator: str, tiling: list[dict]) -> str:
    """The structs that the host has registered for an operator, as the kernel reads them."""
    registered = [each for each in tiling if each["type"] == operator]
    if not registered:
        return ""
    by_name = {each["struct"]: each for each in tiling}
    done: list[str] = []

    def text_of(each: dict) -> str:
        inner, lines = "", []
        for kind, name, count, is_struct in each["fields"]:
            kind = kind.rpartition("::")[2] if is_struct else kind
            if is_struct and kind not in by_name and kind not in _structs_of_libraries():
                raise CompileError(
                    f"{operator}: {each['struct']} has a {kind}, which REGISTER_TILING_DATA_CLASS has not named"
                )
            if is_struct and kind in by_name and kind not in done:
                inner += text_of(by_name[kind])
            lines.append(f"  {kind} {name}{f'[{count}]' if count else ''};\n")
        done.append(each["struct"])
        size = f'static_assert(sizeof({each["struct"]}) == {each["bytes"]}, "as the host has it");\n'
        return f"{inner}struct {each['struct']} {{\n{''.join(lines)}}};\n{size}"

    struct = registered[0]["struct"]
    return f"{text_of(registered[0])}using AscendCTilingData = {struct};\n"


def _with_context(source: Path, operator: str, tiling: list[dict]) -> str:
    return f"""#include "kernel_operator.h"
{_numbers()}
{tiling_structs(operator, tiling)}#include "{source.resolve()}"
"""


def _keys(text: str) -> str:
    """The tiling keys that a preprocessed file asks for; any, if one is not a plain number."""
    asked = re.findall(r"\.tiling_key == \(([^;{}]*?)\)\)", text)
    numbers = {re.fullmatch(r"\s*(\d+)(?:[uU]?[lL]{0,2})?\s*", each) for each in asked}
    if None in numbers:
        return "*"
    return " ".join(sorted({number[1] for number in numbers}, key=int)) or "0"


def _description(operator: dict, kernel: str, compiled: Compiled, parameters: int) -> str:
    columns = ";".join(" ".join(map(str, each.types + each.formats)) for each in compiled.combinations)
    before, after = r"\n".join([operator["type"], kernel, columns, ""]), rf"\n{parameters}"
    if kernel in compiled.file.templates:
        keys = f"std::string(AscendC::tpl::keys<{instances_of(kernel)}>())"
        text = (
            f'static const std::string text = {keys}.insert(0, "{before}").append("{after}");\n  return text.c_str();'
        )
    else:
        text = f'return "{before}{_keys(compiled.file.text)}{after}";'
    return f"""
extern "C" __attribute__((visibility("default"))) const char* ascendc_cpu_operator() {{
  {text}
}}
"""


def kernel_name(operator: dict, kernels: dict) -> str:
    """The kernel of an operator's file: that of the operator's name, or the only one."""
    name = snake_case(operator["type"])
    if name in kernels:
        return name
    if len(kernels) == 1:
        return next(iter(kernels))
    found = ", ".join(kernels) or "none"
    raise CompileError(f"{operator['type']}: its kernel file has no kernel {name}; there is {found}")


def variants(operator: dict, source: Path, tiling: list[dict], options: list[str], scratch: Path) -> list[Compiled]:
    """The texts to which the file preprocesses, each with the combinations that give it."""
    wrapper = scratch / f"{operator['type']}.cpp"
    text = _with_context(source, operator["type"], tiling)
    if not wrapper.exists() or wrapper.read_text() != text:
        scratch.mkdir(parents=True, exist_ok=True)
        part = wrapper.with_suffix(f".{os.getpid()}")
        part.write_text(text)
        part.replace(wrapper)
    found: dict[str, Compiled] = {}
    of_any_format: dict[tuple, Compiled] = {}  # by dtypes
    asked: set[str] = set()
    include = [f"-I{source.resolve().parent}"]
    for each in combinations(operator):
        known = of_any_format.get(each.types) if asked or not found else next(iter(found.values()))
        if known is None:
            file = Source(wrapper, ["-O2", "-Wall", *include, *options, *each.options(operator)])
            known = found.setdefault("".join(file.texts), Compiled(file))
            names = _asked_names(file)
            asked |= names
            if not any(name.startswith("FORMAT_") for name in names):
                of_any_format[each.types] = known
        known.combinations.append(each)
    return list(found.values())


def compile_operator(
    operator: dict,
    source: str,
    tiling: list[dict],
    options: list[str],
    folder: str,
    unit: str,
    name: str | None = None,
    cache: Path | None = None,
) -> list[Path]:
    """Compiles an operator's kernel for a chip or a family of them, into FOLDER, as NAME.o or TYPE_hash.o.

    What it compiles stays in CACHE. The device's compiler orders instructions, as in the projects of msopgen, unless
    the options say that it does not.
    """
    if not any(option.startswith("--cce-auto-sync") for option in options):
        options = ["--cce-auto-sync", *options]
    options = [*options, f"--npu-arch=dav-{architecture_of(unit)}"]
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    cache = cache or out.parent / ".source"
    made = []
    for compiled in variants(operator, Path(source), tiling, options, cache):
        compiled.file.check()
        kernel = kernel_name(operator, compiled.file.kernels)
        count = len(compiled.file.kernels[kernel].parameters)
        expected = len(operator["inputs"]) + len(operator["outputs"]) + 2
        if count != expected:
            raise CompileError(
                f"{source}: kernel {kernel} has {count} parameters; {operator['type']} has {expected}: inputs, "
                "outputs, workspace, tiling"
            )
        more = _description(operator, kernel, compiled, count)
        text_hash = hashlib.sha256(("".join(compiled.file.texts) + more + " ".join(options)).encode()).hexdigest()[:32]
        base = name or f"{operator['type']}_{text_hash}"
        known, library = cache / f"{text_hash}.o", out / f"{base}.o"
        if not known.exists():
            part = f"{known}.{os.getpid()}"  # other processes may also compile it
            print(compiled.file.compile(["-shared", "-o", part, *LINKED], more), end="")
            os.replace(part, known)
        if not (library.exists() and library.samefile(known)):
            library.unlink(missing_ok=True)
            os.link(known, library)
        (out / f"{base}.json").write_text(json.dumps(_json(operator, kernel, base, compiled), indent=2))
        made.append(library)
    if name is None:
        for old in out.glob(f"{operator['type']}_*.*"):
            if old.with_suffix(".o") not in made:
                old.unlink()
    return made


def _json(operator: dict, kernel: str, base: str, compiled: Compiled) -> dict:
    """What CANN's layout has beside a kernel, and the scripts of older projects read."""
    first = compiled.combinations[0]
    count = len(operator["inputs"])

    def listed(parameters: list[dict], types: tuple, formats: tuple) -> list:
        entries = [
            {"name": each["name"], "index": i, "dtype": DTYPES[number].info, "format": FORMATS.get(layout, "ND"),
             "paramType": each["presence"], "shape": [-2], "format_match_mode": "FormatAgnostic"}
            for i, (each, number, layout) in enumerate(zip(parameters, types, formats, strict=True))
        ]  # fmt: skip
        return [[entry] if entry["paramType"] == "dynamic" else entry for entry in entries]

    return {
        "binFileName": base,
        "binFileSuffix": ".o",
        "coreType": "VectorCore",
        "kernelName": kernel,
        "supportInfo": {
            "implMode": "high_performance",
            "int64Mode": False,
            "simplifiedKeyMode": 0,
            "staticKey": "",
            "inputs": listed(operator["inputs"], first.types[:count], first.formats[:count]),
            "outputs": listed(operator["outputs"], first.types[count:], first.formats[count:]),
            "opMode": "dynamic",
            "deterministic": "ignore",
        },
    }


def _asked_names(source: Source) -> set[str]:
    """What the author's files name of that in which combinations differ."""
    files = set(re.findall(r'^# \d+ "([^"<]+)"', source.text, flags=re.MULTILINE))
    authors = [Path(file) for file in files if not file.startswith(HOME) and Path(file).name != source.path.name]
    texts = [path.read_text(errors="replace") for path in authors if path.is_file()]
    return {name for text in texts for name in re.findall(r"\b(?:ORIG_DTYPE|DTYPE|FORMAT)_[A-Z]\w*", text)}


def _build(arguments: argparse.Namespace) -> None:
    found = json.loads(Path(arguments.definitions).read_text())
    operator = next(each for each in found["operators"] if each["type"] == arguments.operator)
    name = snake_case(operator["type"])
    source = Path(arguments.source, arguments.file or f"{name}.cpp")
    if not source.exists():
        raise CompileError(f"{operator['type']}: no kernel file {source}; npu_op_kernel_sources names it")
    units = [unit for unit in arguments.units.split(";") if unit in operator["socs"]]
    if not units:
        raise CompileError(
            f"{operator['type']} is defined for {', '.join(operator['socs'])}, and the build is for {arguments.units}: "
            'AddConfig("...") in its definition, or ASCEND_COMPUTE_UNIT'
        )
    # Variants with the same dtypes and architecture are compiled once.
    made: dict[tuple, Path] = {}
    for unit in units:
        folder = Path(arguments.output, unit, name)
        here = operator | operator["socs"][unit]
        key = (json.dumps(here["combinations"]), architecture_of(unit))
        if key in made:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(made[key], folder)
        else:
            compile_operator(here, str(source), found["tiling"], arguments.options, str(folder), unit)
            made[key] = folder
    for old in Path(arguments.output).glob(f"*/{name}"):
        if old.parent.name not in units:
            shutil.rmtree(old)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m cann_cpu.toolkit.operator_kernel", description=__doc__)
    for name in ("definitions", "operator", "units", "source", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--file", default="")
    parser.add_argument("options", nargs="*")
    try:
        _build(parser.parse_args())
    except CompileError as error:
        print(str(error).rstrip("\n"), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
