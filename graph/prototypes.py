# SPDX-License-Identifier: Apache-2.0
"""Operators and their prototypes: names, types, and what a prototype declares."""

import math
import re
import struct
from dataclasses import dataclass

import torch

REQUIRED = object()
"""Stands for the default of an attribute that has none."""

# type in a schema, without Optional: of a prototype's attribute, as torchair.ge.attr calls it
ATTRIBUTES = {
    "int": "Int",
    "float": "Float",
    "bool": "Bool",
    "str": "Str",
    "ScalarType": "DataType",
    "List[int]": "ListInt",
    "List[float]": "ListFloat",
    "List[bool]": "ListBool",
    "List[str]": "ListStr",
}
# type of an attribute: what None stands for, as in the call of an aclnn function; for others an empty list
ABSENT = {"Int": 0, "Float": 0.0, "Bool": False, "Str": "", "DataType": 28}  # DT_UNDEFINED
# number of a dtype in a schema's default: in a graph
DTYPES = {0: 4, 1: 2, 2: 6, 3: 3, 4: 9, 5: 1, 6: 0, 7: 11, 11: 12, 15: 27}
# type in a schema: the inputs that take it
INPUTS = {
    "Tensor": ("required", "optional"),
    "Optional[Tensor]": ("optional",),
    "List[Tensor]": ("dynamic",),
    "Optional[List[Tensor]]": ("dynamic",),
}
OUTPUTS = {"Tensor": "required", "List[Tensor]": "dynamic"}


@dataclass(frozen=True)
class Prototype:
    """A prototype: each input and output is required, optional or dynamic, each attribute has a type and a default."""

    type: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    attributes: dict[str, tuple[str, object]]

    @staticmethod
    def of(ir) -> "Prototype":
        """What torchair's IrDef holds, as the generated Graph Engine API makes it."""
        from torchair._ge_concrete_graph.compat_ir import IrElement

        presence = {
            IrElement.RequireInput: "required",
            IrElement.OptionalInput: "optional",
            IrElement.DynamicInput: "dynamic",
            IrElement.RequireOutput: "required",
            IrElement.DynamicOutput: "dynamic",
        }
        return Prototype(
            ir.op_type,
            {name: presence[kind] for kind, name, _ in ir.indexed_inputs},
            {name: presence[kind] for kind, name, _ in ir.indexed_outputs},
            {
                name: (value.cls, REQUIRED if kind == IrElement.RequireAttr else value.value)
                for kind, name, value in ir.indexed_attrs
            },
        )

    def requires(self, name: str) -> bool:
        return self.inputs.get(name) == "required" or self.attributes.get(name, ("", None))[1] is REQUIRED

    @property
    def written(self) -> list[str]:
        """The inputs that the operator writes to: an output has their name."""
        return [name for name in self.outputs if name in self.inputs]


def ge_type(operator: str) -> str:
    """An operator's type in a graph: npu_sparse_attention -> SparseAttention, add_custom_backward -> AddCustomGrad."""
    words = re.sub("_backward$", "_grad", operator.removeprefix("npu_")).split("_")
    return "".join(word.capitalize() for word in words)


def snake_case(name: str) -> str:
    """The name of files on an operator type: Conv2DCustom -> conv2_d_custom, GRUCell -> gru_cell."""
    return re.sub(r"(?<=[^A-Z])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])", "_", name).lower()


def type_of(argument) -> str:
    """An argument's or result's type: Tensor, Optional[int], ...; PyTorch itself prints a SymInt as an int."""
    inner = argument.real_type
    while inner.kind() in ("OptionalType", "ListType"):
        inner = inner.getElementType()
    text = str(argument.real_type)
    return text.replace("int", "SymInt") if inner.kind() == "SymIntType" else text


def is_tensor(argument) -> bool:
    return "Tensor" in type_of(argument)


def is_written(argument) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def same(left, right) -> bool:
    """Whether defaults are equal; a prototype's float has 32 bits."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or struct.pack("f", left) == struct.pack("f", right)
    return type(left) is type(right) and left == right


def operators(namespace: str) -> dict[str, list[torch._ops.OpOverload]]:
    """The operators of a library by their names, with the overloads that are not composed of other operators."""
    found: dict[str, list[torch._ops.OpOverload]] = {}
    for full_name in sorted(torch._C._dispatch_get_all_op_names()):
        library, _, name = full_name.partition("::")
        if library == namespace and has_schema(full_name):
            packet, _, overload = name.partition(".")
            op = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
            if not op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
                found.setdefault(packet, []).append(op)
    return found


def has_schema(full_name: str) -> bool:
    return bool(torch._C._jit_get_schemas_for_operator(full_name.partition(".")[0]))
