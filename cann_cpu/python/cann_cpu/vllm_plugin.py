# SPDX-License-Identifier: Apache-2.0
"""A general plugin of vLLM, which it loads in each of its processes: what vllm-ascend needs on this CANN."""

from . import activation


def register():
    """Lets vllm-ascend look for its compiled operators now, where this CANN is the one in use.

    It looks when a model first needs one. In graph modes that is while Dynamo traces, where an import that fails is an
    error of the trace; now it makes vllm-ascend go on without these operators, and log why.
    """
    if activation.choose().cann != "cpu":
        return
    try:
        from vllm_ascend.utils import enable_custom_op
    except ImportError:  # vLLM with another platform
        return
    enable_custom_op()
