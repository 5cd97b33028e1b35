# SPDX-License-Identifier: Apache-2.0
"""A general plugin of vLLM, which it loads in each of its processes: what vllm-ascend needs on this CANN."""

from . import activation


def define_operators():
    """Defines OPERATORS in the namespace of vllm-ascend's extension, `torch.ops._C_ascend`.

    They are composite: a kernel that another library registers for NPUs is called instead.
    """
    import torch

    from .vllm_operators import OPERATORS

    global library  # the operators live as long as it does
    library = torch.library.Library("_C_ascend", "FRAGMENT")
    for schema, function in OPERATORS.items():
        name = library.define(schema)
        arguments = getattr(torch.ops._C_ascend, name).default._schema.arguments
        # What equals its default reaches a kernel in Python as an argument that was not given.
        defaults = {x.name: x.default_value for x in arguments if x.has_default_value()}
        names = [x.name for x in arguments]
        called = getattr(torch.ops.npu, function) if isinstance(function, str) else function

        def call(*positional, called=called, names=names, defaults=defaults, **by_name):
            return called(**(defaults | dict(zip(names, positional, strict=False)) | by_name))

        library.impl(name, call, "CompositeImplicitAutograd")


def register():
    """Lets vllm-ascend look for its compiled operators now, where this CANN is the one in use, or defines some of them.

    It looks when a model first needs one. In graph modes that is while Dynamo traces, where an import that fails is an
    error of the trace; now it makes vllm-ascend go on without these operators, and log why. Its binary is for one
    torch; with another, OPERATORS are those that it calls without asking whether they are there.
    """
    if activation.choose().cann != "cpu":
        return
    try:
        from vllm_ascend.utils import enable_custom_op
    except ImportError:  # vLLM with another platform
        return
    if not enable_custom_op():
        define_operators()
