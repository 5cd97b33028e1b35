# SPDX-License-Identifier: Apache-2.0
"""The parameters of the aclnn functions of libopapi, as the rows of their table declare them."""

import re
import subprocess
from pathlib import Path

TABLE = Path(__file__).parents[1] / "cann_cpu/opapi"
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
    "const at::Scalar&": SCALAR,
    "const std::optional<at::Scalar>&": SCALAR,
    "const std::vector<at::Scalar>&": SCALARS,
    "at::IntArrayRef": INTS,
    "at::OptionalIntArrayRef": INTS,
    "at::ArrayRef<float>": FLOATS,
    "at::ArrayRef<bool>": BOOLS,
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
    return [" ".join(part.replace("\\", "").split()) for part in parts if part.strip()]


def signatures() -> dict[str, list[str]]:
    """The kinds of each function's parameters, by its name."""
    sources = [TABLE / "table.h", *sorted(TABLE.glob("*.cpp"))]
    lines = "".join(file.read_text() for file in sources).splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith(("#include", "#pragma")))
    text = re.sub(r"#define ACLNN(?:.*\\\n)*.*\n", "", text)  # rows stay as they are written
    expanded = subprocess.run(
        ["g++", "-E", "-P", "-x", "c++", "-"], input=text, capture_output=True, text=True, check=True
    )
    aliases = dict(re.findall(r"using (\w+) = (.+?);", expanded.stdout, re.DOTALL))

    def kind(declared: str) -> str:
        if declared in KINDS:
            return KINDS[declared]
        if declared in aliases:
            return kind(" ".join(aliases[declared].split()))
        inner = re.fullmatch(r"(?:Ignored<|Absent<\"\w+\", )(.+)>", declared)
        return kind(inner[1] if inner else declared.rsplit(maxsplit=1)[0])  # without the parameter's name

    rows = re.findall(r"ACLNN\w*\(\s*(\w+),\s*\[[^]]*\](\([^{]*?\))\s*(?:->\s*\w+\s*)?\{", expanded.stdout)
    return {f"aclnn{name}": [kind(part) for part in parameters(given)] for name, given in rows}


if __name__ == "__main__":
    for name, kinds in signatures().items():
        print(name, *kinds)
