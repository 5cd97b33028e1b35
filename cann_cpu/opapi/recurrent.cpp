// SPDX-License-Identifier: Apache-2.0
// LSTM and GRU and their gradients, step by step; the cell of an LSTM after its products.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

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
};

// The sizes of the tensors of an LSTM, which has 4 gates, or of a GRU, which has 3.
struct Sizes {
  const Shape& shape;
  int64_t gates, steps, batch, inputs, hidden;

  Sizes(const Shape& given, int64_t gate_count, In input, Tensors params) : shape(given), gates(gate_count) {
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
          check_element(name, params, i, {gates * hidden, in_first_layer ? inputs : shape.directions() * hidden});
          break;
        case 1:
          check_element(name, params, i, {gates * hidden, hidden});
          break;
        default:
          check_element(name, params, i, {gates * hidden});
      }
    }
  }

 private:
  static void check_element(const char* name, Tensors list, size_t i, at::IntArrayRef expected) {
    check_shape(c10::str(name, "[", i, "]").c_str(), list[i], expected);
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

  // What the gates are given by x, (steps, batch, gates).
  at::Tensor projected(const at::Tensor& x) const { return at::matmul(in_float(x), input_weight.t()); }
};

// Some steps of a sequence one after the other, and the first of their places.
struct StepRange {
  int64_t step, count, place;

  at::Tensor of(const at::Tensor& sequence) const { return sequence.narrow(0, place, count); }
};

// The steps of a cell in parts, so that temporaries stay small; from the last on for the gradient.
std::vector<StepRange> parts_of(const Cell& cell, const at::Tensor& sequence, bool from_last = false) {
  constexpr int64_t kNumbers = 1 << 20;  // of the gates
  const int64_t steps = sequence.size(0), each = cell.input_weight.size(0) * sequence.size(1);
  const int64_t most = std::max<int64_t>(kNumbers / std::max<int64_t>(each, 1), 1);
  std::vector<StepRange> parts;
  for (int64_t step = 0; step < steps; step += most) {
    const int64_t count = std::min(most, steps - step);
    parts.push_back({step, count, cell.backwards ? steps - step - count : step});
  }
  if (from_last) std::reverse(parts.begin(), parts.end());
  return parts;
}

// The gradients of a cell's parameters, added up in the results themselves where these are in float.
struct ParameterGradients {
  std::vector<at::Tensor> results, sums;

  ParameterGradients(Tensors all, const Shape& shape, size_t index) {
    const size_t count = shape.has_biases ? 4 : 2;
    for (size_t i = index * count; i < (index + 1) * count; ++i) {
      results.push_back(all[i]);
      const bool is_float = all[i].scalar_type() == at::kFloat && all[i].is_contiguous();
      sums.push_back(is_float ? all[i].zero_() : at::zeros(all[i].sizes(), at::kFloat));
    }
  }
  // The gradients of gates (steps, batch, gates), and what their weight was multiplied with.
  void add(size_t weight, const at::Tensor& gates, const at::Tensor& factor) const {
    const auto rows = gates.flatten(0, 1);
    sums[weight].addmm_(rows.t(), factor.flatten(0, 1));
    if (sums.size() == 4) sums[weight + 2].add_(rows.sum(0));
  }
  void write() const {
    for (size_t i = 0; i < sums.size(); ++i) {
      if (!sums[i].is_same(results[i])) results[i].copy_(sums[i]);
    }
  }
};

// Steps first.
at::Tensor sequence(const at::Tensor& tensor, const Shape& shape) {
  return shape.batch_first ? tensor.transpose(0, 1) : tensor;
}

// Calls body(index, x, out) for the cells, one after the other: x is what a layer is given, out takes the cell's h. A
// layer with one direction reads a part before it writes it, so that all share the memory of the result.
template <class Body>
void for_each_cell(const Shape& shape, In input, In output, Body body) {
  auto x = sequence(input, shape);
  const auto result = sequence(output, shape);
  const int64_t hidden = result.size(2) / shape.directions();
  at::Tensor other;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const bool is_other = shape.bidirectional && (shape.layers - layer) % 2 == 0;
    if (is_other && !other.defined()) other = at::empty_like(result);
    const auto out = is_other ? other : result;
    for (int64_t d = 0; d < shape.directions(); ++d) {
      body(static_cast<size_t>(layer * shape.directions() + d), x, out.narrow(2, d * hidden, hidden));
    }
    x = out;
  }
}

