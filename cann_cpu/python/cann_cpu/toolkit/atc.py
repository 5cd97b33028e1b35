# SPDX-License-Identifier: Apache-2.0
"""Makes models of single operators: `atc --singleop=OPERATORS.json --output=FOLDER --soc_version=Ascend910B3`.

The JSON is a list: of each operator `op`, `input_desc`, `output_desc` (format, shape, shape_range, type) and `attr`
(name, type, value). A model says for which descriptions aclopExecute runs the operator, which an installed package or
cann_cpu has; it holds no kernel, and only cann_cpu reads it (aclop/operator_models.cpp).
"""

import argparse
import ctypes
import json
import os
import sys
from pathlib import Path

from ..chips import chips
from ..names import BY_INFO, FORMATS, check_identifiers

FORMAT_NUMBERS = {name: number for number, name in FORMATS.items()}


class ModelError(RuntimeError):
    """The description of an operator has a field that no model can have; the message names the operator."""


def _choice(table: dict, key, what: str):
    if key not in table:
        raise ModelError(f"{what} is {key}; there is {', '.join(map(str, table))}")
    return table[key]


def _dim(size: int, limits: list | None) -> str:
    if size != -1 or limits is None:
        return str(size)
    return f"-1:{limits[0]}:{limits[1]}"


def _tensor(kind: str, entry: dict, what: str) -> str:
    numbers = (
        _choice(BY_INFO, entry["type"], f"{what}: type"),
        _choice(FORMAT_NUMBERS, entry["format"], f"{what}: format"),
    )
    shape, limits = entry["shape"], entry.get("shape_range")
    if limits is None:
        limits = [None] * len(shape)
    unknown = sum(size == -1 for size in shape)
    if len(limits) == unknown != len(shape):  # of the dims that are unknown alone
        rest = iter(limits)
        limits = [next(rest) if size == -1 else None for size in shape]
    if len(limits) != len(shape) or any(size < -1 for size in shape):
        raise ModelError(f"{what}: shape {shape} with shape_range {limits}: a range for each dim of -1, or none")
    return " ".join([kind, *map(str, numbers), *(_dim(*each) for each in zip(shape, limits, strict=True))])


def _text(kind: str, value) -> str:
    """As the runtime writes what the caller has set."""
    if kind.startswith("list_"):
        return "[" + ",".join(_text(kind.removeprefix("list_"), each) for each in value) + "]"
    writers = {
        "bool": lambda: str(int(value)),
        "int": lambda: str(int(value)),
        "float": lambda: f"{ctypes.c_float(value).value:.9g}",
        "string": lambda: str(value),
        "data_type": lambda: str(_choice(BY_INFO, value, "a data_type")),
    }
    text = _choice(writers, kind, "the type of an attribute")()
    if "\n" in text:
        raise ModelError(f"an attribute is {text!r}: a model has a line for each")
    return text


def model(operator: dict, soc: str) -> str:
    name = operator["op"]
    check_identifiers("the type of an operator", [name], ModelError)
    check_identifiers(
        f"{name}: the name of an attribute", [each["name"] for each in operator.get("attr", [])], ModelError
    )
    lines = ["cann_cpu single operator 1", f"soc {soc}", f"op {name}"]
    for kind in ("input", "output"):
        entries = operator.get(f"{kind}_desc", [])
        lines += [_tensor(kind, each, f"{name}: {kind} {i}") for i, each in enumerate(entries)]
    lines += [f"attr {each['name']} {_text(each['type'], each['value'])}" for each in operator.get("attr", [])]
    return "".join(f"{line}\n" for line in lines)


def write(description: str, folder: str, soc: str) -> list[Path]:
    if soc not in chips():
        raise ModelError(f"--soc_version={soc}; there is {', '.join(chips())}")
    try:
        operators = json.loads(Path(description).read_text())
        operators = operators if isinstance(operators, list) else [operators]
        texts = [(each["op"], model(each, soc)) for each in operators]
    except (OSError, ValueError) as error:
        raise ModelError(f"{description}: {error}") from None
    except (KeyError, TypeError) as error:
        raise ModelError(f"{description}: an operator has no {error}") from None
    Path(folder).mkdir(parents=True, exist_ok=True)
    made = []
    for i, (name, text) in enumerate(texts):
        shapes = [line.replace(":", "_").split()[1:] for line in text.splitlines() if line.startswith(("in", "out"))]
        made.append(Path(folder, "_".join([str(i), name, *(word for words in shapes for word in words)]) + ".om"))
        made[-1].write_text(text)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(prog="atc", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--singleop")
    parser.add_argument("--output", default=os.curdir)
    parser.add_argument("--soc_version", required=True)
    given, others = parser.parse_known_args()
    if given.singleop is None or others:
        wrong = " ".join(others) or "no --singleop"
        print(f"atc: {wrong}: models of single operators are made (--singleop, --output, --soc_version), and no others",
              file=sys.stderr)  # fmt: skip
        return 2
    try:
        for path in write(given.singleop, given.output, given.soc_version):
            print(path)
    except ModelError as error:
        print(f"atc: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
