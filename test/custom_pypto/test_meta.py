# SPDX-License-Identifier: Apache-2.0
"""Meta and fake tensors: the shapes, dtypes and strides of eager, with symbolic sizes too."""

import prolog_calls
import pytest
import torch
import torch_npu  # noqa: F401
from calls import EVERY_CALL, arguments_of, caches_of, overload, results
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import custom_pypto  # noqa: F401

ops = torch.ops.custom_pypto


def to(device, value):
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device).copy_(value)
    return value


def kind(tensor):
    return tensor.shape, tensor.stride(), tensor.dtype


ADDITIONS = {
    "plain": (torch.ones(3, 4), torch.ones(3, 4)),
    "broadcast": (torch.ones(3, 1, 5), torch.ones(4, 1)),
    "promoted": (torch.ones(3).half(), torch.ones(3, dtype=torch.int32)),
    "scalar tensor": (torch.ones(3).half(), torch.tensor(1.0, dtype=torch.float64)),
    "transposed": (torch.ones(3, 4).T, torch.ones(3)),
    "empty": (torch.ones(0, 3), torch.ones(3)),
}


@pytest.mark.parametrize("call", ADDITIONS)
def test_add_custom_on_meta_gives_what_eager_gives(call):
    meta = ops.add_custom(*(to("meta", value) for value in ADDITIONS[call]))
    eager = ops.add_custom(*(to("npu", value) for value in ADDITIONS[call]))
    assert kind(meta) == kind(eager)


def test_add_custom_backward_on_meta_gives_what_eager_gives():
    grad = torch.ones(4, 3).T
    for meta, eager in zip(ops.add_custom_backward(to("meta", grad)), ops.add_custom_backward(grad.npu()), strict=True):
        assert kind(meta) == kind(eager)


every_call = pytest.mark.parametrize(("operator", "call"), EVERY_CALL)


def test_gradients_flow_on_meta():
    x = torch.ones(3, 1, device="meta", requires_grad=True)
    ops.add_custom(x, torch.ones(4, device="meta")).sum().backward()
    assert kind(x.grad) == kind(x)


@every_call
def test_fake_tensors_on_an_npu_stay_there(operator, call):
    arguments = arguments_of(operator, call)
    with FakeTensorMode() as mode:
        fake = {k: mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
        assert {result.device for result in results(overload(operator, fake)(**fake))} <= {torch.device("npu:0")}


def test_fake_tensors_on_another_npu_stay_there():
    with FakeTensorMode():
        x = torch.empty(3, 1, device="npu:1")
        assert ops.add_custom(x, torch.empty(4, device="npu:1")).device == torch.device("npu:1")


def test_a_trace_with_symbolic_sizes_serves_other_sizes():
    """The sizes of the results are expressions of the inputs' sizes, none is a constant of the trace."""

    def layer(query, key, weights, lengths, table):
        selected = ops.npu_lightning_indexer_pto(
            query, key, weights, actual_seq_lengths_key=lengths, block_table=table, sparse_count=5
        )
        attended = ops.npu_sparse_flash_attention_pto(
            query, key, key[..., :9], selected, 0.1, block_table=table, actual_seq_lengths_kv=lengths
        )
        return selected, attended

    def inputs(batch, tokens, heads, pages):
        return (
            torch.zeros(batch, tokens, heads, 16, dtype=torch.float16),
            torch.zeros(pages, 8, 2, 16, dtype=torch.float16),
            torch.zeros(batch, tokens, heads),
            torch.zeros(batch, dtype=torch.int32),
            torch.zeros(batch, pages, dtype=torch.int32),
        )

    graph = make_fx(layer, tracing_mode="symbolic")(*(value.to("meta") for value in inputs(3, 4, 6, 5)))
    selected, attended = graph(*(value.to("meta") for value in inputs(7, 11, 8, 9)))
    assert selected.shape == (7, 11, 2, 5)
    assert attended.shape == (7, 11, 8, 9)


def test_a_trace_of_operators_that_write_caches_serves_other_sizes():
    def step(prolog, layer):
        query, scale, weights = ops.npu_lightning_indexer_prolog_pto(*prolog, 1e-6)
        return query, scale, weights, ops.npu_sparse_attention_pto(*layer, sparse_count=5)

    def inputs(tokens, batch, queries, pages, width):
        prolog, layer = prolog_calls.prolog(tokens, cache=(pages, 8)), prolog_calls.layer([9] * batch, queries=queries)
        caches = {name: layer[name][:1].repeat(pages, 1, 1, 1) for name in caches_of("npu_sparse_attention_pto")}
        layer |= caches | {"block_table": torch.zeros(batch, width, dtype=torch.int32)}
        return [[v.to("meta") for v in a.values() if isinstance(v, torch.Tensor)] for a in (prolog, layer)]

    graph = make_fx(step, tracing_mode="symbolic")(*inputs(3, 2, 4, 11, 9))
    query, scale, weights, attended = graph(*inputs(7, 5, 2, 13, 6))
    assert query.shape == (7, 5, 16)
    assert scale.shape == (7, 5, 1)
    assert weights.shape == (7, 5)
    assert attended.shape == (5, 2, 5, 24)


def test_sizes_that_only_the_data_decides_are_traced_without_a_guard():
    """Unbacked sizes: how many rows `nonzero` finds is not known while tracing."""
    shape_env = ShapeEnv()
    with FakeTensorMode(shape_env=shape_env):
        rows = torch.empty(10, device="npu").nonzero().shape[0]
        out = ops.add_custom(torch.empty(rows, 4, device="npu"), torch.empty(4, device="npu"))
        assert out.shape[0] is rows or out.shape[0] == rows
        both = ops.add_custom(torch.empty(rows, 4, device="npu"), torch.empty(rows, 4, device="npu"))
        assert both.shape[0] is rows or both.shape[0] == rows
        query = torch.empty(rows, 6, 16, dtype=torch.float16, device="npu")
        lengths = torch.empty(3, dtype=torch.int32, device="npu")
        key = torch.empty(20, 2, 16, dtype=torch.float16, device="npu")
        selected = ops.npu_lightning_indexer_pto(
            query,
            key,
            torch.empty(rows, 6, device="npu"),
            actual_seq_lengths_query=lengths,
            actual_seq_lengths_key=lengths,
            layout_query="TND",
            layout_key="TND",
            sparse_count=5,
        )
        assert selected.shape[1:] == (2, 5)
        assert selected.shape[0] == rows
        attended = ops.npu_sparse_flash_attention_pto(
            query,
            key,
            key,
            selected,
            0.1,
            actual_seq_lengths_query=lengths,
            actual_seq_lengths_kv=lengths,
            layout_query="TND",
            layout_kv="TND",
        )
        assert attended.shape[1:] == (6, 16)
        assert attended.shape[0] == rows
