// SPDX-License-Identifier: Apache-2.0
// LSTM and GRU and their gradients, step by step; the cell of an LSTM after its products.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>

#include "checks.h"

using namespace cann_cpu;

namespace {

struct Shape {
  bool has_biases;
  int64_t layers;
  bool bidirectional, batch_first;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  size_t cells() const { return static_cast<size_t>(layers * directions()); }

  void check(Tensors params) const {
    const size_t expected = cells() * (has_biases ? 4 : 2);
    TORCH_CHECK(params.size() == expected, "params has ", params.size(), " tensors; ", expected, " are expected");
  }
  void check(Tensors hx, Tensors params, double dropout, bool train) const {
    TORCH_CHECK(dropout == 0 || !train || layers == 1, "dropout between layers is not implemented, got ", dropout);
    TORCH_CHECK(hx.size() == 2, "hx has ", hx.size(), " tensors; 2 are expected, h and c");
    check(params);
  }
};

// One direction of one layer, with its gates in torch's order: input, forget, cell, output of an LSTM, reset, update,
// new of a GRU.
struct Cell {
  at::Tensor input_weight, hidden_weight, input_bias, hidden_bias;  // an undefined bias is 0
  bool backwards;

  Cell(Tensors params, const Shape& shape, size_t index) : backwards(shape.bidirectional && index % 2 == 1) {
    const size_t first = index * (shape.has_biases ? 4 : 2);
    input_weight = in_float(params[first]);
    hidden_weight = in_float(params[first + 1]);
    if (!shape.has_biases) return;
    input_bias = in_float(params[first + 2]);
    hidden_bias = in_float(params[first + 3]);
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
  if (cell.input_bias.defined()) projected = projected + (cell.input_bias + cell.hidden_bias);
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

// What a layer was given: the input, or the results h of the layer below.
at::Tensor given_to(int64_t layer, In input, Tensors h, const Shape& shape) {
  if (layer == 0) return sequence(input, shape);
  const auto directions = static_cast<size_t>(shape.directions()), first = static_cast<size_t>(layer) * directions;
  std::vector<at::Tensor> below;
  for (size_t d = 0; d < directions; ++d) below.push_back(in_float(h[first - directions + d]));
  return at::cat(below, 2);
}

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
    const auto x = given_to(layer, input, h, shape);
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

namespace {

// The gates i, f, g, o of an LSTM's cell, each of (batch, hidden size).
std::vector<at::Tensor> gates_of(const at::Tensor& storage) { return storage.chunk(4, 1); }

}  // namespace

ACLNN_TYPED_CHECKED(
    ThnnFusedLstmCell,
    "input_gates: float32 float16; hidden_gates, cx, input_bias, hidden_bias, hy, cy, storage: as input_gates",
    [](Phase phase, In input_gates, In hidden_gates, In cx, OptionalIn input_bias, OptionalIn hidden_bias, Out hy,
       Out cy, Out storage) {
      check_rank("cx", cx, 2);
      const int64_t batch = cx.size(0), width = 4 * cx.size(1);
      check_shape("input_gates", input_gates, {batch, width});
      check_shape("hidden_gates", hidden_gates, {batch, width});
      TORCH_CHECK(input_bias.has_value() == hidden_bias.has_value(),
                  "input_bias and hidden_bias must both be given or both be null; hidden_bias is ",
                  hidden_bias ? "given" : "null");
      if (input_bias) check_shape("input_bias", *input_bias, {width});
      if (hidden_bias) check_shape("hidden_bias", *hidden_bias, {width});
      check_shape("hy", hy, cx.sizes());
      check_shape("cy", cy, cx.sizes());
      check_shape("storage", storage, {batch, width});
      if (phase == Phase::Check) return;
      auto sums = in_float(input_gates) + in_float(hidden_gates);
      if (input_bias) sums = sums + (in_float(*input_bias) + in_float(*hidden_bias));
      const auto gates = gates_of(sums);
      const auto i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(), o = gates[3].sigmoid();
      const auto c = f * in_float(cx) + i * g;
      assign(hy, o * c.tanh());
      assign(cy, c);
      assign(storage, at::cat({i, f, g, o}, 1));
    });

ACLNN_TYPED_CHECKED(ThnnFusedLstmCellBackward,
                    "cx: float32 float16; grad_hy, grad_c, cy, storage, grad_gates, grad_cx, grad_bias: as cx",
                    [](Phase phase, OptionalIn grad_hy, OptionalIn grad_c, In cx, In cy, In storage, bool has_bias,
                       Out grad_gates, Out grad_cx, OptionalOut grad_bias) {
                      if (phase == Phase::Check) {
                        check_rank("cx", cx, 2);
                        const int64_t batch = cx.size(0), width = 4 * cx.size(1);
                        if (grad_hy) check_shape("grad_hy", *grad_hy, cx.sizes());
                        if (grad_c) check_shape("grad_c", *grad_c, cx.sizes());
                        check_shape("cy", cy, cx.sizes());
                        check_shape("storage", storage, {batch, width});
                        check_shape("grad_gates", grad_gates, {batch, width});
                        check_shape("grad_cx", grad_cx, cx.sizes());
                        if (!has_bias) return;
                        TORCH_CHECK(grad_bias.has_value(), "grad_bias is null; has_bias asks for it");
                        check_shape("grad_bias", *grad_bias, {width});
                        return;
                      }
                      const at::Scalar one(1);
                      const auto gates = gates_of(in_float(storage));
                      const auto i = gates[0], f = gates[1], g = gates[2], o = gates[3];
                      const auto c = in_float(cx), tanh_c = in_float(cy).tanh();
                      const auto dh = grad_hy ? in_float(*grad_hy) : at::zeros_like(c);
                      auto dc = dh * o * (one - tanh_c * tanh_c);
                      if (grad_c) dc = dc + in_float(*grad_c);
                      const auto sums = at::cat({dc * g * i * (one - i), dc * c * f * (one - f), dc * i * (one - g * g),
                                                 dh * tanh_c * o * (one - o)},
                                                1);
                      assign(grad_gates, sums);
                      assign(grad_cx, dc * f);
                      if (has_bias) assign(grad_bias, sums.sum(0));
                    });

// An inference passes null for what only the gradient needs.
using OptionalOutTensors = std::optional<std::vector<at::Tensor>>&;
template <>
struct cann_cpu::Argument<OptionalOutTensors> : cann_cpu::detail::OptionalArgument<Argument<std::vector<at::Tensor>&>> {
};

namespace {

using GruDropout = Ignored<double>;  // CANN documents that its GRU has no dropout, whatever the number

// What the gradient needs of a GRU's cell, each of (steps, batch, hidden size); hn is the hidden part of the new gate.
struct KeptOfGru {
  at::Tensor r, z, n, hn, h;
};

KeptOfGru run_gru(const Cell& cell, const at::Tensor& x, at::Tensor h) {
  const int64_t steps = x.size(0);
  auto projected = at::matmul(x, cell.input_weight.t());
  if (cell.input_bias.defined()) projected = projected + cell.input_bias;
  const auto made = [&] { return at::zeros_like(projected.narrow(2, 0, cell.hidden()).contiguous()); };
  KeptOfGru kept{made(), made(), made(), made(), made()};
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t t = cell.place(step, steps);
    auto of_hidden = at::matmul(h, cell.hidden_weight.t());
    if (cell.hidden_bias.defined()) of_hidden = of_hidden + cell.hidden_bias;
    const auto inputs = projected[t].chunk(3, 1), hiddens = of_hidden.chunk(3, 1);
    const auto r = (inputs[0] + hiddens[0]).sigmoid(), z = (inputs[1] + hiddens[1]).sigmoid();
    const auto n = (inputs[2] + r * hiddens[2]).tanh();
    h = (at::Scalar(1) - z) * n + z * h;
    kept.r[t].copy_(r);
    kept.z[t].copy_(z);
    kept.n[t].copy_(n);
    kept.hn[t].copy_(hiddens[2]);
    kept.h[t].copy_(h);
  }
  return kept;
}

struct GradientsOfGru {
  at::Tensor x, h, parameters[4];  // the parameters as params has them: two weights, two biases
};

GradientsOfGru run_gru_backward(const Cell& cell, const KeptOfGru& kept, const at::Tensor& x, const at::Tensor& h0,
                                const at::Tensor& dy, at::Tensor dh) {
  const int64_t steps = x.size(0);
  const at::Scalar one(1);
  auto of_input = at::cat({kept.r, kept.z, kept.n}, 2);  // its gradient, in the end
  auto of_hidden = at::zeros_like(of_input), before = at::zeros_like(kept.h);
  for (int64_t step = steps - 1; step >= 0; --step) {
    const int64_t t = cell.place(step, steps);
    before[t].copy_(step == 0 ? h0 : kept.h[cell.place(step - 1, steps)]);
    const auto r = kept.r[t], z = kept.z[t], n = kept.n[t];
    dh = dh + dy[t];
    const auto dn = dh * (one - z) * (one - n * n);
    const auto dz = dh * (before[t] - n) * z * (one - z);
    const auto dr = dn * kept.hn[t] * r * (one - r);
    of_input[t].copy_(at::cat({dr, dz, dn}, 1));
    of_hidden[t].copy_(at::cat({dr, dz, dn * r}, 1));
    dh = at::matmul(of_hidden[t], cell.hidden_weight) + dh * z;
  }
  const auto input_rows = of_input.flatten(0, 1), hidden_rows = of_hidden.flatten(0, 1);
  return {at::matmul(of_input, cell.input_weight),
          dh,
          {at::matmul(input_rows.t(), x.flatten(0, 1)), at::matmul(hidden_rows.t(), before.flatten(0, 1)),
           input_rows.sum(0), hidden_rows.sum(0)}};
}

// The sizes of a GRU's tensors.
struct GruSizes {
  const Shape& shape;
  int64_t steps, batch, inputs, hidden;

  GruSizes(const Shape& given, In input, Tensors params) : shape(given) {
    TORCH_CHECK(shape.layers >= 1, "layers is ", shape.layers, "; expected at least 1");
    check_rank("input", input, 3);
    shape.check(params);
    check_rank("params[1]", params[1], 2);
    steps = input.size(shape.batch_first ? 1 : 0);
    batch = input.size(shape.batch_first ? 0 : 1);
    inputs = input.size(2);
    hidden = params[1].size(1);
  }

  void check_sequence(const char* name, In tensor, int64_t width) const {
    check_shape(name, tensor,
                shape.batch_first ? at::IntArrayRef({batch, steps, width}) : at::IntArrayRef({steps, batch, width}));
  }
  void check_output(const char* name, In tensor) const { check_sequence(name, tensor, shape.directions() * hidden); }
  void check_state(const char* name, In tensor) const {
    check_shape(name, tensor, {static_cast<int64_t>(shape.cells()), batch, hidden});
  }
  void check_kept(const char* name, Tensors list, bool train = true) const {
    const size_t expected = train ? shape.cells() : 0;
    TORCH_CHECK(list.size() == expected, name, " has ", list.size(), " tensors; ", expected, " are expected");
    for (size_t i = 0; i < expected; ++i) check_element(name, list, i, {steps, batch, hidden});
  }
  void check_params(const char* name, Tensors params) const {
    const size_t group = shape.has_biases ? 4 : 2;
    TORCH_CHECK(params.size() == shape.cells() * group, name, " has ", params.size(), " tensors; ",
                shape.cells() * group, " are expected");
    for (size_t i = 0; i < params.size(); ++i) {
      const bool in_first_layer = i / group < static_cast<size_t>(shape.directions());
      switch (i % group) {
        case 0:
          check_element(name, params, i, {3 * hidden, in_first_layer ? inputs : shape.directions() * hidden});
          break;
        case 1:
          check_element(name, params, i, {3 * hidden, hidden});
          break;
        default:
          check_element(name, params, i, {3 * hidden});
      }
    }
  }

 private:
  static void check_element(const char* name, Tensors list, size_t i, at::IntArrayRef expected) {
    check_shape(c10::str(name, "[", i, "]").c_str(), list[i], expected);
  }
};

std::vector<at::Tensor> listed(OptionalOutTensors list) { return list.value_or(std::vector<at::Tensor>()); }

}  // namespace

ACLNN_TYPED_CHECKED(GRU, "input: float32 float16; params, hx, output, hy, r_out, z_out, n_out, hn_out, h_out: as input",
                    [](Phase phase, In input, Tensors params, OptionalIn hx, BatchSizes, bool has_bias, int64_t layers,
                       GruDropout, bool train, bool bidirectional, bool batch_first, Out output, Out hy,
                       OptionalOutTensors r_out, OptionalOutTensors z_out, OptionalOutTensors n_out,
                       OptionalOutTensors hn_out, OptionalOutTensors h_out) {
                      const Shape shape{has_bias, layers, bidirectional, batch_first};
                      const GruSizes sizes(shape, input, params);
                      sizes.check_params("params", params);
                      if (hx) sizes.check_state("hx", *hx);
                      sizes.check_output("output", output);
                      sizes.check_state("hy", hy);
                      sizes.check_kept("r_out", listed(r_out), train);
                      sizes.check_kept("z_out", listed(z_out), train);
                      sizes.check_kept("n_out", listed(n_out), train);
                      sizes.check_kept("hn_out", listed(hn_out), train);
                      sizes.check_kept("h_out", listed(h_out), train);
                      if (phase == Phase::Check) return;
                      const at::Tensor h0 = in_float(hx ? *hx : at::zeros_like(hy));
                      auto x = sequence(input, shape);
                      for (size_t index = 0; index < shape.cells();) {
                        std::vector<at::Tensor> results;
                        for (int64_t direction = 0; direction < shape.directions(); ++direction, ++index) {
                          const Cell cell(params, shape, index);
                          const auto place = static_cast<int64_t>(index);
                          const KeptOfGru kept = run_gru(cell, x, h0[place]);
                          assign(hy[place], x.size(0) == 0 ? h0[place] : kept.h[cell.place(x.size(0) - 1, x.size(0))]);
                          if (train) {
                            assign((*r_out)[index], kept.r);
                            assign((*z_out)[index], kept.z);
                            assign((*n_out)[index], kept.n);
                            assign((*hn_out)[index], kept.hn);
                            assign((*h_out)[index], kept.h);
                          }
                          results.push_back(kept.h);
                        }
                        x = at::cat(results, 2);
                      }
                      assign(batch_first ? output.transpose(0, 1) : output, x);
                    });

ACLNN_TYPED_CHECKED(GRUBackward,
                    "input: float32 float16; params, hx, dy, dh, r, z, n, hn, h, dx, dh_prev, dparams: as input",
                    [](Phase phase, In input, Tensors params, In hx, In dy, In dh, Tensors r, Tensors z, Tensors n,
                       Tensors hn, Tensors h, BatchSizes, bool has_bias, int64_t layers, bool bidirectional,
                       bool batch_first, Out dx, Out dh_prev, OutTensors dparams) {
                      const Shape shape{has_bias, layers, bidirectional, batch_first};
                      const GruSizes sizes(shape, input, params);
                      sizes.check_params("params", params);
                      sizes.check_state("hx", hx);
                      sizes.check_output("dy", dy);
                      sizes.check_state("dh", dh);
                      sizes.check_kept("r", r);
                      sizes.check_kept("z", z);
                      sizes.check_kept("n", n);
                      sizes.check_kept("hn", hn);
                      sizes.check_kept("h", h);
                      check_shape("dx", dx, input.sizes());
                      sizes.check_state("dh_prev", dh_prev);
                      sizes.check_params("dparams", dparams);
                      if (phase == Phase::Check) return;
                      const auto directions = static_cast<size_t>(shape.directions());
                      const size_t group = has_bias ? 4 : 2;
                      auto grad = sequence(dy, shape);
                      for (int64_t layer = layers - 1; layer >= 0; --layer) {
                        const size_t first = static_cast<size_t>(layer) * directions;
                        const auto x = given_to(layer, input, h, shape);
                        at::Tensor below = at::zeros_like(x);
                        for (size_t d = 0; d < directions; ++d) {
                          const size_t index = first + d;
                          const auto place = static_cast<int64_t>(index);
                          const Cell cell(params, shape, index);
                          const KeptOfGru kept{in_float(r[index]), in_float(z[index]), in_float(n[index]),
                                               in_float(hn[index]), in_float(h[index])};
                          const auto part = grad.narrow(2, static_cast<int64_t>(d) * cell.hidden(), cell.hidden());
                          const auto gradients =
                              run_gru_backward(cell, kept, x, in_float(hx[place]), part, in_float(dh[place]));
                          below.add_(gradients.x);
                          assign(dh_prev[place], gradients.h);
                          for (size_t i = 0; i < group; ++i)
                            assign(dparams[index * group + i], gradients.parameters[i]);
                        }
                        grad = below;
                      }
                      assign(batch_first ? dx.transpose(0, 1) : dx, grad);
                    });
