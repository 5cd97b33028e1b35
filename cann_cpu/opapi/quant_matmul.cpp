// SPDX-License-Identifier: Apache-2.0
// Products of quantised matrices: of two (QuantMatmul) and of a floating type by a quantised weight
// (WeightQuantBatchMatmul).
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/zeros.h>

#include "checks.h"
#include "combinations.h"
#include "quantization.h"
#include "scaled_product.h"

using namespace cann_cpu;

namespace {

constexpr int64_t kInt4OfWord = 8;

// torch_npu passes tensors without elements for some arguments that it leaves out.
std::optional<at::Tensor> unless_empty(OptionalIn tensor) {
  return tensor.has_value() && tensor->numel() > 0 ? tensor : std::nullopt;
}

// groupSize has 16 bits each for k, n and m.
struct GroupSizes {
  explicit GroupSizes(int64_t packed) : m(packed >> 32 & 0xffff), n(packed >> 16 & 0xffff), k(packed & 0xffff) {}
  int64_t m, n, k;
};

// "group_size is [1, 128, 32] (m, n, k); expected ..."
void check_groups(const GroupSizes& given, std::initializer_list<std::array<int64_t, 3>> expected) {
  std::string texts;
  for (const auto& sizes : expected) {
    if (std::array{given.m, given.n, given.k} == sizes) return;
    texts += (texts.empty() ? "[" : " or [") + std::to_string(sizes[0]) + ", " + std::to_string(sizes[1]) + ", " +
             std::to_string(sizes[2]) + "]";
  }
  TORCH_CHECK(false, "group_size is [", given.m, ", ", given.n, ", ", given.k, "] (m, n, k); expected ", texts);
}

// A scale or an offset for all columns or for each.
void check_columns(const char* name, OptionalIn tensor, int64_t n) {
  if (!tensor.has_value()) return;
  TORCH_CHECK(tensor->dim() == 1 && (tensor->size(0) == 1 || tensor->size(0) == n), name, " has shape ",
              tensor->sizes(), "; expected [1] or [", n, "]");
}

enum class QuantMode {
  kPlain,       // scales of rows and of columns
  kInt4Weight,  // int8 by int4: the weight's scales are of columns, or of 256 rows
  kInt4Groups,  // int4, with scales and offsets for each 256 rows of the weight
  kBlocks       // int8, with a scale for 128 elements of a row of x1 and for blocks of 128 x 128 of x2
};

// Batches of matrices x1 and x2, transposed as the flags say.
struct QuantMatmul {
  at::Tensor x1, x2;
  std::optional<at::Tensor> x1_scale, x2_scale, x2_offset, y_offset, bias;
  int64_t group_size = 0;
  at::Tensor (*activation)(In sums) = nullptr;

  void transpose(bool transpose_x1, bool transpose_x2) {
    if (transpose_x1) x1 = x1.mT();
    if (!transpose_x2) return;
    x2 = x2.mT();
    if (x2_scale.has_value() && x2_scale->dim() == 2 && mode() == QuantMode::kBlocks) x2_scale = x2_scale->t();
  }

  QuantMode mode() const {
    if (x1.scalar_type() == at::kChar && x2.scalar_type() == at::kInt) return QuantMode::kInt4Weight;
    if (x2_offset.has_value() && x2_offset->dim() == 2) return QuantMode::kInt4Groups;
    if (x1_scale.has_value() && x1_scale->dim() == 2 && x2_scale->dim() == 2) return QuantMode::kBlocks;
    return QuantMode::kPlain;
  }

  int64_t rows() const { return x1.size(-2); }
  int64_t depth() const { return x1.size(-1) * (x1.scalar_type() == at::kInt ? kInt4OfWord : 1); }
  int64_t columns() const {
    const bool along_columns = x2.scalar_type() == at::kInt && x2.size(-2) == depth();
    return x2.size(-1) * (along_columns ? kInt4OfWord : 1);
  }

