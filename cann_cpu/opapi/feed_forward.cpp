// SPDX-License-Identifier: Apache-2.0
// Feed-forward layers: two products with an activation between them, and the addition of a low-rank adaptation (LoRA).
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>

#include "checks.h"
#include "combinations.h"
#include "product.h"
#include "quantization.h"
#include "scaled_product.h"

using namespace cann_cpu;

namespace {

struct FeedForwardActivation {
  const char* name;
  bool is_gated;  // the first half of the columns is multiplied by the activation of the second
  at::Tensor (*function)(In);
};

constexpr FeedForwardActivation kFeedForwardActivations[] = {
    {"fastgelu", false, [](In x) { return x * at::sigmoid(x * at::Scalar(1.702)); }},
    {"gelu", false, [](In x) { return at::gelu(x); }},
    {"relu", false, [](In x) { return at::relu(x); }},
    {"silu", false, [](In x) { return at::silu(x); }},
    {"geglu", true, [](In x) { return at::gelu(x); }},
    {"swiglu", true, [](In x) { return at::silu(x); }},
    {"reglu", true, [](In x) { return at::relu(x); }},
};

// One of the two products, of all experts or without experts.
struct FeedForwardLayer {
  const char* name;  // of its weight
  In weight;
  OptionalIn bias, scale, weight_scale, weight_offset;

  bool is_integer() const { return !at::isFloatingType(weight.scalar_type()); }

  // Of an expert; -1 where there are none.
  static at::Tensor of(In tensor, int64_t expert) { return expert < 0 ? tensor : tensor[expert]; }
  static std::optional<at::Tensor> of(OptionalIn tensor, int64_t expert) {
    return tensor.has_value() ? std::optional(of(*tensor, expert)) : std::nullopt;
  }

  int64_t columns(int64_t depth) const {
    const at::Tensor one = weight.dim() == 3 ? weight[0] : weight;
    if (is_integer()) return IntegerMatrix(name, one, depth).columns();
    TORCH_CHECK(one.size(0) == depth, name, " has shape ", weight.sizes(), "; expected ", depth, " rows");
    return one.size(1);
  }

  void check(int64_t experts, int64_t depth, const char* number) const {
    TORCH_CHECK(weight.dim() == (experts > 0 ? 3 : 2), name, " has shape ", weight.sizes(), "; expected ",
                experts > 0 ? 3 : 2, " dimensions, with", experts > 0 ? "" : "out", " experts");
    TORCH_CHECK(experts == 0 || weight.size(0) == experts, name, " has shape ", weight.sizes(), "; expected ", experts,
                " experts");
    const int64_t n = columns(depth);
    const auto check_row = [&](const char* what, OptionalIn tensor, bool has_groups) {
      if (!tensor.has_value()) return;
      const int64_t groups = has_groups && tensor->dim() == (experts > 0 ? 3 : 2) ? tensor->size(-2) : 0;
      std::vector<int64_t> expected;
      if (experts > 0) expected.push_back(experts);
      if (groups > 0 && depth % groups == 0) expected.push_back(groups);
      expected.push_back(n);
      check_shape((std::string(what) + number).c_str(), *tensor, expected);
    };
    check_row("bias", bias, false);
    check_row("deq_scale", scale, false);
    check_row("antiquant_scale", weight_scale, true);
    check_row("antiquant_offset", weight_offset, true);
  }

