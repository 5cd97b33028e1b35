// SPDX-License-Identifier: Apache-2.0
// Quantisation and its inverse.
#include "quantization.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/round.h>
#include <ATen/ops/trunc.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>

#include "checks.h"
#include "hifloat8.h"

namespace cann_cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements for a thread

bool is_float8(at::ScalarType dtype) { return dtype == at::kFloat8_e4m3fn || dtype == at::kFloat8_e5m2; }

// The nearest integer of a number within +-2^22, the even one of two: the sum has no bits for a fraction.
inline float nearest_integer(float value) {
  constexpr float kIntegers = 1.5f * (1 << 23);
  return value + kIntegers - kIntegers;
}

// Rounded and saturated; not a number is 0. The bounds are integers, so that they may be applied first.
inline float fitted(float value, float lowest, float highest) {
  value = value == value ? value : 0;
  value = value > lowest ? value : lowest;
  return nearest_integer(value < highest ? value : highest);
}

}  // namespace

Rounding rounding_of(const char* name, Text mode) {
  if (mode == "round" || mode == "rint" || mode.empty()) return Rounding::HalfToEven;
  if (mode == "ceil") return Rounding::Up;
  if (mode == "floor") return Rounding::Down;
  TORCH_CHECK(mode == "trunc", name, " is '", mode, "'; expected round, rint, ceil, floor or trunc");
  return Rounding::ToZero;
}

std::pair<double, double> range_of(at::ScalarType dtype) {
  switch (dtype) {
    case kInt4:
      return {-8, 7};
    case at::kChar:
      return {-128, 127};
    case at::kByte:
      return {0, 255};
    case at::kInt:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case at::kFloat8_e4m3fn:
      return {-448, 448};
    case at::kFloat8_e5m2:
      return {-57344, 57344};
    case kHiFloat8:
      return {-kHiFloat8Max, kHiFloat8Max};
    default:
      TORCH_CHECK(false, "values cannot be quantised to ", dtype);
  }
}

CANN_EXPORT at::Tensor saturated(In x, at::ScalarType dtype, Rounding rounding) {
  const auto [lowest, highest] = range_of(dtype);
  if (dtype == kHiFloat8) return in_hifloat8(at::nan_to_num(x.to(at::kFloat), 0).clamp(lowest, highest));
  if (dtype == at::kInt || is_float8(dtype)) {
    at::Tensor wide = at::nan_to_num(dtype == at::kInt ? x.to(at::kDouble) : x.to(at::kFloat), 0);
    if (dtype == at::kInt && rounding == Rounding::HalfToEven) wide = at::round(wide);
    return wide.clamp(lowest, highest).to(dtype);
  }
  at::Tensor wide = x.to(at::kFloat);
  if (rounding == Rounding::Up) wide = at::ceil(wide);
  if (rounding == Rounding::Down) wide = at::floor(wide);
  if (rounding == Rounding::ToZero) wide = at::trunc(wide);
  wide = wide.contiguous();
  const at::Tensor values = at::empty(x.sizes(), wide.options().dtype(dtype == kInt4 ? at::kChar : dtype));
  const auto* from = wide.const_data_ptr<float>();
  auto* to = static_cast<uint8_t*>(values.mutable_data_ptr());
  at::parallel_for(0, wide.numel(), kGrain, [&, low = float(lowest), high = float(highest)](int64_t i, int64_t end) {
    for (; i < end; ++i) to[i] = static_cast<uint8_t>(static_cast<int32_t>(fitted(from[i], low, high)));
  });
  return values;
}

at::Tensor quantized(In x, In scale, OptionalIn offset, at::ScalarType dtype, Rounding rounding) {
  at::Tensor scaled = x.to(at::kFloat) * scale.to(at::kFloat);
  if (offset.has_value() && offset->defined()) scaled += offset->to(at::kFloat);
  return saturated(scaled, dtype, rounding);
}

at::Tensor dequantized(In values, In scale, OptionalIn offset) {
  at::Tensor wide = values.to(at::kFloat);
  if (offset.has_value() && offset->defined()) wide = wide + offset->to(at::kFloat);
  return wide * scale.to(at::kFloat);
}