  void check(In out) const {
    static constexpr const char* kRows[] = {
        // x1; x2; out; x2_scale; x1_scale; x2_offset; y_offset; bias
        "int8; int8; int8; int64 uint64; null; null float32; null; null int32",
        "int8; int8; float16; int64 uint64; null; null; null; null int32",
        "int8; int8; float16; float32; float32; null; null; null int32 float16 float32",
        "int8; int8; bfloat16; float32 bfloat16; null float32; null; null; null int32 bfloat16 float32",
        "int8; int8; int32; float32 bfloat16; null; null; null; null int32",
        "int8; int32; float16 bfloat16; int64 uint64; float32; null; float32; null",
        "int32; int32; float16; int64 uint64; null; null; null; null int32",
        "int32; int32; float16; float32; float32; null float16; null; null int32 float16 float32",
        "int32; int32; bfloat16; float32 bfloat16; null float32; null float16; null; null int32 bfloat16 float32",
    };
    const GivenDtype dtypes[] = {given("x1", x1),
                                 given("x2", x2),
                                 given("out", out),
                                 given("x2_scale", x2_scale),
                                 given("x1_scale", x1_scale),
                                 given("x2_offset", x2_offset),
                                 given("y_offset", y_offset),
                                 given("bias", bias)};
    check_combination(dtypes, kRows);
    check_shapes(out);
  }

  void check_shapes(In out) const {
    for (const auto& [name, tensor] : {std::pair("x1", &x1), std::pair("x2", &x2)}) {
      TORCH_CHECK(tensor->dim() >= 2 && tensor->dim() <= 6, name, " has ", tensor->dim(), " dimensions, shape ",
                  tensor->sizes(), "; expected 2 to 6");
    }
    const int64_t k = depth(), n = columns();
    const bool is_int4 = x2.scalar_type() == at::kInt;
    TORCH_CHECK(x2.size(-2) == k || (is_int4 && x2.size(-2) * kInt4OfWord == k), "x2 has shape ", x2.sizes(),
                "; expected ", k, " rows", is_int4 ? " of int4" : "", ", as x1 of shape ", x1.sizes(), " has columns");
    TORCH_CHECK(!is_int4 || x2.dim() == 2, "x2 is int4 and has shape ", x2.sizes(), "; expected 2 dimensions");
    const auto no_batch = [](In tensor) { return tensor.sizes().slice(0, tensor.dim() - 2); };
    auto expected = at::infer_size_dimvector(no_batch(x1), no_batch(x2));
    expected.append({rows(), n});
    check_shape("out", out, expected);
    if (bias.has_value()) {
      const bool is_batch = bias->dim() == 3 && out.dim() == 3 && !is_int4;
      TORCH_CHECK(
          is_batch ? bias->sizes() == at::IntArrayRef({out.size(0), 1, n}) : bias->sizes() == at::IntArrayRef({n}),
          "bias has shape ", bias->sizes(), "; expected [", n, "]",
          out.dim() == 3 ? c10::str(" or [", out.size(0), ", 1, ", n, "]") : "");
    }
    check_scales(k, n);
  }

  void check_scales(int64_t k, int64_t n) const {
    const GroupSizes groups(group_size);
    switch (mode()) {
      case QuantMode::kPlain:
        check_groups(groups, {{0, 0, 0}});
        check_columns("x2_scale", x2_scale, n);
        check_columns("x2_offset", x2_offset, n);
        if (x1_scale.has_value()) check_shape("x1_scale", *x1_scale, {rows()});
        return;
      case QuantMode::kInt4Weight:
        TORCH_CHECK(k % 2 == 0 && k < 29576, "x1 has shape ", x1.sizes(), "; expected an even k below 29576");
        check_row_scale();
        check_shape("y_offset", *y_offset, {n});
        if (x2_scale->dim() == 1) return check_columns("x2_scale", x2_scale, n);
        check_groups(groups, {{0, 0, 256}});
        TORCH_CHECK(k % 256 == 0, "x1 has shape ", x1.sizes(), "; expected a multiple of 256 for k");
        return check_shape("x2_scale", *x2_scale, {k / 256, n});
      case QuantMode::kInt4Groups:
        TORCH_CHECK(!bias.has_value(), "bias is not null; expected null, where x2_offset has 2 dimensions");
        check_groups(groups, {{0, 0, 256}, {1, 1, 256}});
        TORCH_CHECK(k % 1024 == 0 && n % 256 == 0, "x1 has shape ", x1.sizes(), " and x2 ", x2.sizes(),
                    "; expected multiples of 1024 for k and of 256 for n");
        check_row_scale();
        check_shape("x2_scale", *x2_scale, {k / 256, n});
        return check_shape("x2_offset", *x2_offset, {k / 256, n});
      case QuantMode::kBlocks:
        check_groups(groups, {{1, 128, 128}});
        TORCH_CHECK(k % 512 == 0 && n % 256 == 0, "x1 has shape ", x1.sizes(), " and x2 ", x2.sizes(),
                    "; expected multiples of 512 for k and of 256 for n");
        TORCH_CHECK(x1.dim() == 2 && x2.dim() == 2, "x1 has shape ", x1.sizes(), "; expected a matrix");
        check_shape("x1_scale", *x1_scale, {rows(), k / 128});
        return check_shape("x2_scale", *x2_scale, {k / 128, n / 128});
    }
  }

