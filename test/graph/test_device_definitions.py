# SPDX-License-Identifier: Apache-2.0
"""The definitions for CANN's own build say what the prototypes say, and tile calls as the CPU build does."""

import json
import re
import subprocess
from pathlib import Path

import pytest

OPP = Path(__file__).resolve().parents[2] / "opp"
STAND_IN = Path(__file__).with_name("cann")
SOCS = ["ascend910b", "ascend910_93"]
FAILED = 0xFFFFFFFF


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """The lines that print_definitions.cpp prints, of the definitions compiled against a stand-in for CANN."""
    program = tmp_path_factory.mktemp("definitions") / "print"
    sources = [STAND_IN / "print_definitions.cpp", *OPP.glob("device/*_def.cpp"), *OPP.glob("op_host/*_tiling.cpp")]
    sources = [source for source in sources if "pto" not in source.name]  # those have no kernel in Ascend C
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{STAND_IN}", f"-I{OPP}", f"-I{OPP}/device"]
    build = subprocess.run([*command, *sources, "-o", program], capture_output=True, text=True, timeout=200)
    assert build.returncode == 0, build.stderr
    return [json.loads(line) for line in subprocess.check_output([program], text=True, timeout=60).splitlines()]


@pytest.fixture(scope="module")
def definitions(printed):
    return {line["type"]: line for line in printed if "type" in line}


def numbers(header):
    """{"DT_FLOAT": 0, ...}, as the generator of the Python API has them."""
    text = (header.parent / "codegen/include/graph/types.h").read_text()
    return {name: int(number) for name, number in re.findall(r"X\((DT_\w+), (\d+)\)", text)}


def types_of(rest, operator, header):
    """The dtypes of `INPUT(name, rest)`, where `rest` is a list of them or a symbol that DATATYPE explains."""
    chain = re.search(rf"REG_OP\({operator}\)(.*?)OP_END_FACTORY_REG", header.read_text(), re.DOTALL)[1]
    if symbol := re.fullmatch(r'"(\w+)"', rest):
        rest = re.search(rf"DATATYPE\({symbol[1]},(.*?)\}}\)\)", chain, re.DOTALL)[1]
    return {numbers(header)[name] for name in re.findall(r"DT_\w+", rest)}


OPERATORS = ["AddCustom", "AdvanceStepFlashattn", "ReshapeAndCache"]


def test_every_kernel_in_ascend_c_has_a_definition(definitions):
    assert sorted(definitions) == OPERATORS
    kernels = {path.stem.title().replace("_", "") for path in OPP.glob("op_kernel/*.cpp")}
    assert sorted(kernels) == OPERATORS


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_definition_is_the_prototype(operator, definitions, prototypes, header):
    definition, prototype = definitions[operator], prototypes[operator]
    for ours, theirs in ((definition["inputs"], prototype.inputs), (definition["outputs"], prototype.outputs)):
        assert [(each["presence"], each["name"]) for each in ours] == [
            (kind or "required", name) for kind, name, _ in theirs
        ]
        for each, (_, _, rest) in zip(ours, theirs, strict=True):
            assert set(each["types"]) == types_of(rest, operator, header), each["name"]
    assert [(each["presence"], each["name"], each["type"], each["value"]) for each in definition["attributes"]] == [
        (kind or "optional", name, *(part.strip(' "') for part in f"{rest},".split(",")[:2]))
        for kind, name, rest in prototype.attributes
    ]


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_types_are_lists_of_combinations_each_once(operator, definitions, prototypes):
    definition, prototype = definitions[operator], prototypes[operator]
    parameters = definition["inputs"] + definition["outputs"]
    combinations = list(zip(*(each["types"] for each in parameters), strict=True))
    assert len(set(combinations)) == len(combinations)
    assert all(
        each["formats"] == each["formats_of_unknown_shapes"] == [2] * len(combinations)  # ND
        for each in parameters
    )
    symbols = {}
    for each, (_, name, rest) in zip(parameters, prototype.inputs + prototype.outputs, strict=True):
        for key in (name, rest) if rest.startswith('"') else (name,):
            assert symbols.setdefault(key, each["types"]) == each["types"], "a symbol or a name has one dtype"


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_kernels_are_for_atlas_a2_and_a3(operator, definitions):
    assert definitions[operator]["socs"] == SOCS


def test_calls_are_tiled(printed):
    write, keys, step, add = (line for line in printed if "status" in line)
    assert write == {"status": 0, "blocks": 40, "copies": 2, "tokens": 4096, "capacity": 8192, "runs": [2048, 512]}
    assert keys == {"status": 0, "blocks": 1, "copies": 1, "run": 32, "runs": 3}
    assert step == {"status": 0, "blocks": 1, "table_row": 36, "lengths": 4}
    assert add == {"status": 0, "blocks": 2, "key": 27, "broadcast": FAILED, "double": FAILED}
