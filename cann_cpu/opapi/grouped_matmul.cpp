// SPDX-License-Identifier: Apache-2.0
// Products of groups, as of the tokens of each expert: of tensors that come as a list, or as one that is divided, by
// rows (M) or by what is summed (K).
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>

#include "checks.h"
#include "combinations.h"
#include "product.h"
#include "quantization.h"
#include "scaled_product.h"

using namespace cann_cpu;

namespace {

enum Division : int64_t { kNone = -1, kRows = 0, kSummed = 2 };
enum ListType : int64_t { kEnds = 0, kSizes = 1, kPairs = 2 };

// Which part of a dimension belongs to which expert.
struct GroupPart {
  int64_t expert, first, size;
};

// The shape of a list of groups, for phase one.
void check_group_list(const char* name, In list, int64_t list_type, int64_t groups) {
  check_range("group_list_type", list_type, kEnds, kPairs);
  if (list_type == kPairs) return check_shape(name, list, {groups, 2});
  check_shape(name, list, {groups});
}

// Reads where each group ends, or their sizes, or pairs of an expert and a size; throws where they are no division of
// `whole`.
std::vector<GroupPart> group_parts(const char* name, In list, int64_t list_type, int64_t whole) {
  const at::Tensor numbers = list.to(at::kLong).contiguous();
  const int64_t* const values = numbers.const_data_ptr<int64_t>();
  const int64_t groups = numbers.dim() == 0 ? 1 : numbers.size(0);
  std::vector<GroupPart> parts;
  int64_t end = 0;
  for (int64_t i = 0; i < groups; ++i) {
    const int64_t value = list_type == kPairs ? values[2 * i + 1] : values[i];
    const int64_t least = list_type == kEnds ? end : 0, most = list_type == kEnds ? whole : whole - end;
    const std::string place = std::to_string(i) + (list_type == kPairs ? ", 1" : "");
    TORCH_CHECK(value >= least && value <= most, name, "[", place, "] is ", value, "; expected ", least, " to ", most);
    const int64_t expert = list_type == kPairs ? values[2 * i] : i;
    TORCH_CHECK(expert >= 0 && expert < groups, name, "[", i, ", 0] is ", expert, "; expected 0 to ", groups - 1);
    const int64_t size = list_type == kEnds ? value - end : value;
    parts.push_back({expert, end, size});
    end += size;
  }
  return parts;
}

// A tensor for each group: those of a list, or the parts of one that has a dimension more in front.
at::Tensor of_group(const std::vector<at::Tensor>& given, int64_t rank, int64_t group) {
  return given.size() == 1 && given[0].dim() == rank + 1 ? given[0][group] : given[group];
}
std::optional<at::Tensor> of_group(OptionalTensors given, int64_t rank, int64_t group) {
  return given.has_value() && !given->empty() ? std::optional(of_group(*given, rank, group)) : std::nullopt;
}

at::Tensor fast_gelu(In x) { return x * at::sigmoid(x * at::Scalar(1.702)); }
at::Tensor gelu_of_tanh(In x) { return at::gelu(x, "tanh"); }
at::Tensor relu_of(In x) { return at::relu(x); }
at::Tensor silu_of(In x) { return at::silu(x); }

using ProductActivation = at::Tensor (*)(In);
constexpr ProductActivation kActivations[] = {nullptr, relu_of, gelu_of_tanh, nullptr, fast_gelu, silu_of};

std::optional<at::Tensor> first_of(OptionalTensors list) {
  return list.has_value() && !list->empty() ? std::optional(list->front()) : std::nullopt;
}

// One row of scales, or one for each group of k.
at::Tensor scale_rows(In scale) {
  const at::Tensor numbers = float_scales(scale);
  return numbers.dim() == 1 ? numbers.unsqueeze(0) : numbers;
}

// An expert's rows of int8, or of int4, by its weight.
struct ExpertProduct {
  at::Tensor x, weight;
  int64_t depth;
  std::optional<at::Tensor> bias{}, scale{}, offset{}, token_scale{};

  ScaledProduct scaled() const {
    const bool int8_by_int4 = x.scalar_type() == at::kChar && weight.scalar_type() == at::kInt;
    ScaledProduct product{.x = x, .weight = IntegerMatrix("weight", weight, depth)};
    if (scale.has_value()) product.scale = scale_rows(*scale);
    const int64_t groups = product.scale.has_value() ? product.scale->size(0) : 1;
    if (groups > 1) product.group_size = depth / groups;
    product.row_scale = token_scale;
    if (offset.has_value()) product.row_sum_scale = offset->flatten();
    if (int8_by_int4) {
      product.shift = 8;
      product.sum_bias = bias;
    } else {
      const bool is_integer = bias.has_value() && bias->scalar_type() == at::kInt;
      (is_integer ? product.integer_bias : product.bias) = bias;
    }
    return product;
  }
};

struct GroupedMatmul {
  Tensors x, weight;
  OptionalTensors bias, scale, offset, weight_scale, weight_offset, token_scale;
  std::optional<at::Tensor> group_list;
  int64_t split_item, group_type, list_type, activation;

