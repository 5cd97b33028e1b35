# SPDX-License-Identifier: Apache-2.0
"""add_custom as a node of a Graph Engine graph: tensors of two dtypes meet in one, and CANN's Add adds those that the
vector unit does not."""

import torch
from torchair import register_fx_node_ge_converter
from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.utils import dtype_promote
from torchair.ge import DataType, Tensor, TensorSpec

from .auto_generated_ge_raw_custom_ops import AddCustom

VECTOR = (DataType.DT_FLOAT16, DataType.DT_BF16, DataType.DT_FLOAT, DataType.DT_INT16, DataType.DT_INT32)


@register_fx_node_ge_converter(torch.ops.custom_pypto.add_custom.default)
def convert_add_custom(self: Tensor, other: Tensor, *, meta_outputs: TensorSpec = None) -> Tensor:
    """add_custom(Tensor self, Tensor other) -> Tensor: the node takes both in the dtype of the result."""
    self, other = dtype_promote(self, other, target_dtype=meta_outputs.dtype)
    return AddCustom(self, other) if meta_outputs.dtype in VECTOR else ge.Add(self, other)