  // rows x weight, in float.
  void write(Out sums, In rows, int64_t expert) const {
    const at::Tensor matrix = of(weight, expert);
    const auto of_bias = of(bias, expert);
    if (!is_integer()) return write_product(sums, rows, matrix, of_bias);
    const IntegerMatrix integers(name, matrix, rows.size(1));
    if (rows.scalar_type() == at::kChar) {
      ScaledProduct product{.x = rows, .weight = integers, .integer_bias = of_bias};
      product.scale = float_scales(*of(scale, expert)).unsqueeze(0);
      return product.write(sums);
    }
    const auto by_groups = [&](OptionalIn numbers) {
      return numbers.has_value() ? std::optional(numbers->dim() == 1 ? numbers->unsqueeze(0) : *numbers) : std::nullopt;
    };
    const at::Tensor scales = *by_groups(of(weight_scale, expert));
    const int64_t group_size = scales.size(0) > 1 ? rows.size(1) / scales.size(0) : 0;
    DequantizedProduct{rows, integers, group_size, scales, by_groups(of(weight_offset, expert)), of_bias, {}, {}}.write(
        sums);
  }
};

struct FeedForward {
  In x;
  FeedForwardLayer first, second;
  OptionalInts tokens;
  OptionalIn scale, offset;  // of the quantisation between the products
  Text activation;
  bool are_ends;  // tokens

  int64_t experts() const { return tokens.has_value() ? static_cast<int64_t>(tokens->size()) : 0; }
  int64_t rows() const { return x.numel() / std::max<int64_t>(x.size(-1), 1); }

  const FeedForwardActivation& kind() const {
    for (const auto& each : kFeedForwardActivations) {
      if (activation == each.name) return each;
    }
    TORCH_CHECK(false, "activation is '", activation, "'; expected fastgelu, gelu, relu, silu, geglu, swiglu or reglu");
  }

  void check(In y) const {
    static constexpr const char* kRows[] = {
        // x; weight1; weight2; y; deq_scale1; deq_scale2; antiquant_scale1; antiquant_scale2; scale; offset; bias1;
        // bias2
        "float16; float16; float16; float16; null; null; null; null; null; null; null float16; null float16",
        "bfloat16; bfloat16; bfloat16; bfloat16; null; null; null; null; null; null; null float32; null float32",
        "int8; int8; int8; float16; int64 uint64; int64 uint64; null; null; float32; null float32; null int32; null "
        "int32",
        "int8; int8; int8; float16; float32; float32; null; null; float32; null float32; null int32; null int32",
        "int8; int8; int8; bfloat16; bfloat16; bfloat16; null; null; float32; null float32; null int32; null int32",
        "float16; int8 int32; int8 int32; float16; null; null; float16; float16; null; null; null float16; null "
        "float16",
        "bfloat16; int8 int32; int8 int32; bfloat16; null; null; bfloat16; bfloat16; null; null; null float32; null "
        "float32",
    };
    const GivenDtype dtypes[] = {given("x", x),
                                 given("weight1", first.weight),
                                 given("weight2", second.weight),
                                 given("y", y),
                                 given("deq_scale1", first.scale),
                                 given("deq_scale2", second.scale),
                                 given("antiquant_scale1", first.weight_scale),
                                 given("antiquant_scale2", second.weight_scale),
                                 given("scale", scale),
                                 given("offset", offset),
                                 given("bias1", first.bias),
                                 given("bias2", second.bias)};
    check_combination(dtypes, kRows);
    TORCH_CHECK(x.dim() >= 2 && x.dim() <= 8, "x has ", x.dim(), " dimensions, shape ", x.sizes(), "; expected 2 to 8");
    TORCH_CHECK(experts() <= 256, "expert_tokens has ", experts(), " elements; expected at most 256");
    const FeedForwardActivation& kind = this->kind();
    TORCH_CHECK(!kind.is_gated || (experts() == 0 && x.scalar_type() == at::kHalf && !first.is_integer()),
                "activation is '", activation,
                "'; expected fastgelu, gelu, relu or silu, but for float16 without experts");
    first.check(experts(), x.size(-1), "1");
    const int64_t between = first.columns(x.size(-1));
    TORCH_CHECK(!kind.is_gated || between % 2 == 0, "weight1 has ", between, " columns; expected an even number");
    const int64_t depth = kind.is_gated ? between / 2 : between;
    second.check(experts(), depth, "2");
    TORCH_CHECK(second.columns(depth) == x.size(-1), "weight2 has ", second.columns(depth), " columns; expected ",
                x.size(-1), ", as x has");
    check_shape("y", y, x.sizes());
    check_scale("scale", scale, between, true);
    check_scale("offset", offset, between, false);
    check_tokens();
  }

