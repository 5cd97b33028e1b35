# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernel of an operator, by the command line that the scripts of older msopgen projects use:

    opc SRC/AddCustom.py --main_func=add_custom --input_param=PARAM.json --soc_version=Ascend910B1 --output=FOLDER

The kernel's file is $BUILD_KERNEL_SRC, which the scripts of CANN 8.2 set, or SRC/MAIN_FUNC.cpp. PARAM.json has the
dtypes and formats. The description of the tiling data is in autogen/, where op_build has written it.
"""

import argparse
import json
import os
import shlex
import sys
from pathlib import Path

from ..names import BY_INFO, FORMATS, check_identifiers
from .operator_kernel import CompileError, compile_operator

NUMBERS = {name: number for number, name in FORMATS.items()}


def autogen(param: Path) -> Path:
    for folder in param.resolve().parents:
        if (folder / "autogen/operators.json").exists():
            return folder / "autogen"
    raise CompileError(f"{param}: no folder above it has autogen/operators.json, which op_build writes")


def operator_of(param: dict) -> dict:
    """One combination of dtypes, in the form in which op_build describes operators."""
    node = param["op_list"][0]

    def described(entries: list) -> list[dict]:
        flat = [entry[0] if isinstance(entry, list) else entry for entry in entries]
        return [{"name": each["name"], "presence": each["paramType"], "type": BY_INFO[each["dtype"]],
                 "format": NUMBERS.get(each["format"], 2)} for each in flat]  # fmt: skip

    inputs, outputs = described(node["inputs"]), described(node["outputs"])
    types = [each["type"] for each in inputs + outputs]
    formats = [each["format"] for each in inputs + outputs]
    return {"type": param["op_type"], "inputs": inputs, "outputs": outputs, "combinations": [[types, formats]]}


def options_of(folder: Path, operator: str) -> list[str]:
    """The options of add_ops_compile_options, from lines of an operator or ALL, SoCs, options."""
    file = folder / "custom_compile_options.ini"
    options = []
    for line in file.read_text().splitlines() if file.exists() else ():
        name, _, given = (part.strip() for part in line.split(",", 2))
        if name in (operator, "ALL"):
            options += shlex.split(given.replace(";", " "))
    return options


def main() -> int:
    parser = argparse.ArgumentParser(prog="opc", description=__doc__)
    parser.add_argument("source")
    parser.add_argument("--main_func", required=True)
    parser.add_argument("--input_param", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--soc_version", default="")
    given, _ = parser.parse_known_args()
    param = json.loads(Path(given.input_param).read_text())
    names = [given.main_func, param["op_type"], param["op_list"][0]["bin_filename"]]
    source = Path(os.environ.get("BUILD_KERNEL_SRC") or Path(given.source).with_name(f"{given.main_func}.cpp"))
    try:
        check_identifiers("--main_func, op_type or bin_filename", names, CompileError)
        if not source.exists():
            raise CompileError(f"{param['op_type']}: no kernel file {source}")
        folder = autogen(Path(given.input_param))
        tiling = json.loads((folder / "operators.json").read_text())["tiling"]
        options = options_of(folder, param["op_type"])
        place, cache = (given.output, given.soc_version, names[-1]), folder / ".kernels"
        compile_operator(operator_of(param), str(source), tiling, options, *place, cache)
    except CompileError as error:
        print(str(error).rstrip("\n"), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
