# SPDX-License-Identifier: Apache-2.0
"""npu_lightning_indexer and npu_quant_lightning_indexer, against scores in float64."""

import pytest
import references
import torch
import torch_npu
from graphs import MODES, assert_same_bits
from torch._subclasses import FakeTensorMode

LAYOUTS = [("BSND", "BSND"), ("BSND", "PA_BSND"), ("TND", "TND"), ("TND", "PA_BSND")]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def on(device, inputs):
    return {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}


def call(operator, inputs, **attributes):
    query, key, weights, *scales = (
        inputs.pop(name)
        for name in ("query", "key", "weights", "query_dequant_scale", "key_dequant_scale")
        if name in inputs
    )
    return operator(query, key, weights, *scales, *[0] * len(scales), **inputs, **attributes)


def indexed(inputs, **attributes):
    return [x.cpu() for x in call(torch_npu.npu_lightning_indexer, on("npu", inputs), **attributes)]


SIZES = {
    "a decode step": dict(key_lengths=[3000, 1, 129], queries=1),
    "two tokens": dict(key_lengths=[2049, 2048, 300], queries=2),
    "fewer keys than queries": dict(key_lengths=[3, 1], queries=5),
    "no queries of a sequence": dict(key_lengths=[40, 7], queries=3, query_lengths=[3, 0]),
    "prime": dict(key_lengths=[1031, 13], queries=7, heads=11),
    "float16": dict(key_lengths=[500, 77], queries=3, dtype=torch.float16),
    "weights of float32": dict(key_lengths=[500, 77], queries=3, weights_dtype=torch.float32),
}


@pytest.mark.parametrize("layouts", LAYOUTS, ids=" ".join)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=list(SIZES))
def test_the_indexer_selects_the_best_keys(sizes, layouts):
    for sparse_mode, count in [(3, 2048), (0, 64)]:
        inputs = references.lightning_indexer_inputs(
            **sizes, layout_query=layouts[0], layout_key=layouts[1], block_size=16
        )
        indices, values = indexed(inputs, sparse_mode=sparse_mode, sparse_count=count)
        references.check_lightning_indexer(indices, **inputs, sparse_mode=sparse_mode)
        assert values.numel() == 0


@pytest.mark.parametrize("layout", ["BSND", "TND"])
def test_the_indexer_returns_scores(layout):
    inputs = references.lightning_indexer_inputs([300, 5], queries=3, layout_query=layout, layout_key=layout)
    indices, values = indexed(inputs, sparse_count=100, return_value=True)
    references.check_lightning_indexer(indices, **inputs, values=values)


def test_of_equal_scores_the_first_key_is_better():
    inputs = references.lightning_indexer_inputs([50], layout_key="BSND", values=torch.ones)
    indices, _ = indexed(inputs, sparse_count=20)
    assert indices.flatten().tolist() == list(range(20))