// What a layer was given: the input, or the results h of the layer below, one for each direction.
struct Given {
  std::vector<at::Tensor> columns;

  Given(int64_t layer, In input, Tensors h, const Shape& shape) : columns{sequence(input, shape)} {
    const int64_t directions = shape.directions();
    if (layer > 0) columns.assign(h.begin() + (layer - 1) * directions, h.begin() + layer * directions);
  }
  at::Tensor of(const StepRange& part) const {
    std::vector<at::Tensor> parts;
    for (const auto& each : columns) parts.push_back(in_float(part.of(each)));
    return parts.size() == 1 ? parts[0] : at::cat(parts, 2);
  }
};

// Calls body(index, given, grad, add) for the cells from the last layer on: grad is that of the cell's h, and
// add(part, gradient) takes those of what the layer was given.
template <class Body>
void for_each_cell_backward(const Shape& shape, In input, Tensors h, In dy, In dx, Body body) {
  auto grad = sequence(dy, shape);
  const int64_t hidden = grad.size(2) / shape.directions();
  for (int64_t layer = shape.layers - 1; layer >= 0; --layer) {
    const Given given(layer, input, h, shape);
    const auto below = layer == 0 ? sequence(dx, shape) : at::empty(grad.sizes(), at::kFloat);
    for (int64_t d = 0; d < shape.directions(); ++d) {
      const auto add = [&](const StepRange& part, const at::Tensor& gradient) {
        d == 0 ? part.of(below).copy_(gradient) : part.of(below).add_(gradient);
      };
      body(static_cast<size_t>(layer * shape.directions() + d), given, grad.narrow(2, d * hidden, hidden), add);
    }
    grad = below;
  }
}

using BatchSizes = Absent<"batchSizes", OptionalIn>;  // of sequences of several lengths

constexpr int64_t kLstmGates = 4;

void check_lstm(const Sizes& sizes, Tensors params, Tensors hx, double dropout, bool train) {
  TORCH_CHECK(dropout == 0 || !train || sizes.shape.layers == 1, "dropout between layers is not implemented, got ",
              dropout);
  TORCH_CHECK(hx.size() == 2, "hx has ", hx.size(), " tensors; 2 are expected, h and c");
  sizes.check_params("params", params);
  sizes.check_state("hx[0]", hx[0]);
  sizes.check_state("hx[1]", hx[1]);
}

void check_kept(const Sizes& sizes, Tensors i, Tensors j, Tensors f, Tensors o, Tensors h, Tensors c, Tensors tanh_c) {
  const std::pair<const char*, Tensors> kept[] = {{"i", i}, {"j", j}, {"f", f},          {"o", o},
                                                  {"h", h}, {"c", c}, {"tanh_c", tanh_c}};
  for (const auto& [name, list] : kept) sizes.check_kept(name, list);
}

// What the gradient needs of an LSTM's cell, each of (steps, batch, hidden size).
struct Kept {
  at::Tensor input, cell, forget, output, h, c, tanh_c;
};

// Returns the last h and c.
std::pair<at::Tensor, at::Tensor> run(const Cell& cell, In x, at::Tensor h, at::Tensor c, In out,
                                      const std::optional<Kept>& kept) {
  for (const StepRange& part : parts_of(cell, x)) {
    auto projected = cell.projected(part.of(x));
    if (cell.input_bias.defined()) projected.add_(cell.input_bias + cell.hidden_bias);
    for (int64_t step = part.step; step < part.step + part.count; ++step) {
      const int64_t t = cell.place(step, x.size(0));
      const auto gates = (projected[t - part.place] + at::matmul(h, cell.hidden_weight.t())).chunk(4, 1);
      const auto i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(), o = gates[3].sigmoid();
      c = f * c + i * g;
      const auto tanh_c = c.tanh();
      h = o * tanh_c;
      out[t].copy_(h);
      if (!kept.has_value()) continue;
      kept->input[t].copy_(i);
      kept->forget[t].copy_(f);
      kept->cell[t].copy_(g);
      kept->output[t].copy_(o);
      kept->h[t].copy_(h);
      kept->c[t].copy_(c);
      kept->tanh_c[t].copy_(tanh_c);
    }
  }
  return {h, c};
}