  void run(Out y) const {
    const at::Tensor all = x.reshape({-1, x.size(-1)});
    const at::Tensor results = y.is_contiguous() ? y.view({-1, x.size(-1)}) : at::empty(all.sizes(), y.options());
    if (experts() == 0) {
      write_rows(all, -1, results);
    } else {
      int64_t end = 0;
      for (int64_t i = 0; i < experts(); ++i) {
        const int64_t count = are_ends ? (*tokens)[i] - end : (*tokens)[i];
        write_rows(all.narrow(0, end, count), i, results.narrow(0, end, count));
        end += count;
      }
    }
    if (!y.is_contiguous()) y.copy_(results.view(y.sizes()));
  }

 private:
  void check_scale(const char* name, OptionalIn numbers, int64_t n, bool by_column) const {
    if (!numbers.has_value()) return;
    const int64_t count = std::max<int64_t>(experts(), 1);
    const bool is_one = numbers->dim() == 1 && numbers->size(0) == count;
    const bool is_each = by_column && (experts() > 0 ? numbers->sizes() == at::IntArrayRef({count, n})
                                                     : numbers->sizes() == at::IntArrayRef({n}));
    TORCH_CHECK(is_one || is_each, name, " has shape ", numbers->sizes(), "; expected [", count, "]",
                by_column ? " or a number for each column" : "");
  }

  void check_tokens() const {
    if (experts() == 0) return;
    int64_t end = 0;
    for (int64_t i = 0; i < experts(); ++i) {
      const int64_t value = (*tokens)[i], least = are_ends ? end : 0, most = are_ends ? rows() : rows() - end;
      TORCH_CHECK(value >= least && value <= most, "expert_tokens[", i, "] is ", value, "; expected ", least, " to ",
                  most);
      end = are_ends ? value : end + value;
    }
    TORCH_CHECK(end == rows(), "expert_tokens has ", end, " tokens; expected ", rows(), ", as x has");
  }

  void write_rows(In rows, int64_t expert, at::Tensor result) const {
    const int64_t between = first.columns(x.size(-1));
    in_blocks(rows.size(0), std::max(between, x.size(-1)), [&](int64_t begin, int64_t count) {
      const at::Tensor part = rows.narrow(0, begin, count);
      at::Tensor sums = at::empty({count, between}, rows.options().dtype(at::kFloat));
      first.write(sums, part, expert);
      const FeedForwardActivation& kind = this->kind();
      const auto halves = kind.is_gated ? sums.chunk(2, 1) : std::vector{sums};
      at::Tensor activated = kind.is_gated ? halves[0] * kind.function(halves[1]) : kind.function(sums);
      // The second product takes what the first one takes.
      activated = rows.scalar_type() == at::kChar
                      ? quantized(activated, number(*scale, expert),
                                  offset.has_value() ? std::optional(number(*offset, expert)) : std::nullopt, at::kChar)
                      : activated.to(rows.scalar_type());
      at::Tensor sums_of_second = at::empty({count, x.size(-1)}, rows.options().dtype(at::kFloat));
      second.write(sums_of_second, activated, expert);
      result.narrow(0, begin, count).copy_(sums_of_second);
    });
  }

  static at::Tensor number(In numbers, int64_t expert) { return expert < 0 ? numbers : numbers[expert]; }
};

}  // namespace

