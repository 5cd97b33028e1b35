# SPDX-License-Identifier: Apache-2.0
"""The choice of the next token and the step to it, against their definitions row by row."""

import re

import pytest
import torch
import torch_npu
from aclnn import InOut, Out, Rejected, written_by

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


def floats(*shape, dtype=torch.float32, seed=0):
    return (3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(dtype)


def distinct(rows, size, dtype):
    """Scores that rounding does not change, not so small that their probability is 0."""
    generator = torch.Generator().manual_seed(2)
    scores = torch.stack([torch.randperm(size, generator=generator) for _ in range(rows)])
    return (scores.double() / size * 8).to(dtype) if dtype == torch.float32 else (scores % 256 / 16).to(dtype)


def filtered(row, k, p):
    """A row of scores with -inf where a token is not kept."""
    row = row.double()
    if k is not None and 0 < k < len(row):
        least = sorted(row.tolist(), reverse=True)[k - 1]
        row = torch.where(row < least, -torch.inf, row)
    if p is not None:
        order = sorted(range(len(row)), key=lambda i: (row[i].item(), i))
        left_out = row[order].softmax(0).cumsum(0) <= 1 - p
        left_out[-1] = False
        for place, token in enumerate(order):
            if left_out[place]:
                row[token] = -torch.inf
    return row


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("which", ["k", "p", "both"])
@pytest.mark.parametrize("rows, size", [(5, 1000), (1, 1), (3, 7)])
def test_top_k_top_p(dtype, which, rows, size):
    logits = distinct(rows, size, dtype)
    k = torch.tensor([3, 0, 50, size, -1][:rows], dtype=torch.int32) if which != "p" else None
    p = torch.tensor([0.53, 1, 0, 0.9, 0.25][:rows]).to(dtype) if which != "k" else None
    out = torch_npu.npu_top_k_top_p(logits.npu(), None if p is None else p.npu(), None if k is None else k.npu())
    for i in range(rows):
        expected = filtered(logits[i], None if k is None else k[i].item(), None if p is None else p[i].item())
        assert torch.equal(out[i].cpu(), expected.to(dtype)), i


def kept_tokens(row, k, p, min_p, most=1024, is_logits=True):
    """Tokens and their probabilities, by the definitions of the filters."""
    row = row.double()
    tokens = list(range(len(row)))
    by_k = 1 <= k <= min(most, len(row))
    if by_k or p < 1:
        tokens.sort(key=lambda i: (-row[i].item(), i))
    if by_k:
        tokens = tokens[:k]
    probabilities = row[tokens].softmax(0) if is_logits else row[tokens]
    if p < 1:
        total, count = 0.0, 0
        while count < len(tokens) and (count == 0 or (total <= p and p > 0)):
            total += probabilities[count].item()
            count += 1
        tokens, probabilities = tokens[:count], probabilities[:count]
    if min_p is not None and min_p > 0:
        top = probabilities.max()
        chosen = (
            [probabilities.argmax().item()] if min_p >= 1 else (probabilities >= top * min_p).nonzero()[:, 0].tolist()
        )
        tokens, probabilities = [tokens[i] for i in chosen], probabilities[chosen]
    return tokens, probabilities


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("min_p", [None, 0.1])
def test_top_k_top_p_sample(dtype, sampled, min_p):
    settings = [(5, 0.6), (40, 1.0), (0, 0.35), (0, 1.0), (2000, 0.0), (1, 0.5), (300, 0.95)]
    logits = floats(len(settings), 500, dtype=dtype)
    k = torch.tensor([k for k, _ in settings], dtype=torch.int32)
    p = torch.tensor([p for _, p in settings]).to(dtype)
    q = torch.rand(len(settings), 500, generator=torch.Generator().manual_seed(1)) + 0.1 if sampled else None
    least = None if min_p is None else torch.full((len(settings),), min_p).to(dtype)
    selected, scores = torch_npu.npu_top_k_top_p_sample(
        logits.npu(),
        k.npu(),
        p.npu(),
        q=None if q is None else q.npu(),
        is_need_logits=True,
        min_ps=None if least is None else least.npu(),
    )
    for i in range(len(settings)):
        tokens, weights = kept_tokens(logits[i], k[i].item(), p[i].item(), None if least is None else least[i].item())
        if sampled:
            weights = weights / (q[i, : len(tokens)].double() + 1e-8)
        assert selected[i].item() == tokens[weights.argmax()], i
        expected = torch.full((500,), -torch.inf)
        expected[tokens] = logits[i, tokens].float()
        assert torch.equal(scores[i].cpu(), expected), i


def test_top_k_top_p_sample_lists_what_is_left():
    logits = floats(3, 64).softmax(1)
    k, p = torch.tensor([5, 0, 8], dtype=torch.int32), torch.tensor([0.5, 0.7, 1.0])
    least = torch.tensor([0.0, 0.2, 1.5])
    new = [Out((3,), torch.int64), Out((3, 64)), Out((3, 64), torch.int64), Out((3, 64))]
    _, _, tokens, weights = written_by(
        "aclnnTopKTopPSampleV2", logits, k, p, None, least, 1e-8, 0, 32, 1024, 0, 1, *new
    )
    for i in range(3):
        expected, probabilities = kept_tokens(logits[i], k[i].item(), p[i].item(), least[i].item(), is_logits=False)
        assert tokens[i].tolist() == expected + [0] * (64 - len(expected))
        torch.testing.assert_close(weights[i, : len(expected)].double(), probabilities)
        assert not weights[i, len(expected) :].any()


def test_the_first_version_samples_too():
    logits, q = floats(2, 32).half(), torch.rand(2, 32) + 0.1
    k, p = torch.tensor([4, 7], dtype=torch.int32), torch.tensor([0.9, 0.5]).half()
    new = [Out((2,), torch.int64), Out((2, 32))]
    first = written_by("aclnnTopKTopPSample", logits, k, p, q, 1e-8, 1, 32, *new)
    later = [*new, Out((2, 32), torch.int64), Out((2, 32))]
    second = written_by("aclnnTopKTopPSampleV2", logits, k, p, q, None, 1e-8, 1, 32, 1024, 1, 0, *later)
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])