Dynamic dynamically_quantized(In x, at::ScalarType dtype, bool symmetric, double highest_value) {
  const auto [least, greatest] = range_of(dtype);
  const float highest = highest_value > 0 ? highest_value : greatest;
  const float lowest = highest_value > 0 ? -highest_value : least;
  TORCH_CHECK(x.dim() > 0, "x has no dimension; expected rows to quantise");
  const int64_t columns = x.size(-1);
  const at::Tensor wide = x.to(at::kFloat).contiguous();
  const auto rows_shape = x.sizes().slice(0, x.dim() - 1);
  Dynamic result;
  result.scale = at::empty(rows_shape, wide.options());
  if (!symmetric) result.offset = at::empty(rows_shape, wide.options());
  const bool in_float8 = is_float8(dtype);
  result.values =
      at::empty(x.sizes(), wide.options().dtype(in_float8 ? at::kFloat : (dtype == kInt4 ? at::kChar : dtype)));
  auto* scales = result.scale.mutable_data_ptr<float>();
  auto* offsets = symmetric ? nullptr : result.offset.mutable_data_ptr<float>();
  auto* bytes = static_cast<uint8_t*>(result.values.mutable_data_ptr());
  const int64_t rows = result.scale.numel();
  const auto* all = wide.const_data_ptr<float>();
  at::parallel_for(
      0, rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(columns, 1)), [&](int64_t row, int64_t end) {
        for (; row < end; ++row) {
          const float* from = all + row * columns;
          float least_of_row = columns > 0 ? from[0] : 0, greatest_of_row = least_of_row;
          for (int64_t i = 1; i < columns; ++i) {
            least_of_row = from[i] < least_of_row ? from[i] : least_of_row;
            greatest_of_row = from[i] > greatest_of_row ? from[i] : greatest_of_row;
          }
          const float largest = std::max(std::abs(least_of_row), std::abs(greatest_of_row));
          const float scale = symmetric ? largest / highest : (greatest_of_row - least_of_row) / (highest - lowest);
          const float divisor = scale == 0 ? 1 : scale;
          const float offset = symmetric ? 0 : highest - greatest_of_row / divisor;
          scales[row] = scale;
          if (!symmetric) offsets[row] = offset;
          if (in_float8) {
            auto* to = reinterpret_cast<float*>(bytes) + row * columns;
            for (int64_t i = 0; i < columns; ++i) to[i] = from[i] / divisor + offset;
          } else {
            uint8_t* to = bytes + row * columns;
            for (int64_t i = 0; i < columns; ++i) {
              to[i] = static_cast<uint8_t>(static_cast<int32_t>(fitted(from[i] / divisor + offset, lowest, highest)));
            }
          }
        }
      });
  if (in_float8) result.values = saturated(result.values, dtype);
  return result;
}

at::Tensor packed_int4(In values) {
  TORCH_CHECK(values.dim() > 0 && values.size(-1) % 8 == 0, "the last dimension of int4 values has size ",
              values.dim() > 0 ? values.size(-1) : 0, "; expected a multiple of 8");
  const at::Tensor bytes = values.to(at::kChar).contiguous();
  auto shape = bytes.sizes().vec();
  shape.back() /= 8;
  const at::Tensor packed = at::empty(shape, bytes.options().dtype(at::kInt));
  const auto* from = bytes.const_data_ptr<int8_t>();
  auto* to = packed.mutable_data_ptr<int32_t>();
  for (int64_t i = 0; i < packed.numel(); ++i) {
    uint32_t word = 0;
    for (int64_t k = 0; k < 8; ++k) word |= (static_cast<uint32_t>(from[8 * i + k]) & 15) << (4 * k);
    to[i] = static_cast<int32_t>(word);
  }
  return packed;
}

at::Tensor unpacked_int4(In packed) {
  TORCH_CHECK(packed.dim() > 0 && packed.scalar_type() == at::kInt, "packed int4 has dtype ", packed.scalar_type(),
              " and ", packed.dim(), " dimensions; expected int32 and at least one");
  const at::Tensor words = packed.contiguous();
  auto shape = words.sizes().vec();
  shape.back() *= 8;
  const at::Tensor values = at::empty(shape, words.options().dtype(at::kChar));
  const auto* from = words.const_data_ptr<int32_t>();
  auto* to = values.mutable_data_ptr<int8_t>();
  for (int64_t i = 0; i < words.numel(); ++i) {
    for (int64_t k = 0; k < 8; ++k) {
      to[8 * i + k] = static_cast<int8_t>(static_cast<int32_t>(static_cast<uint32_t>(from[i]) << (28 - 4 * k)) >> 28);
    }
  }
  return values;
}

void check_quantized_shape(const char* name, const at::Tensor& out, at::IntArrayRef x) {
  auto expected = x.vec();
  if (quantized_dtype(out) == kInt4) {
    TORCH_CHECK(!expected.empty() && expected.back() % 8 == 0, "x has shape ", x,
                "; expected a multiple of 8 columns, "
                "since ",
                name, " holds eight int4 in an int32");
    expected.back() /= 8;
  }
  check_shape(name, out, expected);
}

void assign_quantized(const at::Tensor& out, const at::Tensor& values) {
  assign(out, quantized_dtype(out) == kInt4 ? packed_int4(values) : values);
}

void in_blocks(int64_t rows, int64_t columns, c10::function_ref<void(int64_t, int64_t)> body) {
  constexpr int64_t kElements = 1 << 20;  // 4 MiB in float
  const int64_t step = std::max<int64_t>(1, kElements / std::max<int64_t>(columns, 1));
  for (int64_t begin = 0; begin < rows; begin += step) body(begin, std::min(step, rows - begin));
}

at::Tensor float_scales(In parameters) {
  const auto dtype = parameters.scalar_type();
  if (dtype != at::kLong && dtype != at::kUInt64) return parameters.to(at::kFloat);
  const at::Tensor words = parameters.contiguous().view(at::kFloat);  // the lower half of each holds the scale
  return words.unflatten(-1, {-1, 2}).select(-1, 0).contiguous();
}