  void check_row_scale() const {
    const int64_t m = rows();
    TORCH_CHECK(x1_scale.has_value() && x1_scale->numel() == m && x1_scale->size(0) == m, "x1_scale has shape ",
                x1_scale.has_value() ? x1_scale->sizes() : at::IntArrayRef(), "; expected [", m, "] or [", m, ", 1]");
  }

  void run(Out out) const {
    const bool is_one = x1.dim() > 2 && x2.dim() == 2 && !x1_scale.has_value() && x1.is_contiguous() &&
                        out.is_contiguous() && (!bias.has_value() || bias->dim() == 1);
    if (!is_one) return write_batch(x1, x2, bias, out);
    at::Tensor rows = out.view({-1, out.size(-1)});
    write_batch(x1.flatten(0, -2), x2, bias, rows);
  }

 private:
  void write_batch(In left, In right, OptionalIn of_batch, Out out) const {
    if (out.dim() == 2) return product(left, right, of_batch, out.scalar_type()).write(out);
    const int64_t rank = out.dim();
    const auto part = [&](In whole, int64_t i) {
      return whole.dim() < rank ? whole : whole.select(0, whole.size(0) == 1 ? 0 : i);
    };
    for (int64_t i = 0; i < out.size(0); ++i) {
      at::Tensor result = out.select(0, i);
      const bool is_divided = of_batch.has_value() && of_batch->dim() == 3;
      write_batch(part(left, i), part(right, i), is_divided ? std::optional(of_batch->select(0, i)[0]) : of_batch,
                  result);
    }
  }

  ScaledProduct product(In left, In right, OptionalIn of_matrix, at::ScalarType dtype) const {
    ScaledProduct p{.x = left, .weight = IntegerMatrix("x2", right, depth()), .activation = activation};
    const bool is_integer = of_matrix.has_value() && of_matrix->scalar_type() == at::kInt;
    (is_integer ? p.integer_bias : p.bias) = of_matrix;
    if (x1_scale.has_value() && mode() != QuantMode::kBlocks) p.row_scale = x1_scale->flatten();
    switch (mode()) {
      case QuantMode::kPlain:
        if (dtype == at::kInt) break;
        p.scale = float_scales(*x2_scale).unsqueeze(0);
        if (dtype == at::kChar) p.bias = x2_offset.has_value() ? x2_offset : packed_offsets(*x2_scale);
        break;
      case QuantMode::kInt4Weight:
        p.shift = kInt4OfWord;
        p.sum_bias = y_offset;
        p.scale = float_scales(*x2_scale);
        if (p.scale->dim() == 1) p.scale = p.scale->unsqueeze(0);
        p.group_size = x2_scale->dim() == 1 ? 0 : 256;
        break;
      case QuantMode::kInt4Groups:
        p.scale = x2_scale;
        p.weight_offset = x2_offset;
        p.group_size = 256;
        break;
      case QuantMode::kBlocks:
        p.scale = x2_scale->repeat_interleave(128, 1);
        p.group_row_scale = x1_scale;
        p.group_size = 128;
    }
    return p;
  }
};

}  // namespace

namespace {

QuantMatmul quant_matmul(In x1, In x2, OptionalIn x1_scale, In x2_scale, OptionalIn x2_offset, OptionalIn y_offset,
                         OptionalIn bias, bool transpose_x1, bool transpose_x2, int64_t group_size) {
  QuantMatmul product{x1, x2, x1_scale, x2_scale, unless_empty(x2_offset), unless_empty(y_offset), bias, group_size};
  product.transpose(transpose_x1, transpose_x2);
  return product;
}

}  // namespace

