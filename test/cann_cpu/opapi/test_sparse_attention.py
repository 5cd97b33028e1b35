# SPDX-License-Identifier: Apache-2.0
"""npu_sparse_flash_attention and npu_kv_quant_sparse_flash_attention, against attention in float64."""

import pytest
import references
import torch
import torch_npu
from aclnn import Out, written_by
from graphs import MODES, assert_same_bits

LAYOUTS = [("BSND", "BSND"), ("BSND", "PA_BSND"), ("TND", "TND"), ("TND", "PA_BSND")]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def on(device, inputs):
    return {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}


def attended(inputs, operator=torch_npu.npu_sparse_flash_attention, **attributes):
    return operator(**on("npu", inputs), attention_mode=2, **attributes)


SIZES = {
    "a decode step": dict(key_lengths=[3000, 1, 129], heads=128),
    "two tokens": dict(key_lengths=[2100, 300], queries=2, heads=16, count=2048),
    "few keys": dict(key_lengths=[5, 77], queries=3, heads=1, count=7),
    "no queries of a sequence": dict(key_lengths=[40, 7], queries=3, query_lengths=[3, 0], heads=2, count=9),
    "fewer keys than queries": dict(key_lengths=[3, 1], queries=5, heads=4, count=8),
    "float16": dict(key_lengths=[500, 77], queries=3, heads=8, count=64, dtype=torch.float16),
    "values of their own": dict(key_lengths=[300, 77], queries=2, heads=4, count=64, value_depth=512),
    "more keys than at a time": dict(key_lengths=[4200], heads=2, count=4300),
}


@pytest.mark.parametrize("layouts", LAYOUTS, ids=" ".join)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=list(SIZES))
def test_attention_to_selected_keys(sizes, layouts):
    inputs = references.sparse_flash_attention_inputs(
        **sizes, layout_query=layouts[0], layout_key=layouts[1], block_size=16
    )
    out, maximum, total = attended(inputs)
    references.check_attention(out.cpu(), references.sparse_flash_attention(**inputs), rtol=3e-3)
    assert maximum.numel() == total.numel() == 0


@pytest.mark.parametrize("layout_key", ["TND", "PA_BSND"])
def test_inputs_need_not_be_contiguous(layout_key):
    inputs = references.sparse_flash_attention_inputs(
        [300, 77], queries=2, heads=4, count=64, value_depth=512, layout_query="TND", layout_key=layout_key
    )
    expected = attended(inputs)[0].cpu()
    apart = {
        name: torch.cat([x, x], -1).split(x.shape[-1], -1)[0] if isinstance(x, torch.Tensor) and x.dim() > 2 else x
        for name, x in inputs.items()
    }
    assert sum(not x.is_contiguous() for x in apart.values() if isinstance(x, torch.Tensor)) == 6
    transposed = {"query": inputs["query"].transpose(0, 1).contiguous().transpose(0, 1)}  # as vllm-ascend gives it
    for given in (apart, inputs | transposed):
        there = {name: x.npu() if isinstance(x, torch.Tensor) else x for name, x in given.items()}
        assert torch.equal(torch_npu.npu_sparse_flash_attention(**there, attention_mode=2)[0].cpu(), expected)


@pytest.mark.parametrize("layout", ["BSND", "TND"])
def test_without_a_mask_and_with_statistics(layout):
    inputs = references.sparse_flash_attention_inputs(
        [300, 20], queries=3, heads=4, count=64, layout_query=layout, layout_key=layout
    )
    inputs["sparse_indices"][inputs["sparse_indices"] >= 20] = 7
    out, maximum, total = (x.cpu() for x in attended(inputs, sparse_mode=0, return_softmax_lse=True))
    expected, lse = references.sparse_flash_attention(**inputs, sparse_mode=0, return_softmax_lse=True)
    references.check_attention(out, expected, rtol=3e-3)
    assert maximum.shape == total.shape == ((1, 6, 4) if layout == "TND" else (2, 1, 3, 4))
    assert torch.allclose((maximum + total.log()).view_as(lse).double(), lse, atol=1e-5)
    assert (total >= 1).all()