at::Tensor group_of_rows(In group_ends, int64_t rows) {
  const at::Tensor ends = group_ends.to(at::kLong).contiguous();
  const at::Tensor groups = at::full({rows}, -1, ends.options());
  int64_t begin = 0;
  for (int64_t i = 0; i < ends.numel(); ++i) {
    const int64_t end = ends.const_data_ptr<int64_t>()[i];
    if (end > begin) groups.narrow(0, begin, end - begin).fill_(i);
    begin = std::max(begin, end);
  }
  return groups;
}

void check_dst_type(int64_t dst_type, const char* name, const at::Tensor& out) {
  const auto expected = acl_dtype(out.scalar_type());
  TORCH_CHECK(dst_type == expected, "dst_type is ", dst_type, "; expected ", static_cast<int>(expected), ", as ", name,
              " is ", dtype_name(expected));
}

at::Tensor as_rows(const at::Tensor& tensor) {
  if (tensor.dim() == 2) return tensor;
  if (tensor.dim() < 2) return tensor.reshape({1, tensor.numel()});
  return tensor.flatten(0, -2);
}

RowsOut::RowsOut(const at::Tensor& out)
    : out_(out), rows_(as_rows(out.is_contiguous() ? out : at::empty(out.sizes(), out.options()))) {}

void RowsOut::stored() const {
  if (!out_.is_contiguous()) out_.copy_(rows_.view(out_.sizes()));
}

RowsIn::RowsIn(const at::Tensor& tensor, at::IntArrayRef shape) {
  each_ = tensor.numel() != 1 && (tensor.dim() == 0 || tensor.numel() != tensor.size(-1));
  if (!each_) {
    rows_ = tensor.reshape({1, tensor.numel()}).to(at::kFloat);
    return;
  }
  auto expanded = shape.vec();
  if (tensor.size(-1) == 1) expanded.back() = 1;
  rows_ = as_rows(tensor.to(at::kFloat).expand(expanded));
}

}  // namespace cann_cpu

using namespace cann_cpu;

namespace {

// A vector for one dimension of x, as a tensor that broadcasts to x.
at::Tensor along(const char* name, In values, In x, int64_t axis) {
  TORCH_CHECK(axis >= -x.dim() && axis < x.dim(), "axis is ", axis, "; expected ", -x.dim(), " to ", x.dim() - 1);
  axis = axis < 0 ? axis + x.dim() : axis;
  if (values.numel() == 1) return values.reshape(std::vector<int64_t>(x.dim(), 1));
  std::vector<int64_t> shape(x.dim(), 1);
  shape[axis] = x.size(axis);
  TORCH_CHECK(values.sizes() == at::IntArrayRef(shape) || (values.dim() == 1 && values.size(0) == x.size(axis)), name,
              " has shape ", values.sizes(), "; expected [", x.size(axis), "], [1] or ", at::IntArrayRef(shape));
  return values.reshape(shape);
}

enum class By { Product, Quotient };

// y = saturated(x * scale + offset), or x / scale + offset.
void quantize(In x, In scale, OptionalIn offset, By by, Rounding rounding, Out y) {
  check_quantized_shape("y", y, x.sizes());
  const at::Tensor x_rows = as_rows(x);
  const RowsIn scales(scale, x.sizes());
  const auto offsets = offset.has_value() ? std::optional(RowsIn(*offset, x.sizes())) : std::nullopt;
  const RowsOut out(y);
  in_blocks(x_rows.size(0), x_rows.size(1), [&](int64_t begin, int64_t count) {
    at::Tensor part = x_rows.narrow(0, begin, count).to(at::kFloat);
    part = by == By::Product ? part * scales.part(begin, count) : part / scales.part(begin, count);
    if (offsets.has_value()) part += offsets->part(begin, count);
    assign_quantized(out.part(begin, count), saturated(part, quantized_dtype(y), rounding));
  });
  out.stored();
}

void ascend_quant(In x, In scale, OptionalIn offset, bool sqrt_mode, Text round_mode, int64_t dst_type, int64_t axis,
                  Out y) {
  check_range("the number of dimensions of x", x.dim(), 1, 8);
  check_dst_type(dst_type, "y", y);
  const at::Tensor factor = along("scale", scale, x, axis).to(at::kFloat);
  std::optional<at::Tensor> addend;
  if (offset.has_value()) {
    check_shape("offset", *offset, scale.sizes());
    addend = along("offset", *offset, x, axis);
  }
  quantize(x, sqrt_mode ? factor * factor : factor, addend, By::Product, rounding_of("round_mode", round_mode), y);
}

constexpr const char* kAscendQuant =
    "x: float32 float16 bfloat16; scale, offset: as x; y: int8 int32 float8_e5m2 float8_e4m3fn";

}  // namespace

ACLNN_TYPED(AscendQuant, kAscendQuant,
            [](In x, In scale, OptionalIn offset, bool sqrt_mode, Text round_mode, int32_t dst_type, Out y) {
              ascend_quant(x, scale, offset, sqrt_mode, round_mode, dst_type, -1, y);
            });
ACLNN_TYPED(AscendQuantV3, kAscendQuant,
            [](In x, In scale, OptionalIn offset, bool sqrt_mode, Text round_mode, int32_t dst_type, int32_t axis,
               Out y) { ascend_quant(x, scale, offset, sqrt_mode, round_mode, dst_type, axis, y); });