// Returns the gradients of the first h and c.
template <class Add>
std::pair<at::Tensor, at::Tensor> run_backward(const Cell& cell, const Kept& kept, const Given& given,
                                               const at::Tensor& h0, const at::Tensor& c0, const at::Tensor& dy,
                                               at::Tensor dh, at::Tensor dc, const Add& add,
                                               const ParameterGradients& parameters) {
  const int64_t steps = dy.size(0);
  const at::Scalar one(1);
  for (const StepRange& part : parts_of(cell, dy, /*from_last=*/true)) {
    const auto gates = at::empty({part.count, dy.size(1), 4 * cell.hidden()}, at::kFloat);  // their gradients
    const auto before = at::empty({part.count, dy.size(1), cell.hidden()}, at::kFloat);     // h before each step
    for (int64_t step = part.step + part.count - 1; step >= part.step; --step) {
      const int64_t t = cell.place(step, steps);
      const bool is_first = step == 0;
      const int64_t last = is_first ? t : cell.place(step - 1, steps);
      before[t - part.place].copy_(is_first ? h0 : kept.h[last]);
      const auto i = in_float(kept.input[t]), f = in_float(kept.forget[t]), g = in_float(kept.cell[t]),
                 o = in_float(kept.output[t]), tanh_c = in_float(kept.tanh_c[t]);
      dh = dh + dy[t];
      dc = dc + dh * o * (one - tanh_c * tanh_c);
      const auto c = is_first ? c0 : in_float(kept.c[last]);
      gates[t - part.place].copy_(at::cat(
          {dc * g * i * (one - i), dc * c * f * (one - f), dc * i * (one - g * g), dh * tanh_c * o * (one - o)}, 1));
      dh = at::matmul(gates[t - part.place], cell.hidden_weight);
      dc = dc * f;
    }
    add(part, at::matmul(gates, cell.input_weight));
    parameters.add(0, gates, given.of(part));
    parameters.add(1, gates, before);
  }
  return {dh, dc};
}

}  // namespace

ACLNN_TYPED_CHECKED(
    LSTM,
    "input: float32 float16; params, hx: float32 float16; out, h_out, c_out, i, j, f, o, h, c, tanh_c: float32 float16",
    [](Phase phase, In input, Tensors params, Tensors hx, BatchSizes, bool has_biases, int64_t layers, double dropout,
       bool train, bool bidirectional, bool batch_first, Out out, Out h_out, Out c_out, OutTensors i, OutTensors j,
       OutTensors f, OutTensors o, OutTensors h, OutTensors c, OutTensors tanh_c) {
      const Shape shape{has_biases, layers, bidirectional, batch_first};
      const Sizes sizes(shape, kLstmGates, input, params);
      check_lstm(sizes, params, hx, dropout, train);
      sizes.check_output("out", out);
      sizes.check_state("h_out", h_out);
      sizes.check_state("c_out", c_out);
      if (train) check_kept(sizes, i, j, f, o, h, c, tanh_c);
      if (phase == Phase::Check) return;
      for_each_cell(shape, input, out, [&](size_t index, In x, In result) {
        const auto place = static_cast<int64_t>(index);
        std::optional<Kept> kept;
        if (train) kept = Kept{i[index], j[index], f[index], o[index], h[index], c[index], tanh_c[index]};
        const auto [last_h, last_c] =
            run(Cell(params, shape, index), x, in_float(hx[0][place]), in_float(hx[1][place]), result, kept);
        assign(h_out[place], last_h);
        assign(c_out[place], last_c);
      });
    });

