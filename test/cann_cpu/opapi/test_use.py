# SPDX-License-Identifier: Apache-2.0
"""What programs do with tensors on the NPU beyond single operators: train, print, compare, and meet an error."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 17), nn.LayerNorm(17), nn.GELU("tanh"), nn.Linear(17, 5))


OPTIMIZERS = {
    "SGD": lambda p, f: torch.optim.SGD(p, lr=0.1, foreach=f),
    "SGD with momentum": lambda p, f: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True, foreach=f
    ),
    "Adam": lambda p, f: torch.optim.Adam(p, lr=0.01, foreach=f),
    "AdamW": lambda p, f: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, foreach=f),
    "AdamW with amsgrad": lambda p, f: torch.optim.AdamW(p, lr=0.01, amsgrad=True, foreach=f),
    "RMSprop": lambda p, f: torch.optim.RMSprop(p, lr=0.01, foreach=f),
    "Adagrad": lambda p, f: torch.optim.Adagrad(p, lr=0.01, foreach=f),
}


def train(model, make_optimizer, foreach, device):
    optimizer = make_optimizer(model.parameters(), foreach)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(4):
        x = torch.randn(9, 8, generator=generator).to(device)
        target = torch.randint(0, 5, (9,), generator=generator).to(device)
        loss = F.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=foreach)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("foreach", [False, True], ids=["one by one", "foreach"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_steps_are_those_of_the_cpu(name, foreach):
    host = mlp()
    device = copy.deepcopy(host).npu()
    assert train(device, OPTIMIZERS[name], foreach, "npu") == pytest.approx(
        train(host, OPTIMIZERS[name], foreach, "cpu"), rel=1e-6
    )
    for got, expected in zip(device.parameters(), host.parameters(), strict=True):
        # Steps of 0.01 and more; what divides by the size of a gradient enlarges the rounding errors of a small one.
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_attention_trains_like_the_cpu():
    torch.manual_seed(0)
    host = nn.MultiheadAttention(16, 4, batch_first=True)
    device = copy.deepcopy(host).npu()
    x = torch.randn(2, 5, 16)
    for model, input in ((host, x), (device, x.npu())):
        model(input, input, input, need_weights=True)[0].square().sum().backward()
    for got, expected in zip(device.parameters(), host.parameters(), strict=True):
        torch.testing.assert_close(got.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("key_heads", [4, 2], ids=["each head its key", "two heads share a key"])
@pytest.mark.parametrize("masking", ["none", "causal", "mask"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_attention_and_its_gradient_follow_the_definition(dtype, masking, key_heads):
    """Against the definition in double precision: the CPU's flash kernel rounds in another order."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, heads, n, 16) for heads, n in ((4, 7), (key_heads, 9), (key_heads, 9)))
    mask = {
        "none": None,
        "causal": torch.ones(7, 9, dtype=torch.bool).tril(),
        "mask": (torch.rand(2, 1, 7, 9) < 0.6) | (torch.arange(9) == 0),
    }[masking]
    device = [t.to("npu", dtype).requires_grad_() for t in (query, key, value)]
    result = F.scaled_dot_product_attention(
        *device,
        attn_mask=mask.npu() if masking == "mask" else None,
        is_causal=masking == "causal",
        enable_gqa=key_heads != 4,
    )
    result.float().square().sum().backward()

    exact = [t.to(dtype).double().requires_grad_() for t in (query, key, value)]
    q, k, v = exact[0], *(t.repeat_interleave(4 // key_heads, 1) for t in exact[1:])
    scores = q @ k.mT / 4
    expected = (scores if mask is None else scores.masked_fill(~mask, float("-inf"))).softmax(-1) @ v
    expected.square().sum().backward()
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 5e-2}
    torch.testing.assert_close(result.cpu().double(), expected, **tolerance)
    for got, wanted in zip(device, exact, strict=True):
        torch.testing.assert_close(got.grad.cpu().double(), wanted.grad, **tolerance)


def test_attention_dropout_keeps_the_mean_and_repeats_with_the_seed():
    ones = torch.ones(1, 2, 64, 64, device="npu")
    torch.manual_seed(3)
    first = F.scaled_dot_product_attention(ones, ones, ones, dropout_p=0.5)
    assert abs(first.mean().item() - 1) < 0.1 and first.std().item() > 0.05
    torch.manual_seed(3)
    assert torch.equal(first, F.scaled_dot_product_attention(ones, ones, ones, dropout_p=0.5))


def test_transformer_layer_gives_what_it_gives_on_the_cpu():
    torch.manual_seed(0)
    host = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 32)
    torch.testing.assert_close(copy.deepcopy(host).npu()(x.npu()).cpu(), host(x), rtol=1e-5, atol=1e-5)


