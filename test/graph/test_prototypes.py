# SPDX-License-Identifier: Apache-2.0
"""The prototypes that Graph Engine has, compiled, are those that the generated Python has."""

import pytest
import torch

import custom_pypto  # noqa: F401
from custom_pypto.graph import converters, prototypes, python_operators

OPERATORS = [
    name
    for name in prototypes.operators("custom_pypto")
    if f"custom_pypto::{name}" not in python_operators.PYTHON_OPERATORS
]
GE_TYPES = [prototypes.ge_type(operator) for operator in OPERATORS]

# type of an attribute in torchair.ge.attr: in Graph Engine
ATTRIBUTE_TYPES = {
    "Int": "VT_INT",
    "Float": "VT_FLOAT",
    "Bool": "VT_BOOL",
    "Str": "VT_STRING",
    "DataType": "VT_DATA_TYPE",
    "ListInt": "VT_LIST_INT",
    "ListFloat": "VT_LIST_FLOAT",
    "ListBool": "VT_LIST_BOOL",
    "ListStr": "VT_LIST_STRING",
}


def registered_ir_def(ge_type):
    import torchair
    from torchair.core import _torchair

    # The first graph starts the engine, with the options that later graphs have to share.
    torch.compile(torch.neg, backend=torchair.get_npu_backend())(torch.ones(1).npu())
    return _torchair.get_registered_ir_def(ge_type)


def test_every_prototype_belongs_to_an_operator():
    assert sorted(converters.ge_api("custom_pypto").IR) == sorted(GE_TYPES)


@pytest.mark.parametrize("ge_type", GE_TYPES)
def test_graph_engine_has_what_the_generated_python_says(ge_type):
    declared = prototypes.Prototype.of(converters.ge_api("custom_pypto").IR[ge_type])
    status, inputs, outputs, attributes = registered_ir_def(ge_type)
    assert status == "SUCCESS"
    assert list(inputs) == [*declared.inputs.items()]
    assert list(outputs) == [*declared.outputs.items()]
    assert list(attributes) == [(name, ATTRIBUTE_TYPES[kind]) for name, (kind, _) in declared.attributes.items()]


def test_graph_engine_does_not_know_what_no_header_says():
    assert registered_ir_def("NoSuchOperator")[0] not in ("SUCCESS", "None")
