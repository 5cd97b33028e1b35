# SPDX-License-Identifier: Apache-2.0
"""Writes a project of operators: `msopgen gen -i OPERATORS.json -c ai_core-Ascend910B3 -lan cpp -out FOLDER`.

The JSON is a list: of each operator `op`, `input_desc` and `output_desc` (name, param_type, format, type) and `attr`
(name, param_type, type, default_value). The project has the definitions, and tiling and kernels to be filled in.
"""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

from ..names import BY_INFO, DTYPES, check_identifiers, snake_case

TEMPLATE = Path(__file__).with_name("operator_project")
UNITS = {
    r"ascend910b\d.*": "ascend910b",
    r"ascend910_93.*": "ascend910_93",
    r"ascend910.*": "ascend910",
    r"ascend310p.*": "ascend310p",
    r"ascend310b.*": "ascend310b",
    r"ascend950.*": "ascend950",
}
ATTRIBUTES = {
    "int": "Int",
    "float": "Float",
    "bool": "Bool",
    "str": "String",
    "string": "String",
    "list_int": "ListInt",
    "list_float": "ListFloat",
    "list_bool": "ListBool",
}
LITERALS = {
    "int": re.compile(r"[+-]?\d+"),
    "float": re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?"),
    "bool": re.compile(r"true|false|[01]"),
}
PRESENCES = ("required", "optional", "dynamic")


class ProjectError(RuntimeError):
    """The description of an operator has a field that no definition can have."""


def unit_of(core: str) -> str:
    kind, _, soc = core.partition("-")
    for pattern, unit in UNITS.items():
        if kind == "ai_core" and re.fullmatch(pattern, soc.lower()):
            return unit
    raise ProjectError(f"-c {core}: expected ai_core-SOC, where SOC is a chip: Ascend910B3, Ascend310B4, ...")


def dtype(operator: str, parameter: str, name: str) -> str:
    if name not in BY_INFO:
        raise ProjectError(f"{operator}: {parameter} is of type {name}; there is {', '.join(BY_INFO)}")
    return f"ge::DT_{DTYPES[BY_INFO[name]].ge}"


def presence(operator: str, each: dict) -> str:
    given = each.get("param_type", "required")
    if given not in PRESENCES:
        raise ProjectError(f"{operator}: {each['name']} is {given!r}; there is {', '.join(PRESENCES)}")
    return given.upper()


def parameter(operator: str, macro: str, each: dict) -> str:
    types = [dtype(operator, each["name"], name) for name in each["type"]]
    check_identifiers(f"{operator}: a format", each.get("format", []), ProjectError)
    formats = [f"ge::FORMAT_{name}" for name in each.get("format", ["ND"])]
    formats = formats if len(formats) == len(types) else formats[:1] * len(types)
    return f"""    this->{macro}("{each["name"]}")
        .ParamType({presence(operator, each)})
        .DataType({{{", ".join(types)}}})
        .Format({{{", ".join(formats)}}});
"""


def attribute(operator: str, each: dict) -> str:
    if each["type"] not in ATTRIBUTES:
        raise ProjectError(
            f"{operator}: attribute {each['name']} is a {each['type']}; there is {', '.join(ATTRIBUTES)}"
        )
    value = each.get("default_value")
    if value in (None, ""):
        value = ""
    else:
        value = json.dumps(value) if each["type"] in ("str", "string") else literals(operator, each, value)
    kind = ATTRIBUTES[each["type"]]
    return f'    this->Attr("{each["name"]}").AttrType({presence(operator, each)}).{kind}({value});\n'


def literals(operator: str, each: dict, value) -> str:
    """What C++ writes for a number, a truth value or a list of these: 0.5, "[0, 1]" or [0, 1] in the description."""
    is_list = each["type"].startswith("list")
    parts = value if isinstance(value, list) else str(value).strip("[]{} ").split(",") if is_list else [value]
    words = [str(part).strip().lower() for part in parts if str(part).strip()]
    literal = LITERALS[each["type"].removeprefix("list_")]
    if not all(map(literal.fullmatch, words)) or (len(words) != 1 and not is_list):
        article = "an" if each["type"] == "int" else "a"
        raise ProjectError(f"{operator}: attribute {each['name']} is {article} {each['type']}, its default {value!r}")
    return "{" + ", ".join(words) + "}" if is_list else words[0]


