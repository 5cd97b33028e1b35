"""One prototype, seen three ways: the header, the generated Python and what Graph Engine has; and the torch schema."""

import re

import pytest
import torch

import custom_pypto  # noqa: F401

# torch operator: (GE type, the prototype's inputs that bear another name than the operator's argument)
OPERATORS = {
    "add_custom": ("AddCustom", {}),
    "add_custom_backward": ("AddCustomGrad", {"grad": "self"}),
    "npu_lightning_indexer_prolog_pto": ("LightningIndexerPrologPto", {}),
    "npu_lightning_indexer_pto": ("LightningIndexerPto", {}),
    "npu_sparse_attention_pto": ("SparseAttentionPto", {}),
    "npu_sparse_flash_attention_pto": ("SparseFlashAttentionPto", {}),
    "reshape_and_cache": ("ReshapeAndCache", {}),
    "advance_step_flashattn": ("AdvanceStepFlashattn", {}),
}
GE_TYPES = [ge_type for ge_type, _ in OPERATORS.values()]

# attribute type: (torchair.ge.attr, Graph Engine's IR, torch schema)
ATTRIBUTE_TYPES = {
    "Int": ("Int", "VT_INT", "int"),
    "Float": ("Float", "VT_FLOAT", "float"),
    "Bool": ("Bool", "VT_BOOL", "bool"),
    "String": ("Str", "VT_STRING", "str"),
    "Type": ("DataType", "VT_DATA_TYPE", "ScalarType"),
    "ListInt": ("ListInt", "VT_LIST_INT", "List[int]"),
    "ListFloat": ("ListFloat", "VT_LIST_FLOAT", "List[float]"),
    "ListBool": ("ListBool", "VT_LIST_BOOL", "List[bool]"),
    "ListString": ("ListStr", "VT_LIST_STRING", "List[str]"),
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


def schema_of(operator):
    return getattr(torch.ops.custom_pypto, operator).default._schema


def test_every_prototype_belongs_to_an_operator(prototypes):
    assert sorted(prototypes) == sorted(GE_TYPES)


def test_every_operator_has_a_prototype():
    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    assert {name.removeprefix("custom_pypto::") for name in names if name.startswith("custom_pypto::")} == set(
        OPERATORS
    )


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


@pytest.mark.parametrize("operator", OPERATORS)
def test_tensor_arguments_of_the_schema_are_the_inputs_of_the_header(operator, prototypes):
    ge_type, renamed = OPERATORS[operator]
    tensors = [argument for argument in schema_of(operator).arguments if "Tensor" in str(argument.type)]
    assert [("optional" if "Optional" in str(tensor.type) else "", tensor.name) for tensor in tensors] == [
        (kind, renamed.get(name, name)) for kind, name, _ in prototypes[ge_type].inputs
    ]


@pytest.mark.parametrize("operator", OPERATORS)
def test_mutated_arguments_of_the_schema_are_the_outputs_of_the_header_that_bear_an_input_s_name(operator, prototypes):
    schema, prototype = schema_of(operator), prototypes[OPERATORS[operator][0]]
    inputs, outputs = ({name for _, name, _ in entries} for entries in (prototype.inputs, prototype.outputs))
    mutated = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    assert mutated == [name for _, name, _ in prototype.outputs if name in inputs]
    assert len(schema.returns) == len(outputs - inputs)
    # torchair numbers an operator's results before the tensors that it mutates.
    assert mutated == [name for _, name, _ in prototype.outputs][len(schema.returns) :]


@pytest.mark.parametrize("operator", OPERATORS)
def test_other_arguments_of_the_schema_are_the_attributes_of_the_header(operator, prototypes):
    others = [argument for argument in schema_of(operator).arguments if "Tensor" not in str(argument.type)]
    attributes = prototypes[OPERATORS[operator][0]].attributes
    assert [argument.name for argument in others] == [name for _, name, _ in attributes]
    for argument, (kind, _, rest) in zip(others, attributes, strict=True):
        header_type, default = attribute_type_and_default(rest)
        assert ATTRIBUTE_TYPES[header_type][2] == re.sub(r"Optional\[(.*)\]", r"\1", str(argument.type))
        assert (kind == "") == argument.has_default_value()
        if argument.default_value is not None:
            assert argument.default_value == default
