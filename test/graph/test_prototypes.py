# SPDX-License-Identifier: Apache-2.0
"""One prototype, seen three ways: the header, the generated Python and what Graph Engine has."""

import pytest
import torch

import custom_pypto  # noqa: F401
from custom_pypto.graph import prototypes

OPERATORS = prototypes.operators("custom_pypto")
GE_TYPES = [prototypes.ge_type(operator) for operator in OPERATORS]

# attribute type: (torchair.ge.attr, Graph Engine's IR)
ATTRIBUTE_TYPES = {
    "Int": ("Int", "VT_INT"),
    "Float": ("Float", "VT_FLOAT"),
    "Bool": ("Bool", "VT_BOOL"),
    "String": ("Str", "VT_STRING"),
    "Type": ("DataType", "VT_DATA_TYPE"),
    "ListInt": ("ListInt", "VT_LIST_INT"),
    "ListFloat": ("ListFloat", "VT_LIST_FLOAT"),
    "ListBool": ("ListBool", "VT_LIST_BOOL"),
    "ListString": ("ListStr", "VT_LIST_STRING"),
}


# attribute type: how its default in the header is read
DEFAULTS = {"Int": int, "Float": lambda text: float(text.removesuffix("f")), "Bool": lambda text: text == "true"}


def attribute_type_and_default(rest):
    """The type and the default of `ATTR(name, rest)` or `REQUIRED_ATTR(name, rest)`, which has none."""
    kind, _, default = (part.strip() for part in rest.partition(","))
    return kind, DEFAULTS.get(kind, lambda text: text.strip('"'))(default) if default else None


def registered_ir_def(ge_type):
    import torchair
    from torchair.core import _torchair

    # The first graph starts the engine, with the options that later graphs have to share.
    torch.compile(torch.neg, backend=torchair.get_npu_backend())(torch.ones(1).npu())
    return _torchair.get_registered_ir_def(ge_type)


def test_every_prototype_belongs_to_an_operator(prototypes):
    assert sorted(prototypes) == sorted(GE_TYPES)


@pytest.mark.parametrize("ge_type", GE_TYPES)
def test_generated_python_says_what_the_header_says(ge_type, prototypes):
    import torchair  # noqa: F401
    from torchair._ge_concrete_graph.compat_ir import IrElement

    from custom_pypto.converter import auto_generated_ge_raw_custom_ops as ge_api

    header, ir = prototypes[ge_type], ge_api.IR[ge_type]
    kinds = {"": IrElement.RequireInput, "optional": IrElement.OptionalInput, "dynamic": IrElement.DynamicInput}
    assert [(kind, name) for kind, name, _ in ir.indexed_inputs] == [
        (kinds[kind], name) for kind, name, _ in header.inputs
    ]
    kinds = {"": IrElement.RequireOutput, "dynamic": IrElement.DynamicOutput}
    assert [(kind, name) for kind, name, _ in ir.indexed_outputs] == [
        (kinds[kind], name) for kind, name, _ in header.outputs
    ]
    assert len(ir.indexed_attrs) == len(header.attributes)
    for (kind, name, value), (header_kind, header_name, rest) in zip(ir.indexed_attrs, header.attributes, strict=True):
        header_type, default = attribute_type_and_default(rest)
        assert (kind, name) == (
            IrElement.RequireAttr if header_kind == "required" else IrElement.OptionalAttr,
            header_name,
        )
        assert value.cls == ATTRIBUTE_TYPES[header_type][0]
        if kind == IrElement.OptionalAttr:
            assert value.value == default


@pytest.mark.parametrize("ge_type", GE_TYPES)
def test_graph_engine_has_what_the_header_says(ge_type, prototypes):
    status, inputs, outputs, attributes = registered_ir_def(ge_type)
    header = prototypes[ge_type]
    assert status == "SUCCESS"
    assert list(inputs) == [(name, kind or "required") for kind, name, _ in header.inputs]
    assert list(outputs) == [(name, kind or "required") for kind, name, _ in header.outputs]
    assert list(attributes) == [
        (name, ATTRIBUTE_TYPES[attribute_type_and_default(rest)[0]][1]) for _, name, rest in header.attributes
    ]


def test_graph_engine_does_not_know_what_no_header_says():
    assert registered_ir_def("NoSuchOperator")[0] not in ("SUCCESS", "None")