@pytest.mark.parametrize("layouts", LAYOUTS, ids=" ".join)
def test_the_quantized_indexer_selects_the_best_keys(layouts):
    for sizes in (SIZES["two tokens"], SIZES["prime"], SIZES["no queries of a sequence"]):
        inputs = references.lightning_indexer_quant_inputs(
            **sizes, layout_query=layouts[0], layout_key=layouts[1], block_size=16, as_prolog=False
        )
        for sparse_mode, count in [(3, 2048), (0, 64)]:
            attributes = dict(sparse_mode=sparse_mode, sparse_count=count)
            indices = call(torch_npu.npu_quant_lightning_indexer, on("npu", inputs), **attributes).cpu()
            references.check_lightning_indexer_quant(indices, **inputs, sparse_mode=sparse_mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layouts", LAYOUTS, ids=" ".join)
def test_graphs_give_the_bits_of_eager(layouts, mode):
    names = dict(layout_query=layouts[0], layout_key=layouts[1], block_size=16)
    plain = references.lightning_indexer_inputs(**SIZES["two tokens"], **names)
    quantized = references.lightning_indexer_quant_inputs(**SIZES["two tokens"], **names, as_prolog=False)
    cases = [(torch_npu.npu_lightning_indexer, plain, layouts[1] != "PA_BSND")]
    for operator, inputs, return_value in [*cases, (torch_npu.npu_quant_lightning_indexer, quantized, False)]:
        options = dict(sparse_count=64) | ({"return_value": True} if return_value else {})
        expected, results = (call(each, on("npu", inputs), **options) for each in (operator, MODES[mode](operator)))
        assert_same_bits(results, expected)


def test_pages_of_the_quantized_indexer_may_lie_apart():
    inputs = references.lightning_indexer_quant_inputs([300, 77], block_size=16, as_prolog=False)
    there = on("npu", inputs)
    for name in ("key", "key_dequant_scale"):
        there[name] = torch.stack([there[name], there[name]], 1)[:, 0]
        assert not there[name].is_contiguous()
    indices = call(torch_npu.npu_quant_lightning_indexer, there, sparse_count=64).cpu()
    references.check_lightning_indexer_quant(indices, **inputs)


def strided(inputs, names):
    """The same inputs, some of them with other numbers between their rows, as a projection's parts have."""
    there = on("npu", inputs)
    for name in names:
        there[name] = torch.cat([there[name], there[name]], -1).split(there[name].shape[-1], -1)[0]
        assert not there[name].is_contiguous()
    return there


@pytest.mark.parametrize("layout_key", ["TND", "PA_BSND"])
def test_inputs_need_not_be_contiguous(layout_key):
    names = dict(layout_query="TND", layout_key=layout_key)
    inputs = references.lightning_indexer_inputs([300, 77], queries=2, **names)
    expected, _ = indexed(dict(inputs), sparse_count=64)
    found, _ = call(torch_npu.npu_lightning_indexer, strided(inputs, ["query", "key", "weights"]), sparse_count=64)
    assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize("layouts", LAYOUTS, ids=" ".join)
def test_meta_tensors_have_the_shapes_and_dtypes(layouts):
    inputs = references.lightning_indexer_inputs([30, 7], queries=2, layout_query=layouts[0], layout_key=layouts[1])
    real = indexed(inputs, sparse_count=32)
    with FakeTensorMode() as mode:
        fake = {name: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}
        faked = call(torch_npu.npu_lightning_indexer, on("npu", fake), sparse_count=32)
    assert [(x.shape, x.dtype) for x in faked] == [(x.shape, x.dtype) for x in real]


@pytest.mark.parametrize("layout", ["BSND", "TND"])
@pytest.mark.parametrize("sparse_mode", [0, 3])
def test_the_gradient_of_selected_scores(layout, sparse_mode):
    sizes = dict(queries=3, query_lengths=[3, 2], heads=8)
    inputs = references.lightning_indexer_inputs([40, 9], layout_query=layout, layout_key=layout, **sizes)
    count = 16
    indices, _ = indexed(inputs, sparse_count=count, sparse_mode=sparse_mode)
    dy = torch.randn(indices.shape).bfloat16()
    leaves = [inputs[name].double().requires_grad_() for name in ("query", "key", "weights")]
    total = 0
    rows = {name: x for name, x in inputs.items() if name not in ("query", "key", "weights")}
    for sequence in references._sequences(leaves[0], leaves[1], rows.get("actual_seq_lengths_query"),
                                          rows["actual_seq_lengths_key"], None, layout, layout):  # fmt: skip
        for s in range(sequence.queries):
            place = sequence.place(s)
            chosen = indices[place][0]
            chosen = chosen[chosen >= 0].long()
            keys = sequence.take(leaves[1], chosen)[:, 0]
            scores = leaves[2][place] @ (leaves[0][place] @ keys.t()).relu()
            total = total + (scores * dy[place][0, : len(chosen)].double()).sum()
    arguments = [inputs["query"], inputs["key"], dy, indices, inputs["weights"]]
    lengths = [rows.get("actual_seq_lengths_query"), rows["actual_seq_lengths_key"]]
    there = [x if x is None else x.npu() for x in arguments + lengths]
    actual = torch.ops.npu.npu_lightning_indexer_grad(*there, layout=layout, sparse_mode=sparse_mode)
    for mine, exact in zip(actual, torch.autograd.grad(total, leaves), strict=True):
        assert torch.allclose(mine.cpu().double(), exact, rtol=2**-7, atol=0.01 * exact.abs().max())


REJECTED = {
    "sparse_mode": (dict(sparse_mode=1), "sparse_mode is 1; expected 0 or 3"),
    "pre_tokens": (dict(pre_tokens=5), "pre_tokens is 5"),
    "sparse_count": (dict(sparse_count=2049), "sparse_count is 2049; expected 1 to 2048, or 3072 to 8192"),
    "layout_query": (dict(layout_query="BNSD"), 'layout_query is "BNSD"; expected BSND, TND'),
    "layouts that differ": (dict(layout_key="TND"), "layout_key is TND, layout_query BSND; expected the same"),
    "weights": (dict(weights=torch.ones(2, 2, 63)), r"weights has shape \[2, 2, 63\]; expected \[2, 2, 64\]"),
    "weights' dtype": (dict(weights=torch.ones(2, 2, 64).half()), "weights has dtype Half; expected float32 or that"),
    "key's dtype": (dict(key=torch.ones(6, 16, 1, 128).half()), "key has dtype float16; expected bfloat16, as query"),
    "no block_table": (dict(block_table=None), "block_table is null; layout_key is PA_BSND"),
    "blocks of 8 tokens": (dict(key=torch.ones(6, 8, 1, 128).bfloat16()), "key has blocks of 8 tokens"),
    "no key lengths": (dict(actual_seq_lengths_key=None), "actual_seq_lengths_key is null; layout_key PA_BSND needs"),
    "heads of keys": (dict(key=torch.ones(6, 16, 2, 128).bfloat16()), "key has 2 heads"),
    "return_value": (dict(return_value=True), "return_value is true; it is not supported with layout_key PA_BSND"),
    "key length": (dict(actual_seq_lengths_key=torch.tensor([30, 99]).int()), r"actual_seq_lengths_key\[1\] is 99; "),
    "query length": (dict(actual_seq_lengths_query=torch.tensor([3, 0]).int()), r"query\[0\] is 3; expected 0 to 2"),
    "block": (dict(block_table=torch.tensor([[0, 9, 1], [1, 2, 3]]).int()), r"block_table\[0, 1\] is 9; expected 0 to"),
}


@pytest.mark.parametrize("changes, message", REJECTED.values(), ids=list(REJECTED))
def test_bad_arguments_are_rejected(changes, message):
    inputs = references.lightning_indexer_inputs([30, 20], queries=2, block_size=16)
    with pytest.raises(RuntimeError, match=message):
        indexed(inputs | changes)
        torch.npu.synchronize()
    torch.ones(1).npu().cpu()


def test_rows_keep_what_they_were_when_a_block_is_out_of_range():
    inputs = references.lightning_indexer_quant_inputs([30, 20], block_size=16, as_prolog=False)
    inputs["block_table"][1, 1] = 77
    with pytest.raises(RuntimeError, match=r"aclnnQuantLightningIndexer: block_table\[1, 1\] is 77; expected 0 to"):
        call(torch_npu.npu_quant_lightning_indexer, on("npu", inputs))
        torch.npu.synchronize()
