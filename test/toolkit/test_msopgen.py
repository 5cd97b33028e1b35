# SPDX-License-Identifier: Apache-2.0
"""msopgen writes projects that build as they stand, by their own build.sh."""

import json
import re
from pathlib import Path

import pytest
from operator_project import CANN, run

ATTRIBUTES = [
    {"name": "scale", "param_type": "optional", "type": "float", "default_value": "0.5"},
    {"name": "axes", "param_type": "optional", "type": "list_int", "default_value": "[0, 1]"},
    {"name": "mode", "param_type": "optional", "type": "str", "default_value": "none"},
    {"name": "count", "param_type": "required", "type": "int"},
]


def described(name, **parts):
    tensor = {"param_type": "required", "format": ["ND", "ND"], "type": ["fp16", "float"]}
    return {"op": name, "input_desc": [{"name": "x"} | tensor], "output_desc": [{"name": "y"} | tensor]} | parts


def msopgen(folder, operators, *more, core="ai_core-Ascend910B3", **options):
    (folder / "operators.json").write_text(json.dumps(operators))
    arguments = ["-i", folder / "operators.json", "-c", core, "-lan", "cpp", "-out", folder / "CustomOp"]
    return run(CANN / "bin/msopgen", "gen", *arguments, *more, **options)


@pytest.mark.parametrize(
    ("framework", "made"), [("tensorflow", "custom_opp_*.run"), ("aclnn", "op_api/lib/libcust_opapi.so")]
)
def test_a_project_builds(tmp_path, framework, made):
    msopgen(tmp_path, [described("HalfOfIt", attr=ATTRIBUTES)], "-f", framework)
    run("bash", tmp_path / "CustomOp/build.sh")
    assert list(tmp_path.glob(f"CustomOp/build_out/{made}"))
    header = (tmp_path / "CustomOp/build_out/autogen/aclnn_half_of_it.h").read_text()
    for parameter in ("double scale", "const aclIntArray* axesOptional", "char* modeOptional", "int64_t count"):
        assert parameter in header
    prototype = (tmp_path / "CustomOp/build_out/autogen/op_proto.h").read_text()
    for attribute in (
        ".ATTR(scale, Float, 0.5)",
        ".ATTR(axes, ListInt, {0, 1})",
        '.ATTR(mode, String, "none")',
        ".REQUIRED_ATTR(count, Int)",
    ):
        assert attribute in prototype


@pytest.mark.parametrize(
    ("operators", "options", "message"),
    [
        ([described("A", input_desc=[{"name": "x", "type": ["float12"]}])], {}, "A: x is of type float12; there is"),
        ([{"op": "A"}], {}, "an operator or one of its parts has no 'input_desc'"),
        ([described("A")], {"core": "ai_core-H100"}, "-c ai_core-H100: expected ai_core-SOC"),
        ([described("A", attr=[{"name": "a", "type": "tensor"}])], {}, "A: attribute a is a tensor; there is"),
        ([described("A"), described("B")], {"more": ("-op", "C")}, "operators.json has A, B"),
        ([described("A", input_desc=[{"name": "x"}])], {}, "an operator or one of its parts has no 'type'"),
    ],
    ids=["dtype", "input", "chip", "attribute", "operator", "key"],
)
def test_what_no_definition_can_say_is_named(tmp_path, operators, options, message):
    assert message in msopgen(tmp_path, operators, *options.pop("more", ()), fails=True, **options)
    assert not (tmp_path / "CustomOp").exists()


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (described("../../../Evil"), "an operator's name is '../../../Evil': expected letters, digits and _"),
        (described("A\n"), "an operator's name is 'A\\n'"),
        (described("A", input_desc=[{"name": 'x").Evil("', "type": ["float"]}]), "A: the name of a parameter is"),
        (described("A", attr=[{"name": "a b", "type": "int"}]), "A: the name of an attribute is 'a b'"),
        (described("A", input_desc=[{"name": "x", "type": ["float"], "format": ["ND}"]}]), "A: a format is 'ND}'"),
        (described("A", input_desc=[{"name": "x", "type": ["float"], "param_type": "f()"}]), "A: x is 'f()'; there is"),
        (described("A", attr=[{"name": "a", "type": "int", "default_value": "system(0)"}]), "A: attribute a is an int"),
        (described("A", attr=[{"name": "a", "type": "list_int", "default_value": "[1, f()]"}]), "A: attribute a is"),
    ],
    ids=["path", "line", "parameter", "attribute", "format", "presence", "default", "list"],
)
def test_what_would_be_more_than_a_name_is_rejected(tmp_path, operator, message):
    assert message in msopgen(tmp_path, [operator], fails=True)
    assert [file.name for file in tmp_path.iterdir()] == ["operators.json"]


def test_one_operator_of_several_is_written(tmp_path):
    msopgen(tmp_path, [described("First"), described("Second")], "-op", "Second")
    written = {file.name for file in (tmp_path / "CustomOp").glob("op_*/*")}
    assert written >= {"second.cpp", "second_tiling.h"} and not any(name.startswith("first") for name in written)


@pytest.mark.nightly
def test_the_commands_of_the_page(tmp_path):
    page = (Path(__file__).parents[2] / "docs/operator_projects.md").read_text()
    operators, commands = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL)[1] for kind in ("json", "bash"))
    (tmp_path / "operators.json").write_text(operators)
    said = run("bash", "-ec", f"cd {tmp_path}\n{commands}\necho $ASCEND_CUSTOM_OPP_PATH")
    package = Path(said.splitlines()[-1].partition(":")[0])
    assert package == tmp_path / "opp/vendors/customize"
    assert (package / "op_api/include/aclnn_scaled_sum.h").exists()