@pytest.mark.parametrize("block", [2, 16, 128])
def test_blocks_of_keys(block):
    inputs = references.sparse_flash_attention_inputs([1000, 130], queries=2, heads=4, count=3, layout_key="BSND")
    blocks = torch.tensor([[4, 0, -1], [6, 7, 1], [1, 0, -1], [0, -1, -1]]).int().view(2, 2, 1, 3)
    tokens = (blocks[..., None] * block + torch.arange(block, dtype=torch.int32)).flatten(-2)
    tokens[(blocks < 0).repeat_interleave(block, -1)] = -1
    out = attended(inputs | {"sparse_indices": blocks}, sparse_block_size=block)[0]
    expected = references.sparse_flash_attention(**inputs | {"sparse_indices": tokens})
    references.check_attention(out.cpu(), expected, rtol=3e-3)


def test_a_sink_takes_its_share():
    inputs = references.sparse_flash_attention_inputs([300, 20], queries=2, heads=4, count=64, layout_key="BSND")
    sinks = torch.randn(4)
    out = attended(inputs | {"sinks": sinks})[0]
    expected = references.sparse_flash_attention(**inputs, attention_sinks=sinks)
    references.check_attention(out.cpu(), expected, rtol=3e-3)


def quantized(inputs):
    """The arguments of npu_kv_quant_sparse_flash_attention, and what its keys are in float64."""
    latent, turned = inputs["key"], inputs.pop("key_rope")
    numbers, scales = references.quantise(latent.unflatten(-1, (4, 128)))
    scales = scales.float()
    stored = [numbers.flatten(-2), turned.view(torch.int8), scales.squeeze(-1).view(torch.int8)]
    exact = (numbers.double() * scales.double()).flatten(-2)
    query = torch.cat([inputs["query"], inputs.pop("query_rope")], -1)
    key = torch.cat(stored, -1)
    expected = inputs | {
        "query": query.double(),
        "key": torch.cat([exact, turned.double()], -1),
        "value": exact,
    }
    return inputs | {"query": query, "key": key, "value": key.clone()}, expected


@pytest.mark.parametrize("layouts", LAYOUTS, ids=" ".join)
def test_attention_to_quantized_keys(layouts):
    for name in ("two tokens", "few keys", "no queries of a sequence", "float16"):
        inputs, exact = quantized(
            references.sparse_flash_attention_inputs(
                **SIZES[name], layout_query=layouts[0], layout_key=layouts[1], block_size=16
            )
        )
        modes = dict(key_quant_mode=2, value_quant_mode=2)
        out = attended(inputs, torch_npu.npu_kv_quant_sparse_flash_attention, **modes).cpu()
        references.check_attention(out, references.sparse_flash_attention(**exact), rtol=3e-3)
        shared = inputs | {"value": inputs["key"]}
        again = attended(shared, torch_npu.npu_kv_quant_sparse_flash_attention, **modes).cpu()
        assert torch.equal(out, again)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layouts", LAYOUTS, ids=" ".join)
def test_graphs_give_the_bits_of_eager(layouts, mode):
    def inputs():
        names = dict(layout_query=layouts[0], layout_key=layouts[1], block_size=16)
        return references.sparse_flash_attention_inputs(**SIZES["two tokens"], **names)

    with_sums = inputs() | ({} if "PA" in layouts[1] else {"return_softmax_lse": True})
    of_bytes = quantized(inputs())[0] | dict(key_quant_mode=2, value_quant_mode=2)
    for operator, given in [
        (torch_npu.npu_sparse_flash_attention, with_sums),
        (torch_npu.npu_sparse_flash_attention, inputs() | {"sinks": torch.randn(16)}),
        (torch_npu.npu_kv_quant_sparse_flash_attention, of_bytes),
    ]:
        assert_same_bits(attended(given, MODES[mode](operator)), attended(given, operator))