  bool is_quantized() const { return !at::isFloatingType(x[0].scalar_type()); }
  bool is_one_weight() const { return weight.size() == 1 && weight[0].dim() == 3; }
  int64_t experts() const {
    if (is_one_weight()) return weight[0].size(0);
    return group_type == kSummed && weight.size() == 1 ? group_list->size(0) : static_cast<int64_t>(weight.size());
  }

  void check(OutTensors out) const {
    TORCH_CHECK(!x.empty() && !weight.empty() && !out.empty(), "x, weight or out is empty; expected tensors");
    check_range("split_item", split_item, 0, 3);
    TORCH_CHECK(group_type == kNone || group_type == kRows || group_type == kSummed, "group_type is ", group_type,
                "; expected -1 (none), 0 (rows) or 2 (what is summed)");
    check_dtypes_of(out);
    check_range("act_type", activation, 0, 5);
    TORCH_CHECK(activation == 0 || kActivations[activation] != nullptr, "act_type is 3; expected 0, 1, 2, 4 or 5");
    const bool is_activated = x[0].scalar_type() == at::kChar && weight[0].scalar_type() == at::kChar &&
                              at::isFloatingType(out[0].scalar_type());
    TORCH_CHECK(activation == 0 || is_activated, "act_type is ", activation,
                "; expected 0, but for int8 x and weight and a result of a floating type");
    if (group_type == kSummed) return check_summed(out);
    if (group_list.has_value()) check_group_list("group_list", *group_list, list_type, experts());
    if (group_type == kRows && x.size() == 1) {
      TORCH_CHECK(group_list.has_value(), "group_list is null; expected it, where group_type is 0 and x is one tensor");
    }
    check_rows(out);
  }

  void run(OutTensors out) const {
    if (group_type == kSummed) return write_summed(out);
    const auto parts = row_parts();
    for (const GroupPart& part : parts) {
      if (out.size() == 1) break;
      const at::Tensor& result = out[part.expert];
      TORCH_CHECK(result.numel() == part.size * result.size(-1), "out[", part.expert, "] has shape ", result.sizes(),
                  "; expected ", part.size, " rows, as group_list says");
    }
    for (const GroupPart& part : parts) {
      if (part.size == 0) continue;
      const at::Tensor rows = is_divided() ? x[0].narrow(0, part.first, part.size) : flat(x[part.expert]);
      const at::Tensor& whole = out.size() == 1 ? out[0] : out[part.expert];
      at::Tensor result = out.size() == 1 ? whole.narrow(0, part.first, part.size) : whole.view({-1, whole.size(-1)});
      write_expert(rows, part, result);
    }
  }

 private:
  bool is_divided() const { return x.size() == 1 && group_list.has_value(); }

  static at::Tensor flat(In tensor) { return tensor.dim() == 2 ? tensor : tensor.reshape({-1, tensor.size(-1)}); }

  void check_dtypes_of(OutTensors out) const {
    static constexpr const char* kRowsOfDtypes[] = {
        // x; weight; out; scale; antiquant_scale; bias; offset; antiquant_offset; per_token_scale
        "float32; float32; float32; null; null; null float32; null; null; null",
        "float16; float16; float16; null; null; null float16; null; null; null",
        "bfloat16; bfloat16; bfloat16; null; null; null float32; null; null; null",
        "int8; int8; int8; int64 uint64; null; null int32; null; null; null",
        "int8; int8; int32; null; null; null int32; null; null; null",
        "int8; int8; float16; float32; null; null int32; null; null; null float32",
        "int8; int8; bfloat16; bfloat16; null; null int32 bfloat16; null; null; null float32",
        "int8; int8; bfloat16; float32; null; null bfloat16; null; null; null float32",
        "int8; int32; bfloat16; int64 uint64; null; float32; null; null; float32",
        "int8; int32; float16; int64 uint64; null; float32; null float32; null; float32",
        "int32; int32; float16 bfloat16; int64 uint64; null; null; null; null; null float32",
        "float16; int8 int32; float16; null; float16; null float16; null; null float16; null",
        "bfloat16; int8 int32; bfloat16; null; bfloat16; null float32; null; null bfloat16; null",
    };
    const GivenDtype dtypes[] = {given("x", x[0]),
                                 given("weight", weight[0]),
                                 given("out", out[0]),
                                 given("scale", first_of(scale)),
                                 given("antiquant_scale", first_of(weight_scale)),
                                 given("bias", first_of(bias)),
                                 given("offset", first_of(offset)),
                                 given("antiquant_offset", first_of(weight_offset)),
                                 given("per_token_scale", first_of(token_scale))};
    check_combination(dtypes, kRowsOfDtypes);
  }