def tiling_header(operator: dict) -> str:
    name = operator["op"]
    return f"""#pragma once

#include "register/tilingdata_base.h"

namespace optiling {{

// What the kernel needs to know of a call: its own fields, with set_x() and get_x().
BEGIN_TILING_DATA_DEF({name}TilingData)
  TILING_DATA_FIELD_DEF(uint32_t, size);
END_TILING_DATA_DEF;

REGISTER_TILING_DATA_CLASS({name}, {name}TilingData)

}}  // namespace optiling
"""


def host(operator: dict, unit: str) -> str:
    name = operator["op"]
    listed = "".join(parameter(name, "Input", each) for each in operator["input_desc"])
    listed += "".join(parameter(name, "Output", each) for each in operator["output_desc"])
    listed += "".join(attribute(name, each) for each in operator.get("attr", []))
    return f"""// {name}: its definition, the inference of shape and dtype, and the tiling of a call.
#include "{snake_case(name)}_tiling.h"

#include "register/op_def_registry.h"

namespace optiling {{

// Divides a call among blocks.
static ge::graphStatus TilingFunc(gert::TilingContext* context) {{
  {name}TilingData tiling;
  tiling.set_size(context->GetInputShape(0)->GetOriginShape().GetShapeSize());
  context->SetBlockDim(8);
  tiling.SaveToBuffer(context->GetRawTilingData()->GetData(), context->GetRawTilingData()->GetCapacity());
  context->GetRawTilingData()->SetDataSize(tiling.GetDataSize());
  context->GetWorkspaceSizes(1)[0] = 0;
  return ge::GRAPH_SUCCESS;
}}

}}  // namespace optiling

namespace ge {{

// The first output has the shape and the dtype of the first input.
static graphStatus InferShape(gert::InferShapeContext* context) {{
  *context->GetOutputShape(0) = *context->GetInputShape(0);
  return GRAPH_SUCCESS;
}}

static graphStatus InferDataType(gert::InferDataTypeContext* context) {{
  context->SetOutputDataType(0, context->GetInputDataType(0));
  return GRAPH_SUCCESS;
}}

}}  // namespace ge

namespace ops {{

class {name} : public OpDef {{
 public:
  explicit {name}(const char* name) : OpDef(name) {{
{listed}    this->SetInferShape(ge::InferShape).SetInferDataType(ge::InferDataType);
    this->AICore().SetTiling(optiling::TilingFunc).AddConfig("{unit}");
  }}
}};

OP_ADD({name});

}}  // namespace ops
"""


def kernel(operator: dict) -> str:
    names = [each["name"] for each in operator["input_desc"]]
    names += [f"{each['name']}_out" if each["name"] in names else each["name"] for each in operator["output_desc"]]
    parameters = ", ".join(f"GM_ADDR {name}" for name in [*names, "workspace", "tiling"])
    return f"""#include "kernel_operator.h"

extern "C" __global__ __aicore__ void {snake_case(operator["op"])}({parameters}) {{
  GET_TILING_DATA(tiling_data, tiling);
  // tiling_data.size is what the host has set; GetBlockIdx() of GetBlockNum() says which part is this block's.
}}
"""