@pytest.mark.parametrize("sequences, queries, block_size", [(5, 3, 8), (4, 4, 16), (1, 1, 1), (3, 0, 8)])
def test_advance_step(sequences, queries, block_size):
    generator = torch.Generator().manual_seed(0)
    sampled = torch.randint(0, 1000, (queries, 1), generator=generator)
    lengths = torch.randint(0, 60, (sequences,), generator=generator)
    tables = torch.randint(0, 99, (sequences, 60 // block_size + 1), generator=generator)
    state = [torch.full((sequences,), 7).npu() for _ in range(2)]
    seq_lens, slots = lengths.npu(), torch.full((sequences,), 7).npu()
    torch_npu.npu_advance_step_flashattn(
        state[0], sampled.npu(), state[1], seq_lens, slots, tables.npu(), sequences, queries, block_size
    )
    for i in range(sequences):
        n = lengths[i].item()
        slot = tables[i, n // block_size].item() * block_size + n % block_size
        expected = (sampled[i, 0].item(), n, n + 1, slot) if i < queries else (0, 0, n, -1)
        assert tuple(x[i].item() for x in (*state, seq_lens, slots)) == expected


def test_advance_step_with_speculation():
    sequences, each, block_size = 4, 3, 8
    sampled = torch.tensor([[5, 6, 7], [8, 9, -1], [10, -1, -1], [11, 12, 13]])
    drafts = torch.arange(100, 108).view(4, 2)
    accepted = torch.tensor([2, 1, 0, 2])
    positions = torch.tensor([[3, 4, 5], [10, 11, 12], [0, 1, 2], [20, 21, 22]])
    tables = torch.randint(0, 99, (4, 5), generator=torch.Generator().manual_seed(0))
    given = [torch.zeros(12, dtype=torch.int64).npu() for _ in range(3)]
    new_positions = positions.flatten().npu()
    torch_npu.npu_advance_step_flashattn(
        given[0], sampled.npu(), new_positions, given[1], given[2], tables.npu(), sequences, sequences, block_size,
        spec_token=drafts.npu(), accepted_num=accepted.npu(),
    )  # fmt: skip
    expected = positions + accepted.unsqueeze(1) + 1
    assert torch.equal(new_positions.cpu().view(4, 3), expected)
    assert torch.equal(given[1].cpu().view(4, 3), expected + 1)
    tokens = torch.cat((torch.tensor([[7], [9], [10], [13]]), drafts), 1)
    assert torch.equal(given[0].cpu().view(4, each), tokens)
    slots = tables.gather(1, expected // block_size) * block_size + expected % block_size
    assert torch.equal(given[2].cpu().view(4, 3), slots)


def test_exponential_of_a_seed():
    seed, offset = torch.tensor([5]), torch.tensor([3])
    draw = [
        written_by("aclnnStatelessExponentialTensor", InOut(torch.zeros(20000)), seed, offset, number, 2.0)[0]
        for number in (0, 0, 4)
    ]
    assert torch.equal(draw[0], draw[1]) and not torch.equal(draw[0], draw[2])
    assert draw[0].min() >= 0
    assert abs(draw[0].mean().item() - 0.5) < 0.02


def exponential(self, count, rate, offset):
    return written_by("aclnnSimThreadExponential", InOut(self), count, rate, 5, offset)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_simulated_exponential(dtype):
    draw = [exponential(torch.zeros(20000, dtype=dtype), 20000, 2.0, offset) for offset in (0, 0, 4)]
    assert torch.equal(draw[0], draw[1]) and not torch.equal(draw[0], draw[2])
    values = draw[0].double()
    assert values.min() >= 0 and abs(values.mean() - 0.5) < 0.02 and abs(values.var() - 0.25) < 0.03


@pytest.mark.parametrize(
    "count, rate, offset, message",
    [
        (7, 2.0, 0, "count is 7; expected 8, the elements of self"),
        (8, 0.0, 0, "lambda is 0; expected a positive number"),
        (8, 2.0, 3, "offset is 3; expected a multiple of 4"),
    ],
)
def test_simulated_exponential_rejects(count, rate, offset, message):
    with pytest.raises(Rejected, match=message):
        exponential(torch.zeros(8), count, rate, offset)


def test_simulated_exponential_rejects_double():
    with pytest.raises(Rejected, match="self has dtype float64; expected float32, float16 or bfloat16"):
        exponential(torch.zeros(8, dtype=torch.float64), 8, 2.0, 0)


def test_npu_sim_exponential():
    torch.manual_seed(3)
    draw = torch_npu.npu_sim_exponential_(torch.empty(20000, device="npu"), lambd=2.0).cpu()
    assert draw.min() >= 0 and abs(draw.mean().item() - 0.5) < 0.02


X, K, P = floats(2, 8), torch.tensor([1, 2], dtype=torch.int32), torch.tensor([0.5, 0.5])
STEP = [InOut(torch.zeros(2, dtype=torch.int64)) for _ in range(4)]
BAD = {
    "p has shape [1]; expected [2]": ("ApplyTopKTopP", [X, P[:1], K, Out((2, 8))]),
    "p has dtype float16; expected float32": ("ApplyTopKTopP", [X, P.half(), K, Out((2, 8))]),
    "k has dtype int64; expected int32": ("ApplyTopKTopP", [X, P, K.long(), Out((2, 8))]),
    "p and k are null": ("ApplyTopKTopP", [X, None, None, Out((2, 8))]),
    "q has shape [2, 4]; expected [2, 8]": (
        "TopKTopPSample",
        [X.half(), K, P.half(), X[:, :4], 1e-8, 0, 32, Out((2,), torch.int64), None],
    ),
    "ks_max is 2000; expected 1 to 1024": (
        "TopKTopPSampleV2",
        [X, K, P, None, None, 1e-8, 0, 32, 2000, 1, 0, Out((2,), torch.int64), None, None, None],
    ),
    "the block of input_positions[1] is 5; expected 0 to 1": (
        "AdvanceStep",
        [
            STEP[0],
            torch.zeros(2, 1, dtype=torch.int64),
            STEP[1],
            InOut(torch.tensor([3, 40])),
            STEP[2],
            torch.zeros(2, 2, dtype=torch.int64),
            2,
            2,
            8,
        ],
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_calls(message):
    name, arguments = BAD[message]
    with pytest.raises((Rejected, RuntimeError), match=re.escape(message)):
        written_by(f"aclnn{name}", *arguments)