  int64_t depth_of(In rows) const { return rows.size(-1) * (rows.scalar_type() == at::kInt ? 8 : 1); }

  void check_rows(OutTensors out) const {
    const int64_t groups = experts();
    const bool is_one_x = x.size() == 1 && group_type == kRows, is_one_out = out.size() == 1;
    TORCH_CHECK(is_one_x || static_cast<int64_t>(x.size()) == groups, "x has ", x.size(), " tensors; expected ", groups,
                ", one for each weight");
    TORCH_CHECK(is_one_out ? split_item >= 2 || groups == 1 : static_cast<int64_t>(out.size()) == groups, "out has ",
                out.size(), " tensors; expected ", split_item >= 2 ? 1 : groups, ", where split_item is ", split_item);
    int64_t rows = 0;
    for (int64_t i = 0; i < groups; ++i) {
      const at::Tensor left = is_one_x ? x[0] : x[i], right = of_group(weight, 2, i);
      TORCH_CHECK(left.dim() >= 2, "x has shape ", left.sizes(), "; expected at least 2 dimensions");
      TORCH_CHECK(right.dim() == 2, "weight has shape ", right.sizes(), "; expected 2 dimensions, or 3 of one for all");
      const int64_t k = depth_of(left), n = columns_of_weight(right, k);
      rows += left.numel() / std::max<int64_t>(left.size(-1), 1);
      if (!is_one_out) {
        auto expected = left.sizes().vec();
        expected.back() = n;
        if (is_one_x) expected.front() = out[i].dim() == 2 ? out[i].size(0) : 0;  // known when the list can be read
        check_shape("out", out[i], expected);
      }
      check_parameters(i, k, n);
      if (is_one_out && i + 1 == groups) check_shape("out", out[0], {is_one_x ? left.size(0) : rows, n});
    }
    if (token_scale.has_value() && !token_scale->empty()) {
      TORCH_CHECK(is_one_x, "per_token_scale is not null; expected null, where x is a list");
      check_shape("per_token_scale", (*token_scale)[0], {x[0].size(0)});
    }
  }

  static int64_t columns_of_weight(In matrix, int64_t k) {
    if (!at::isFloatingType(matrix.scalar_type())) return IntegerMatrix("weight", matrix, k).columns();
    TORCH_CHECK(matrix.size(0) == k, "weight has shape ", matrix.sizes(), "; expected ", k, " rows");
    return matrix.size(1);
  }

  // Of one expert.
  void check_parameters(int64_t i, int64_t k, int64_t n) const {
    const auto check_list = [&](const char* name, OptionalTensors list, bool has_groups) {
      if (!list.has_value() || list->empty()) return;
      const auto& tensors = *list;
      const bool is_one = is_one_weight();
      TORCH_CHECK(is_one ? tensors.size() == 1 : tensors.size() == weight.size(), name, " has ", tensors.size(),
                  " tensors; expected ", weight.size(), ", as weight has");
      const bool is_whole = is_one || (tensors.size() == 1 && tensors[0].dim() > 1);
      TORCH_CHECK(!is_whole || tensors[0].size(0) == experts(), name, " has shape ", tensors[0].sizes(), "; expected ",
                  experts(), " rows, one for each expert");
      const at::Tensor of_one = is_whole ? tensors[0][i] : tensors[i];
      const bool is_row = of_one.dim() == 1 && of_one.size(0) == n;
      const bool is_rows =
          has_groups && of_one.dim() == 2 && of_one.size(1) == n && of_one.size(0) > 0 && k % of_one.size(0) == 0;
      TORCH_CHECK(is_row || is_rows, name, " has shape ", of_one.sizes(), " for one expert; expected [", n, "]",
                  has_groups ? c10::str(" or [groups, ", n, "], where the groups divide ", k) : "");
    };
    check_list("bias", bias, false);
    check_list("scale", scale, weight[0].scalar_type() == at::kInt);
    check_list("offset", offset, true);
    check_list("antiquant_scale", weight_scale, weight[0].scalar_type() == at::kInt);
    check_list("antiquant_offset", weight_offset, weight[0].scalar_type() == at::kInt);
  }

  std::vector<GroupPart> row_parts() const {
    if (is_divided()) {
      return group_parts("group_list", *group_list, list_type, x[0].size(0));
    }
    std::vector<GroupPart> parts;
    int64_t end = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const int64_t rows = flat(x[i]).size(0);
      parts.push_back({static_cast<int64_t>(i), end, rows});
      end += rows;
    }
    if (group_list.has_value()) {
      const auto listed = group_parts("group_list", *group_list, list_type, end);
      for (size_t i = 0; i < listed.size(); ++i) {
        const auto& part = parts[listed[i].expert];
        TORCH_CHECK(listed[i].size == part.size, "group_list has ", listed[i].size, " rows for group ", part.expert,
                    "; expected ", part.size, ", as x has");
      }
    }
    return parts;
  }

