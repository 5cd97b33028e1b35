# SPDX-License-Identifier: Apache-2.0
"""The converter of an operator on bases: the node of the original works on copies of the views, which are written back
into their bases one after the other."""

from torch._higher_order_ops.auto_functionalize import AsStridedViewInfo
from torchair import register_fx_node_ge_converter
from torchair._ge_concrete_graph.fx2ge_converter import get_or_auto_gen_converter
from torchair.ge._ge_graph import ControlTensor, get_default_ge_graph

from ..on_bases import OnBases


def register_on_bases(it: OnBases) -> None:
    def convert(**kwargs):
        copies = []

        def view(base, size, stride, storage_offset, dense_stride, dense_storage_offset):
            copy = AsStridedViewInfo(0, size, dense_stride, dense_storage_offset)
            copies.append((copy, [base]))
            return copy.regenerate_ge_view([base])

        outputs = get_or_auto_gen_converter(it.original)(**it.arguments(kwargs, view))
        operator = get_default_ge_graph().op[-1]
        for copy, base in copies:
            last = ControlTensor(get_default_ge_graph().op[-1])
            copy.view_copy(base, dependencies=[last], out_op=operator)
        return outputs

    register_fx_node_ge_converter(it.op)(convert)
