# SPDX-License-Identifier: Apache-2.0
"""The generator: a header of prototypes in; out a Python module that builds Graph Engine nodes."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cann_cpu.activation import operator_packages
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import custom_pypto
from custom_pypto.graph import codegen

ROOT = Path(__file__).parents[2]
HEADER = ROOT / "graph/custom_reg_op.h"
EVERY_KIND = Path(__file__).with_name("every_kind.h")

PREAMBLE = '#include "graph/operator_reg.h"\n'


def run(*arguments) -> subprocess.CompletedProcess:
    """codegen.py as a program, in a Python without any package."""
    command = [sys.executable, "-I", "-S", ROOT / "graph/codegen.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


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
def test_modules_are_clean_for_ruff(every_kind, tmp_path):
    (tmp_path / "ge_api.py").write_text(codegen.api(HEADER))
    command = ["ruff", "check", "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    command += [every_kind.__file__, str(tmp_path / "ge_api.py")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("chain", "error"),
    [
        (".INPUT(x, TensorType({DT_INT8}))\n.SHAPE_INPUT(y, 3)", "4: error: operator Bad: unknown macro SHAPE_INPUT"),
        (".GRAPH(branch)", "3: error: operator Bad: unknown macro GRAPH"),
        (".ATTR(value, Tensor, Tensor())", "3: error: operator Bad: attribute 'value' is of the unknown type Tensor"),
        (".REQUIRED_ATTR(value, Ints)", "3: error: operator Bad: attribute 'value' is of the unknown type Ints"),
        (".INPUT(x, TensorType({DT_INT9}))", "3: error: operator Bad: unknown data type DT_INT9"),
        ('.INPUT(x, "T")', "4: error: operator Bad: data type \"T\" of 'x' is not declared"),
        (".ATTR(i, Int, 0.5)", "3: error: operator Bad: attribute 'i' has the default 0.5, which is no Int"),
        (".ATTR(i, Int, 1 << 63)", "3: error: operator Bad: attribute 'i' has the default 1 < < 63, which is no Int"),
        (".ATTR(f, Float, 1e39)", "3: error: operator Bad: attribute 'f' has the default 1e39, which is no Float"),
        (
            '.ATTR(s, String, R"(x)")',
            "3: error: operator Bad: attribute 's' has the default R \"(x)\", which is no String",
        ),
        (".ATTR(t, Type, DT_INT9)", "3: error: operator Bad: attribute 't' has the default DT_INT9, which is no Type"),
        (".ATTR(l, ListInt, 1)", "3: error: operator Bad: attribute 'l' has the default 1, which is no ListInt"),
        (".ATTR(b, Bool)", "3: error: operator Bad: ATTR takes 3 arguments"),
        (".INPUT(x y, TensorType::ALL())", "3: error: operator Bad: input x y has no name"),
        ("INPUT(x, TensorType::ALL())", "3: error: operator Bad: expected .OP_END_FACTORY_REG(Bad), but found INPUT"),
        (".INPUT(x, TensorType::ALL(;", "3: error: operator Bad: INPUT needs arguments in brackets"),
    ],
)
def test_what_a_header_may_not_say_is_one_line_that_names_it(chain, error, tmp_path):
    assert errors_of(f"REG_OP(Bad)\n{chain}\n.OP_END_FACTORY_REG(Bad);\n", tmp_path) == [error]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("#if 0\n#endif", "2: error: #if 0 begins no prototype"),
        ("REGOP(X).OP_END_FACTORY_REG(X)", "2: error: REGOP begins no prototype"),
        ("REG_OP()", "2: error: REG_OP takes 1 argument"),
        ("REG_OP(X)\n", "2: error: operator X: expected .OP_END_FACTORY_REG(X), but found the end of the file"),
    ],
)
def test_what_is_no_prototype_is_named(text, error, tmp_path):
    assert errors_of(text, tmp_path) == [error]


def errors_of(text: str, folder: Path) -> list[str]:
    """The errors in a header of this text below its first line, without the header's name."""
    header, out = folder / "bad.h", folder / "ge_api.py"
    header.write_text(f"{PREAMBLE}{text}")
    result = run("api", header, out)
    assert result.returncode == 1
    assert not out.exists()
    lines = result.stderr.splitlines()
    assert all(line.startswith(f"{header}:") for line in lines), lines
    return [line.removeprefix(f"{header}:") for line in lines]