  void write_expert(In rows, const GroupPart& part, Out result) const {
    const int64_t i = part.expert;
    const at::Tensor matrix = of_group(weight, 2, i);
    const auto row_of_bias = of_group(bias, 1, i);
    if (at::isFloatingType(matrix.scalar_type())) return write_product(result, rows, matrix, row_of_bias);
    if (!is_quantized()) {
      const at::Tensor scales = scale_rows(*expert_scale(weight_scale, i));
      DequantizedProduct product{rows, IntegerMatrix("weight", matrix, depth_of(rows)), 0, scales, {}, row_of_bias, {},
                                 {}};
      if (scales.size(0) > 1) product.group_size = depth_of(rows) / scales.size(0);
      const auto offsets = expert_scale(weight_offset, i);
      if (offsets.has_value()) product.offset = scale_rows(*offsets);
      return product.write(result);
    }
    ExpertProduct expert{.x = rows, .weight = matrix, .depth = depth_of(rows), .bias = row_of_bias};
    expert.scale = expert_scale(scale, i);
    expert.offset = expert_scale(offset, i);
    if (token_scale.has_value() && !token_scale->empty()) {
      expert.token_scale = (*token_scale)[0].narrow(0, part.first, part.size);
    }
    ScaledProduct product = expert.scaled();
    if (result.scalar_type() == at::kChar) product.bias = packed_offsets(*expert.scale);
    product.activation = kActivations[activation];
    product.write(result);
  }

  // (n), or (groups, n) where the groups are of k.
  std::optional<at::Tensor> expert_scale(OptionalTensors list, int64_t i) const {
    if (!list.has_value() || list->empty()) return std::nullopt;
    return is_one_weight() || list->size() != weight.size() ? (*list)[0][i] : (*list)[i];
  }

  void check_summed(OutTensors out) const {
    TORCH_CHECK(x.size() == 1 && x[0].dim() == 2 && !is_quantized() && weight[0].dim() == 2, "x has ", x.size(),
                " tensors, the first of shape ", x[0].sizes(),
                "; expected one matrix of a floating type, where group_type is 2");
    TORCH_CHECK(!bias.has_value() || bias->empty(), "bias is not null; expected null, where group_type is 2");
    if (weight.size() > 1) {
      TORCH_CHECK(!group_list.has_value(), "group_list is not null; expected null, where weight is a list");
      TORCH_CHECK(out.size() == weight.size(), "out has ", out.size(), " tensors; expected ", weight.size(),
                  ", as weight has");
      for (size_t i = 0; i < out.size(); ++i) check_shape("out", out[i], {x[0].size(0), weight[i].size(1)});
      return;
    }
    TORCH_CHECK(group_list.has_value(), "group_list is null; expected it, where weight is one tensor");
    check_group_list("group_list", *group_list, list_type, group_list->size(0));
    TORCH_CHECK(weight[0].size(0) == x[0].size(1), "weight has shape ", weight[0].sizes(), "; expected ", x[0].size(1),
                " rows");
    const int64_t groups = group_list->size(0);
    if (out.size() == 1 && out[0].dim() == 3) {
      return check_shape("out", out[0], {groups, x[0].size(0), weight[0].size(1)});
    }
    TORCH_CHECK(static_cast<int64_t>(out.size()) == groups, "out has ", out.size(), " tensors; expected ", groups);
    for (const at::Tensor& result : out) check_shape("out", result, {x[0].size(0), weight[0].size(1)});
  }

  void write_summed(OutTensors out) const {
    std::vector<GroupPart> parts;
    if (group_list.has_value()) {
      parts = group_parts("group_list", *group_list, list_type, x[0].size(1));
    } else {
      int64_t end = 0;
      for (size_t i = 0; i < weight.size(); end += weight[i++].size(0)) {
        parts.push_back({static_cast<int64_t>(i), end, weight[i].size(0)});
      }
    }
    for (const GroupPart& part : parts) {
      at::Tensor result = out.size() == 1 && out[0].dim() == 3 ? out[0][part.expert] : out[part.expert];
      const at::Tensor right = weight.size() > 1 ? weight[part.expert] : weight[0].narrow(0, part.first, part.size);
      if (part.size == 0) {
        result.zero_();
      } else {
        write_product(result, x[0].narrow(1, part.first, part.size), right, std::nullopt);
      }
    }
  }
};

using TuningConfig = Ignored<OptionalInts>;  // how many tokens an expert is expected to get