#define QUANT_MATMUL_DTYPES                                                                              \
  "x1, x2: int8 int32; x1_scale: float32; x2_scale: float32 bfloat16 int64 uint64; bias: int32 float32 " \
  "bfloat16 float16; out: int8 float16 bfloat16 int32"

#define QUANT_MATMUL(op)                                                                                               \
  ACLNN_TYPED_CHECKED(op, QUANT_MATMUL_DTYPES,                                                                         \
                      [](Phase phase, In x1, In x2, OptionalIn x1_scale, In x2_scale, Absent<"y_scale", OptionalIn>,   \
                         Absent<"x1_offset", OptionalIn>, OptionalIn x2_offset, OptionalIn y_offset, OptionalIn bias,  \
                         bool transpose_x1, bool transpose_x2, int64_t group_size, Out out) {                          \
                        check_or_run(phase,                                                                            \
                                     quant_matmul(x1, x2, x1_scale, x2_scale, x2_offset, y_offset, bias, transpose_x1, \
                                                  transpose_x2, group_size),                                           \
                                     out);                                                                             \
                      })
QUANT_MATMUL(QuantMatmulV5);
QUANT_MATMUL(QuantMatmulWeightNz);
ACLNN_TYPED_CHECKED(
    QuantMatmulV4,
    "x1, x2: int8 int32; scale: float32 bfloat16 int64 uint64; offset, pertoken_scale: float32; bias: int32 "
    "float32 bfloat16 float16; out: int8 float16 bfloat16 int32",
    [](Phase phase, In x1, In x2, In scale, OptionalIn offset, OptionalIn pertoken_scale, OptionalIn bias,
       bool transpose_x1, bool transpose_x2, Out out) {
      check_or_run(phase, quant_matmul(x1, x2, pertoken_scale, scale, offset, {}, bias, transpose_x1, transpose_x2, 0),
                   out);
    });
ACLNN_TYPED_CHECKED(
    QuantMatmulV3,
    "x1, x2: int8 int32; scale: float32 bfloat16 int64 uint64; offset: float32; bias: int32 bfloat16; out: int8 "
    "float16 bfloat16 int32",
    [](Phase phase, In x1, In x2, In scale, OptionalIn offset, OptionalIn bias, bool transpose_x1, bool transpose_x2,
       Out out) {
      check_or_run(phase, quant_matmul(x1, x2, {}, scale, offset, {}, bias, transpose_x1, transpose_x2, 0), out);
    });

namespace {

constexpr const char* kErf = "gelu_erf";
constexpr const char* kTanh = "gelu_tanh";

at::Tensor gelu_erf(In sums) { return at::gelu(sums); }
at::Tensor gelu_tanh(In sums) { return at::gelu(sums, "tanh"); }

// A product and its gelu.
struct FusedQuantMatmul {
  QuantMatmul product;
  const std::string type;

  void check(In out) const {
    TORCH_CHECK(type == kErf || type == kTanh, "fused_op_type is '", type, "'; expected gelu_erf or gelu_tanh");
    TORCH_CHECK(product.x1_scale.has_value(), "x1_scale is null; expected float32");
    product.check(out);
  }
  void run(Out out) const {
    QuantMatmul with_gelu = product;
    with_gelu.activation = type == kErf ? gelu_erf : gelu_tanh;
    with_gelu.run(out);
  }
};

}  // namespace

#define FUSED_QUANT_MATMUL(op)                                                                                      \
  ACLNN_TYPED_CHECKED(                                                                                              \
      op,                                                                                                           \
      "x1, x2: int8 int32; x1_scale: float32; x2_scale: float32 bfloat16; bias: int32 float32 bfloat16 "            \
      "float16; out: float16 bfloat16",                                                                             \
      [](Phase phase, In x1, In x2, In x1_scale, In x2_scale, Absent<"y_scale", OptionalIn>,                        \
         Absent<"x1_offset", OptionalIn>, Absent<"x2_offset", OptionalIn>, Absent<"y_offset", OptionalIn>,          \
         OptionalIn bias, Absent<"x3", OptionalIn>, Text fused_op_type, int64_t group_size, Out out) {              \
        check_or_run(                                                                                               \
            phase,                                                                                                  \
            FusedQuantMatmul(                                                                                       \
                {quant_matmul(x1, x2, x1_scale, x2_scale, {}, {}, bias, false, false, group_size), fused_op_type}), \
            out);                                                                                                   \
      })
