# SPDX-License-Identifier: Apache-2.0
"""The converter of an operator whose schema and prototype agree: names say which argument is which."""

import inspect
from collections.abc import Callable

import torch
from torchair import register_fx_node_ge_converter
from torchair.ge._ge_graph import torch_type_to_ge_type

from ..prototypes import Prototype


def register_plain(op: torch._ops.OpOverload, function: Callable, ir) -> None:
    """Lets the operator become a node that `function`, of the generated Graph Engine API, adds to the graph.

    Arguments that are not given or None are left to the prototype: an optional input is absent, an attribute has its
    default. Outputs with an input's name are not among the results: torchair finds by the name what they write.
    """
    prototype = Prototype.of(ir)
    arguments = [argument.name for argument in op._schema.arguments]
    results = len(op._schema.returns)
    sizes = [name for name, presence in prototype.outputs.items() if presence == "dynamic"]
    parameters = [*inspect.signature(function).parameters][len(prototype.inputs) :]
    of_sizes, of_attributes = parameters[: len(sizes)], parameters[len(sizes) :]

    def size(output: str, given: dict, meta_outputs) -> int:
        if output in prototype.inputs:
            return len(given[output])
        return len(meta_outputs if results == 1 else meta_outputs[[*prototype.outputs].index(output)])

    def convert(*args, meta_outputs=None, **kwargs):
        given = dict(zip(arguments, args, strict=False)) | kwargs
        inputs = [given.get(name) for name in prototype.inputs]
        inputs = [
            [] if value is None and presence == "dynamic" else value
            for value, presence in zip(inputs, prototype.inputs.values(), strict=True)
        ]
        keywords = {name: size(output, given, meta_outputs) for name, output in zip(of_sizes, sizes, strict=True)}
        for parameter, name in zip(of_attributes, prototype.attributes, strict=False):
            value = given.get(name)
            if value is not None:
                keywords[parameter] = torch_type_to_ge_type(value) if isinstance(value, torch.dtype) else value
        outputs = function(*inputs, **keywords)
        if results == 0:
            return None
        if len(prototype.outputs) == 1:
            return outputs
        return outputs[0] if results == 1 else tuple(outputs[:results])

    convert.plain = True
    register_fx_node_ge_converter(op)(convert)