// The list of group ends as a tensor; the list may be absent.
std::optional<at::Tensor> as_tensor(OptionalInts ends) {
  return ends.has_value() && !ends->empty() ? std::optional(at::tensor(*ends)) : std::nullopt;
}
std::optional<at::Tensor> unless_without_elements(OptionalIn list) {
  return list.has_value() && list->numel() > 0 ? list : std::nullopt;
}

}  // namespace

#define GROUPED_DTYPES                                                                                          \
  "x: float32 float16 bfloat16 int8 int32; weight: float32 float16 bfloat16 int8 int32; bias: float32 float16 " \
  "bfloat16 int32; scale: float32 bfloat16 int64 uint64; offset: float32; antiquant_scale, antiquant_offset: "  \
  "float16 bfloat16; out: float32 float16 bfloat16 int8 int32"

ACLNN_TYPED_CHECKED(GroupedMatmul, GROUPED_DTYPES,
                    [](Phase phase, Tensors x, Tensors weight, OptionalTensors bias, OptionalTensors scale,
                       OptionalTensors offset, OptionalTensors antiquant_scale, OptionalTensors antiquant_offset,
                       OptionalInts group_list, int64_t split_item, OutTensors out) {
                      check_or_run(phase,
                                   GroupedMatmul({x,
                                                  weight,
                                                  bias,
                                                  scale,
                                                  offset,
                                                  antiquant_scale,
                                                  antiquant_offset,
                                                  {},
                                                  as_tensor(group_list),
                                                  split_item,
                                                  as_tensor(group_list).has_value() || split_item >= 2 ? kRows : kNone,
                                                  kEnds,
                                                  0}),
                                   out);
                    });

#define GROUPED_PARAMETERS                                                                                   \
  Tensors x, Tensors weight, OptionalTensors bias, OptionalTensors scale, OptionalTensors offset,            \
      OptionalTensors antiquant_scale, OptionalTensors antiquant_offset, OptionalTensors per_token_scale,    \
      OptionalIn group_list, Absent<"activation_input", OptionalTensors>,                                    \
      Absent<"activation_quant_scale", OptionalTensors>, Absent<"activation_quant_offset", OptionalTensors>, \
      int64_t split_item, int64_t group_type, int64_t group_list_type, int64_t act_type
#define GROUPED_RESULTS \
  OutTensors out, Absent<"activation_feature_out", OptionalTensors>, Absent<"dyn_quant_scale_out", OptionalTensors>
#define GROUPED_PRODUCT                                                                              \
  GroupedMatmul({x, weight, bias, scale, offset, antiquant_scale, antiquant_offset, per_token_scale, \
                 unless_without_elements(group_list), split_item, group_type, group_list_type, act_type})

ACLNN_TYPED_CHECKED(GroupedMatmulV4, GROUPED_DTYPES "; group_list: int64; per_token_scale: float32",
                    [](Phase phase, GROUPED_PARAMETERS, GROUPED_RESULTS) {
                      check_or_run(phase, GROUPED_PRODUCT, out);
                    });
ACLNN_TYPED_CHECKED(GroupedMatmulV5, GROUPED_DTYPES "; group_list: int64; per_token_scale: float32",
                    [](Phase phase, GROUPED_PARAMETERS, TuningConfig, GROUPED_RESULTS) {
                      check_or_run(phase, GROUPED_PRODUCT, out);
                    });
// The last integer is the size of the groups of k, which the scales' shapes say as well.
ACLNN_TYPED_CHECKED(GroupedMatmulWeightNz, GROUPED_DTYPES "; group_list: int64; per_token_scale: float32",
                    [](Phase phase, GROUPED_PARAMETERS, TuningConfig, Ignored<int64_t>, GROUPED_RESULTS) {
                      check_or_run(phase, GROUPED_PRODUCT, out);
                    });

namespace {

// Each group's product of what it divides, added to its part of the result.
void check_added(In x, In weight, In group_list, In y, bool transpose_x, bool transpose_weight, int64_t group_type,
                 int64_t group_list_type) {
  TORCH_CHECK(transpose_x, "transpose_x is false; expected true");
  TORCH_CHECK(!transpose_weight, "transpose_weight is true; expected false");
  TORCH_CHECK(group_type == kSummed, "group_type is ", group_type, "; expected 2");
  check_range("group_list_type", group_list_type, kEnds, kSizes);
  check_rank("x", x, 2);
  check_rank("weight", weight, 2);
  check_rank("group_list", group_list, 1);
  TORCH_CHECK(x.size(0) == weight.size(0), "weight has shape ", weight.sizes(), "; expected ", x.size(0), " rows");
  const std::vector<int64_t> each{group_list.size(0), x.size(1), weight.size(1)};
  TORCH_CHECK(y.numel() == c10::multiply_integers(each), "y has shape ", y.sizes(), "; expected ", each);
}

void add_groups(In x, In weight, In group_list, Out y, int64_t group_list_type) {
  const auto parts = group_parts("group_list", group_list, group_list_type, x.size(0));
  const at::Tensor results = y.view({group_list.size(0), x.size(1), weight.size(1)});
  for (const GroupPart& part : parts) {
    const at::Tensor left = x.narrow(0, part.first, part.size), right = weight.narrow(0, part.first, part.size);
    results[part.expert].add_(at::matmul(left.to(at::kFloat).t(), right.to(at::kFloat)));
  }
}

}  // namespace

