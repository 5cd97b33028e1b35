# SPDX-License-Identifier: Apache-2.0
"""Recurrent cells and layers, against their formulas in float64."""

import re

import pytest
import torch
from aclnn import InOut, Out, Rejected, written_by

TOLERANCE = {torch.float16: {"rtol": 2e-3, "atol": 2e-3}, torch.float32: {"rtol": 2e-5, "atol": 2e-6}}


def floats(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(actual, expected, dtype):
    assert all(y.dtype == dtype for y in actual)
    torch.testing.assert_close([y.cpu().double() for y in actual], list(expected), **TOLERANCE[dtype])


def lstm_cell(input_gates, hidden_gates, cx, *biases):
    """h, c and the activated gates, which are i, f, g and o in this order."""
    i, f, g, o = (input_gates + hidden_gates + sum(biases)).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * cx + i * g
    return o * c.tanh(), c, torch.cat([i, f, g, o], 1)


def cell_inputs(batch, hidden, dtype, with_biases):
    wide = [floats(batch, 4 * hidden, seed=seed, dtype=dtype) for seed in (1, 2)]
    biases = [floats(4 * hidden, seed=seed, dtype=dtype) for seed in (4, 5)] if with_biases else []
    return [*wide, floats(batch, hidden, seed=3, dtype=dtype), *biases]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("with_biases", [True, False])
@pytest.mark.parametrize("batch, hidden", [(16, 256), (1, 1), (3, 7), (0, 5)])
def test_lstm_cell(batch, hidden, with_biases, dtype):
    inputs = cell_inputs(batch, hidden, dtype, with_biases)
    outputs = torch.ops.aten._thnn_fused_lstm_cell(*[x.npu() for x in inputs])
    close(outputs, lstm_cell(*[x.double() for x in inputs]), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("given", ["both", "h", "c", "none"])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("batch, hidden", [(16, 256), (3, 7)])
def test_lstm_cell_backward(batch, hidden, has_bias, given, dtype):
    leaves = [x.double().requires_grad_() for x in cell_inputs(batch, hidden, dtype, True)]
    h, c, storage = lstm_cell(*leaves)
    dh = floats(batch, hidden, seed=6, dtype=dtype) if given in ("both", "h") else None
    dc = floats(batch, hidden, seed=7, dtype=dtype) if given in ("both", "c") else None
    loss = sum((y * dy.double()).sum() for y, dy in ((h, dh), (c, dc)) if dy is not None) + 0 * h.sum()
    gates, _, cx, bias, _ = torch.autograd.grad(loss, leaves)
    state = [leaves[2], c, storage]
    tensors = [x.detach().to(dtype) for x in state]
    unwritten = torch.full((4 * hidden,), 77.0, dtype=dtype)
    outputs = [Out((batch, 4 * hidden), dtype), Out((batch, hidden), dtype), InOut(unwritten)]
    actual = written_by("aclnnThnnFusedLstmCellBackward", dh, dc, *tensors, has_bias, *outputs)
    close(actual[:2], [gates, cx], dtype)
    if has_bias:
        torch.testing.assert_close(actual[2].double(), bias, rtol=5e-3, atol=1e-2 if dtype == torch.float16 else 1e-5)
    else:
        assert torch.equal(actual[2], unwritten)


@pytest.mark.parametrize("with_biases", [True, False])
def test_lstm_cell_is_differentiated(with_biases):
    """What torch derives from the two functions."""
    inputs = cell_inputs(5, 6, torch.float32, with_biases)
    leaves = [x.npu().requires_grad_() for x in inputs]
    exact = [x.double().requires_grad_() for x in inputs]
    for given, cell in ((leaves, torch.ops.aten._thnn_fused_lstm_cell), (exact, lstm_cell)):
        h, c, _ = cell(*given)
        (h * 2 + c * c).sum().backward()
    close([x.grad for x in leaves], [x.grad for x in exact], torch.float32)


def gru(x, h0, params, has_bias, layers, bidirectional):
    """Outputs (steps, batch, directions * hidden), the last states, and what the gradient needs, each in float64."""
    group, directions = (4 if has_bias else 2), (2 if bidirectional else 1)
    last, kept = [], []
    for layer in range(layers):
        results = []
        for direction in range(directions):
            index = layer * directions + direction
            w_i, w_h, *biases = params[index * group : (index + 1) * group]
            b_i, b_h = biases or (0, 0)
            h, steps = h0[index], {}
            for t in range(len(x)) if direction == 0 else reversed(range(len(x))):
                i, j = x[t] @ w_i.T + b_i, h @ w_h.T + b_h
                (ir, iz, im), (jr, jz, jm) = i.chunk(3, -1), j.chunk(3, -1)
                r, z = (ir + jr).sigmoid(), (iz + jz).sigmoid()
                n = (im + r * jm).tanh()
                h = (1 - z) * n + z * h
                steps[t] = r, z, n, jm, h
            kept.append([torch.stack([steps[t][k] for t in range(len(x))]) for k in range(5)])
            results.append(kept[-1][-1])
            last.append(h)
        x = torch.cat(results, -1)
    return x, torch.stack(last), kept


GRUS = {
    "one layer": (1, True, False, False, 3, 5, 6, 4),
    "both directions, batch first": (1, True, True, True, 3, 5, 6, 4),
    "two layers without biases": (2, False, True, False, 3, 5, 6, 4),
    "three layers": (3, True, False, True, 7, 2, 5, 3),
    "one step of one": (1, True, False, False, 1, 1, 1, 1),
    "as large as a model": (2, True, True, False, 9, 4, 96, 128),
    "more than is computed at a time": (1, True, True, False, 6, 256, 5, 256),
}


def gru_inputs(label, dtype):
    layers, has_bias, bidirectional, _, steps, batch, width, hidden = GRUS[label]
    directions = 2 if bidirectional else 1
    shapes = []
    for layer in range(layers):
        inputs = width if layer == 0 else directions * hidden
        group = [(3 * hidden, inputs), (3 * hidden, hidden)] + ([(3 * hidden,)] * 2 if has_bias else [])
        shapes += group * directions
    params = [(floats(*shape, seed=seed) / hidden**0.5).to(dtype) for seed, shape in enumerate(shapes)]
    x = floats(steps, batch, width, seed=41, dtype=dtype)
    h0 = floats(layers * directions, batch, hidden, seed=42, dtype=dtype)
    return x, h0, params


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("label", GRUS)
def test_gru(label, dtype):
    """Results, what is kept for the gradient, and the gradient."""
    layers, has_bias, bidirectional, batch_first, *_ = GRUS[label]
    x, h0, params = gru_inputs(label, dtype)
    leaves = [y.double().requires_grad_() for y in (x, h0, *params)]
    y, last, kept = gru(leaves[0], leaves[1], leaves[2:], has_bias, layers, bidirectional)

    def laid_out(tensor):
        return tensor.transpose(0, 1) if batch_first else tensor

    options = has_bias, layers, 0.0, True, bidirectional
    device = [laid_out(x).npu(), h0.npu(), [p.npu() for p in params]]
    results = torch.ops.npu._gru_npu(*device, *options, batch_first=batch_first)
    close(results[:2], [laid_out(y), last], dtype)
    for k, tensor in enumerate(results[2:]):
        close(tensor.unbind(), [cell[k] for cell in kept], dtype)

    dy, dh = floats(*y.shape, seed=43, dtype=dtype), floats(*last.shape, seed=44, dtype=dtype)
    expected = torch.autograd.grad((y * dy.double()).sum() + (last * dh.double()).sum(), leaves)
    grads = laid_out(dy).npu(), dh.npu()
    dx, dh_prev, dparams = torch.ops.npu._gru_npu_backward(
        *grads, *device, *results[2:], *options, batch_first=batch_first
    )
    for actual, exact in zip((dx, dh_prev, *dparams), (laid_out(expected[0]), *expected[1:]), strict=True):
        assert actual.dtype == dtype
        scale = exact.abs().max()
        tolerance = 1e-5 if dtype == torch.float32 else 5e-3
        torch.testing.assert_close(actual.cpu().double() / scale, exact / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("label", GRUS)
def test_gru_infers_from_zeros(label):
    """Without a state, and without the tensors that the gradient needs; dropout changes nothing."""
    layers, has_bias, bidirectional, batch_first, *_ = GRUS[label]
    x, h0, params = gru_inputs(label, torch.float32)
    exact = [y.double() for y in (x, torch.zeros_like(h0), *params)]
    y, last, _ = gru(exact[0], exact[1], exact[2:], has_bias, layers, bidirectional)
    y, x = (y.transpose(0, 1), x.transpose(0, 1)) if batch_first else (y, x)
    numbers = [has_bias, layers, 0.5, False, bidirectional, batch_first]
    outputs = [Out(tuple(y.shape)), Out(tuple(last.shape))]
    close(written_by("aclnnGRU", x, params, None, None, *numbers, *outputs, *[None] * 5), [y, last], torch.float32)


@pytest.mark.parametrize("steps, batch, inputs, hidden", [(3, 5, 6, 4), (9, 16, 64, 64)])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
@pytest.mark.parametrize("training", [True, False])
def test_module_of_torch(training, kind, steps, batch, inputs, hidden):
    """The module and its gradients are equal to those of the CPU."""

    def run(device):
        torch.manual_seed(0)
        module = kind(inputs, hidden, num_layers=2, bidirectional=True).to(device).train(training)
        x = floats(steps, batch, inputs, seed=31).to(device).requires_grad_(training)
        y, last = module(x)
        results = [y, *(last if kind == torch.nn.LSTM else [last])]
        if training:
            (y * y).sum().backward()
            results += [z.grad for z in (x, *module.parameters())]
        return [z.detach().cpu() for z in results]

    with torch.set_grad_enabled(training):
        torch.testing.assert_close(run("npu"), run("cpu"), rtol=1e-4, atol=1e-5)


X, C, B = floats(2, 12), floats(2, 3), floats(12)
CELL_OUTPUTS = [Out((2, 3)), Out((2, 3)), Out((2, 12))]
PARAMS = [floats(12, 6), floats(12, 4), floats(12), floats(12)]


def gru_call(params=PARAMS, hx=None, batch_sizes=None, layers=1, train=False, kept=(None,) * 5):
    numbers = [True, layers, 0.0, train, False, False]
    return [floats(3, 5, 6), params, hx, batch_sizes, *numbers, Out((3, 5, 4)), Out((1, 5, 4)), *kept]


def lstm_call(params=None, h=None, dropout=0.0, layers=1, kept=None):
    params = params or [floats(16, 6), floats(16, 4), floats(16), floats(16)]
    state = floats(1, 5, 4)
    kept = [*[[Out((3, 5, 4))] for _ in range(6)], [Out((3, 5, 4))] if kept is None else kept]
    numbers = [True, layers, dropout, True, False, False]
    outputs = [Out((3, 5, 4)), Out((1, 5, 4)), Out((1, 5, 4))]
    return [floats(3, 5, 6), params, [state if h is None else h, state], None, *numbers, *outputs, *kept]


def gru_backward_call(**changed):
    state, kept = floats(1, 5, 4), [floats(3, 5, 4)]
    dy, z = changed.get("dy", kept[0]), [changed.get("z", kept[0])]
    given = [floats(3, 5, 6), PARAMS, state, dy, state, kept, z, kept, kept, kept, None, True, 1, False, False]
    return [*given, Out((3, 5, 6)), Out((1, 5, 4)), [Out(tuple(p.shape)) for p in PARAMS]]


REJECTED = [
    ("aclnnThnnFusedLstmCell", [X, X, C, B, None, *CELL_OUTPUTS], "hidden_bias is null"),
    ("aclnnThnnFusedLstmCell", [X, X, C, None, B, *CELL_OUTPUTS], "hidden_bias is given"),
    ("aclnnThnnFusedLstmCell", [X, X[:1], C, None, None, *CELL_OUTPUTS], "hidden_gates has shape [1, 12]; expected [2"),
    ("aclnnThnnFusedLstmCell", [X, X, C, B[:1], B, *CELL_OUTPUTS], "input_bias has shape [1]; expected [12]"),
    ("aclnnThnnFusedLstmCell", [X, X.half(), C, B, B, *CELL_OUTPUTS], "hidden_gates has dtype float16"),
    ("aclnnThnnFusedLstmCell", [X.bfloat16(), X, C, B, B, *CELL_OUTPUTS], "input_gates has dtype bfloat16"),
    (
        "aclnnThnnFusedLstmCellBackward",
        [C, C[:1], C, C, X, True, CELL_OUTPUTS[2], Out((2, 3)), Out((12,))],
        "grad_c has shape [1, 3]; expected [2, 3]",
    ),
    (
        "aclnnThnnFusedLstmCellBackward",
        [C, C, C, C, X, True, CELL_OUTPUTS[2], Out((2, 3)), None],
        "grad_bias is null; has_bias asks for it",
    ),
    ("aclnnLSTM", lstm_call(params=PARAMS), "params[0] has shape [12, 6]; expected [16, 6]"),
    ("aclnnLSTM", lstm_call(params=PARAMS[:2]), "params has 2 tensors; 4 are expected"),
    ("aclnnLSTM", lstm_call(h=floats(5, 4)), "hx[0] has shape [5, 4]; expected [1, 5, 4]"),
    ("aclnnLSTM", lstm_call(kept=[Out((3, 5, 3))]), "tanh_c[0] has shape [3, 5, 3]; expected [3, 5, 4]"),
    ("aclnnLSTM", lstm_call(kept=[]), "tanh_c has 0 tensors; 1 are expected"),
    ("aclnnGRU", gru_call(params=PARAMS[:3]), "params has 3 tensors; 4 are expected"),
    ("aclnnGRU", gru_call(params=[PARAMS[0][:, :5], *PARAMS[1:]]), "params[0] has shape [12, 5]; expected [12, 6]"),
    ("aclnnGRU", gru_call(params=[*PARAMS[:3], PARAMS[3][:4]]), "params[3] has shape [4]; expected [12]"),
    ("aclnnGRU", gru_call(hx=floats(1, 1, 4)), "hx has shape [1, 1, 4]; expected [1, 5, 4]"),
    ("aclnnGRU", gru_call(batch_sizes=torch.tensor([5, 5, 5])), "(batchSizes) is not implemented"),
    ("aclnnGRU", gru_call(layers=0), "layers is 0; expected at least 1"),
    ("aclnnGRU", gru_call(kept=[[Out((3, 5, 4))], *[None] * 4]), "r_out has 1 tensors; 0 are expected"),
    ("aclnnGRU", gru_call(train=True), "r_out has 0 tensors; 1 are expected"),
    ("aclnnGRU", gru_call(hx=floats(1, 5, 4).half()), "hx has dtype float16; expected float32"),
    ("aclnnGRUBackward", gru_backward_call(dy=floats(3, 5, 3)), "dy has shape [3, 5, 3]; expected [3, 5, 4]"),
    ("aclnnGRUBackward", gru_backward_call(z=floats(2, 5, 4)), "z[0] has shape [2, 5, 4]; expected [3, 5, 4]"),
]


@pytest.mark.parametrize("name, arguments, message", REJECTED)
def test_rejected(name, arguments, message):
    with pytest.raises(Rejected, match=re.escape(message)):
        written_by(name, *arguments)
