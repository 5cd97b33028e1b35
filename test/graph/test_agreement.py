# SPDX-License-Identifier: Apache-2.0
"""Schema, prototype and functions of an operator agree, and each disagreement is reported as a line."""

import itertools
import sys
import types
from pathlib import Path

import pytest
import torch
import torch_npu  # noqa: F401

import custom_pypto
from custom_pypto.graph import agreement, converters, prototypes

ROOT = Path(__file__).parents[2]


def test_the_operators_of_this_project_agree():
    import torchair  # noqa: F401

    assert [*agreement.disagreements(custom_pypto, ROOT)] == []


@pytest.mark.parametrize(
    ("operator", "graph_type", "file"),
    [
        ("npu_sparse_flash_attention_pto", "SparseFlashAttentionPto", "sparse_flash_attention_pto"),
        ("add_custom", "AddCustom", "add_custom"),
        ("add_custom_backward", "AddCustomGrad", "add_custom_grad"),
        ("conv2_d_custom", "Conv2DCustom", "conv2_d_custom"),
    ],
)
def test_names_follow_from_the_operators_name(operator, graph_type, file):
    assert prototypes.ge_type(operator) == graph_type
    assert prototypes.snake_case(graph_type) == file


# ---- schema and prototype

PROTOTYPE = """#include "graph/operator_reg.h"
namespace ge {
REG_OP(Probe)
    .INPUT(query, "T")
    .OPTIONAL_INPUT(mask, "T")
    .DYNAMIC_INPUT(parts, "T")
    .INPUT(cache, "T")
    .OUTPUT(out, "T")
    .OUTPUT(scale, "T")
    .OUTPUT(cache, "T")
    .REQUIRED_ATTR(heads, Int)
    .ATTR(eps, Float, 1e-5)
    .ATTR(scale_value, Float, 0)
    .ATTR(layout, String, "BSND")
    .ATTR(pads, ListInt, {1, 2})
    .ATTR(dtype, Type, DT_UNDEFINED)
    .DATATYPE(T, TensorType({DT_FLOAT16, DT_FLOAT}))
    .OP_END_FACTORY_REG(Probe);
}
"""
SCHEMA = (
    "probe(Tensor query, Tensor? mask, Tensor[] parts, Tensor(a!) cache, int heads, *, float eps=1e-5, "
    "float? scale_value=None, str layout='BSND', int[2] pads=[1, 2], ScalarType? dtype=None) -> (Tensor out, Tensor)"
)


@pytest.fixture(scope="module")
def read(ge_api, tmp_path_factory):
    """The prototype of a header's text."""

    def prototype(text=PROTOTYPE):
        directory = tmp_path_factory.mktemp("prototype")
        (directory / "prototypes.h").write_text(text)
        return prototypes.Prototype.of(ge_api(directory / "prototypes.h", directory).IR["Probe"])

    return prototype


@pytest.fixture(scope="module")
def prototype(read):
    return read()


def mismatches(prototype, *schemas):
    return agreement.mismatches([torch._C.parse_schema(schema) for schema in schemas], prototype)


def test_a_schema_and_its_prototype_agree(prototype):
    assert mismatches(prototype, SCHEMA) == []