ACLNN_TYPED_CHECKED(GroupedMatmulAdd, "x: float16 bfloat16; weight: as x; group_list: int64; y: float32",
                    [](Phase phase, In x, In weight, In group_list, Out y, bool transpose_x, bool transpose_weight,
                       int64_t group_type) {
                      check_added(x, weight, group_list, y, transpose_x, transpose_weight, group_type, kEnds);
                      if (phase == Phase::Check) return;
                      add_groups(x, weight, group_list, y, kEnds);
                    });
ACLNN_TYPED_CHECKED(GroupedMatmulAddV2, "x: float16 bfloat16; weight: as x; group_list: int64; y: float32",
                    [](Phase phase, In x, In weight, In group_list, Out y, bool transpose_x, bool transpose_weight,
                       int64_t group_type, int64_t group_list_type) {
                      check_added(x, weight, group_list, y, transpose_x, transpose_weight, group_type, group_list_type);
                      if (phase == Phase::Check) return;
                      add_groups(x, weight, group_list, y, group_list_type);
                    });

namespace {

// What the experts' functions have in common: int8 rows by int8 or int4 weights, whose sums are float.
struct ExpertSums {
  In x, weight, group_list;
  at::Tensor scale;   // (experts, n), (experts, 1, n) or (experts, groups of k, n)
  OptionalIn assist;  // (experts, n): 8 * the sums of the scaled columns of an int4 weight
  OptionalIn offset;  // (experts, 1, n)
  In token_scale;
  int64_t list_type;

  int64_t columns() const { return scale.size(-1); }

  // `of_weight` and `of_assist` are what a function calls them.
  void check(const char* of_weight, const char* of_scale, const char* of_assist) const {
    static const auto is_int4 = [](In tensor) { return tensor.scalar_type() == at::kInt; };
    check_rank("x", x, 2);
    check_rank(of_weight, weight, 3);
    const int64_t experts = weight.size(0), k = x.size(1);
    check_range("group_list_type", list_type, kEnds, kSizes);
    check_shape("group_list", group_list, {experts});
    check_shape("x_scale", token_scale, {x.size(0)});
    if (experts > 0) {
      const int64_t n = IntegerMatrix(of_weight, weight[0], k).columns();
      const bool is_row = scale.dim() == 2 || (scale.dim() == 3 && scale.size(1) == 1);
      const bool is_rows = scale.dim() == 3 && is_int4(weight) && scale.size(1) > 0 && k % scale.size(1) == 0;
      TORCH_CHECK((is_row || is_rows) && scale.size(0) == experts && scale.size(-1) == n, of_scale, " has shape ",
                  scale.sizes(), "; expected [", experts, ", ", n, "]",
                  is_int4(weight) ? c10::str(" or [", experts, ", groups, ", n, "], where the groups divide ", k) : "");
      if (assist.has_value()) check_shape(of_assist, *assist, {experts, n});
      if (offset.has_value()) check_shape("offset", *offset, {experts, 1, n});
    }
    TORCH_CHECK(is_int4(weight) == assist.has_value(), of_assist, assist.has_value() ? " is not null" : " is null",
                "; expected ", is_int4(weight) ? "float32" : "null", ", where ", of_weight, " is ",
                is_int4(weight) ? "int4" : "int8");
  }

  std::vector<GroupPart> parts() const { return group_parts("group_list", group_list, list_type, x.size(0)); }

  // Calls body(first, sums) for a block of rows of the groups after the other.
  template <class Body>
  void each_block(Body body) const {
    for (const GroupPart& part : parts()) {
      in_blocks(part.size, columns(), [&](int64_t begin, int64_t count) {
        const int64_t first = part.first + begin;
        at::Tensor sums = at::empty({count, columns()}, x.options().dtype(at::kFloat));
        ExpertProduct product{.x = x.narrow(0, first, count), .weight = weight[part.expert], .depth = x.size(1)};
        product.scale = scale[part.expert];
        if (assist.has_value()) product.bias = (*assist)[part.expert];
        if (offset.has_value()) product.offset = (*offset)[part.expert];
        product.token_scale = token_scale.narrow(0, first, count);
        product.scaled().write(sums);
        body(first, sums);
      });
    }
  }
};

// The product, swiglu, and its quantisation for each token.
struct SwigluQuant {
  ExpertSums sums;
  const char* of_assist;
  Out output, output_scale;

