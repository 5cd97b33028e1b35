# SPDX-License-Identifier: Apache-2.0
"""Fused operators of large models as C functions, against their definitions on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from aclnn import InOut, Out, Rejected, group_of_one, written_by

CASES = {}


def floats(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def case(label, name, arguments, expected):
    CASES[label] = name, arguments, expected if isinstance(expected, tuple | list) else (expected,)


def gradients(function, inputs, dy):
    leaves = [x.clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(function(*leaves), leaves, dy)


def like(*tensors):
    return [Out(tuple(x.shape), x.dtype) for x in tensors]


X, DY = floats(5, 8), floats(5, 8, seed=1)


def fast_gelu(x):
    return x * torch.sigmoid(1.702 * x)


case("fast_gelu", "aclnnFastGelu", [X, *like(X)], fast_gelu(X))
case("fast_gelu, half", "aclnnFastGelu", [X.half(), *like(X.half())], fast_gelu(X.half().float()).half())
case("fast_gelu_backward", "aclnnFastGeluBackward", [DY, X, *like(X)], gradients(fast_gelu, [X], DY))

# The optimizer of torch at its third step.
MEAN, SQUARE, LARGEST = floats(5, 8, seed=2), floats(5, 8, seed=3).abs(), floats(5, 8, seed=4).abs()
for amsgrad in (False, True):
    for maximize in (False, True):
        parameter = X.clone().requires_grad_()
        parameter.grad = DY.clone()
        optimizer = torch.optim.AdamW(
            [parameter], 0.1, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.2, amsgrad=amsgrad, maximize=maximize
        )
        state = {"step": torch.tensor(2.0), "exp_avg": MEAN.clone(), "exp_avg_sq": SQUARE.clone()}
        if amsgrad:
            state["max_exp_avg_sq"] = LARGEST.clone()
        optimizer.state[parameter] = state
        optimizer.step()
        numbers = [torch.tensor([number]) for number in (0.8**2, 0.9**2, 0.1, 0.2, 0.8, 0.9, 1e-3)]
        case(
            f"apply_adam_w, amsgrad {amsgrad}, maximize {maximize}",
            "aclnnApplyAdamW",
            [
                *[InOut(x) for x in (X, MEAN, SQUARE)],
                *numbers,
                DY,
                InOut(LARGEST) if amsgrad else None,
                amsgrad,
                maximize,
            ],
            (parameter.detach(), *list(state.values())[1:]),
        )

LABELS, WEIGHT = torch.tensor([3, 0, 7, -100, 7]), floats(8, seed=2).abs()
for reduction in ("mean", "sum", "none"):
    for weight in (None, WEIGHT):
        loss = F.cross_entropy(X, LABELS, weight, reduction=reduction)
        shape = (5,) if reduction == "none" else (1,)
        given = [LABELS, weight]
        case(
            f"cross_entropy, {reduction}, weight {weight is not None}",
            "aclnnCrossEntropyLoss",
            [X, *given, reduction, -100, 0.0, 0.0, False, Out(shape), *like(X), Out((0,)), Out((0,))],
            [loss.reshape(shape), X.log_softmax(1), torch.empty(0), torch.empty(0)],
        )
        dy = floats(*shape, seed=3)
        case(
            f"cross_entropy_backward, {reduction}, weight {weight is not None}",
            "aclnnCrossEntropyLossGrad",
            [dy, X.log_softmax(1), *given, None, None, reduction, -100, 0.0, 0.0, *like(X)],
            gradients(
                lambda x, weight=weight, reduction=reduction: F.cross_entropy(x, LABELS, weight, reduction=reduction),
                [X],
                dy.reshape(loss.shape),
            ),
        )

# Tokens and their experts: (expert, token, which of the token's), sorted; equal experts keep the tokens' order.
EXPERTS = torch.tensor([[2, 0], [1, 2], [2, 1], [0, 1], [1, 0]], dtype=torch.int32)
ORDER = sorted((int(EXPERTS[t, k]), t, k) for t in range(5) for k in range(2))
PLACES = torch.empty(10, dtype=torch.int32)
for place, (_, t, k) in enumerate(ORDER):
    PLACES[2 * t + k] = place
PROBABILITIES = floats(5, 2, seed=5)


def permuted(tokens, count=10):
    return torch.stack([tokens[t] for _, t, _ in ORDER[:count]])


def unpermuted(rows, probabilities):
    tokens = []
    for t in range(5):
        parts = [(int(PLACES[2 * t + k]), probabilities[t, k]) for k in range(2)]
        tokens.append(sum((rows[place] * p for place, p in parts if place < len(rows)), torch.zeros(8)))
    return torch.stack(tokens)


for count in (10, 6):
    rows, dy = floats(count, 8, seed=6), floats(count, 8, seed=7)
    case(
        f"moe_token_permute to {count}",
        "aclnnMoeTokenPermute",
        [X, EXPERTS, count, False, Out((count, 8)), Out((10,), torch.int32)],
        [permuted(X, count), PLACES],
    )
    case(
        f"moe_token_permute_grad of {count}",
        "aclnnMoeTokenPermuteGrad",
        [dy, PLACES, 2, False, *like(X)],
        gradients(lambda x, count=count: permuted(x, count), [X], dy),
    )
    case(
        f"moe_token_unpermute of {count}",
        "aclnnMoeTokenUnpermute",
        [rows, PLACES, PROBABILITIES, False, [1], Out((5, 8))],
        unpermuted(rows, PROBABILITIES),
    )
    case(
        f"moe_token_unpermute_grad of {count}",
        "aclnnMoeTokenUnpermuteGrad",
        [rows, DY, PLACES, PROBABILITIES, False, [1], *like(rows, PROBABILITIES)],
        gradients(unpermuted, [rows, PROBABILITIES], DY),
    )
ROWS = floats(10, 8, seed=8)
case(
    "moe_token_unpermute without probabilities",
    "aclnnMoeTokenUnpermute",
    [ROWS, PLACES, None, False, [1], Out((10, 8))],
    ROWS[PLACES.long()],
)

# Rotary embeddings: pairs as complex numbers times (cosine + i sine), which has a number for each of a pair.
Q = floats(2, 3, 4, 8, seed=9)
COSINE, SINE = floats(1, 3, 1, 8, seed=10), floats(1, 3, 1, 8, seed=11)


def pairs_of(x, mode):
    """The first and the second of each pair."""
    if mode == 0:
        return x.chunk(2, -1)
    if mode == 2:
        quarters = x.chunk(4, -1)
        return torch.cat(quarters[::2], -1), torch.cat(quarters[1::2], -1)
    return x[..., ::2], x[..., 1::2]


def joined(first, second, mode):
    if mode in (0, 3):
        return torch.cat([first, second], -1)
    if mode == 2:
        parts = [*first.chunk(2, -1), *second.chunk(2, -1)]
        return torch.cat([parts[0], parts[2], parts[1], parts[3]], -1)
    return torch.stack([first, second], -1).flatten(-2)


def rotated(x, cosine, sine, mode):
    first, second = pairs_of(x, mode)
    angles = 0 if mode == 3 else mode  # its result, and what turns it, lie as two halves
    (cosine_1, cosine_2), (sine_1, sine_2) = pairs_of(cosine, angles), pairs_of(sine, angles)
    return joined(first * cosine_1 - second * sine_1, second * cosine_2 + first * sine_2, mode)


for mode in range(4):
    case(
        f"rotary, mode {mode}",
        "aclnnRotaryPositionEmbedding",
        [Q, COSINE, SINE, mode, *like(Q)],
        rotated(Q, COSINE, SINE, mode),
    )
    dy = floats(*Q.shape, seed=12)
    expected = gradients(lambda *x, mode=mode: rotated(*x, mode), [Q, COSINE, SINE], dy)
    case(
        f"rotary_grad, mode {mode}",
        "aclnnRotaryPositionEmbeddingGrad",
        [dy, COSINE, SINE, Q, mode, *like(Q, COSINE, SINE)],
        expected,
    )
    case(
        f"rotary_grad without x, mode {mode}",
        "aclnnRotaryPositionEmbeddingGrad",
        [dy, COSINE, SINE, None, mode, *like(Q), None, None],
        expected[:1],
    )

# Products of groups.
A, WEIGHTS, BIASES = floats(9, 4, seed=13), floats(3, 4, 6, seed=14), floats(3, 6, seed=15)
SIZES = [2, 0, 7]
ENDS, COUNTS = torch.tensor(SIZES).cumsum(0), torch.tensor(SIZES)
EACH = list(A.split(SIZES))
BY_ROWS = [a @ w + b for a, w, b in zip(EACH, WEIGHTS, BIASES, strict=True)]
NOTHING = [None] * 3


def grouped(x, weight, bias, group_list, split_item, group_type, list_type, out, scales=(None,) * 5):
    scale, offset, weight_scale, weight_offset, token_scale = scales
    return [
        *(x, weight, bias, scale, offset, weight_scale, weight_offset, token_scale, group_list, *NOTHING),
        *(split_item, group_type, list_type, 0, out, None, None),
    ]


case(
    "grouped_matmul: rows of one, where they end",
    "aclnnGroupedMatmulV4",
    grouped([A], [WEIGHTS], [BIASES], ENDS, 3, 0, 0, [Out((9, 6))]),
    torch.cat(BY_ROWS),
)
case(
    "grouped_matmul: rows of one, how many, to a list",
    "aclnnGroupedMatmulV4",
    grouped([A], list(WEIGHTS), list(BIASES), COUNTS, 1, 0, 1, like(*BY_ROWS)),
    BY_ROWS,
)
case(
    "grouped_matmul: a list to one",
    "aclnnGroupedMatmulV4",
    grouped(EACH, list(WEIGHTS), list(BIASES), None, 2, 0, 0, [Out((9, 6))]),
    torch.cat(BY_ROWS),
)
case(
    "grouped_matmul: lists",
    "aclnnGroupedMatmulV4",
    grouped(EACH, list(WEIGHTS), None, None, 0, -1, 0, like(*BY_ROWS)),
    [a @ w for a, w in zip(EACH, WEIGHTS, strict=True)],
)
WIDE, TALL = floats(5, 9, seed=16), floats(9, 6, seed=17)
SUMMED = [a @ b for a, b in zip(WIDE.split(SIZES, 1), TALL.split(SIZES), strict=True)]
case(
    "grouped_matmul: what is summed",
    "aclnnGroupedMatmulV4",
    grouped([WIDE], [TALL], None, ENDS, 3, 2, 0, [Out((3, 5, 6))]),
    torch.stack(SUMMED),
)
case(
    "grouped_matmul without a type",
    "aclnnGroupedMatmul",
    [[A], list(WEIGHTS), list(BIASES), None, None, None, None, ENDS.tolist(), 1, like(*BY_ROWS)],
    BY_ROWS,
)

# Attention to sequences of several lengths.
QUERY_ENDS, KEY_ENDS = [2, 5, 6], [4, 5, 9]
QUERY, KEY, VALUE = floats(6, 4, 8, seed=23), floats(9, 2, 8, seed=24), floats(9, 2, 8, seed=25)
ATTENTION_DY = floats(6, 4, 8, seed=26)


def split(tensor, ends):
    return tensor.split([end - begin for begin, end in zip([0, *ends], ends, strict=False)])


def scores_of(query, key):
    """(heads, queries, keys), scaled."""
    return torch.einsum("qhd,khd->hqk", query, key.repeat_interleave(2, 1)) * 0.3


def attention_of_sequences(query, key, value):
    parts = zip(split(query, QUERY_ENDS), split(key, KEY_ENDS), split(value, KEY_ENDS), strict=True)
    return torch.cat(
        [torch.einsum("hqk,khd->qhd", scores_of(q, k).softmax(-1), v.repeat_interleave(2, 1)) for q, k, v in parts]
    )


def statistics_of_sequences(by_token):
    """The greatest score, and the sum of the exponentials, eight times."""
    both = [], []
    for q, k in zip(split(QUERY, QUERY_ENDS), split(KEY, KEY_ENDS), strict=True):
        scores = scores_of(q, k)
        greatest = scores.amax(-1)
        for numbers, all_of_them in zip((greatest, (scores - greatest[..., None]).exp().sum(-1)), both, strict=True):
            eight = numbers[..., None].expand(-1, -1, 8)
            all_of_them.append((eight.transpose(0, 1) if by_token else eight).reshape(-1, 4, 8))
    return torch.cat(both[0]), torch.cat(both[1])


TND = [None, None, None, None, None, QUERY_ENDS, KEY_ENDS, 0.3, 1.0, 65536, 65536, 4, "TND", 0, 0]
RESULT = attention_of_sequences(QUERY, KEY, VALUE)
for suffix, by_token in (("", False), ("V4", True)):
    maximum, total = statistics_of_sequences(by_token)
    layout = ["same_as_input"] if suffix else []
    case(
        f"attention to sequences {suffix}",
        f"aclnnFlashAttentionVarLenScore{suffix}",
        [QUERY, KEY, VALUE, *TND, *layout, *like(maximum, total), None, *like(RESULT)],
        [maximum, total, RESULT],
    )
    case(
        f"the gradient of attention to sequences {suffix}",
        f"aclnnFlashAttentionUnpaddingScoreGrad{suffix}",
        [
            *(QUERY, KEY, VALUE, ATTENTION_DY, None, None, None, None, maximum, total, None, RESULT),
            *(*TND[4:], *like(QUERY, KEY, VALUE), None, *layout),
        ],
        gradients(attention_of_sequences, [QUERY, KEY, VALUE], ATTENTION_DY),
    )


# Batches of one length: a band of keys around the last that the query would see, and attention in two steps.
HEADS, KEYS, VALUES = floats(2, 4, 5, 8, seed=27), floats(2, 4, 6, 8, seed=28), floats(2, 4, 6, 8, seed=29)
DISTANCE = torch.arange(6)[None, :] - torch.arange(5)[:, None] - 1
BAND = (DISTANCE <= 1) & (DISTANCE >= -2)


def attention(query, key, value, seen=None):
    """The result and the statistics, of (batch, heads, tokens, head size)."""
    scores = query @ key.mT * 0.3
    if seen is not None:
        scores = scores.masked_fill(~seen, float("-inf"))
    greatest = scores.amax(-1, keepdim=True)
    total = (scores - greatest).exp().sum(-1, keepdim=True)
    return scores.softmax(-1) @ value, greatest.expand(-1, -1, -1, 8), total.expand(-1, -1, -1, 8)


BANDED = attention(HEADS, KEYS, VALUES, BAND)
BAND_ATTRIBUTES = [None, 0.3, 1.0, 2, 1, 4, "BNSD", 0, 4]
case(
    "attention to a band",
    "aclnnFlashAttentionScore",
    [HEADS, KEYS, VALUES, *[None] * 4, *BAND_ATTRIBUTES, *like(*BANDED[1:]), None, *like(BANDED[0])],
    [*BANDED[1:], BANDED[0]],
)
BAND_DY = floats(2, 4, 5, 8, seed=30)
case(
    "the gradient of attention to a band",
    "aclnnFlashAttentionScoreGrad",
    [
        *(HEADS, KEYS, VALUES, BAND_DY, *[None] * 4, *BANDED[1:], None, BANDED[0], *BAND_ATTRIBUTES),
        *(*like(HEADS, KEYS, VALUES), None),
    ],
    gradients(lambda *x: attention(*x, BAND)[0], [HEADS, KEYS, VALUES], BAND_DY),
)

PARTS = [attention(HEADS, KEYS[:, :, part], VALUES[:, :, part]) for part in (slice(0, 2), slice(2, 6))]
WHOLE = attention(HEADS, KEYS, VALUES)


def rows_of_tokens(result):
    """(tokens, batch, heads * head size)"""
    return result.permute(2, 0, 1, 3).flatten(2)


def one_behind_the_other(x, by_token):
    """The two batches as sequences of (tokens, heads, size), by token or by head."""
    return torch.cat([(part.transpose(0, 1) if by_token else part).reshape(5, 4, 8) for part in x])


def update(arrange, arrange_statistics, ends, *layouts):
    given = [[arrange(out), arrange_statistics(high), arrange_statistics(total)] for out, high, total in PARTS]
    expected = [arrange(WHOLE[0]), *map(arrange_statistics, WHOLE[1:])]
    return [*given[0], *given[1], ends, *layouts, *like(*expected)], expected


case("ring_attention_update", "aclnnRingAttentionUpdateV2", *update(rows_of_tokens, torch.clone, None, "SBH", ""))
for by_token in (False, True):
    arranged = update(
        lambda x: one_behind_the_other(x, True),
        lambda x, by_token=by_token: one_behind_the_other(x, by_token),
        torch.tensor([5, 10]),
        "TND",
        "TND" if by_token else "SBH",
    )
    case(f"ring_attention_update of sequences, by token {by_token}", "aclnnRingAttentionUpdateV2", *arranged)

# Recurrent layers. torch_npu takes these functions for one layer in one direction, and aclops, whose nodes call them,
# for more; the operator below it takes them for all.


def lstm_and_gradients(device, options, run=torch.lstm):
    torch.manual_seed(0)
    module = torch.nn.LSTM(6, 4, **options).to(device)
    x = floats(3, 5, 6, seed=31).to(device).requires_grad_()
    layers = module.num_layers * (2 if module.bidirectional else 1)
    batch = 3 if module.batch_first else 5
    state = [floats(layers, batch, 4, seed=seed).to(device).requires_grad_() for seed in (32, 33)]
    given = [x, state, list(module.parameters()), module.bias, module.num_layers, 0.0, True, module.bidirectional]
    results = run(*given, module.batch_first)[:3]
    weights = [floats(*y.shape, seed=34 + i).to(device) for i, y in enumerate(results)]
    sum((y * w).sum() for y, w in zip(results, weights, strict=True)).backward()
    return [y.detach().cpu() for y in (*results, *(z.grad for z in (x, *state, *module.parameters())))]


def lstm_by_aclnn(*given):
    return torch.ops.npu._lstm_npu(*given[:-1], batch_first=given[-1])


LSTMS = {
    "one layer": {},
    "both directions, batch first": {"bidirectional": True, "batch_first": True},
    "two layers without biases": {"num_layers": 2, "bias": False, "bidirectional": True},
}


@pytest.mark.parametrize("run", [torch.lstm, lstm_by_aclnn], ids=["torch", "aclnn"])
@pytest.mark.parametrize("label", LSTMS)
def test_lstm_is_that_of_the_cpu(label, run):
    options = LSTMS[label]
    torch.testing.assert_close(lstm_and_gradients("npu", options, run), lstm_and_gradients("cpu", options))


@pytest.mark.parametrize("label", CASES)
def test_result_is_that_of_the_definition(label):
    name, arguments, expected = CASES[label]
    torch.testing.assert_close(written_by(name, *arguments), list(expected), rtol=2e-4, atol=1e-5, check_dtype=False)


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        (
            "aclnnMoeTokenUnpermuteGrad",
            [X[:0], X[:0], PLACES[:0], None, False, [1], *like(X[:0]), None],
            "rows do not divide among 0 tokens",
        ),
        (
            "aclnnFlashAttentionVarLenScore",
            [QUERY, KEY[:, :0], VALUE[:, :0], *TND, *like(QUERY[..., :1], QUERY[..., :1]), None, *like(RESULT)],
            "query has 4 heads, which do not divide among the 0",
        ),
        (
            "aclnnGroupedMatmulV4",
            grouped([A], [WEIGHTS], None, torch.tensor([2, 4, 10]), 3, 0, 0, [Out((9, 6))]),
            r"group_list\[2\] is 10; expected 4 to 9",
        ),
    ],
)
def test_what_does_not_fit_is_an_error(name, arguments, message):
    with pytest.raises((Rejected, RuntimeError), match=message):
        written_by(name, *arguments)


X1, X2, BIAS = floats(4, 6).half(), floats(6, 3, seed=1).half(), floats(3, seed=2).half()
PRODUCT = (X1.double() @ X2.double() + BIAS).half()
INT8, SCALES = (torch.arange(24).view(4, 6) - 12).to(torch.int8), (floats(4, seed=3), floats(3, seed=4))
SCALED = INT8.double() @ X2.sign().double() * SCALES[0][:, None] * SCALES[1]
QUANTISED = [INT8, X2.sign().to(torch.int8), None, *SCALES, None]
# For each function: the arguments before the group, those after it, and what is written.
PRODUCTS = {
    "aclnnAllGatherMatmul": ([X1, X2, BIAS], [0, 0, 1, *like(PRODUCT, X1)], [PRODUCT, X1]),
    "aclnnAllGatherMatmulV2": ([*QUANTISED, 0], [0, 0, 1, 0, "aiv", *like(SCALED.half(), INT8), None], [SCALED, INT8]),
    "aclnnMatmulReduceScatter": ([X1, X2, BIAS], ["sum", 0, 1, *like(PRODUCT)], [PRODUCT]),
    "aclnnMatmulReduceScatterV2": ([*QUANTISED, 0], ["sum", 0, 1, 0, "aiv", *like(SCALED.half()), None], [SCALED]),
    "aclnnMatmulAllReduce": ([X1, X2, BIAS], ["sum", 0, 1, *like(PRODUCT)], [PRODUCT]),
    "aclnnMatmulAllReduceV2": ([X1, X2, BIAS, PRODUCT], ["sum", 0, 1, *like(PRODUCT)], [2 * PRODUCT]),
}


def test_products_with_a_collective_of_one_rank():
    with group_of_one() as group:
        for name, (before, after, expected) in PRODUCTS.items():
            written = written_by(name, *before, group, *after)
            torch.testing.assert_close(written, expected, rtol=2e-3, atol=2e-3, check_dtype=False, msg=name)


@pytest.mark.parametrize(
    "name, changes, message",
    [
        ("aclnnAllGatherMatmul", {4: 1}, "gatherIndex 1 is not implemented; expected 0"),
        ("aclnnAllGatherMatmul", {6: 0}, "streamMode must be 1"),
        ("aclnnAllGatherMatmul", {7: Out((3, 3), torch.half)}, "output must be contiguous and have shape"),
        ("aclnnAllGatherMatmul", {1: X1}, "the columns of x1 .* do not match the rows of x2"),
        ("aclnnAllGatherMatmul", {1: X2.bfloat16()}, "they must be the same"),
        ("aclnnAllGatherMatmulV2", {4: None}, "x1 is int8, so x2Scale must be given"),
        ("aclnnAllGatherMatmulV2", {4: SCALES[0]}, "x2Scale must be 3 contiguous float32"),
        ("aclnnAllGatherMatmulV2", {5: SCALES[0]}, "quantScale. is not implemented"),
        ("aclnnAllGatherMatmulV2", {6: 8}, "blockSize 8 is not implemented"),
        ("aclnnAllGatherMatmulV2", {11: 8}, "groupSize 8 is not implemented"),
        ("aclnnMatmulReduceScatter", {3: "nobody"}, "the process has no communicator named 'nobody'"),
        ("aclnnMatmulAllReduce", {4: "mean"}, "reduceOp must be sum, prod, max or min, got 'mean'"),
        ("aclnnMatmulAllReduceV2", {3: X1}, "x3 must have shape"),
    ],
)
def test_a_product_with_a_collective_that_is_not_there_is_an_error(name, changes, message):
    with group_of_one() as group:
        before, after, _ = PRODUCTS[name]
        arguments = [changes.get(i, given) for i, given in enumerate([*before, group, *after])]
        with pytest.raises(Rejected, match=message):
            written_by(name, *arguments)