def test_an_overload_may_leave_out_what_another_gives(prototype):
    without = SCHEMA.replace("Tensor? mask, ", "").replace("probe(", "probe.plain(")
    assert mismatches(prototype, SCHEMA, without) == []
    assert mismatches(prototype, without) == ["input 'mask' of the prototype is not an argument of the schema"]
    with_less = SCHEMA.replace("(Tensor out, Tensor)", "Tensor").replace("probe(", "probe.plain(")
    assert mismatches(prototype, SCHEMA, with_less) == []
    with_layout = SCHEMA.replace("str layout='BSND'", "str layout")
    without_layout = SCHEMA.replace("str layout='BSND', ", "").replace("probe(", "probe.plain(")
    assert mismatches(prototype, with_layout, without_layout) == []
    with_more = SCHEMA.replace("(Tensor out, Tensor)", "(Tensor out, Tensor, Tensor)").replace("probe(", "probe.more(")
    assert mismatches(prototype, SCHEMA, with_more) == [
        "the schema has 3 results, but the prototype 2 outputs that are not inputs"
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("Tensor query", "Tensor queries", "argument 'queries' of the schema is not an input of the prototype"),
        ("str layout", "str layouts", "argument 'layouts' of the schema is not an attribute of the prototype"),
        (
            "Tensor query, Tensor? mask",
            "Tensor? mask, Tensor query",
            "input 'query' of the prototype comes before 'mask'",
        ),
        (
            "float eps=1e-5, float? scale_value=None",
            "float? scale_value=None, float eps=1e-5",
            "'eps' of the prototype",
        ),
        ("int heads", "float heads", "argument 'heads' is a float, but the attribute is a Int"),
        ("int heads", "SymInt heads", "argument 'heads' is a SymInt, but the attribute is a Int"),
        ("int heads", "Scalar heads", "argument 'heads' is a number, but the attribute is a Int"),
        ("eps=1e-5", "eps=1e-6", "argument 'eps' is 1e-06 by default, but the attribute 1e-05"),
        ("'BSND'", "'TND'", "argument 'layout' is 'TND' by default, but the attribute 'BSND'"),
        ("pads=[1, 2]", "pads=[2, 1]", "argument 'pads' is [2, 1] by default, but the attribute [1, 2]"),
        ("int heads, *", "*, int heads=3", "argument 'heads' has a default in the schema and none in the prototype"),
        ("float eps=1e-5", "float eps", "argument 'eps' has a default in the prototype and none in the schema"),
        ("Tensor? mask", "Tensor[] mask", "argument 'mask' is a List[Tensor], but the input is optional"),
        ("Tensor query", "Tensor? query", "argument 'query' is a Optional[Tensor], but the input is required"),
        ("Tensor(a!) cache", "Tensor cache", "output 'cache' of the prototype writes to that input"),
        (
            "Tensor query",
            "Tensor(b!) query",
            "argument 'query' is written, but no output of the prototype has its name",
        ),
        ("(Tensor out, Tensor)", "Tensor", "the schema has 1 results, but the prototype 2 outputs that are not inputs"),
        ("Tensor out, ", "Tensor result, ", "result 'result' of the schema is output 'out' of the prototype"),
        ("Tensor out, ", "Tensor[] out, ", "result 'out' is a List[Tensor], but the output is required"),
        ("(Tensor out, Tensor)", "(Tensor(a!), Tensor)", "a result is an argument: return nothing for what is written"),
        ("Tensor query, ", "", "'query' of the prototype is not an argument of the schema, but required"),
        ("int heads, ", "", "'heads' of the prototype is not an argument of the schema, but required"),
        ("str layout='BSND', ", "", "attribute 'layout' of the prototype is not an argument of the schema"),
    ],
)
def test_an_error_in_a_schema_is_one_line(old, new, line, prototype):
    assert old in SCHEMA
    found = mismatches(prototype, SCHEMA.replace(old, new))
    if "not an argument of the schema" not in line:  # an argument of another name leaves the prototype's without one
        found = [mismatch for mismatch in found if "is not an argument of the schema" not in mismatch]
    assert len(found) == 1
    assert line in found[0]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("INPUT(query,", "INPUT(q,", "argument 'query' of the schema is not an input of the prototype"),
        ('BSND"', 'TND"', "argument 'layout' is 'BSND' by default, but the attribute 'TND'"),
        (
            "(scale_value, Float, 0)",
            "(scale_value, Float, 1)",
            "argument 'scale_value' is None by default, which stands for 0.0, but the attribute 1.0",
        ),
        (
            "DT_UNDEFINED",
            "DT_FLOAT",
            "argument 'dtype' is None by default, which stands for 28, but the attribute 0",
        ),
        ("(eps, Float, 1e-5)", "(eps, Int, 1)", "argument 'eps' is a float, but the attribute is a Int"),
        ('.OUTPUT(cache, "T")\n', "", "argument 'cache' is written, but no output of the prototype has its name"),
        (
            '.OUTPUT(scale, "T")\n    .OUTPUT(cache, "T")',
            '.OUTPUT(cache, "T")\n    .OUTPUT(scale, "T")',
            "output 'scale' of the prototype must come before the outputs that have the names of inputs",
        ),
    ],
)
def test_an_error_in_a_prototype_is_one_line(old, new, line, read):
    assert old in PROTOTYPE
    found = mismatches(read(PROTOTYPE.replace(old, new, 1)), SCHEMA)
    found = [mismatch for mismatch in found if "is not an argument of the schema" not in mismatch]
    assert found == [line]