// An int32 output holds an int32 for each value, not packed int4.
ACLNN_TYPED(Quantize,
            "x, scales: float32 float16 bfloat16; zero_points: int32 int8 uint8 float32 bfloat16; "
            "out: int8 uint8 int32",
            [](In x, In scales, OptionalIn zero_points, at::ScalarType dtype, int32_t axis, Out out) {
              check_range("the number of dimensions of x", x.dim(), 1, 8);
              check_rank("scales", scales, 1);
              TORCH_CHECK(dtype == out.scalar_type(), "dtype is ", dtype, "; expected ", out.scalar_type(), ", as out");
              check_shape("out", out, x.sizes());
              const int64_t used = scales.numel() == 1 ? 0 : axis;
              const RowsIn divisors(along("scales", scales, x, used), x.sizes());
              std::optional<RowsIn> zeros;
              if (zero_points.has_value()) {
                check_shape("zero_points", *zero_points, scales.sizes());
                zeros.emplace(along("zero_points", *zero_points, x, used), x.sizes());
              }
              const at::Tensor x_rows = as_rows(x);
              const RowsOut rows(out);
              in_blocks(x_rows.size(0), x_rows.size(1), [&](int64_t begin, int64_t count) {
                at::Tensor part = x_rows.narrow(0, begin, count).to(at::kFloat) / divisors.part(begin, count);
                if (zeros.has_value()) part += zeros->part(begin, count);
                rows.part(begin, count).copy_(saturated(part, dtype));
              });
              rows.stored();
            });

ACLNN_TYPED(AscendAntiQuant,
            "x: int8 int32 float8_e5m2 float8_e4m3fn; scale: float32 bfloat16; offset: as scale; "
            "y: float16 bfloat16",
            [](In x, In scale, OptionalIn offset, int64_t dst_type, bool sqrt_mode, Out y) {
              check_dst_type(dst_type, "y", y);
              const bool is_packed = x.scalar_type() == at::kInt;
              TORCH_CHECK(!is_packed || x.dim() > 0, "x has no dimension; expected one that holds packed int4");
              auto shape = x.sizes().vec();
              if (is_packed) shape.back() *= 8;
              check_shape("y", y, shape);
              check_rank("scale", scale, 1);
              TORCH_CHECK(scale.numel() == 1 || (!shape.empty() && scale.numel() == shape.back()), "scale has shape ",
                          scale.sizes(), "; expected [1] or the last dimension of y, ", y.sizes());
              if (offset.has_value()) check_shape("offset", *offset, scale.sizes());
              const at::Tensor wide = scale.to(at::kFloat), x_rows = as_rows(x);
              const at::Tensor factor = sqrt_mode ? wide * wide : wide;
              const RowsOut rows(y);
              in_blocks(x_rows.size(0), x_rows.size(1) * (is_packed ? 8 : 1), [&](int64_t begin, int64_t count) {
                const at::Tensor part = x_rows.narrow(0, begin, count);
                rows.part(begin, count).copy_(dequantized(is_packed ? unpacked_int4(part) : part, factor, offset));
              });
              rows.stored();
            });

// An int32 bias is added before the scales, another one after them.
ACLNN_TYPED(DequantBias,
            "x: int32; weight_scale: float32 bfloat16; activate_scale: float32; "
            "bias: float32 float16 bfloat16 int32; out: float16 bfloat16",
            [](In x, In weight_scale, OptionalIn activate_scale, OptionalIn bias, int64_t output_dtype, Out out) {
              check_rank("x", x, 2);
              check_shape("out", out, x.sizes());
              check_shape("weight_scale", weight_scale, {x.size(1)});
              if (activate_scale.has_value()) check_shape("activate_scale", *activate_scale, {x.size(0)});
              if (bias.has_value()) check_shape("bias", *bias, {x.size(1)});
              const auto dtype = acl_dtype(out.scalar_type());
              TORCH_CHECK(output_dtype == dtype, "output_dtype is ", output_dtype, "; expected ",
                          static_cast<int>(dtype), ", as out is ", dtype_name(dtype));
              const bool is_first = bias.has_value() && bias->scalar_type() == at::kInt;
              const RowsOut rows(out);
              in_blocks(x.size(0), x.size(1), [&](int64_t begin, int64_t count) {
                at::Tensor part = x.narrow(0, begin, count);
                if (is_first) part = part + *bias;
                part = part.to(at::kFloat) * weight_scale.to(at::kFloat);
                if (activate_scale.has_value()) part *= activate_scale->narrow(0, begin, count).unsqueeze(1);
                if (bias.has_value() && !is_first) part += bias->to(at::kFloat);
                rows.part(begin, count).copy_(part);
              });
              rows.stored();
            });