FUSED_QUANT_MATMUL(FusedQuantMatmul);
FUSED_QUANT_MATMUL(FusedQuantMatmulWeightNz);

namespace {

// The sum of the products of a batch.
struct QuantMatmulReduceSum {
  In x1, x2, x1_scale, x2_scale;
  bool transpose_x1, transpose_x2;
  int64_t group_size;
  Ints dims;
  bool keep_dims;

  void check(In out) const {
    TORCH_CHECK(!transpose_x1, "transpose_x1 is true; expected false");
    TORCH_CHECK(!transpose_x2, "transpose_x2 is true; expected false");
    // torch_npu passes -1 for no groups.
    TORCH_CHECK(group_size == 0 || group_size == -1, "group_size is ", group_size, "; expected 0");
    // Only [0] is documented, and torch_npu's list has gone out of scope by now, so its number says nothing.
    TORCH_CHECK(dims.size() == 1, "dims has ", dims.size(), " numbers; expected 1");
    TORCH_CHECK(!keep_dims, "keep_dims is true; expected false");
    check_rank("x1", x1, 3);
    check_rank("x2", x2, 3);
    check_shape("x2", x2, {x1.size(0), x1.size(2), x2.size(2)});
    check_shape("x1_scale", x1_scale, {x1.size(0), x1.size(1)});
    check_shape("x2_scale", x2_scale, {x2.size(2)});
    check_shape("out", out, {x1.size(1), x2.size(2)});
  }

  void run(Out out) const {
    at::Tensor sums = at::zeros(out.sizes(), at::kFloat);
    for (int64_t i = 0; i < x1.size(0); ++i) {
      ScaledProduct{.x = x1[i],
                    .weight = IntegerMatrix("x2", x2[i], x1.size(2)),
                    .scale = x2_scale.to(at::kFloat).unsqueeze(0),
                    .row_scale = x1_scale[i],
                    .is_added = true}
          .write(sums);
    }
    out.copy_(sums);
  }
};

}  // namespace

ACLNN_TYPED_CHECKED(QuantMatmulReduceSumWeightNz, "x1, x2: int8; x1_scale: float32; x2_scale, out: bfloat16",
                    [](Phase phase, In x1, In x2, In x1_scale, In x2_scale, Absent<"y_scale", OptionalIn>,
                       Absent<"x1_offset", OptionalIn>, Absent<"x2_offset", OptionalIn>, Absent<"y_offset", OptionalIn>,
                       Absent<"bias", OptionalIn>, bool transpose_x1, bool transpose_x2, int64_t group_size, Ints dims,
                       bool keep_dims, Out out) {
                      check_or_run(phase,
                                   QuantMatmulReduceSum({x1, x2, x1_scale, x2_scale, transpose_x1, transpose_x2,
                                                         group_size, dims, keep_dims}),
                                   out);
                    });

namespace {

// A floating type by a quantised weight.
struct WeightQuantMatmul {
  In x, weight, scale;
  OptionalIn offset, y_scale, y_offset, bias;
  int64_t group_size;

  int64_t depth() const { return x.size(-1); }

  // Scales of all, of columns or of groups, as a row for each group.
  at::Tensor rows_of(In numbers) const {
    const at::Tensor wide = float_scales(numbers);
    return wide.dim() == 1 ? wide.unsqueeze(0) : wide;
  }