@pytest.mark.parametrize("layout", ["BSND", "TND"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("lengths", [[300, 20], [13000]])
def test_the_gradient(layout, shared, lengths):
    inputs = references.sparse_flash_attention_inputs(
        lengths, queries=3, heads=4, count=64, layout_query=layout, layout_key=layout
    )
    names = "query", "key", "value", "query_rope", "key_rope"
    out, maximum, total = attended(inputs, return_softmax_lse=True)
    leaves = {name: inputs[name].double().requires_grad_() for name in names if name != "value" or not shared}
    values = leaves if not shared else leaves | {"value": leaves["key"]}
    expected = torch.zeros(1, dtype=torch.float64)
    dy = torch.randn(out.shape).bfloat16()
    lengths_of = inputs.get("actual_seq_lengths_query"), inputs["actual_seq_lengths_kv"]
    for sequence in references._sequences(inputs["query"], inputs["key"], *lengths_of, None, layout, layout):
        for s in range(sequence.queries):
            place = sequence.place(s)
            chosen = inputs["sparse_indices"][place][0].long()
            at = chosen[(chosen >= 0) & (chosen < sequence.visible(s, 3))]
            k, v, turned = (sequence.take(values[name], at)[:, 0] for name in ("key", "value", "key_rope"))
            scores = values["query"][place] @ k.t() + values["query_rope"][place] @ turned.t()
            result = (inputs["scale_value"] * scores).softmax(-1) @ v
            expected = expected + (result * dy[place].double()).sum()
    query, key, value, indices = (inputs[name] for name in ("query", "key", "value", "sparse_indices"))
    rope = inputs["query_rope"], inputs["key_rope"]
    kept, scale = [x.cpu() for x in (out, maximum, total)], inputs["scale_value"]
    if shared:  # the gradient of the values is in that of the keys
        numbers = [scale, 1, layout, 3, 2**31 - 1, 2**31 - 1, 0]
        outs = [Out(x.shape, x.dtype) if x is not None else None for x in (query, key, None, *rope)]
        name = "aclnnSparseFlashAttentionGrad"
        actual = written_by(name, query, key, None, indices, dy, *kept, *lengths_of, *rope, *numbers, *outs)
        results = dict(zip(("query", "key", "query_rope", "key_rope"), actual, strict=True))
    else:
        there = on("npu", dict(query_rope=rope[0], key_rope=rope[1]))
        there |= on("npu", dict(actual_seq_qlen=lengths_of[0], actual_seq_kvlen=lengths_of[1]))
        tensors = [x.npu() for x in (query, key, value, indices, dy)]
        actual = torch.ops.npu.npu_sparse_flash_attention_grad(
            *tensors, out, maximum, total, scale, 1, **there, layout=layout
        )
        results = dict(zip(("query", "key", "value", "query_rope", "key_rope"), actual, strict=True))
    for name, exact in zip(leaves, torch.autograd.grad(expected, list(leaves.values())), strict=True):
        mine = results[name].cpu().double()
        assert torch.allclose(mine, exact, rtol=2**-6, atol=0.02 * exact.abs().max()), name


REJECTED = {
    "attention_mode": (dict(attention_mode=0), "attention_mode is 0; expected 2 to 2"),
    "sparse_mode": (dict(sparse_mode=4), "sparse_mode is 4; expected 0 or 3"),
    "sparse_block_size": (dict(sparse_block_size=3), "sparse_block_size is 3; expected a power of two up to 128"),
    "blocks and pages": (
        dict(sparse_block_size=32),
        "sparse_block_size is 32, which does not divide the blocks of key",
    ),
    "no key_rope": (dict(key_rope=None), "key_rope is null; attention_mode 2 needs it"),
    "query_rope": (dict(query_rope=torch.ones(2, 2, 4, 32).bfloat16()), r"query_rope has shape \[2, 2, 4, 32\]; exp"),
    "key's dtype": (dict(key=torch.ones(6, 16, 1, 512).half()), "key has dtype float16; expected bfloat16, as query"),
    "value": (dict(value=torch.ones(6, 16, 1, 128).bfloat16()), r"value has shape \[6, 16, 1, 128\]; expected"),
    "return_softmax_lse": (dict(return_softmax_lse=True), "return_softmax_lse is true; it is not supported with"),
    "sparse_indices": (dict(sparse_indices=torch.zeros(2, 2, 2, 3).int()), "sparse_indices has shape"),
    "an index": (dict(sparse_indices=torch.tensor([[[[3, 99]]] * 2] * 2).int(), sparse_mode=0), "query 0 has 99 at 1"),
    "a length": (dict(actual_seq_lengths_kv=torch.tensor([30, 99]).int()), r"actual_seq_lengths_kv\[1\] is 99; exp"),
}


@pytest.mark.parametrize("changes, message", REJECTED.values(), ids=list(REJECTED))
def test_bad_arguments_are_rejected(changes, message):
    inputs = references.sparse_flash_attention_inputs([30, 20], queries=2, heads=4, count=8, block_size=16)
    with pytest.raises(RuntimeError, match=message):
        torch_npu.npu_sparse_flash_attention(**on("npu", {"attention_mode": 2} | inputs | changes))
        torch.npu.synchronize()