def presets(unit: str, framework: str) -> dict:
    def entry(kind: str, value: str) -> dict:
        return {"type": kind, "value": value}

    variables = {
        "CMAKE_BUILD_TYPE": entry("STRING", "Release"),
        "ENABLE_SOURCE_PACKAGE": entry("BOOL", "True"),
        "ENABLE_BINARY_PACKAGE": entry("BOOL", "True"),
        "ASCEND_COMPUTE_UNIT": entry("STRING", unit),
        "ENABLE_TEST": entry("BOOL", "True"),
        "vendor_name": entry("STRING", "customize"),
        "ASCEND_CANN_PACKAGE_PATH": entry("PATH", "$env{ASCEND_HOME_PATH}"),
        "ASCEND_PYTHON_EXECUTABLE": entry("STRING", "python3"),
        "CMAKE_INSTALL_PREFIX": entry("PATH", "${sourceDir}/build_out"),
        "ENABLE_CROSS_COMPILE": entry("BOOL", "False"),
        "CMAKE_CROSS_PLATFORM_COMPILER": entry("PATH", "/usr/bin/aarch64-linux-gnu-g++"),
        "ASCEND_PACK_SHARED_LIBRARY": entry("BOOL", "True" if framework == "aclnn" else "False"),
    }
    preset = {
        "name": "default",
        "displayName": "The package",
        "generator": "Unix Makefiles",
        "binaryDir": "${sourceDir}/build_out",
        "cacheVariables": variables,
    }
    required = {"major": 3, "minor": 19, "patch": 0}
    return {"version": 1, "cmakeMinimumRequired": required, "configurePresets": [preset]}


def generate(description: str, core: str, framework: str, folder: str, chosen: str | None = None) -> None:
    operators = json.loads(Path(description).read_text())
    operators = operators if isinstance(operators, list) else [operators]
    for operator in operators:
        check_identifiers("an operator's name", [operator["op"]], ProjectError)
        for key, what in (("input_desc", "a parameter"), ("output_desc", "a parameter"), ("attr", "an attribute")):
            names = [each["name"] for each in operator.get(key, [])]
            check_identifiers(f"{operator['op']}: the name of {what}", names, ProjectError)
    names = [operator["op"] for operator in operators]
    if chosen and chosen not in names:
        raise ProjectError(f"-op {chosen}: {description} has {', '.join(names)}")
    operators = [operator for operator in operators if not chosen or operator["op"] == chosen]
    unit, out = unit_of(core), Path(folder)
    files = {out / "CMakePresets.json": json.dumps(presets(unit, framework), indent=2) + "\n"}
    for operator in operators:
        name = snake_case(operator["op"])
        files[out / f"op_host/{name}_tiling.h"] = tiling_header(operator)
        files[out / f"op_host/{name}.cpp"] = host(operator, unit)
        files[out / f"op_kernel/{name}.cpp"] = kernel(operator)
    shutil.copytree(TEMPLATE, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in files.items():
        if path.exists() and path.suffix != ".json":
            print(f"{path} is there: left as it is")
        else:
            path.write_text(text)
    print(f"{out}: bash {out}/build.sh builds the package of {', '.join(each['op'] for each in operators)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="msopgen", description=__doc__)
    gen = parser.add_subparsers(dest="command", required=True).add_parser("gen", help="write a project")
    gen.add_argument("-i", "--input", required=True, metavar="OPERATORS.json")
    gen.add_argument("-c", "--compute_unit", required=True, metavar="ai_core-SOC")
    gen.add_argument("-lan", "--language", default="cpp", choices=["cpp"], help="cpp: Ascend C")
    gen.add_argument("-f", "--framework", default="tensorflow", help="aclnn: libraries in place of an installer")
    gen.add_argument("-m", "--mode", default="0", choices=["0", "1"], help="1: add to a project that is there")
    gen.add_argument("-op", "--operator", help="one operator of the JSON; else all")
    gen.add_argument("-out", "--output", default=".", metavar="FOLDER")
    given = parser.parse_args()
    try:
        generate(given.input, given.compute_unit, given.framework.lower(), given.output, given.operator)
    except (ProjectError, OSError, json.JSONDecodeError) as error:
        print(f"msopgen: {error}", file=sys.stderr)
        return 1
    except KeyError as error:
        print(f"msopgen: {given.input}: an operator or one of its parts has no {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
