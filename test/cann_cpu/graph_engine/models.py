# SPDX-License-Identifier: Apache-2.0
"""Writes models in torchair's format (ge.proto.ModelDef) by hand, without tracing a program."""

import numpy
import torch  # noqa: F401  loads torch_npu, which makes torchair importable
from torchair._ge_concrete_graph.ge_ir_pb2 import ModelDef

FLOAT, INT64 = 1, 8


class ModelWriter:
    """A graph under construction: data() and node() return names that later nodes take as inputs."""

    def __init__(self, name="hand_written"):
        self.model = ModelDef()
        self.graph = self.model.graph.add()
        self.graph.name = name

    def _add(self, op_type, name, inputs=(), outputs=1):
        node = self.graph.op.add()
        node.type, node.name = op_type, name
        node.input.extend(inputs)
        for i in range(outputs):
            node.output_desc.add().name = f"y{i}"
        return node

    def data(self, index, shape, dtype=FLOAT):
        node = self._add("Data", f"data_{index}")
        node.attr["index"].i = index
        for desc in (node.output_desc[0], node.input_desc.add()):
            desc.dtype = dtype
            desc.shape.dim.extend(shape)
        return f"{node.name}:0"

    def const(self, name, values, dtype=INT64):
        array = numpy.asarray(values, dtype={FLOAT: numpy.float32, INT64: numpy.int64}[dtype])
        tensor = self._add("Const", name).attr["value"].t
        tensor.desc.dtype = dtype
        tensor.desc.shape.dim.extend(array.shape)
        tensor.data = array.tobytes()
        return f"{name}:0"

    def node(self, op_type, name, *inputs, outputs=1, **attributes):
        node = self._add(op_type, name, inputs, outputs)
        for key, value in attributes.items():
            field = {bool: "b", int: "i", float: "f", bytes: "s"}[type(value)]
            setattr(node.attr[key], field, value)
        return f"{name}:0"

    def output(self, *sources, shape=(-1,), dtype=FLOAT):
        node = self._add("NetOutput", "NetOutput", sources, outputs=0)
        for _ in sources:
            desc = node.input_desc.add()
            desc.dtype = dtype
            desc.shape.dim.extend(shape)
        return self.model.SerializeToString()
