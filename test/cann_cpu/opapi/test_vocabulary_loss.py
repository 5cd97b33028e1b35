# SPDX-License-Identifier: Apache-2.0
"""Cross entropy over a divided vocabulary, against torch's cross entropy of the whole and its gradient."""

import pytest
import torch
import torch.nn.functional as F
import torch_npu


def randn(*shape, seed=0, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("keeps_logits", [False, True])
@pytest.mark.parametrize("rows", [1, 13, 64])
def test_two_ranks_make_the_loss_of_the_whole(rows, keeps_logits, dtype):
    input, weight = randn(rows, 32, dtype=dtype), randn(50, 32, seed=1, dtype=dtype) / 4
    target = torch.randint(0, 50, (rows,), generator=torch.Generator().manual_seed(2))
    parts = [(0, 19), (20, 49)]
    found = []
    for first, last in parts:
        part = torch_npu.npu_fused_linear_online_max_sum(
            input.npu(), weight[first : last + 1].npu(), target.npu(), first, last, return_logits=keeps_logits
        )
        found.append(part)
        logits = input.double() @ weight[first : last + 1].double().t()
        torch.testing.assert_close(part[0].cpu().double(), logits.amax(1), rtol=1e-5, atol=1e-5)
        own = (target >= first) & (target <= last)
        bits = (part[3].cpu().int()[:, None] >> torch.arange(7, -1, -1)).flatten() & 1
        assert torch.equal(bits[:rows].bool(), ~own) and bits[rows:].all()
        assert torch.equal(part[4].cpu(), torch.where(own, target - first, 0))
        if keeps_logits:
            eps = 2 * torch.finfo(dtype).eps
            torch.testing.assert_close(part[5].cpu().double(), logits, rtol=eps, atol=eps)
    maximum = torch.maximum(found[0][0], found[1][0])
    total = sum(part[1] * (part[0] - maximum).exp() for part in found)
    own = [((target >= first) & (target <= last)).npu() for first, last in parts]
    predicted = sum(torch.where(o, part[2] + part[0] - maximum, 0.0) for o, part in zip(own, found, strict=True))
    leaves = [x.double().requires_grad_() for x in (input, weight)]
    loss = F.cross_entropy(leaves[0] @ leaves[1].t(), target, reduction="none")
    grad = randn(rows, seed=3, dtype=torch.float32)
    loss.backward(grad.double())
    input_grad, weight_grad = 0, []
    for (first, last), part in zip(parts, found, strict=True):
        own_loss, softmax = torch_npu.npu_fused_cross_entropy_loss_with_max_sum(
            maximum, total, predicted, vocab_parallel_logits=part[5] if keeps_logits else None
        )
        torch.testing.assert_close(own_loss.cpu().double(), loss.detach(), rtol=1e-4, atol=1e-4)
        back = torch_npu.npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
            grad.npu(), input.npu(), weight[first : last + 1].npu(), part[3], part[4], 0.0,
            *((None, None, softmax) if keeps_logits else (maximum, total, None)),
        )  # fmt: skip
        input_grad = input_grad + back[0].cpu().double()
        weight_grad.append(back[1].cpu().double())
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(input_grad, leaves[0].grad, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(torch.cat(weight_grad), leaves[1].grad, rtol=tolerance, atol=4 * tolerance)


def test_what_does_not_fit_is_rejected():
    input, weight, target = randn(3, 32).npu(), randn(5, 32).npu(), torch.tensor([0, 7, 2]).npu()
    with pytest.raises(RuntimeError, match=r"target\[1\] is 7; expected less than 5"):
        torch_npu.npu_fused_linear_online_max_sum(input, weight, target, 0, 9)
        torch.npu.synchronize()
    with pytest.raises(RuntimeError, match=r"weight has shape \[5, 16\]; expected at least 1 row of 32 columns"):
        torch_npu.npu_fused_linear_online_max_sum(input, weight[:, :16].contiguous(), target, 0, 9)
        torch.npu.synchronize()
    numbers = [torch.ones(3).npu() for _ in range(3)]
    with pytest.raises(RuntimeError, match=r"argument 5.*input"):
        torch_npu.npu_fused_cross_entropy_loss_with_max_sum(*numbers, input=torch.ones(3, 2).npu())
        torch.npu.synchronize()