ACLNN_TYPED_CHECKED(
    FFNV2,
    "x: float16 bfloat16 int8; weight1, weight2: float16 bfloat16 int8 int32; bias1, bias2: float16 float32 int32; "
    "scale, offset: float32; deq_scale1, deq_scale2: int64 uint64 float32 bfloat16; antiquant_scale1, "
    "antiquant_scale2, antiquant_offset1, antiquant_offset2: float16 bfloat16; y: float16 bfloat16",
    [](Phase phase, In x, In weight1, In weight2, OptionalInts expert_tokens, OptionalIn bias1, OptionalIn bias2,
       OptionalIn scale, OptionalIn offset, OptionalIn deq_scale1, OptionalIn deq_scale2, OptionalIn antiquant_scale1,
       OptionalIn antiquant_scale2, OptionalIn antiquant_offset1, OptionalIn antiquant_offset2, Text activation,
       Ignored<int64_t> /*inner_precise: the CPU computes in float32*/, bool tokens_index_flag, Out y) {
      check_or_run(phase,
                   FeedForward({x,
                                {"weight1", weight1, bias1, deq_scale1, antiquant_scale1, antiquant_offset1},
                                {"weight2", weight2, bias2, deq_scale2, antiquant_scale2, antiquant_offset2},
                                expert_tokens,
                                scale,
                                offset,
                                activation,
                                tokens_index_flag}),
                   y);
    });

namespace {

struct LowRankAddition {
  In y, x, weight_b, indices;
  OptionalIn weight_a;
  int64_t layer;
  double scale;
  int64_t first, count;  // of y's columns

  void check(In out) const {
    check_rank("y", y, 2);
    check_rank("x", x, 2);
    check_rank("weight_b", weight_b, 4);
    const int64_t batch = y.size(0), rank = weight_b.size(3);
    check_range("layer_idx", layer, 0, weight_b.size(1) - 1);
    check_range("y_offset", first, 0, y.size(1) - 1);
    TORCH_CHECK(count == weight_b.size(2) && first + count <= y.size(1), "y_slice_size is ", count, "; expected ",
                weight_b.size(2), ", the rows of weight_b, and at most ", y.size(1) - first);
    check_shape("indices", indices, {batch});
    check_shape("out", out, y.sizes());
    check_shape("x", x, {batch, weight_a.has_value() ? x.size(1) : rank});
    if (weight_a.has_value()) {
      check_shape("weight_a", *weight_a, {weight_b.size(0), weight_b.size(1), rank, x.size(1)});
    }
  }

  void run(Out out) const {
    check_values("indices", indices, 0, weight_b.size(0) - 1);
    if (out.data_ptr() != y.data_ptr()) out.copy_(y);
    for (int64_t i = 0; i < weight_b.size(0); ++i) {
      const at::Tensor rows = indices.eq(i).nonzero().squeeze(1);
      if (rows.numel() == 0) continue;
      at::Tensor values = x.index_select(0, rows);
      if (weight_a.has_value()) values = product(values, (*weight_a)[i][layer]);
      values = product(values, weight_b[i][layer]) * at::Scalar(scale);
      const at::Tensor part = out.narrow(1, first, count);
      part.index_copy_(0, rows, (part.index_select(0, rows) + values).to(out.scalar_type()));
    }
  }

 private:
  static at::Tensor product(In rows, In matrix) {
    at::Tensor sums = at::empty({rows.size(0), matrix.size(0)}, rows.options().dtype(at::kFloat));
    write_product(sums, rows, matrix.t(), std::nullopt);
    return sums;
  }
};

}  // namespace

ACLNN_TYPED_CHECKED(AddLora, "y, x, weight_b, weight_a, out: float16; indices: int32",
                    [](Phase phase, In y, In x, In weight_b, In indices, OptionalIn weight_a, int64_t layer_idx,
                       double scale, int64_t y_offset, int64_t y_slice_size, Out out) {
                      check_or_run(phase,
                                   LowRankAddition(
                                       {y, x, weight_b, indices, weight_a, layer_idx, scale, y_offset, y_slice_size}),
                                   out);
                    });
