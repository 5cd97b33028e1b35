// SPDX-License-Identifier: Apache-2.0
// LSTM and its gradient, step by step.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>

#include "table.h"

using namespace cann_cpu;

namespace {

struct Shape {
  bool has_biases;
  int64_t layers;
  bool bidirectional, batch_first;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  size_t cells() const { return static_cast<size_t>(layers * directions()); }

  void check(Tensors hx, Tensors params, double dropout, bool train) const {
    TORCH_CHECK(dropout == 0 || !train || layers == 1, "dropout between layers is not implemented, got ", dropout);
    TORCH_CHECK(hx.size() == 2, "hx has ", hx.size(), " tensors; 2 are expected, h and c");
    const size_t expected = cells() * (has_biases ? 4 : 2);
    TORCH_CHECK(params.size() == expected, "params has ", params.size(), " tensors; ", expected, " are expected");
  }
};

// One direction of one layer, with its gates in torch's order: input, forget, cell, output.
struct Cell {
  at::Tensor input_weight, hidden_weight, bias;  // an undefined bias is 0
  bool backwards;

  Cell(Tensors params, const Shape& shape, size_t index) : backwards(shape.bidirectional && index % 2 == 1) {
    const size_t first = index * (shape.has_biases ? 4 : 2);
    input_weight = in_float(params[first]);
    hidden_weight = in_float(params[first + 1]);
    if (shape.has_biases) bias = in_float(params[first + 2]) + in_float(params[first + 3]);
  }

  int64_t hidden() const { return hidden_weight.size(1); }
  // The place in the sequence of the step with this number.
  int64_t place(int64_t step, int64_t steps) const { return backwards ? steps - 1 - step : step; }
};

// What the forward pass keeps of a cell, each of (steps, batch, hidden size).
struct Kept {
  at::Tensor input, cell, forget, output, h, c, tanh_c;
};

Kept run(const Cell& cell, const at::Tensor& x, at::Tensor h, at::Tensor c) {
  const int64_t steps = x.size(0);
  auto projected = at::matmul(x, cell.input_weight.t());
  if (cell.bias.defined()) projected = projected + cell.bias;
  const auto made = [&] { return at::zeros_like(projected.narrow(2, 0, cell.hidden()).contiguous()); };
  Kept kept{made(), made(), made(), made(), made(), made(), made()};
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t t = cell.place(step, steps);
    const auto gates = (projected[t] + at::matmul(h, cell.hidden_weight.t())).chunk(4, 1);
    kept.input[t].copy_(gates[0].sigmoid());
    kept.forget[t].copy_(gates[1].sigmoid());
    kept.cell[t].copy_(gates[2].tanh());
    kept.output[t].copy_(gates[3].sigmoid());
    c = kept.forget[t] * c + kept.input[t] * kept.cell[t];
    kept.c[t].copy_(c);
    kept.tanh_c[t].copy_(c.tanh());
    h = kept.output[t] * kept.tanh_c[t];
    kept.h[t].copy_(h);
  }
  return kept;
}

struct Gradients {
  at::Tensor x, h, c, input_weight, hidden_weight, bias;
};

Gradients run_backward(const Cell& cell, const Kept& kept, const at::Tensor& x, const at::Tensor& h0,
                       const at::Tensor& c0, const at::Tensor& dy, at::Tensor dh, at::Tensor dc) {
  const int64_t steps = x.size(0);
  auto gates = at::cat({kept.input, kept.forget, kept.cell, kept.output}, 2);  // their gradients, in the end
  auto before = at::zeros_like(kept.h);                                        // h before each step
  for (int64_t step = steps - 1; step >= 0; --step) {
    const int64_t t = cell.place(step, steps);
    const bool is_first = step == 0;
    const int64_t last = is_first ? t : cell.place(step - 1, steps);
    before[t].copy_(is_first ? h0 : kept.h[last]);
    const auto i = kept.input[t], f = kept.forget[t], g = kept.cell[t], o = kept.output[t], tanh_c = kept.tanh_c[t];
    const at::Scalar one(1);
    dh = dh + dy[t];
    dc = dc + dh * o * (one - tanh_c * tanh_c);
    gates[t].copy_(at::cat({dc * g * i * (one - i), dc * (is_first ? c0 : kept.c[last]) * f * (one - f),
                            dc * i * (one - g * g), dh * tanh_c * o * (one - o)},
                           1));
    dh = at::matmul(gates[t], cell.hidden_weight);
    dc = dc * f;
  }
  const auto rows = gates.flatten(0, 1);
  return {at::matmul(gates, cell.input_weight),       dh,         dc, at::matmul(rows.t(), x.flatten(0, 1)),
          at::matmul(rows.t(), before.flatten(0, 1)), rows.sum(0)};
}