  void check(In out) const {
    static constexpr const char* kRows[] = {
        // x; weight; y; antiquant_scale; antiquant_offset; bias; quant_scale; quant_offset
        "float16; int8 int32; float16; float16; null float16; null float16; null; null",
        "float16; int8; float16; int64 uint64; null int32; null float16; null; null",
        "bfloat16; int8 int32; bfloat16; bfloat16; null bfloat16; null bfloat16 float32; null; null",
        "float16; int8 int32; int8; float16; null float16; null float16; int64 uint64; null float32",
        "bfloat16; int8 int32; int8; bfloat16; null bfloat16; null bfloat16 float32; int64 uint64; null float32",
    };
    const GivenDtype dtypes[] = {given("x", x),
                                 given("weight", weight),
                                 given("y", out),
                                 given("antiquant_scale", scale),
                                 given("antiquant_offset", offset),
                                 given("bias", bias),
                                 given("quant_scale", y_scale),
                                 given("quant_offset", y_offset)};
    check_combination(dtypes, kRows);
    check_rank("x", x, 2);
    const int64_t k = depth(), n = IntegerMatrix("weight", weight, k).columns();
    check_shape("y", out, {x.size(0), n});
    TORCH_CHECK(group_size == 0 || (group_size % 32 == 0 && group_size >= 32 && group_size < k),
                "antiquant_group_size is ", group_size, "; expected 0, or a multiple of 32 below ", k);
    check_scale("antiquant_scale", scale, k, n);
    if (offset.has_value()) check_shape("antiquant_offset", *offset, scale.sizes());
    for (const auto& [name, row] :
         {std::pair("quant_scale", &y_scale), std::pair("quant_offset", &y_offset), std::pair("bias", &bias)}) {
      TORCH_CHECK(!row->has_value() || is_row(**row, n), name, " has shape ", (*row)->sizes(), "; expected [", n,
                  "] or [1, ", n, "]");
    }
  }

  void run(Out out) const {
    const auto row = [](OptionalIn numbers) {
      return numbers.has_value() ? std::optional(float_scales(numbers->flatten())) : std::nullopt;
    };
    DequantizedProduct product{x, IntegerMatrix("weight", weight, depth()), group_size, rows_of(scale), {}, {}, {}, {}};
    if (offset.has_value()) product.offset = rows_of(*offset);
    product.bias = row(bias);
    product.y_scale = row(y_scale);
    product.y_offset = row(y_offset);
    if (y_scale.has_value() && !y_offset.has_value()) product.y_offset = packed_offsets(y_scale->flatten());
    product.write(out);
  }

 private:
  static bool is_row(In numbers, int64_t n) {
    return (numbers.dim() == 1 || (numbers.dim() == 2 && numbers.size(0) == 1)) &&
           (numbers.size(-1) == 1 || numbers.size(-1) == n);
  }

  void check_scale(const char* name, In numbers, int64_t k, int64_t n) const {
    if (group_size == 0) {
      TORCH_CHECK(is_row(numbers, n), name, " has shape ", numbers.sizes(), "; expected [1], [", n, "] or [1, ", n,
                  "]");
    } else {
      check_shape(name, numbers, {(k + group_size - 1) / group_size, n});
    }
  }
};

}  // namespace

#define WEIGHT_QUANT_DTYPES                                                                                       \
  "x: float16 bfloat16; weight: int8 int32; antiquant_scale: float16 bfloat16 int64 uint64; antiquant_offset: "   \
  "float16 bfloat16 int32; quant_scale: int64 uint64; quant_offset: float32; bias: float16 bfloat16 float32; y: " \
  "float16 bfloat16 int8"
#define WEIGHT_QUANT_PARAMETERS                                                                                      \
  In x, In weight, In antiquant_scale, OptionalIn antiquant_offset, OptionalIn quant_scale, OptionalIn quant_offset, \
      OptionalIn bias, int32_t antiquant_group_size
#define WEIGHT_QUANT_PRODUCT \
  WeightQuantMatmul(         \
      {x, weight, antiquant_scale, antiquant_offset, quant_scale, quant_offset, bias, antiquant_group_size})

ACLNN_TYPED_CHECKED(WeightQuantBatchMatmulV2, WEIGHT_QUANT_DTYPES,
                    [](Phase phase, WEIGHT_QUANT_PARAMETERS, Out y) { check_or_run(phase, WEIGHT_QUANT_PRODUCT, y); });
ACLNN_TYPED_CHECKED(WeightQuantBatchMatmulNz, WEIGHT_QUANT_DTYPES,
                    [](Phase phase, WEIGHT_QUANT_PARAMETERS, Out y) { check_or_run(phase, WEIGHT_QUANT_PRODUCT, y); });
ACLNN_TYPED_CHECKED(WeightQuantBatchMatmulV3, WEIGHT_QUANT_DTYPES,
                    [](Phase phase, WEIGHT_QUANT_PARAMETERS,
                       Ignored<int32_t> /*inner_precise: the CPU computes in float32*/,
                       Out y) { check_or_run(phase, WEIGHT_QUANT_PRODUCT, y); });