ACLNN_TYPED_CHECKED(LstmBackward,
                    "input: float32 float16; hx, params, dy, dh, dc, i, j, f, o, h, c, tanh_c: float32 float16; "
                    "dx, dh_out, dc_out, dparams: float32 float16",
                    [](Phase phase, In input, Tensors hx, Tensors params, In dy, In dh, In dc, Tensors i, Tensors j,
                       Tensors f, Tensors o, Tensors h, Tensors c, Tensors tanh_c, BatchSizes, bool has_biases,
                       int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first,
                       Absent<"outputMask", Bools>, Out dx, Out dh_out, Out dc_out, OutTensors dparams) {
                      const Shape shape{has_biases, layers, bidirectional, batch_first};
                      const Sizes sizes(shape, kLstmGates, input, params);
                      check_lstm(sizes, params, hx, dropout, train);
                      check_kept(sizes, i, j, f, o, h, c, tanh_c);
                      sizes.check_output("dy", dy);
                      sizes.check_state("dh", dh);
                      sizes.check_state("dc", dc);
                      check_shape("dx", dx, input.sizes());
                      sizes.check_state("dh_out", dh_out);
                      sizes.check_state("dc_out", dc_out);
                      sizes.check_params("dparams", dparams);
                      if (phase == Phase::Check) return;
                      for_each_cell_backward(
                          shape, input, h, dy, dx, [&](size_t index, const Given& given, In grad, const auto& add) {
                            const auto place = static_cast<int64_t>(index);
                            const Kept kept{i[index], j[index], f[index], o[index], h[index], c[index], tanh_c[index]};
                            const ParameterGradients parameters(dparams, shape, index);
                            const auto [first_h, first_c] = run_backward(
                                Cell(params, shape, index), kept, given, in_float(hx[0][place]), in_float(hx[1][place]),
                                grad, in_float(dh[place]), in_float(dc[place]), add, parameters);
                            assign(dh_out[place], first_h);
                            assign(dc_out[place], first_c);
                            parameters.write();
                          });
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

constexpr int64_t kGruGates = 3;

std::vector<at::Tensor> listed(OptionalOutTensors list) { return list.value_or(std::vector<at::Tensor>()); }

// What the gradient needs of a GRU's cell, each of (steps, batch, hidden size); hn is the hidden part of the new gate.
struct KeptOfGru {
  at::Tensor r, z, n, hn, h;
};

// Returns the last h.
at::Tensor run_gru(const Cell& cell, In x, at::Tensor h, In out, const std::optional<KeptOfGru>& kept) {
  for (const StepRange& part : parts_of(cell, x)) {
    auto projected = cell.projected(part.of(x));
    if (cell.input_bias.defined()) projected.add_(cell.input_bias);
    for (int64_t step = part.step; step < part.step + part.count; ++step) {
      const int64_t t = cell.place(step, x.size(0));
      auto of_hidden = at::matmul(h, cell.hidden_weight.t());
      if (cell.hidden_bias.defined()) of_hidden.add_(cell.hidden_bias);
      const auto inputs = projected[t - part.place].chunk(3, 1), hiddens = of_hidden.chunk(3, 1);
      const auto r = (inputs[0] + hiddens[0]).sigmoid(), z = (inputs[1] + hiddens[1]).sigmoid();
      const auto n = (inputs[2] + r * hiddens[2]).tanh();
      h = (at::Scalar(1) - z) * n + z * h;
      out[t].copy_(h);
      if (!kept.has_value()) continue;
      kept->r[t].copy_(r);
      kept->z[t].copy_(z);
      kept->n[t].copy_(n);
      kept->hn[t].copy_(hiddens[2]);
      kept->h[t].copy_(h);
    }
  }
  return h;
}

// Returns the gradient of the first h.
template <class Add>
at::Tensor run_gru_backward(const Cell& cell, const KeptOfGru& kept, const Given& given, const at::Tensor& h0,
                            const at::Tensor& dy, at::Tensor dh, const Add& add, const ParameterGradients& parameters) {
  const int64_t steps = dy.size(0);
  const at::Scalar one(1);
  for (const StepRange& part : parts_of(cell, dy, /*from_last=*/true)) {
    const auto of_input = at::empty({part.count, dy.size(1), 3 * cell.hidden()}, at::kFloat);  // their gradients
    const auto of_hidden = at::empty_like(of_input);
    const auto before = at::empty({part.count, dy.size(1), cell.hidden()}, at::kFloat);  // h before each step
    for (int64_t step = part.step + part.count - 1; step >= part.step; --step) {
      const int64_t t = cell.place(step, steps), row = t - part.place;
      before[row].copy_(step == 0 ? h0 : kept.h[cell.place(step - 1, steps)]);
      const auto r = in_float(kept.r[t]), z = in_float(kept.z[t]), n = in_float(kept.n[t]), hn = in_float(kept.hn[t]);
      dh = dh + dy[t];
      const auto dn = dh * (one - z) * (one - n * n);
      const auto dz = dh * (before[row] - n) * z * (one - z);
      const auto dr = dn * hn * r * (one - r);
      of_input[row].copy_(at::cat({dr, dz, dn}, 1));
      of_hidden[row].copy_(at::cat({dr, dz, dn * r}, 1));
      dh = at::matmul(of_hidden[row], cell.hidden_weight) + dh * z;
    }
    add(part, at::matmul(of_input, cell.input_weight));
    parameters.add(0, of_input, given.of(part));
    parameters.add(1, of_hidden, before);
  }
  return dh;
}

}  // namespace

ACLNN_TYPED_CHECKED(GRU, "input: float32 float16; params, hx, output, hy, r_out, z_out, n_out, hn_out, h_out: as input",
                    [](Phase phase, In input, Tensors params, OptionalIn hx, BatchSizes, bool has_bias, int64_t layers,
                       GruDropout, bool train, bool bidirectional, bool batch_first, Out output, Out hy,
                       OptionalOutTensors r_out, OptionalOutTensors z_out, OptionalOutTensors n_out,
                       OptionalOutTensors hn_out, OptionalOutTensors h_out) {
                      const Shape shape{has_bias, layers, bidirectional, batch_first};
                      const Sizes sizes(shape, kGruGates, input, params);
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
                      for_each_cell(shape, input, output, [&](size_t index, In x, In result) {
                        const auto place = static_cast<int64_t>(index);
                        std::optional<KeptOfGru> kept;
                        if (train) {
                          kept = KeptOfGru{(*r_out)[index], (*z_out)[index], (*n_out)[index], (*hn_out)[index],
                                           (*h_out)[index]};
                        }
                        assign(hy[place], run_gru(Cell(params, shape, index), x, h0[place], result, kept));
                      });
                    });

ACLNN_TYPED_CHECKED(GRUBackward,
                    "input: float32 float16; params, hx, dy, dh, r, z, n, hn, h, dx, dh_prev, dparams: as input",
                    [](Phase phase, In input, Tensors params, In hx, In dy, In dh, Tensors r, Tensors z, Tensors n,
                       Tensors hn, Tensors h, BatchSizes, bool has_bias, int64_t layers, bool bidirectional,
                       bool batch_first, Out dx, Out dh_prev, OutTensors dparams) {
                      const Shape shape{has_bias, layers, bidirectional, batch_first};
                      const Sizes sizes(shape, kGruGates, input, params);
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
                      for_each_cell_backward(
                          shape, input, h, dy, dx, [&](size_t index, const Given& given, In grad, const auto& add) {
                            const auto place = static_cast<int64_t>(index);
                            const KeptOfGru kept{r[index], z[index], n[index], hn[index], h[index]};
                            const ParameterGradients parameters(dparams, shape, index);
                            assign(dh_prev[place],
                                   run_gru_backward(Cell(params, shape, index), kept, given, in_float(hx[place]), grad,
                                                    in_float(dh[place]), add, parameters));
                            parameters.write();
                          });
                    });