namespace {

// The ends of groups of rows: they do not decrease, and the last is the number of rows.
void check_group_ends(const char* name, In ends, int64_t rows) {
  check_values(name, ends, 0, rows);
  const at::Tensor list = ends.to(at::kLong).contiguous();
  const auto* end = list.const_data_ptr<int64_t>();
  for (int64_t i = 1; i < list.numel(); ++i) {
    TORCH_CHECK(end[i] >= end[i - 1], name, "[", i, "] is ", end[i], "; expected at least ", end[i - 1],
                ", the end of the group before");
  }
  TORCH_CHECK(list.numel() > 0 && end[list.numel() - 1] == rows, name, " ends at ",
              list.numel() > 0 ? end[list.numel() - 1] : 0, "; expected ", rows, ", the number of rows");
}

// A quantisation whose scales are found in x.
struct DynamicQuantization {
  In x;
  OptionalIn smooth_scales, group_index;
  int64_t dst_type;
  bool is_symmetrical;
  Text quant_mode;
  float dst_type_max;
  Out y, scale;
  OptionalOut offset;

  bool by_token() const { return quant_mode == "pertoken" || quant_mode.empty(); }
  bool by_channel() const { return quant_mode == "perchannel"; }

  void check() const {
    check_range("the number of dimensions of x", x.dim(), 2, 8);
    check_dst_type(dst_type, "y_out", y);
    check_quantized_shape("y_out", y, x.sizes());
    TORCH_CHECK(by_token() || by_channel() || quant_mode == "pertensor", "quant_mode is '", quant_mode,
                "'; expected pertoken, pertensor or perchannel");
    TORCH_CHECK(dst_type_max == 0, "dst_type_max is ", dst_type_max, "; expected 0, since y_out is not hifloat8");
    TORCH_CHECK(is_symmetrical != offset.has_value(), "offset_out is ", offset.has_value() ? "given" : "null",
                "; expected ", is_symmetrical ? "null, since the quantisation is symmetric" : "a tensor");
    auto shape = x.sizes().vec();
    shape.erase(shape.end() - (by_channel() ? 2 : 1));
    if (quant_mode == "pertensor") shape = {1};
    check_shape("scale_out", scale, shape);
    if (offset.has_value()) check_shape("offset_out", *offset, shape);
    if (group_index.has_value()) {
      TORCH_CHECK(by_token(), "group_index is given; expected null, since quant_mode is '", quant_mode, "'");
      TORCH_CHECK(smooth_scales.has_value(), "smooth_scales is null; expected a tensor, since group_index is given");
      check_rank("group_index", *group_index, 1);
      check_range("the size of group_index", group_index->size(0), 1, 1024);
      check_shape("smooth_scales", *smooth_scales, {group_index->size(0), x.size(-1)});
    } else if (smooth_scales.has_value()) {
      check_shape("smooth_scales", *smooth_scales, {x.size(by_channel() ? -2 : -1)});
    }
  }

  void run() {
    if (x.numel() == 0) return scale.zero_(), void(offset.has_value() ? offset->zero_() : scale);
    const at::Tensor rows = as_rows(x);
    std::optional<at::Tensor> group;
    if (group_index.has_value()) {
      check_group_ends("group_index", *group_index, rows.size(0));
      group = group_of_rows(*group_index, rows.size(0));
    }
    if (!by_token()) return run_over_rows(rows);
    const RowsOut out(y);
    const at::Tensor scales = at::empty({rows.size(0)}, scale.options()), offsets = at::empty_like(scales);
    in_blocks(rows.size(0), rows.size(1), [&](int64_t begin, int64_t count) {
      at::Tensor part = rows.narrow(0, begin, count).to(at::kFloat);
      if (group.has_value()) {
        part = part * smooth_scales->to(at::kFloat).index_select(0, group->narrow(0, begin, count));
      } else if (smooth_scales.has_value()) {
        part = part * smooth_scales->to(at::kFloat);
      }
      const Dynamic result = dynamically_quantized(part, quantized_dtype(y), is_symmetrical);
      assign_quantized(out.part(begin, count), result.values);
      scales.narrow(0, begin, count).copy_(result.scale);
      if (!is_symmetrical) offsets.narrow(0, begin, count).copy_(result.offset);
    });
    out.stored();
    scale.copy_(scales.view(scale.sizes()));
    if (offset.has_value()) offset->copy_(offsets.view(offset->sizes()));
  }