  void check() const {
    sums.check("weight", "weight_scale", of_assist);
    const int64_t m = sums.x.size(0), k = sums.x.size(1), n = sums.columns();
    const int64_t most = sums.weight.scalar_type() == at::kInt ? 20000 : 65536;
    TORCH_CHECK(k < most, "x has shape ", sums.x.sizes(), "; expected less than ", most, " columns");
    TORCH_CHECK(n <= 10240 && n % 2 == 0, "weight_scale has shape ", sums.scale.sizes(),
                "; expected an even number of columns up to 10240");
    check_shape("output", output, {m, n / 2});
    check_shape("output_scale", output_scale, {m});
  }

  void run() const {
    sums.each_block([&](int64_t first, In block) {
      const auto halves = block.chunk(2, 1);
      const Dynamic result = dynamically_quantized(at::silu(halves[0]) * halves[1], at::kChar);
      output.narrow(0, first, block.size(0)).copy_(result.values);
      output_scale.narrow(0, first, block.size(0)).copy_(result.scale);
    });
  }
};

void check_one(const char* name, Tensors list) {
  TORCH_CHECK(list.size() == 1, name, " has ", list.size(), " tensors; expected 1");
}

}  // namespace

// output_offset is reserved: torch_npu passes a tensor that is not written.
#define SWIGLU_QUANT_PARAMETERS                                                                               \
  In x, In weight, OptionalIn bias, Absent<"offset", OptionalIn>, In weight_scale, In x_scale, In group_list, \
      Out output, Out output_scale, Ignored<OptionalOut>
#define SWIGLU_QUANT \
  SwigluQuant({{x, weight, group_list, weight_scale, bias, std::nullopt, x_scale, kEnds}, "bias", output, output_scale})
#define SWIGLU_QUANT_DTYPES                                                                                    \
  "x: int8; weight: int8 int32; bias: float32; weight_scale: float32 float16 bfloat16 int64 uint64; x_scale: " \
  "float32; "                                                                                                  \
  "group_list: int64; output: int8; output_scale: float32"
ACLNN_TYPED_CHECKED(GroupedMatmulSwigluQuantWeightNZ, SWIGLU_QUANT_DTYPES,
                    [](Phase phase, SWIGLU_QUANT_PARAMETERS) { check_or_run(phase, SWIGLU_QUANT); });
ACLNN_TYPED_CHECKED(GroupedMatmulSwigluQuant, SWIGLU_QUANT_DTYPES,
                    [](Phase phase, SWIGLU_QUANT_PARAMETERS) { check_or_run(phase, SWIGLU_QUANT); });

// dequant_dtype, the ignored one, has no effect on Atlas A2 and A3.
#define GROUPED_SWIGLU_QUANT_V2(op)                                                                                  \
  ACLNN_TYPED_CHECKED(                                                                                               \
      op,                                                                                                            \
      "x: int8; weight: int8 int32; weight_scale: float32 float16 bfloat16 int64 uint64; weight_assist_matrix: "     \
      "float32; x_scale: float32; group_list: int64; output: int8; output_scale: float32",                           \
      [](Phase phase, In x, Tensors weight, Tensors weight_scale, OptionalTensors weight_assist_matrix,              \
         Absent<"bias", OptionalIn>, In x_scale, Absent<"smooth_scale", OptionalIn>, In group_list,                  \
         int64_t dequant_mode, Ignored<int64_t>, int64_t quant_mode, int64_t group_list_type, TuningConfig,          \
         Out output, Out output_scale) {                                                                             \
        check_one("weight", weight);                                                                                 \
        check_one("weight_scale", weight_scale);                                                                     \
        check_range("dequant_mode", dequant_mode, 0, 1);                                                             \
        check_range("quant_mode", quant_mode, 0, 0);                                                                 \
        TORCH_CHECK(dequant_mode == 1 || weight_scale[0].dim() < 3 || weight_scale[0].size(1) == 1,                  \
                    "weight_scale has shape ", weight_scale[0].sizes(),                                              \
                    "; expected 2 dimensions, where dequant_mode is 0");                                             \
        check_or_run(phase, SwigluQuant({{x, weight[0], group_list, weight_scale[0], first_of(weight_assist_matrix), \
                                          std::nullopt, x_scale, group_list_type},                                   \
                                         "weight_assist_matrix",                                                     \
                                         output,                                                                     \
                                         output_scale}));                                                            \
      })
GROUPED_SWIGLU_QUANT_V2(GroupedMatmulSwigluQuantV2);
GROUPED_SWIGLU_QUANT_V2(GroupedMatmulSwigluQuantWeightNzV2);

namespace {

// The experts' results, times each token's logit, added to the rows of the tokens and to the shared expert's result.
struct FinalizeRouting {
  ExpertSums sums;
  OptionalIn shared_input;
  In logit, row_index;
  int64_t dtype;
  float shared_weight;
  int64_t shared_offset;
  bool transpose_x, transpose_weight;