# ---- a package

counter = itertools.count()
HEADER = """#include "graph/operator_reg.h"
REG_OP(Scale).INPUT(x, TensorType::ALL()).OUTPUT(out, TensorType::ALL()).ATTR(factor, Float, 2)
    .OP_END_FACTORY_REG(Scale);
"""


class Package:
    """A package of one operator in a folder: each of its parts can be left out."""

    def __init__(self, folder: Path, ge_api):
        self.folder, self.ge_api = folder, ge_api
        self.name = f"agreement_probe_{next(counter)}"
        self.schema = "scale(Tensor x, *, float factor=2.0) -> Tensor"
        self.header = HEADER
        self.kernels = {"Meta", "PrivateUse1"}
        self.test = "def test_scale(): ops.scale(x)"
        self.source = 'm.impl("scale", &scale); EXEC_NPU_CMD(aclnnScale, x.contiguous(), by(factor, 2), out);'

    def write(self, path: str, text: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def build(self, monkeypatch) -> tuple[types.ModuleType, torch.library.Library]:
        library = torch.library.Library(self.name, "DEF")
        library.define(self.schema)
        for key in self.kernels:
            library.impl("scale", lambda x, factor=2.0: x * factor, key)
        self.ge_api(self.write("prototypes.h", self.header), self.folder)
        self.write(f"{self.name}/converter/__init__.py", "")
        (self.folder / "ge_api.py").rename(self.folder / self.name / "converter/auto_generated_ge_raw_custom_ops.py")
        self.write(f"test/{self.name}/test_operators.py", self.test)
        self.write(f"{self.name}/csrc/scaling.cpp", self.source)
        monkeypatch.syspath_prepend(self.folder)
        package = types.ModuleType(self.name)
        package.__path__ = [str(self.folder / self.name)]
        monkeypatch.setitem(sys.modules, self.name, package)
        converters.register(self.name)
        converters._after_torchair.pop()
        return package, library


@pytest.fixture
def package(tmp_path, ge_api):
    return Package(tmp_path, ge_api)


def disagreements_of(package, monkeypatch):
    import torchair  # noqa: F401

    module, _library = package.build(monkeypatch)
    return [
        disagreement.replace(package.name, "NAME") for disagreement in agreement.disagreements(module, package.folder)
    ]


SCHEMAS = "NAME/csrc/ops_def_registration.cpp"
FIX = f"fix {SCHEMAS} or opp/op_host/scale.cpp, or map it in its own converter"
MISTAKES = {
    "none": ({}, []),
    "Meta": (
        {"kernels": {"PrivateUse1"}},
        ["NAME::scale: it has no Meta function: add one, for Meta, to NAME/csrc/scaling.cpp"],
    ),
    "NPU": (
        {"kernels": {"Meta"}, "source": 'm.impl("scales", &scales);'},
        ["NAME::scale: it has no function for tensors on an NPU: add one, for PrivateUse1, to NAME/csrc/scale.cpp"],
    ),
    "order in EXEC_NPU_CMD": (
        {"source": "EXEC_NPU_CMD(aclnnScale,\n    out, factor(a, b), x);"},
        [
            "NAME::scale: EXEC_NPU_CMD(aclnnScale, ...) gives 'out' where the function takes 'x': "
            "fix NAME/csrc/scaling.cpp"
        ],
    ),
    "not C++": (
        {"source": 'm.impl("scale", &scale);\nvoid f() {\n  EXEC_NPU_CMD(aclnnScale, x + , factor, out);\n}'},
        ["NAME::scale: EXEC_NPU_CMD(aclnnScale, ...) is not understood: fix NAME/csrc/scaling.cpp:3"],
    ),
    "commas": (
        {"source": "void f() { EXEC_NPU_CMD(aclnnScale, of<1, x>(y), /* (x, */ factor, out); }"},
        [],
    ),
    "no call": (
        {"kernels": {"Meta"}, "source": '// m.impl("scale", &scale);\nauto text = R"(m.impl("scale", &scale))";'},
        ["NAME::scale: it has no function for tensors on an NPU: add one, for PrivateUse1, to NAME/csrc/scale.cpp"],
    ),
    "test": ({"test": "def test_scales(): pass"}, ["NAME::scale: no test names it: add one to test/NAME"]),
    "prototype": (
        {"header": HEADER.replace("Scale", "Scaled")},
        [
            "NAME::scale: it has no definition: add OP_ADD(Scale) to opp/op_host/scale.cpp",
            f"opp/op_host/scaled.cpp: Scaled belongs to no operator: add a schema to {SCHEMAS}",
        ],
    ),
    "converter": (
        {"schema": "scale(Tensor x, *, float factor=3.0) -> Tensor"},
        [f"NAME::scale: argument 'factor' is 3.0 by default, but the attribute 2.0: {FIX}"],
    ),
}


@pytest.mark.parametrize(("change", "lines"), MISTAKES.values(), ids=MISTAKES)
def test_what_is_missing_of_an_operator_is_a_line_with_the_file_to_fix(change, lines, package, monkeypatch):
    vars(package).update(change)
    assert disagreements_of(package, monkeypatch) == lines


OWN_CONVERTER = """import torch
from torchair import register_fx_node_ge_converter

from custom_pypto.graph.converters import maps


@register_fx_node_ge_converter(torch.ops.NAME.scale.default)
@maps("y", "x")
def convert(y, *, factor=2.0, meta_outputs=None):
    raise NotImplementedError
"""
PARAMETERS = (
    "NAME::scale: its converter's parameters are not the schema's arguments, or have other defaults: "
    "fix NAME/converter/scale.py"
)


@pytest.mark.parametrize(
    ("schema", "old", "new", "lines"),
    [
        ("Tensor y, *, float factor=2.0", "", "", []),
        ("Tensor y, *, float factor=2.0", "y, *, factor=2.0, meta_outputs=None", "*args, **kwargs", []),
        (
            "Tensor y, *, float factor=3.0",
            "2.0",
            "3.0",
            [f"NAME::scale: argument 'factor' is 3.0 by default, but the attribute 2.0: {FIX}"],
        ),
        ("Tensor y, *, float factor=2.0", "2.0", "3.0", [PARAMETERS]),
        ("Tensor y, *, float factor=2.0", "factor=2.0", "factor", [PARAMETERS]),
        ("Tensor y, *, float factor=2.0", "convert(y, ", "convert(z, ", [PARAMETERS]),
        ("Tensor x, *, float factor=2.0", "", "", [PARAMETERS]),
    ],
)
def test_a_converter_of_its_own_agrees_in_all_that_it_does_not_map(schema, old, new, lines, package, monkeypatch):
    package.schema = f"scale({schema}) -> Tensor"
    text = OWN_CONVERTER.replace("NAME", package.name)
    assert old in text
    package.write(f"{package.name}/converter/scale.py", text.replace(old, new) if old else text)
    assert disagreements_of(package, monkeypatch) == lines
