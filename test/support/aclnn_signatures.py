# SPDX-License-Identifier: Apache-2.0
"""The parameters of the aclnn functions of libopapi, as the rows of their table declare them."""

import ctypes
import os
import re
from pathlib import Path

from cann_cpu import activation

TABLE = Path(__file__).parents[2] / "cann_cpu/opapi"
TENSOR, TENSORS, SCALAR, SCALARS = "tensor", "tensors", "scalar", "scalars"
INTS, FLOATS, BOOLS, TEXT = "ints", "floats", "bools", "text"
# The types of cann_cpu/arguments.h; the rows use the short names of table.h.
KINDS = {
    "const at::Tensor&": TENSOR,
    "at::Tensor&": TENSOR,
    "InOut": TENSOR,
    "const StoredTensor&": TENSOR,
    "DataDependentOut&": TENSOR,
    "const std::optional<at::Tensor>&": TENSOR,
    "std::optional<at::Tensor>&": TENSOR,
    "const std::optional<InOut>&": TENSOR,
    "const std::vector<at::Tensor>&": TENSORS,
    "const std::optional<std::vector<at::Tensor>>&": TENSORS,
    "std::vector<at::Tensor>&": TENSORS,
    "std::optional<std::vector<at::Tensor>>&": TENSORS,
    "const at::Scalar&": SCALAR,
    "const std::optional<at::Scalar>&": SCALAR,
    "const std::vector<at::Scalar>&": SCALARS,
    "at::IntArrayRef": INTS,
    "at::OptionalIntArrayRef": INTS,
    "at::ArrayRef<float>": FLOATS,
    "at::ArrayRef<bool>": BOOLS,
    "std::optional<Bools>": BOOLS,
    "WrittenTensor&": TENSOR,
    "const Float4Tensor&": TENSOR,
    "Float4Tensor&": TENSOR,
    "const std::string&": TEXT,
    "at::ScalarType": "dtype",
    "int32_t": "int",
    "int8_t": "int",
} | {number: number for number in ("int", "int64_t", "uint64_t", "float", "double", "bool")}


def parameters(text: str) -> list[str]:
    """What stands between the first brackets, divided at the commas that are not within others; types and names."""
    parts, depth = [""], 0
    for character in text[text.index("(") + 1 :]:
        depth += (character in "<(") - (character in ">)")
        if depth < 0:
            break
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [" ".join(re.sub(r"\[\[\w+\]\]", "", part).split()) for part in parts if part.strip()]


def signatures() -> dict[str, list[str]]:
    """The kinds of each function's parameters, by its name."""
    text = "".join(file.read_text() for file in [TABLE / "table.h", *sorted(TABLE.glob("*.cpp"))])
    aliases = dict(re.findall(r"using (\w+) =\s(.+?);", text, re.DOTALL))

    def kind(declared: str) -> str:
        if declared in KINDS:
            return KINDS[declared]
        if declared in aliases:
            return kind(" ".join(aliases[declared].split()))
        inner = re.fullmatch(r"(?:Ignored<|Absent<\"\w+\", )(.+)>", declared)
        return kind(inner[1] if inner else declared.rsplit(maxsplit=1)[0])  # without the parameter's name

    functions = ctypes.CDLL(os.path.join(activation.LIBRARIES, "libopapi.so")).cann_cpu_functions
    functions.restype = ctypes.c_char_p
    rows = (line.split("\t") for line in functions().decode().splitlines())
    return {name: [kind(part) for part in parameters(given)] for name, _, _, given in rows}


if __name__ == "__main__":
    for name, kinds in signatures().items():
        print(name, *kinds)