  // One scale for all rows, or for the columns of each matrix.
  void run_over_rows(const at::Tensor& rows) {
    const int64_t height = by_channel() ? x.size(-2) : rows.size(0), columns = rows.size(1);
    const auto [lowest, highest] = range_of(quantized_dtype(y));
    const RowsOut out(y);
    const at::Tensor scales = at::empty({rows.size(0) / height, by_channel() ? columns : 1}, scale.options());
    const at::Tensor offsets = at::empty_like(scales);
    for (int64_t i = 0; i < scales.size(0); ++i) {
      const auto smoothed = [&](int64_t begin, int64_t count) {
        at::Tensor part = rows.narrow(0, i * height + begin, count).to(at::kFloat);
        if (!smooth_scales.has_value()) return part;
        const at::Tensor smooth = smooth_scales->to(at::kFloat);
        return by_channel() ? part * smooth.narrow(0, begin, count).unsqueeze(1) : part * smooth;
      };
      at::Tensor least, greatest;
      in_blocks(height, columns, [&](int64_t begin, int64_t count) {
        const at::Tensor part = smoothed(begin, count);
        const auto [low, high] = by_channel() ? at::aminmax(part, 0) : at::aminmax(part);
        least = least.defined() ? at::minimum(least, low) : low;
        greatest = greatest.defined() ? at::maximum(greatest, high) : high;
      });
      const at::Tensor found = is_symmetrical ? at::maximum(least.abs(), greatest.abs()) / at::Scalar(highest)
                                              : (greatest - least) / at::Scalar(highest - lowest);
      const at::Tensor divisor = found.masked_fill(found.eq(0), 1);
      scales.select(0, i).copy_(found.reshape({-1}));
      if (!is_symmetrical) offsets.select(0, i).copy_((at::Scalar(highest) - greatest / divisor).reshape({-1}));
      in_blocks(height, columns, [&](int64_t begin, int64_t count) {
        at::Tensor part = smoothed(begin, count) / divisor;
        if (!is_symmetrical) part += offsets.select(0, i);
        assign_quantized(out.part(i * height + begin, count), saturated(part, quantized_dtype(y)));
      });
    }
    out.stored();
    scale.copy_(scales.view(scale.sizes()));
    if (offset.has_value()) offset->copy_(offsets.view(offset->sizes()));
  }
};

constexpr const char* kDynamicQuant =
    "x: float16 bfloat16; smooth_scales: as x; y_out: int8 int32 float8_e5m2 float8_e4m3fn; scale_out: float32";
constexpr const char* kGroupedDynamicQuant =
    "x: float16 bfloat16; smooth_scales: as x; group_index: int32; y_out: int8 int32 float8_e5m2 float8_e4m3fn; "
    "scale_out, offset_out: float32";

const std::optional<at::Tensor> kNothing;
const std::string kByToken;

}  // namespace

ACLNN_TYPED_CHECKED(DynamicQuant, kDynamicQuant,
                    [](Phase phase, In x, OptionalIn smooth_scales, Out y_out, Out scale_out) {
                      std::optional<at::Tensor> none;
                      check_or_run(phase,
                                   DynamicQuantization(x, smooth_scales, kNothing, acl_dtype(y_out.scalar_type()), true,
                                                       kByToken, 0, y_out, scale_out, none));
                    });
ACLNN_TYPED_CHECKED(DynamicQuantV2, kGroupedDynamicQuant,
                    [](Phase phase, In x, OptionalIn smooth_scales, OptionalIn group_index, int64_t dst_type, Out y_out,
                       Out scale_out, OptionalOut offset_out) {
                      check_or_run(phase,
                                   DynamicQuantization(x, smooth_scales, group_index, dst_type, !offset_out.has_value(),
                                                       kByToken, 0, y_out, scale_out, offset_out));
                    });
ACLNN_TYPED_CHECKED(DynamicQuantV3, kGroupedDynamicQuant,
                    [](Phase phase, In x, OptionalIn smooth_scales, OptionalIn group_index, int64_t dst_type,
                       bool is_symmetrical, Text quant_mode, Out y_out, Out scale_out, OptionalOut offset_out) {
                      check_or_run(phase, DynamicQuantization(x, smooth_scales, group_index, dst_type, is_symmetrical,
                                                              quant_mode, 0, y_out, scale_out, offset_out));
                    });
ACLNN_TYPED_CHECKED(DynamicQuantV4, kGroupedDynamicQuant,
                    [](Phase phase, In x, OptionalIn smooth_scales, OptionalIn group_index, int64_t dst_type,
                       bool is_symmetrical, Text quant_mode, float dst_type_max, Out y_out, Out scale_out,
                       OptionalOut offset_out) {
                      check_or_run(phase, DynamicQuantization(x, smooth_scales, group_index, dst_type, is_symmetrical,
                                                              quant_mode, dst_type_max, y_out, scale_out, offset_out));
                    });

// Each row times the scales of its group.
ACLNN_TYPED_CHECKED(GroupQuant,
                    "x, scale: float32 float16 bfloat16; group_index: int32 int64; offset: as scale; y: int8 int32",
                    [](Phase phase, In x, In scale, In group_index, OptionalIn offset, int32_t dst_type, Out y) {
                      check_rank("x", x, 2);
                      check_rank("group_index", group_index, 1);
                      TORCH_CHECK(group_index.size(0) > 0, "group_index is empty; expected a group");
                      check_shape("scale", scale, {group_index.size(0), x.size(1)});
                      TORCH_CHECK(!offset.has_value() || offset->numel() == 1, "offset has ", offset->numel(),
                                  " elements; expected 1");
                      check_dst_type(dst_type, "y", y);
                      check_quantized_shape("y", y, x.sizes());
                      if (phase == Phase::Check) return;
                      check_group_ends("group_index", group_index, x.size(0));
                      const at::Tensor groups = group_of_rows(group_index, x.size(0));
                      const RowsOut out(y);
                      in_blocks(x.size(0), x.size(1), [&](int64_t begin, int64_t count) {
                        const at::Tensor factors = scale.index_select(0, groups.narrow(0, begin, count));
                        assign_quantized(out.part(begin, count),
                                         quantized(x.narrow(0, begin, count), factors, offset, quantized_dtype(y)));
                      });
                      out.stored();
                    });