def test_printing_shows_the_values():
    x = torch.arange(6, device="npu").reshape(2, 3)
    assert repr(x) == "tensor([[0, 1, 2],\n        [3, 4, 5]], device='npu:0')"
    assert repr(x[0].bool()) == "tensor([False,  True,  True], device='npu:0')"
    assert repr(x[0].bfloat16()) == "tensor([0., 1., 2.], device='npu:0', dtype=torch.bfloat16)"
    assert repr(torch.tensor([1e10, 0.5], device="npu")) == "tensor([1.0000e+10, 5.0000e-01], device='npu:0')"
    assert "..." in repr(torch.zeros(2000, device="npu"))


def test_assert_close_tells_tensors_apart_on_the_device():
    x = torch.randn(5, device="npu")
    torch.testing.assert_close(x, x.clone())
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 5"):
        torch.testing.assert_close(x, x + torch.tensor([0, 0, 1.0, 0, 0], device="npu"))


def test_values_come_to_python():
    x = torch.tensor([[1.5, 2.5], [3.5, 4.5]], device="npu")
    assert x[1, 0].item() == 3.5
    assert x.tolist() == [[1.5, 2.5], [3.5, 4.5]]
    assert [row.sum().item() for row in x] == [4.0, 8.0]
    assert bool((x > 1).all()) and not (x > 2).all()
    assert int(x.sum()) == 12 and len(x) == 2


def test_a_tensor_survives_saving_and_pickling(tmp_path):
    x = torch.randn(3, 5, device="npu")
    torch.save(x, tmp_path / "x.pt")
    assert torch.equal(torch.load(tmp_path / "x.pt"), x)
    assert torch.equal(copy.deepcopy(x.mT), x.mT)


def test_operator_without_an_aclnn_function_names_itself_and_the_next_call_works():
    with pytest.raises(RuntimeError, match=r"operator \w+ is asked for by the aclop path"):
        torch.ops.npu.npu_one_hot(torch.tensor([1, 2], device="npu"), depth=5)
        torch.npu.synchronize()
    assert torch.equal(torch.ones(3, device="npu") + 1, torch.full((3,), 2.0, device="npu"))


def test_rejected_call_names_the_operator_and_its_shapes():
    with pytest.raises(RuntimeError, match=r"aclnnBatchMatMul(.|\n)*\[2, 2, 3\](.|\n)*\[3, 3, 4\]"):
        torch.bmm(torch.ones(2, 2, 3, device="npu"), torch.ones(3, 3, 4, device="npu"))
        torch.npu.synchronize()
    assert torch.ones(2, device="npu").sum().item() == 2


def test_index_out_of_range_is_an_error_of_the_stream_that_names_the_operator():
    with pytest.raises(RuntimeError, match=r"aclnnIndexSelect(.|\n)*out of range"):
        torch.index_select(torch.ones(3, device="npu"), 0, torch.tensor([7], device="npu"))
        torch.npu.synchronize()
    assert torch.ones(2, device="npu").sum().item() == 2
