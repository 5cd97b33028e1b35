# SPDX-License-Identifier: Apache-2.0
"""The operators on queries and caches, and calls of each: {operator: {call: a function that makes its arguments}}."""

import attention_calls
import cache_calls
import indexer_calls
import prolog_calls
import torch

SAMPLES = indexer_calls.SAMPLES | prolog_calls.SAMPLES | attention_calls.SAMPLES | cache_calls.SAMPLES
CALLS = {operator: samples.calls for operator, samples in SAMPLES.items()}
WRITERS = [
    "npu_lightning_indexer_prolog_pto",
    "npu_sparse_attention_pto",
    "reshape_and_cache",
    "advance_step_flashattn",
]

EVERY_CALL = [(operator, call) for operator, calls in CALLS.items() for call in calls]


def arguments_of(operator, call, device="npu"):
    return on(device, CALLS[operator][call]())


def on(device, arguments):
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}


def copied(arguments):
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}


def overload(operator, arguments=()):
    """The first that has arguments of these names."""
    packet = getattr(torch.ops.custom_pypto, operator)
    if not arguments:
        return packet.default  # which a compiler traces
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return next(op for op in overloads if {*arguments} <= {argument.name for argument in op._schema.arguments})


def whole(operator):
    """The overload with all arguments and results, and as arguments what asks for no more results."""
    packet = getattr(torch.ops.custom_pypto, operator)
    op = max((getattr(packet, name) for name in packet.overloads()), key=lambda op: len(op._schema.returns))
    return op, {a.name: False for a in op._schema.arguments if str(a.type) == "bool" and not a.has_default_value()}


def tensors_of(operator):
    """The names of the tensors that the operator cannot do without."""
    return [a.name for a in overload(operator)._schema.arguments if str(a.type) == "Tensor"]


def caches_of(operator, arguments=None):
    """The names of the arguments that it writes; of those that are given, if the arguments are."""
    schema = overload(operator)._schema
    names = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [name for name in names if arguments is None or arguments[name] is not None]


def results(value):
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def assert_same(actual, expected):
    """Bitwise equal, for any dtype."""
    for got, want in zip(results(actual), results(expected), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert torch.equal(got.cpu(), want.cpu())


def assert_caches_same(operator, arguments, expected):
    for name in caches_of(operator, arguments):
        assert torch.equal(arguments[name].cpu(), expected[name].cpu()), name