namespace {

// y = x * scale in 8 bits, amax = max(|x|).
void quantize_with_max(In x, In scale, Out y, Out amax) {
  assign(y, quantized(x, scale, std::nullopt, y.scalar_type()));
  amax.copy_(x.numel() == 0 ? at::zeros_like(amax) : x.abs().amax().reshape(amax.sizes()));
}

void check_quant_max(In x, Text round_mode, int64_t dst_type, Out y) {
  TORCH_CHECK(round_mode == "rint", "round_mode is '", round_mode, "'; expected rint, since y is a float8");
  check_dst_type(dst_type, "y", y);
  check_shape("y", y, x.sizes());
}

constexpr const char* kQuantMax =
    "x: float32 float16 bfloat16; scale: float32; y: float8_e5m2 float8_e4m3fn; amax: as x";
constexpr const char* kGroupedQuantMax =
    "x: float32 float16 bfloat16; scale: float32; group_list: int64; y: float8_e5m2 float8_e4m3fn; amax: as x";

}  // namespace

ACLNN_TYPED(QuantMax, kQuantMax, [](In x, In scale, Text round_mode, int64_t dst_type, Out y, Out amax) {
  check_range("the number of dimensions of x", x.dim(), 1, 8);
  check_quant_max(x, round_mode, dst_type, y);
  check_shape("scale", scale, {1});
  check_shape("amax", amax, {1});
  quantize_with_max(x, scale, y, amax);
});
ACLNN_TYPED_CHECKED(GroupedQuantMax, kGroupedQuantMax,
                    [](Phase phase, In x, In scale, In group_list, Text round_mode, int64_t dst_type, Out y, Out amax) {
                      check_range("the number of dimensions of x", x.dim(), 2, 8);
                      check_quant_max(x, round_mode, dst_type, y);
                      check_rank("group_list", group_list, 1);
                      check_range("the size of group_list", group_list.size(0), 1, 384);
                      check_shape("scale", scale, group_list.sizes());
                      check_shape("amax", amax, group_list.sizes());
                      if (phase == Phase::Check) return;
                      check_group_ends("group_list", group_list, x.size(0));
                      int64_t begin = 0;
                      for (int64_t i = 0; i < group_list.size(0); ++i) {
                        const int64_t end = group_list[i].item<int64_t>();
                        at::Tensor part = y.narrow(0, begin, end - begin), largest = amax.narrow(0, i, 1);
                        quantize_with_max(x.narrow(0, begin, end - begin), scale[i], part, largest);
                        begin = end;
                      }
                    });

namespace {

// The parameters of a quantised product in 64 bits: the upper 19 bits of the float scale in bits 13 to 31, an offset of
// 9 bits in bits 37 to 45, and bit 46.
void pack_parameters(In scale, OptionalIn offset, bool rounds, Out out) {
  check_range("the number of dimensions of scale", scale.dim(), 1, 2);
  TORCH_CHECK(scale.dim() == 1 || scale.size(0) == 1, "scale has shape ", scale.sizes(), "; expected 1 row");
  auto shape = scale.sizes().vec();
  if (offset.has_value()) {
    TORCH_CHECK(offset->dim() == scale.dim() && (scale.dim() == 1 || offset->size(0) == 1) &&
                    (offset->size(-1) == scale.size(-1) || offset->size(-1) == 1 || scale.size(-1) == 1),
                "offset has shape ", offset->sizes(), "; expected one that broadcasts with scale, ", scale.sizes());
    if (scale.dim() == 1)
      shape[0] = std::max(shape[0], offset->size(0));
    else
      check_shape("offset", *offset, {1, offset->size(1) == 1 ? 1 : scale.size(1)});
  }
  check_shape("out", out, shape);
  at::Tensor bits = scale.contiguous().view(at::kInt).to(at::kLong).bitwise_and(0xFFFFFFFF);
  if (rounds) bits = bits + 0xFFF + bits.bitwise_right_shift(13).bitwise_and(1);  // to the nearest, or the even one
  at::Tensor packed = bits.bitwise_and(0xFFFFE000).bitwise_or(int64_t{1} << 46);
  if (offset.has_value()) {
    const at::Tensor integers = at::round(*offset).clamp(-256, 255).to(at::kLong).bitwise_and(0x1FF);
    packed = packed.bitwise_or(integers.bitwise_left_shift(37));
  }
  assign(out.scalar_type() == at::kLong ? out : out.view(at::kLong), packed);
}

constexpr const char* kTransQuantParam = "scale, offset: float32; out: int64 uint64";

}  // namespace

ACLNN_TYPED(TransQuantParamV2, kTransQuantParam,
            [](In scale, OptionalIn offset, Out out) { pack_parameters(scale, offset, false, out); });
ACLNN_TYPED(TransQuantParamV3, kTransQuantParam, [](In scale, OptionalIn offset, int64_t round_mode, Out out) {
  check_range("round_mode", round_mode, 0, 1);
  pack_parameters(scale, offset, round_mode == 1, out);
});

