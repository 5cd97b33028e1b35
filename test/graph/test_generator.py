# SPDX-License-Identifier: Apache-2.0
"""The generator: a header of prototypes in; out a Python module that builds Graph Engine nodes."""

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

EVERY_KIND = Path(__file__).with_name("every_kind.h")

PREAMBLE = '#include "graph/operator_reg.h"\n'


@pytest.fixture(scope="module")
def every_kind(ge_api, tmp_path_factory):
    return ge_api(EVERY_KIND, tmp_path_factory.mktemp("every_kind"))


@pytest.fixture(scope="module")
def functions(every_kind):
    tree = ast.parse(Path(every_kind.__file__).read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_inputs_are_positional_and_typed(functions):
    parameters = functions["EveryKind"].args.args
    assert [(p.arg, ast.unparse(p.annotation)) for p in parameters] == [
        ("x", "Tensor"),
        ("mask", "Tensor | None"),
        ("in_", "list[Tensor]"),
    ]


def test_attributes_are_keywords_with_the_defaults_of_the_header(functions):
    arguments = functions["EveryKind"].args
    defaults = [default and ast.unparse(default) for default in arguments.kw_defaults]
    parameters = [(p.arg, ast.unparse(p.annotation)) for p in arguments.kwonlyargs]
    assert [(*parameter, default) for parameter, default in zip(parameters, defaults, strict=True)] == [
        ("size_of_y", "int", None),
        ("lambda_", "float", None),
        ("pads", "Sequence[Sequence[int]]", None),
        ("attr_", "bool", None),
        ("i", "int", "-9223372036854775807"),
        ("f", "float", "1e-06"),
        ("whole", "float", "2.0"),
        ("infinite", "float", "float('inf')"),
        ("b", "bool", "True"),
        ("s", "str", repr('a "quoted" \\ word\n\x01 und ä')),
        ("t", "int", "DataType.DT_BF16"),
        ("none", "Sequence[int]", "()"),
        ("li", "Sequence[int]", "(7,)"),
        ("lf", "Sequence[float]", "(0.5, 1.0, 0.1)"),
        ("lb", "Sequence[bool]", "(True, False)"),
        ("ls", "Sequence[str]", "('a', 'b\"c')"),
        ("lt", "Sequence[int]", "(DataType.DT_FLOAT, DataType.DT_INT64)"),
        ("lli", "Sequence[Sequence[int]]", "((1, 2), (3, 4))"),
        ("llf", "Sequence[Sequence[float]]", "((1.5,), ())"),
        ("dependencies", "list[Tensor] | None", "None"),
        ("node_name", "str | None", "None"),
    ]


def test_results_are_typed(functions):
    assert ast.unparse(functions["EveryKind"].returns) == "tuple[Tensor, list[Tensor]]"
    assert ast.unparse(functions["Bare"].returns) == "None"


def test_docstring_is_the_comment_and_the_parameters(functions):
    docstring = ast.get_docstring(functions["EveryKind"])
    assert docstring.startswith('Takes "everything" \\ and """more""".\n\nA second paragraph.\n\nInputs:\n')
    assert "    mask: optional, DT_BOOL\n" in docstring
    assert "    in_: any number, ALL\n" in docstring
    assert "    lambda_: required\n" in docstring
    assert docstring.endswith("Outputs:\n    x: DT_FLOAT16, DT_FLOAT\n    y: any number, DT_FLOAT, DT_INT8")
    assert ast.get_docstring(functions["Bare"]) == "GE operator Bare."


def test_torchair_takes_in_the_module(every_kind):
    """The module through torchair's own eyes: what IrDef has taken in."""
    import torch_npu  # noqa: F401
    from torchair._ge_concrete_graph import compat_ir
    from torchair.ge import DataType, attr

    ir, kind = every_kind.IR["EveryKind"], compat_ir.IrElement
    assert ir.indexed_inputs == [
        (kind.RequireInput, "x", "DT_FLOAT16, DT_FLOAT"),
        (kind.OptionalInput, "mask", "DT_BOOL"),
        (kind.DynamicInput, "in", "ALL"),
    ]
    assert ir.indexed_outputs == [
        (kind.RequireOutput, "x", "DT_FLOAT16, DT_FLOAT"),
        (kind.DynamicOutput, "y", "DT_FLOAT, DT_INT8"),
    ]
    assert ir.indexed_attrs[:3] == [
        (kind.RequireAttr, "lambda", attr.Float),
        (kind.RequireAttr, "pads", attr.ListListInt),
        (kind.RequireAttr, "attr", attr.Bool),
    ]
    assert {name: default for _, name, default in ir.indexed_attrs[3:]} == {
        "i": attr.Int(-9223372036854775807),
        "f": attr.Float(1e-6),
        "whole": attr.Float(2.0),
        "infinite": attr.Float(float("inf")),
        "b": attr.Bool(True),
        "s": attr.Str('a "quoted" \\ word\n\x01 und ä'),
        "t": attr.DataType(DataType.DT_BF16),
        "none": attr.ListInt([]),
        "li": attr.ListInt([7]),
        "lf": attr.ListFloat([0.5, 1.0, 0.1]),
        "lb": attr.ListBool([True, False]),
        "ls": attr.ListStr(["a", 'b"c']),
        "lt": attr.ListDataType([DataType.DT_FLOAT, DataType.DT_INT64]),
        "lli": attr.ListListInt([[1, 2], [3, 4]]),
        "llf": attr.ListListFloat([[1.5], []]),
    }


def test_function_adds_the_node(every_kind, monkeypatch):
    """Every input, output and attribute arrives; a default is left to Graph Engine, which is not asked here."""
    import torch_npu  # noqa: F401
    from torchair._ge_concrete_graph import compat_ir, ge_apis
    from torchair.ge import DataType, attr
    from torchair.ge._ge_graph import GeGraph

    monkeypatch.setattr(compat_ir, "is_cann_compat", lambda *_, **__: "")
    api, graph = every_kind, GeGraph()
    with graph:
        x, y, z = (ge_apis.Data(index=i, dtype=0, shape=[2], placement="NPU") for i in range(3))
        given = {"lambda_": 0.5, "pads": [[1], [2, 3]], "attr_": True, "i": 5, "li": [7], "lli": ((9,),), "s": "\"'\\ä"}
        out, (first, second) = api.EveryKind(
            x, None, [y, z], size_of_y=2, t=DataType.DT_INT8, node_name="here", **given
        )
        api.Bare(dependencies=[out])
    _, _, _, node, bare = graph.op
    assert (node.name, node.type) == ("here", "EveryKind")
    assert [desc.name for desc in node.input_desc] == ["x", "in0", "in1"]
    assert [desc.name for desc in node.output_desc] == ["x", "y0", "y1"]
    assert list(node.input) == [x.tensor, y.tensor, z.tensor]
    assert [output.tensor for output in (out, first, second)] == ["here:0", "here:1", "here:2"]
    assert list(bare.input) == ["here:-1"]
    expected = {"lambda": attr.Float(0.5), "pads": attr.ListListInt([[1], [2, 3]]), "attr": attr.Bool(True)}
    expected |= {"i": attr.Int(5), "lli": attr.ListListInt([[9]]), "s": attr.Str("\"'\\ä")}
    expected |= {"t": attr.DataType(DataType.DT_INT8)}
    assert {name: expected[name].get(value) for name, value in node.attr.items()} == expected


@pytest.mark.skipif(shutil.which("ruff") is None, reason="ruff is not installed")
def test_modules_are_clean_for_ruff(every_kind, generator, header, tmp_path):
    assert generator.run(header, tmp_path).returncode == 0
    command = ["ruff", "check", "--no-cache", "--config", str(Path(__file__).parents[2] / "pyproject.toml")]
    command += [every_kind.__file__, str(tmp_path / "ge_api.py")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("chain", "error"),
    [
        (".INPUT(x, TensorType({DT_INT8}))\n.SHAPE_INPUT(y, 3)", "SHAPE_INPUT"),
        (".GRAPH(branch)", "GRAPH"),
        (".ATTR(value, Tensor, Tensor())", "Tensor"),
        (".REQUIRED_ATTR(value, NamedAttrs)", "NamedAttrs"),
    ],
    ids=["unknown macro", "GRAPH", "unknown attribute type", "unknown required type"],
)
def test_what_the_header_may_not_say_is_one_compiler_error_that_names_it(chain, error, generator, tmp_path):
    header = tmp_path / "bad.h"
    header.write_text(f"{PREAMBLE}REG_OP(Bad)\n{chain}\n.OP_END_FACTORY_REG(Bad);\n")
    result = generator.build(header, tmp_path)
    errors = [line for line in result.stderr.splitlines() if " error: " in line]
    assert result.returncode != 0
    assert len(errors) == 1
    assert errors[0].startswith(f"{header}:"), errors
    assert error in errors[0]


def test_contradictions_are_named_a_line_each_and_nothing_is_written(generator, tmp_path):
    header = tmp_path / "bad.h"
    types = "TensorType({DT_INT8})"
    header.write_text(
        f"{PREAMBLE}REG_OP(Twice).INPUT(x, {types}).INPUT(x, {types}).OP_END_FACTORY_REG(Twice);\n"
        "REG_OP(Twice).OP_END_FACTORY_REG(Twice);\n"
        f"REG_OP(Clash).INPUT(axis, {types}).ATTR(axis, Int, 0).OP_END_FACTORY_REG(Clash);\n"
        f"REG_OP(Outputs).OUTPUT(y, {types}).OUTPUT(y, {types}).OP_END_FACTORY_REG(Outputs);\n"
        "REG_OP(Reserved).REQUIRED_ATTR(node_name, String).OP_END_FACTORY_REG(Reserved);\n"
        "REG_OP(Renamed).OP_END_FACTORY_REG(Other);\n"
        f"REG_OP(Types).DATATYPE(T, {types}).DATATYPE(T, {types}).OP_END_FACTORY_REG(Types);\n"
    )
    result = generator.run(header, tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        f"{header}:2: error: operator Twice: input 'x' is declared twice",
        f"{header}:3: error: operator Twice: is registered a second time",
        f"{header}:4: error: operator Clash: attribute 'axis' is declared twice",
        f"{header}:5: error: operator Outputs: output 'y' is declared twice",
        f"{header}:6: error: operator Reserved: attribute 'node_name' has the name of a parameter of every operator",
        f"{header}:7: error: operator Renamed: ends as Other",
        f"{header}:8: error: operator Types: data type 'T' is declared twice",
    ]
    assert not (tmp_path / "ge_api.py").exists()


def test_a_file_that_cannot_be_written_is_an_error(generator, header, tmp_path):
    assert generator.build(header, tmp_path).returncode == 0
    target = tmp_path / "absent" / "ge_api.py"
    result = subprocess.run([tmp_path / "generate", target], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert f"cannot write {target}" in result.stderr