// Steps first, in float.
at::Tensor sequence(const at::Tensor& tensor, const Shape& shape) {
  return in_float(shape.batch_first ? tensor.transpose(0, 1) : tensor);
}

using BatchSizes = Absent<"batchSizes", OptionalIn>;  // of sequences of several lengths

}  // namespace

ACLNN(LSTM, [](In input, Tensors params, Tensors hx, BatchSizes, bool has_biases, int64_t layers, double dropout,
               bool train, bool bidirectional, bool batch_first, Out out, Out h_out, Out c_out, OutTensors i,
               OutTensors j, OutTensors f, OutTensors o, OutTensors h, OutTensors c, OutTensors tanh_c) {
  const Shape shape{has_biases, layers, bidirectional, batch_first};
  shape.check(hx, params, dropout, train);
  auto x = sequence(input, shape);
  for (size_t index = 0; index < shape.cells();) {
    std::vector<at::Tensor> results;
    for (int64_t direction = 0; direction < shape.directions(); ++direction, ++index) {
      const Cell cell(params, shape, index);
      const auto place = static_cast<int64_t>(index);
      const Kept kept = run(cell, x, in_float(hx[0][place]), in_float(hx[1][place]));
      const int64_t last = cell.place(x.size(0) - 1, x.size(0));
      assign(h_out[place], kept.h[last]);
      assign(c_out[place], kept.c[last]);
      if (train) {
        assign(i[index], kept.input);
        assign(j[index], kept.cell);
        assign(f[index], kept.forget);
        assign(o[index], kept.output);
        assign(h[index], kept.h);
        assign(c[index], kept.c);
        assign(tanh_c[index], kept.tanh_c);
      }
      results.push_back(kept.h);
    }
    x = at::cat(results, 2);
  }
  assign(batch_first ? out.transpose(0, 1) : out, x);
});

ACLNN(LstmBackward, [](In input, Tensors hx, Tensors params, In dy, In dh, In dc, Tensors i, Tensors j, Tensors f,
                       Tensors o, Tensors h, Tensors c, Tensors tanh_c, BatchSizes, bool has_biases, int64_t layers,
                       double dropout, bool train, bool bidirectional, bool batch_first, Absent<"outputMask", Bools>,
                       Out dx, Out dh_out, Out dc_out, OutTensors dparams) {
  const Shape shape{has_biases, layers, bidirectional, batch_first};
  shape.check(hx, params, dropout, train);
  const auto directions = static_cast<size_t>(shape.directions());
  auto grad = sequence(dy, shape);
  for (int64_t layer = layers - 1; layer >= 0; --layer) {
    const size_t first = static_cast<size_t>(layer) * directions;
    auto x = sequence(input, shape);
    if (layer > 0) {  // the results of the layer below
      std::vector<at::Tensor> below;
      for (size_t d = 0; d < directions; ++d) below.push_back(in_float(h[first - directions + d]));
      x = at::cat(below, 2);
    }
    at::Tensor below = at::zeros_like(x);
    for (size_t d = 0; d < directions; ++d) {
      const size_t index = first + d;
      const auto place = static_cast<int64_t>(index);
      const Cell cell(params, shape, index);
      const Kept kept{in_float(i[index]), in_float(j[index]), in_float(f[index]),     in_float(o[index]),
                      in_float(h[index]), in_float(c[index]), in_float(tanh_c[index])};
      const auto part = grad.narrow(2, static_cast<int64_t>(d) * cell.hidden(), cell.hidden());
      const Gradients gradients = run_backward(cell, kept, x, in_float(hx[0][place]), in_float(hx[1][place]), part,
                                               in_float(dh[place]), in_float(dc[place]));
      below.add_(gradients.x);
      assign(dh_out[place], gradients.h);
      assign(dc_out[place], gradients.c);
      const size_t parameter = index * (has_biases ? 4 : 2);
      assign(dparams[parameter], gradients.input_weight);
      assign(dparams[parameter + 1], gradients.hidden_weight);
      for (size_t bias = 2; has_biases && bias < 4; ++bias) assign(dparams[parameter + bias], gradients.bias);
    }
    grad = below;
  }
  assign(batch_first ? dx.transpose(0, 1) : dx, grad);
});