namespace {

// Quantised and back: out = (clamped q - zero_point) * scale, mask where q was within its bounds.
void fake_quantize(In self, In scale, In zero_point, int64_t quant_min, int64_t quant_max, Out out, Out mask) {
  const bool is_integer = zero_point.scalar_type() == at::kInt;
  const at::Tensor wide = in_float(self) / in_float(scale), zero = zero_point.to(at::kFloat);
  const at::Tensor q = is_integer ? at::round(wide) + zero : at::round(wide + zero);
  assign(mask, q.ge(quant_min).logical_and(q.le(quant_max)));
  assign(out, (q.clamp(quant_min, quant_max) - zero) * in_float(scale));
}

void check_bounds(int64_t quant_min, int64_t quant_max) {
  TORCH_CHECK(quant_min <= quant_max, "quant_min is ", quant_min, "; expected at most quant_max, ", quant_max);
}

}  // namespace

ACLNN_TYPED(FakeQuantPerChannelAffineCachemask,
            "self, scale: float32 float16; zero_point: int32 float32 float16; out: as self; mask: bool",
            [](In self, In scale, In zero_point, int64_t axis, int64_t quant_min, int64_t quant_max, Out out,
               Out mask) {
              check_bounds(quant_min, quant_max);
              TORCH_CHECK(axis >= -self.dim() && axis < self.dim(), "axis is ", axis, "; expected ", -self.dim(),
                          " to ", self.dim() - 1);
              check_shape("scale", scale, {self.size(axis)});
              check_shape("zero_point", zero_point, {self.size(axis)});
              std::vector<int64_t> shape(self.dim(), 1);
              shape[axis < 0 ? axis + self.dim() : axis] = scale.numel();
              fake_quantize(self, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max, out, mask);
            });
ACLNN_TYPED(FakeQuantPerTensorAffineCachemask,
            "self, scale: float32 float16; zero_point: int32; out: as self; mask: bool",
            [](In self, In scale, In zero_point, float fake_quant_enabled, int64_t quant_min, int64_t quant_max,
               Out out, Out mask) {
              check_bounds(quant_min, quant_max);
              TORCH_CHECK(scale.numel() == 1, "scale has shape ", scale.sizes(), "; expected 1 element");
              TORCH_CHECK(zero_point.numel() == 1, "zero_point has shape ", zero_point.sizes(), "; expected 1 element");
              check_shape("out", out, self.sizes());
              check_shape("mask", mask, self.sizes());
              if (fake_quant_enabled < 1) return out.copy_(self), void(mask.fill_(true));
              fake_quantize(self, scale.reshape({}), zero_point.reshape({}), quant_min, quant_max, out, mask);
            });

namespace {

// Multiplies each matrix of x from both sides, and quantises the product to int4 with one scale for each matrix.
void flat_quantize(In x, In kronecker_p1, In kronecker_p2, double clip_ratio, Out out, Out quant_scale) {
  check_rank("x", x, 3);
  check_range("the size 0 of x", x.size(0), 1, 262144);
  check_range("the size 1 of x", x.size(1), 1, 256);
  check_range("the size 2 of x", x.size(2), 1, 256);
  check_shape("kronecker_p1", kronecker_p1, {x.size(1), x.size(1)});
  check_shape("kronecker_p2", kronecker_p2, {x.size(2), x.size(2)});
  TORCH_CHECK(clip_ratio > 0 && clip_ratio <= 1, "clip_ratio is ", clip_ratio, "; expected more than 0, at most 1");
  check_quantized_shape("out", out, x.sizes());
  check_shape("quant_scale", quant_scale, {x.size(0)});
  const int64_t size = x.size(1) * x.size(2);
  const at::Tensor left = kronecker_p1.to(at::kFloat), right = kronecker_p2.to(at::kFloat);
  in_blocks(x.size(0), size, [&](int64_t begin, int64_t count) {
    const at::Tensor product = at::matmul(left, at::matmul(x.narrow(0, begin, count).to(at::kFloat), right));
    const at::Tensor scale = product.abs().amax({1, 2}) / at::Scalar(7 / clip_ratio);
    const at::Tensor divisor = scale.masked_fill(scale.eq(0), 1).view({-1, 1, 1});
    assign_quantized(out.narrow(0, begin, count), saturated(product / divisor, kInt4));
    quant_scale.narrow(0, begin, count).copy_(scale);
  });
}

constexpr const char* kFlatQuant =
    "x: float16 bfloat16; kronecker_p1, kronecker_p2: as x; out: int32; quant_scale: float32";

}  // namespace

ACLNN_TYPED(FlatQuant, kFlatQuant,
            [](In x, In kronecker_p1, In kronecker_p2, double clip_ratio, Out out, Out quant_scale) {
              flat_quantize(x, kronecker_p1, kronecker_p2, clip_ratio, out, quant_scale);
            });
ACLNN_TYPED(FlatQuantV2, kFlatQuant,
            [](In x, In kronecker_p1, In kronecker_p2, double clip_ratio, double dst_type_max, Out out,
               Out quant_scale) {
              TORCH_CHECK(dst_type_max == 0, "dst_type_max is ", dst_type_max,
                          "; expected 0, since out is not float4_e2m1");
              flat_quantize(x, kronecker_p1, kronecker_p2, clip_ratio, out, quant_scale);
            });
