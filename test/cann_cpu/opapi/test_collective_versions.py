# SPDX-License-Identifier: Apache-2.0
"""Versions of the functions of a group that torch_npu does not call, on one rank; test/collectives has the others on
several. All numbers are exact, so that the results are bitwise equal to the references."""

import pytest
import torch
from aclnn import Float, InOut, Out, Rejected, group_of_one, written_by

GROUP = object()  # the place of the group's name
CASES = {}  # the arguments of each function, what it writes, a wrong argument by its place, and the message about it


def integers(*shape, seed, dtype=torch.half, limit=4):
    return torch.randint(-limit, limit + 1, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def like(*tensors):
    return [Out(tuple(x.shape), x.dtype) for x in tensors]


# Tokens and their experts: four that are on the rank, and behind them one that returns zero, one that returns its
# token and one that mixes it with a constant. The last token takes no part.
TOKENS, EXPERTS, SIZE = 3, 4, 8
X = integers(TOKENS, SIZE, seed=0, limit=100)
X[:, 3] = 127
IDS = torch.tensor([[0, 2], [3, 0], [2, 1]], dtype=torch.int32)
SPECIAL_IDS = torch.tensor([[0, 2, 6], [5, 4, 0], [6, 1, 5]], dtype=torch.int32)
WEIGHTS, SPECIAL_WEIGHTS = (integers(*ids.shape, seed=1, dtype=torch.float32) / 4 for ids in (IDS, SPECIAL_IDS))
MASK = torch.tensor([True, True, False])
BY_EXPERT = torch.tensor([1.0, 2, 4, 8])
DEPLOYMENT = [GROUP, 1, 0, EXPERTS, "", 1, 0, 0, 0, 0]


def rows_of(ids):
    """The expert, token and choice of each row, in their order."""
    chosen = [(e, t, j) for t, row in enumerate(ids.tolist()) for j, e in enumerate(row) if e < EXPERTS and MASK[t]]
    return sorted(chosen)


def counts_of(ids):
    return torch.tensor([e for e, _, _ in rows_of(ids)]).bincount(minlength=EXPERTS)


def dispatched(ids, weights, quantised):
    """What dispatch writes. The scales of the experts are also the steps, since the largest number is 127."""
    rows, counts = rows_of(ids), counts_of(ids)
    experts, tokens, choices = (torch.tensor(part) for part in zip(*rows, strict=True))
    expanded = X[tokens].to(torch.int8) if quantised else X[tokens]
    steps = BY_EXPERT[experts] if quantised else torch.zeros(len(rows))
    numbers = counts.cumsum(0) if quantised else counts
    assist, received = torch.zeros(len(rows) * 128).int(), torch.tensor([len(rows)]).int()
    return [expanded, steps, assist, numbers, counts.int(), received, weights[tokens, choices]]


SCALES = BY_EXPERT[:, None].expand(EXPERTS, SIZE).contiguous()
written = dispatched(IDS, WEIGHTS, quantised=True)
CASES["aclnnMoeDistributeDispatchV2"] = (
    [X, IDS, SCALES, MASK, WEIGHTS, *DEPLOYMENT, 2, 0, 0, "", *like(*written)],
    written,
    (15, 1, "quant_mode is 1; expected 0 or 2"),
)
written = dispatched(SPECIAL_IDS, SPECIAL_WEIGHTS, quantised=False)
CASES["aclnnMoeDistributeDispatchV3"] = (
    [X, SPECIAL_IDS, None, MASK, SPECIAL_WEIGHTS, None, *DEPLOYMENT, 0, 0, 1, "", 1, 1, 1, *like(*written)],
    written,
    (5, IDS, "elasticInfo. is not implemented"),
)

SHARED, OWN = integers(TOKENS, SIZE, seed=2), integers(TOKENS, SIZE, seed=3)
ALPHAS, CONSTANT = (torch.tensor([2.0]).half(), torch.tensor([3.0]).half()), integers(1, SIZE, seed=4)


def combined(ids, weights):
    """The weighted sums of the rows of EXPANDED and of what the experts on no rank return."""
    sums = torch.zeros(TOKENS, SIZE)
    for row, (_, token, choice) in zip(EXPANDED.float(), rows_of(ids), strict=False):
        sums[token] += weights[token, choice] * row
    for token, choice in ids.ge(EXPERTS).logical_and(MASK[:, None]).nonzero().tolist():
        mixture = ALPHAS[0].float() * OWN[token] + ALPHAS[1].float() * CONSTANT[0]
        returned = [torch.zeros(SIZE), OWN[token].float(), mixture]
        sums[token] += weights[token, choice] * returned[ids[token, choice] - EXPERTS]
    return sums


def combining(ids, weights, *after_weights):
    """The arguments of combine before the group."""
    ignored, counts = torch.zeros(len(rows_of(ids)) * 128).int(), counts_of(ids).int()
    return [EXPANDED, ids, ignored, counts, weights, *after_weights, None, MASK, None, None, None, None]


EXPANDED = integers(len(rows_of(IDS)) + 1, SIZE, seed=5)  # more rows than are sent
written = (combined(IDS, WEIGHTS) + SHARED).half()
CASES["aclnnMoeDistributeCombineV2"] = (
    [*combining(IDS, WEIGHTS), SHARED, *DEPLOYMENT, 0, 0, 0, 0, "", *like(written)],
    [written],
    (11, SHARED[:2], "shared_expert_x has shape"),
)
written = (combined(SPECIAL_IDS, SPECIAL_WEIGHTS) + SHARED).half()
SPECIAL = [None, OWN, *ALPHAS, CONSTANT]
CASES["aclnnMoeDistributeCombineV3"] = (
    [
        *combining(SPECIAL_IDS, SPECIAL_WEIGHTS),
        SHARED,
        *SPECIAL,
        *DEPLOYMENT,
        *[0, 0, 0, 0, "", 1, 1, 1],
        *like(written),
    ],
    [written],
    (14, None, "const_expert_alpha_1, const_expert_alpha_2 and const_expert_v must be given"),
)
# The mean of the squares is 3, and 4 with the epsilon.
SUMS = torch.tensor([[4.0, -2, 2, 0, 0, 0, 0, 0], [0, 0, -4, 0, 2, 0, 2, 0], [2, 2, 0, 0, 0, -4, 0, 0]])
RESIDUAL, GAMMA = (SUMS - combined(IDS, WEIGHTS) - SHARED).half(), integers(SIZE, seed=6)
written = [(SUMS / 2 * GAMMA).half()[:, None], torch.full((TOKENS, 1, 1), 0.5), SUMS.half()[:, None]]
CASES["aclnnMoeDistributeCombineAddRmsNorm"] = (
    [
        *combining(IDS, WEIGHTS, RESIDUAL[:, None], GAMMA),
        SHARED,
        *DEPLOYMENT,
        *[0, 0, 0, 0, "", Float(1.0)],
        *like(*written),
    ],
    written,
    (6, GAMMA[:3], "gamma has shape"),
)
CASES["aclnnDistributeBarrier"] = ([InOut(X), GROUP, 1], [X], (2, 2, "world_size is 2; expected 1"))

# Products of 4 x 6 and 6 x 3 numbers.
X1, X2, X3, BIAS = (integers(*shape, seed=7) for shape in ((4, 6), (6, 3), (4, 3), (3,)))
INT8 = [x.to(torch.int8) for x in (X1, X2)]
ROWS, COLUMNS = torch.tensor([1.0, 2, 4, 0.5]), torch.tensor([0.5, 1, 2])


def product(x1, x2):
    return x1.double() @ x2.double()


written = (product(X1, X2) + BIAS + X3).half()
CASES["aclnnMatmulAllReduceV3"] = (
    [X1, X2, BIAS, X3, GROUP, "sum", "aiv", 0, 1, *like(written)],
    [written],
    (8, 0, "streamMode must be 1"),
)
TRANSPORT = [torch.full((3,), step).half() for step in (0.5, 2.0)]
sums = (product(*INT8) + BIAS) * ROWS[:, None] * COLUMNS + X3
for step in TRANSPORT:
    sums = (sums / step).round().clamp(-128, 127) * step
factors = [*INT8, BIAS.int(), X3, ROWS, COLUMNS, *TRANSPORT, GROUP, "sum"]
CASES["aclnnQuantMatmulAllReduceV4"] = (
    [*factors, 0, 1, 0, 0, *like(sums.half())],
    [sums.half()],
    (12, 8, "groupSize 8 is not implemented"),
)
CASES["aclnnQuantMatmulAllReduceV5"] = (
    [*factors, "aiv", 0, 1, 0, 0, *like(sums.half())],
    [sums.half()],
    (14, 1, "comm_quant_mode is 1"),
)
SCALE, OFFSET = COLUMNS.half()[None], integers(1, 3, seed=8)
written = (product(X1, (INT8[1].half() + OFFSET) * SCALE) + BIAS + X3).half()
CASES["aclnnWeightQuantMatmulAllReduceV2"] = (
    [X1, INT8[1], BIAS, SCALE, OFFSET, X3, GROUP, "sum", "aiv", 0, 1, 0, *like(written)],
    [written],
    (3, SCALE[:, :2], "antiquant_scale has shape"),
)
written = (product(X1, X2) + BIAS).half()
CASES["aclnnMatmulAlltoAllV2"] = (
    [X1, X2.t(), BIAS, [-1, -2], GROUP, "aiv", False, True, *like(written)],
    [written],
    (6, True, "transpose_x1 is true; expected false"),
)
# The smoothed rows are ROWS times numbers up to 127.
SMOOTH, LARGE = torch.tensor([1, 2, 0.5, 1, 4, 1]).half(), torch.cat([X1[:, :5], torch.full((4, 1), 127).half()], 1)
written = [
    (product(LARGE, X2) * ROWS[:, None] * COLUMNS + BIAS).half(),
    LARGE * ROWS[:, None].half() / SMOOTH,
]
CASES["aclnnAlltoAllQuantMatmulV2"] = (
    [
        *[written[1], INT8[1].t(), BIAS.float(), SMOOTH, COLUMNS, None, None, None, GROUP, "aiv", [-2, -1]],
        *[7, 2, 0, 0, 0, 0, False, True],
        *like(*written),
    ],
    written,
    (11, 3, "x1_quant_mode is 3; expected 7"),
)
written = (product(*INT8) * ROWS[:, None] * COLUMNS + BIAS).half()
CASES["aclnnQuantMatmulAlltoAllV2"] = (
    [
        *[INT8[0], INT8[1].t(), BIAS.float(), ROWS, COLUMNS, None, None, None, [-1, -2], GROUP, "aiv"],
        *[3, 2, 0, 0, 0, False, True],
        *like(written),
    ],
    [written],
    (12, 1, "x2_quant_mode is 1; expected 2"),
)
# One row for the first expert and three for the second; the weight of the shared one is transposed.
OF_EXPERTS, COUNTS = integers(2, 6, 5, seed=9), [1, 3]
written = [torch.cat([product(X1[:1], OF_EXPERTS[0]), product(X1[1:], OF_EXPERTS[1])]).half(), product(X1, X2).half()]
factors = [X1, OF_EXPERTS, None, None, X1, X2.t(), GROUP, "aiv", 1, COUNTS, COUNTS]
CASES["aclnnAlltoAllvGroupedMatMulV2"] = (
    [*factors, False, True, True, *like(*written, X1)],
    [*written, X1],
    (16, None, "permute_out must be given for permute_out_flag"),
)
CASES["aclnnGroupedMatMulAlltoAllvV2"] = (
    [*factors, False, True, *like(*written)],
    written,
    (9, [1, 2], "send_counts has the sum 3; expected 4"),
)


def run(name, arguments):
    with group_of_one() as group:
        return written_by(name, *(group if given is GROUP else given for given in arguments))


@pytest.mark.parametrize("name", CASES)
def test_a_version_writes_the_reference(name):
    arguments, expected, _ = CASES[name]
    torch.testing.assert_close(run(name, arguments), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_argument_of_a_version_is_an_error(name):
    arguments, _, (place, wrong, message) = CASES[name]
    with pytest.raises(Rejected, match=message):
        run(name, [wrong if i == place else given for i, given in enumerate(arguments)])