def test_contradictions_are_named_a_line_each_and_nothing_is_written(tmp_path):
    types = "TensorType({DT_INT8})"
    text = (
        f"REG_OP(Twice).INPUT(x, {types}).INPUT(x, {types}).OP_END_FACTORY_REG(Twice);\n"
        "REG_OP(Twice).OP_END_FACTORY_REG(Twice);\n"
        f"REG_OP(Clash).INPUT(axis, {types}).ATTR(axis, Int, 0).OP_END_FACTORY_REG(Clash);\n"
        f"REG_OP(Outputs).OUTPUT(y, {types}).OUTPUT(y, {types}).OP_END_FACTORY_REG(Outputs);\n"
        "REG_OP(Reserved).REQUIRED_ATTR(node_name, String).OP_END_FACTORY_REG(Reserved);\n"
        "REG_OP(Renamed).OP_END_FACTORY_REG(Other);\n"
        f"REG_OP(Types).DATATYPE(T, {types}).DATATYPE(T, {types}).OP_END_FACTORY_REG(Types);\n"
    )
    assert errors_of(text, tmp_path) == [
        "2: error: operator Twice: input 'x' is declared twice",
        "3: error: operator Twice: is registered a second time",
        "4: error: operator Clash: attribute 'axis' is declared twice",
        "5: error: operator Outputs: output 'y' is declared twice",
        "6: error: operator Reserved: attribute 'node_name' has the name of a parameter of every operator",
        "7: error: operator Renamed: ends as Other",
        "8: error: operator Types: data type 'T' is declared twice",
    ]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    target = tmp_path / "absent" / "ge_api.py"
    result = run("api", EVERY_KIND, target)
    assert result.returncode == 1
    assert str(target) in result.stderr


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_text_is_read_or_rejected_by_a_line(data, tmp_path):
    """Headers with a piece that is missing, or in another place."""
    text = EVERY_KIND.read_text()
    first, last = sorted(data.draw(st.integers(0, len(text))) for _ in range(2))
    place = data.draw(st.integers(0, len(text)) | st.none())
    cut = text[:first] + text[last:]
    header = tmp_path / "header.h"
    header.write_text(cut if place is None else cut[:place] + text[first:last] + cut[place:])
    try:
        codegen.api(header)
    except codegen.Invalid as error:
        assert all(line.startswith(f"{header}:") and ": error: " in line for line in str(error).splitlines())


# ---- custom_reg_op.h


def test_a_header_in_its_one_form_says_the_same_and_is_so_again(tmp_path):
    header = tmp_path / "custom_reg_op.h"
    header.write_text(codegen.header(EVERY_KIND, tmp_path))

    def chains(file: Path) -> list[codegen.Prototype]:
        of_it = codegen.Reader(file).prototypes()
        parts = [each._replace(parts=each.of("input", "output", "attribute")) for each in of_it]
        return sorted(parts, key=lambda each: each.type)

    assert chains(header) == chains(EVERY_KIND)
    assert codegen.header(header, tmp_path) == header.read_text()


def test_an_operator_s_comment_is_that_which_begins_with_its_type(tmp_path):
    prototypes, op_host = tmp_path / "op_proto.h", tmp_path / "op_host"
    prototypes.write_text("REG_OP(Scale).OP_END_FACTORY_REG(Scale)\nREG_OP(Bare).OP_END_FACTORY_REG(Bare)")
    op_host.mkdir()
    (op_host / "scale.cpp").write_text("// A licence.\n// Scale: of x.\n//\n// More.\n\n// Scaled: another.\n")
    assert "namespace ge {\n\nREG_OP(Bare)\n" in codegen.header(prototypes, op_host)
    assert "\n\n// Scale: of x.\n//\n// More.\nREG_OP(Scale)\n" in codegen.header(prototypes, op_host)


def test_the_header_in_the_tree_is_of_the_definitions_that_the_installed_package_was_built_from():
    op_proto = Path(operator_packages()["custom_pypto"], "op_proto", "inc", "op_proto.h")
    assert codegen.header(op_proto, ROOT / "opp/op_host") == HEADER.read_text(), "bash build_and_install.sh writes it"


def test_the_header_in_the_tree_is_what_cmake_makes_the_installed_api_of(tmp_path):
    """The way that Ascend's sample wheel shows: mkdir build; cd build; cmake ..; make generate_ge_raw_custom_ops."""
    for command in (["-S", HEADER.parent, "-B", tmp_path], ["--build", tmp_path, "-t", "generate_ge_raw_custom_ops"]):
        subprocess.run(["cmake", *command], check=True, capture_output=True, timeout=60)
    made = tmp_path / "auto_generated_ge_raw_custom_ops.py"
    assert made.read_text() == Path(custom_pypto.__path__[0], "converter", made.name).read_text()


def test_the_header_in_the_tree_compiles_as_prototypes_of_cann(tmp_path):
    source = tmp_path / "op_proto.cpp"
    source.write_text(f'#include "{HEADER}"\n')
    include = Path(os.environ["ASCEND_HOME_PATH"], "include")
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-fsyntax-only", f"-isystem{include}", source]
    subprocess.run(command, check=True, timeout=120)