  void check(In out) const {
    sums.check("x2", "scale", "bias");
    const int64_t m = sums.x.size(0);
    TORCH_CHECK(dtype == 0, "dtype is ", dtype, "; expected 0 (float32)");
    TORCH_CHECK(!transpose_x, "transpose_x1 is true; expected false");
    TORCH_CHECK(!transpose_weight, "transpose_x2 is true; expected false");
    check_shape("logit", logit, {m});
    check_shape("row_index", row_index, {m});
    TORCH_CHECK(out.dim() == 2 && out.size(1) == sums.columns(), "out has shape ", out.sizes(), "; expected [batch, ",
                sums.columns(), "]");
    if (!shared_input.has_value()) return;
    TORCH_CHECK(shared_input->dim() == 2 && shared_input->size(1) == out.size(1), "shared_input has shape ",
                shared_input->sizes(), "; expected [rows, ", out.size(1), "]");
    TORCH_CHECK(shared_offset >= 0 && shared_offset + shared_input->size(0) <= out.size(0), "shared_input_offset is ",
                shared_offset, "; expected 0 to ", out.size(0) - shared_input->size(0));
  }

  void run(Out out) const {
    (void)sums.parts();  // throws before anything is written
    check_values("row_index", row_index, 0, out.size(0) - 1);
    out.zero_();
    if (shared_input.has_value()) {
      out.narrow(0, shared_offset, shared_input->size(0))
          .copy_(shared_input->to(at::kFloat) * at::Scalar(shared_weight));
    }
    sums.each_block([&](int64_t first, In block) {
      const int64_t count = block.size(0);
      out.index_add_(0, row_index.narrow(0, first, count), block * logit.narrow(0, first, count).unsqueeze(1));
    });
  }
};

using AntiquantScale = Absent<"antiquant_scale", OptionalIn>;
using AntiquantOffset = Absent<"antiquant_offset", OptionalIn>;

}  // namespace

#define FINALIZE_LAST                                                                                       \
  In group_list, OptionalIn shared_input, In logit, In row_index, int64_t dtype, float shared_input_weight, \
      int64_t shared_input_offset, bool transpose_x1, bool transpose_x2, int64_t group_list_type
#define FINALIZE_ROUTING(offset)                                                               \
  FinalizeRouting({{x1, x2, group_list, scale, bias, offset, pertoken_scale, group_list_type}, \
                   shared_input,                                                               \
                   logit,                                                                      \
                   row_index,                                                                  \
                   dtype,                                                                      \
                   shared_input_weight,                                                        \
                   shared_input_offset,                                                        \
                   transpose_x1,                                                               \
                   transpose_x2})
#define FINALIZE_DTYPES                                                                                         \
  "x1: int8; x2: int8 int32; scale: float32 bfloat16 int64 uint64; bias, pertoken_scale, logit, out: float32; " \
  "group_list: int64; shared_input: bfloat16; row_index: int64 int32"
ACLNN_TYPED_CHECKED(GroupedMatmulFinalizeRouting, FINALIZE_DTYPES,
                    [](Phase phase, In x1, In x2, In scale, OptionalIn bias, In pertoken_scale, FINALIZE_LAST,
                       Out out) { check_or_run(phase, FINALIZE_ROUTING(std::nullopt), out); });
ACLNN_TYPED_CHECKED(GroupedMatmulFinalizeRoutingWeightNz, FINALIZE_DTYPES,
                    [](Phase phase, In x1, In x2, In scale, OptionalIn bias, In pertoken_scale, FINALIZE_LAST,
                       Out out) { check_or_run(phase, FINALIZE_ROUTING(std::nullopt), out); });
ACLNN_TYPED_CHECKED(GroupedMatmulFinalizeRoutingV2, FINALIZE_DTYPES "; offset: float32",
                    [](Phase phase, In x1, In x2, In scale, OptionalIn bias, OptionalIn offset, AntiquantScale,
                       AntiquantOffset, In pertoken_scale, FINALIZE_LAST,
                       Out out) { check_or_run(phase, FINALIZE_ROUTING(offset), out); });
#define FINALIZE_ROUTING_TUNED(op)                                                                                \
  ACLNN_TYPED_CHECKED(op, FINALIZE_DTYPES "; offset: float32",                                                    \
                      [](Phase phase, In x1, In x2, In scale, OptionalIn bias, OptionalIn offset, AntiquantScale, \
                         AntiquantOffset, In pertoken_scale, FINALIZE_LAST, TuningConfig,                         \
                         Out out) { check_or_run(phase, FINALIZE_ROUTING(offset), out); })
FINALIZE_ROUTING_TUNED(GroupedMatmulFinalizeRoutingV3);
FINALIZE_ROUTING_TUNED(GroupedMatmulFinalizeRoutingWeightNzV2);
