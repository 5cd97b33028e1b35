// SPDX-License-Identifier: Apache-2.0
// Matrix products.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addbmm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmv.h>
#include <ATen/ops/addr.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <c10/util/strides.h>

#include "checks.h"
#include "product.h"
#include "quantization.h"
#include "scaled_product.h"

using namespace cann_cpu;

bool cann_cpu::multiplies_halves(at::ScalarType dtype) {
  static const auto supported = [](const char* question) {
    const auto schema = c10::Dispatcher::singleton().findSchema({question, ""});
    return schema.has_value() && schema->typed<bool()>().call();
  };
  static const bool bfloat16 = supported("mkldnn::_is_mkldnn_bf16_supported");
  static const bool float16 = supported("mkldnn::_is_mkldnn_fp16_supported");
  return (dtype == at::kBFloat16 && bfloat16) || (dtype == at::kHalf && float16);
}

namespace {

// The dtype that matrices are multiplied in. Where oneDNN has no products of a half type, as without AVX-512, ATen's
// own loops take many times as long as converting to float and back.
at::ScalarType product_dtype(at::ScalarType dtype) {
  const bool is_half = dtype == at::kBFloat16 || dtype == at::kHalf;
  return is_half && !multiplies_halves(dtype) ? at::kFloat : dtype;
}

at::Tensor in_product_dtype(const at::Tensor& tensor) { return tensor.to(product_dtype(tensor.scalar_type())); }

// A half type in the dtype of a product's sums.
at::Tensor in_dtype_of(const at::Tensor& sums, const at::Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(sums.scalar_type()) : tensor;
}

// A small factor, row by row. The libraries below ATen add in another order where a factor of a small product is
// transposed in memory, and what a graph has saved for its backward pass does not lie as it does eagerly. The factors
// of large products they pack first; a copy of those would cost time and change no bits, but for products of a few rows
// or columns, where the order of a large factor is left as it is.
at::Tensor factor(const at::Tensor& tensor) {
  constexpr int64_t kSmall = 1 << 16;
  const at::Tensor matrix = in_product_dtype(tensor);
  if (matrix.numel() > kSmall) return matrix;
  // ATen also considers the strides of dimensions of size 1.
  return matrix.contiguous().as_strided(matrix.sizes(), c10::contiguous_strides(matrix.sizes()));
}

void check_product(const at::Tensor& self, const at::Tensor& other, int64_t rank) {
  TORCH_CHECK(self.dim() == rank && other.dim() == rank, "expected two tensors of rank ", rank, ", got shapes ",
              self.sizes(), " and ", other.sizes());
  TORCH_CHECK(self.size(-1) == other.size(-2), "the columns of ", self.sizes(), " do not match the rows of ",
              other.sizes());
  TORCH_CHECK(rank == 2 || self.size(0) == other.size(0), "the batch sizes of ", self.sizes(), " and ", other.sizes(),
              " differ");
}

// Has products written to out, or to a tensor of their dtype that is rounded to out.
template <class Write>
void multiply(Out out, Write write) {
  const auto dtype = product_dtype(out.scalar_type());
  if (dtype == out.scalar_type()) return write(out);
  at::Tensor sums = at::empty(out.sizes(), out.options().dtype(dtype));
  write(sums);
  out.copy_(sums);
}

// Calls product(out, first, second, column) for the product of two matrices, or of a batch and a matrix. Where a large
// second one has to be converted, it calls it for one range of columns after the other, which begins at `column`:
// memory for all of the matrix, new in each call, takes longer than to multiply a few rows.
template <class Product>
void multiply_by_columns(Out out, In first, In second, Product product) {
  constexpr int64_t kElements = 1 << 20;  // stay in the cache
  const bool is_converted =
      at::isReducedFloatingType(second.scalar_type()) && out.scalar_type() != second.scalar_type();
  if (!is_converted || first.dim() < 2 || second.dim() != 2 || second.numel() <= kElements || !out.is_contiguous()) {
    return product(out, factor(in_dtype_of(out, first)), factor(in_dtype_of(out, second)), 0);
  }
  const int64_t depth = second.size(0), columns = second.size(1), step = std::max<int64_t>(kElements / depth, 16);
  const at::Tensor rows = factor(in_dtype_of(out, first)).reshape({-1, depth}), results = out.view({-1, columns});
  const at::Tensor memory = at::empty({depth * step}, rows.options());
  for (int64_t column = 0; column < columns; column += step) {
    const int64_t width = std::min(step, columns - column);
    const at::Tensor converted = memory.narrow(0, 0, depth * width).view({depth, width});
    converted.copy_(second.narrow(1, column, width));
    product(results.narrow(1, column, width), rows, converted, column);
  }
}

}  // namespace

void cann_cpu::write_product(Out out, In first, In second, OptionalIn bias) {
  const auto write = [&](Out sums) {
    multiply_by_columns(sums, first, second,
                        [](at::Tensor part, In rows, In columns, int64_t) { at::matmul_out(part, rows, columns); });
    if (bias.has_value()) sums.add_(*bias);
  };
  if (!bias.has_value() || !at::isReducedFloatingType(out.scalar_type())) return multiply(out, write);
  at::Tensor sums = at::empty(out.sizes(), out.options().dtype(at::kFloat));
  write(sums);
  out.copy_(sums);
}

ACLNN(Mm, [](Phase phase, In self, In mat2, Out out, CubeMathType) {
  check_product(self, mat2, 2);
  if (phase == Phase::Check) return;
  write_product(out, self, mat2, std::nullopt);
});
ACLNN(BatchMatMul, [](Phase phase, In self, In mat2, Out out, CubeMathType) {
  check_product(self, mat2, 3);
  if (phase == Phase::Check) return;
  multiply(out, [&](Out sums) { at::bmm_out(sums, factor(self), factor(mat2)); });
});
ACLNN(Matmul, [](In self, In mat2, Out out, CubeMathType) { write_product(out, self, mat2, std::nullopt); });
ACLNN(Mv, [](In self, In vec, Out out, CubeMathType) {
  multiply(out, [&](Out sums) { at::mv_out(sums, factor(self), in_product_dtype(vec)); });
});

namespace {

// out = beta * self + alpha * (first x second), where out may be self.
template <auto sum>
void add_product(Out out, In self, In first, In second, Scalar beta, Scalar alpha) {
  multiply(out, [&](Out sums) { sum(sums, in_product_dtype(self), factor(first), factor(second), beta, alpha); });
}

// The same of two matrices.
void add_matrix_product(Out out, In self, In first, In second, Scalar beta, Scalar alpha) {
  multiply(out, [&](Out sums) {
    const at::Tensor addend = in_product_dtype(self).expand(sums.sizes());
    multiply_by_columns(sums, first, second, [&](at::Tensor part, In rows, In columns, int64_t column) {
      at::addmm_out(part, addend.narrow(1, column, columns.size(1)), rows, columns, beta, alpha);
    });
  });
}

using AddProduct = at::Tensor& (*)(Out, In, In, In, Scalar, Scalar);
constexpr AddProduct kBaddbmm = at::baddbmm_out, kAddbmm = at::addbmm_out, kAddmv = at::addmv_out;

}  // namespace

ACLNN(Addmm, [](Phase phase, In self, In mat1, In mat2, Scalar beta, Scalar alpha, Out out, CubeMathType) {
  check_product(mat1, mat2, 2);
  if (phase == Phase::Check) return;
  add_matrix_product(out, self, mat1, mat2, beta, alpha);
});
ACLNN(InplaceAddmm, [](Phase phase, Out self, In mat1, In mat2, Scalar beta, Scalar alpha, CubeMathType) {
  check_product(mat1, mat2, 2);
  if (phase == Phase::Check) return;
  add_matrix_product(self, self, mat1, mat2, beta, alpha);
});
ACLNN(Baddbmm, [](Phase phase, In self, In batch1, In batch2, Scalar beta, Scalar alpha, Out out, CubeMathType) {
  check_product(batch1, batch2, 3);
  if (phase == Phase::Check) return;
  add_product<kBaddbmm>(out, self, batch1, batch2, beta, alpha);
});
ACLNN(InplaceBaddbmm, [](Phase phase, Out self, In batch1, In batch2, Scalar beta, Scalar alpha, CubeMathType) {
  check_product(batch1, batch2, 3);
  if (phase == Phase::Check) return;
  add_product<kBaddbmm>(self, self, batch1, batch2, beta, alpha);
});
ACLNN(Addbmm, [](In self, In batch1, In batch2, Scalar beta, Scalar alpha, Out out, CubeMathType) {
  add_product<kAddbmm>(out, self, batch1, batch2, beta, alpha);
});
ACLNN(Addmv, [](In self, In mat, In vec, Scalar alpha, Scalar beta, Out out, CubeMathType) {
  add_product<kAddmv>(out, self, mat, vec, beta, alpha);
});

ACLNN(Dot, [](In self, In other, Out out) { at::dot_out(out, self, other); });
ACLNN(Addr, [](In self, In vec1, In vec2, Scalar beta, Scalar alpha, Out out) {
  at::addr_out(out, self, vec1, vec2, beta, alpha);
});
ACLNN(InplaceAddr, [](Out self, In vec1, In vec2, Scalar beta, Scalar alpha) { self.addr_(vec1, vec2, beta, alpha); });

// Weights in FRACTAL_NZ come as copies in ND.
ACLNN_TYPED_CHECKED(MatmulWeightNz, "self: float16 bfloat16 float32; mat2, out: as self",
                    [](Phase phase, In self, In mat2, Out out, CubeMathType) {
                      TORCH_CHECK(self.dim() >= 1 && mat2.dim() == 2, "self has shape ", self.sizes(), " and mat2 ",
                                  mat2.sizes(), "; expected a matrix mat2");
                      TORCH_CHECK(self.size(-1) == mat2.size(0), "mat2 has shape ", mat2.sizes(), "; expected ",
                                  self.size(-1), " rows");
                      if (phase == Phase::Check) return;
                      write_product(out, self, mat2, std::nullopt);
                    });
ACLNN_TYPED_CHECKED(BatchMatMulWeightNz, "self: float16 bfloat16; mat2, out: as self",
                    [](Phase phase, In self, In mat2, Out out, CubeMathType) {
                      check_product(self, mat2, 3);
                      if (phase == Phase::Check) return;
                      multiply(out, [&](Out sums) { at::bmm_out(sums, factor(self), factor(mat2)); });
                    });
ACLNN_TYPED_CHECKED(AddmmWeightNz, "self: float16 bfloat16 float32; mat1: float16 bfloat16; mat2, out: as mat1",
                    [](Phase phase, In self, In mat1, In mat2, Scalar beta, Scalar alpha, Out out, CubeMathType) {
                      check_product(mat1, mat2, 2);
                      if (phase == Phase::Check) return;
                      add_matrix_product(out, self, mat1, mat2, beta, alpha);
                    });

namespace {

// The products of a batch, whose results lie by rows: (m, batch, n), or divided by batches: (factor, m, batch / factor
// * n).
struct TransposedProduct {
  In x1, x2;
  OptionalIn scale;
  Ints perm_x1, perm_x2, perm_y;
  int32_t factor;

  void check(In out) const {
    check_rank("x1", x1, 3);
    check_rank("x2", x2, 3);
    check_one_of("perm_x1", perm_x1, {{0, 1, 2}, {1, 0, 2}});
    check_one_of("perm_x2", perm_x2, {{0, 1, 2}, {0, 2, 1}});
    check_one_of("perm_y", perm_y, {{1, 0, 2}});
    const at::Tensor left = x1.permute(perm_x1), right = x2.permute(perm_x2);
    const int64_t batch = left.size(0), rows = left.size(1), columns = right.size(2);
    TORCH_CHECK(right.size(0) == batch && right.size(1) == left.size(2), "x2 has shape ", x2.sizes(), " and perm_x2 ",
                perm_x2, "; expected ", batch, " matrices of ", left.size(2), " rows");
    TORCH_CHECK(factor >= 1 && batch % factor == 0, "batch_split_factor is ", factor, "; expected a divisor of ",
                batch);
    TORCH_CHECK(perm_x2 != Ints({0, 2, 1}) || (perm_x1 == Ints({1, 0, 2}) && factor == 1 && !scale.has_value()),
                "perm_x2 is [0, 2, 1]; expected [0, 1, 2], where perm_x1 is not [1, 0, 2], batch_split_factor is not 1 "
                "or there is a scale");
    if (scale.has_value()) {
      TORCH_CHECK(factor == 1, "batch_split_factor is ", factor, "; expected 1, where there is a scale");
      TORCH_CHECK(x1.scalar_type() == at::kHalf && out.scalar_type() == at::kChar,
                  "scale is not null; expected null, "
                  "where x1 is not float16 or out not int8");
      check_shape("scale", *scale, {batch * columns});
      return check_shape("out", out, {rows, 1, batch * columns});
    }
    TORCH_CHECK(out.scalar_type() == x1.scalar_type(), "out is not of the dtype of x1; expected so without a scale");
    if (factor == 1) return check_shape("out", out, {rows, batch, columns});
    check_shape("out", out, {factor, rows, batch / factor * columns});
  }

  void run(Out out) const {
    const at::Tensor left = x1.permute(perm_x1), right = x2.permute(perm_x2);
    const int64_t batch = left.size(0), columns = right.size(2), of_part = batch / factor;
    for (int64_t i = 0; i < batch; ++i) {
      // (m, n) of out
      at::Tensor part = scale.has_value() ? out.select(1, 0).narrow(1, i * columns, columns)
                        : factor == 1     ? out.select(1, i)
                                          : out[i / of_part].narrow(1, i % of_part * columns, columns);
      if (!scale.has_value()) {
        write_product(part, left[i], right[i], std::nullopt);
        continue;
      }
      at::Tensor sums = at::empty(part.sizes(), part.options().dtype(at::kFloat));
      write_product(sums, left[i], right[i], std::nullopt);
      const at::Tensor numbers = scale->narrow(0, i * columns, columns);
      part.copy_(quantized(sums, float_scales(numbers), packed_offsets(numbers), at::kChar));
    }
  }

 private:
  static void check_one_of(const char* name, Ints given, std::initializer_list<std::array<int64_t, 3>> expected) {
    std::string texts;
    for (const auto& each : expected) {
      if (given == Ints(each)) return;
      texts += (texts.empty() ? "" : " or ") + c10::str(Ints(each));
    }
    TORCH_CHECK(false, name, " is ", given, "; expected ", texts);
  }
};

}  // namespace

#define TRANSPOSED_PRODUCT(op)                                                                                      \
  ACLNN_TYPED_CHECKED(                                                                                              \
      op, "x1: float16 bfloat16 float32; x2: as x1; scale: int64 uint64; out: float16 bfloat16 float32 int8",       \
      [](Phase phase, In x1, In x2, Absent<"bias", OptionalIn>, OptionalIn scale, Ints perm_x1, Ints perm_x2,       \
         Ints perm_y, CubeMathType, int32_t batch_split_factor, Out out) {                                          \
        check_or_run(phase, TransposedProduct({x1, x2, scale, perm_x1, perm_x2, perm_y, batch_split_factor}), out); \
      })
TRANSPOSED_PRODUCT(TransposeBatchMatMul);
TRANSPOSED_PRODUCT(TransposeBatchMatMulWeightNz);

namespace {

// What a fused operation does with the sums, in float: relu, gelu or a sum or product with x3.
void apply_fused(const std::string& type, at::Tensor sums, OptionalIn x3) {
  if (type == "relu") sums.relu_();
  if (type == "gelu_erf") sums.copy_(at::gelu(sums));
  if (type == "gelu_tanh") sums.copy_(at::gelu(sums, "tanh"));
  if (type == "add") sums.add_(*x3);
  if (type == "mul") sums.mul_(*x3);
}

void check_fused(In x1, In x2, OptionalIn bias, OptionalIn x3, Text type, In y) {
  static constexpr const char* kTypes[] = {"", "16cast32", "add", "mul", "gelu_erf", "gelu_tanh", "relu"};
  TORCH_CHECK(std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes), "fused_op_type is '", type,
              "'; expected '', 16cast32, add, mul, gelu_erf, gelu_tanh or relu");
  const bool is_binary = type == "add" || type == "mul", is_gelu = type.rfind("gelu", 0) == 0;
  const int64_t most = is_gelu || type == "16cast32" ? 2 : is_binary ? 3 : 6;
  for (const auto& [name, tensor] : {std::pair("x1", &x1), std::pair("x2", &x2)}) {
    TORCH_CHECK(tensor->dim() >= 2 && tensor->dim() <= most, name, " has ", tensor->dim(), " dimensions, shape ",
                tensor->sizes(), "; expected 2 to ", most, " where fused_op_type is '", type, "'");
  }
  TORCH_CHECK(x2.size(-2) == x1.size(-1), "x2 has shape ", x2.sizes(), "; expected ", x1.size(-1), " rows");
  const auto batch = at::infer_size_dimvector(x1.sizes().slice(0, x1.dim() - 2), x2.sizes().slice(0, x2.dim() - 2));
  auto expected = batch;
  expected.append({x1.size(-2), x2.size(-1)});
  check_shape("y", y, expected);
  TORCH_CHECK(x3.has_value() == is_binary, "x3 is ", x3.has_value() ? "not " : "", "null; expected ",
              is_binary ? "a tensor" : "null", ", where fused_op_type is '", type, "'");
  if (is_binary) {
    TORCH_CHECK(x3->dim() >= 2 && at::is_expandable_to(x3->sizes(), y.sizes()) && x3->size(-1) == y.size(-1) &&
                    x3->size(-2) == y.size(-2),
                "x3 has shape ", x3->sizes(), "; expected the matrices of y, ", y.sizes());
  }
  TORCH_CHECK(!bias.has_value() || !is_gelu, "bias is not null; expected null, where fused_op_type is '", type, "'");
  TORCH_CHECK(!bias.has_value() || (bias->size(-1) == y.size(-1) && bias->numel() == y.size(-1)), "bias has shape ",
              bias.has_value() ? bias->sizes() : Ints(), "; expected [", y.size(-1), "]");
  const bool is_half = at::isReducedFloatingType(x1.scalar_type());
  TORCH_CHECK(is_half || !(is_gelu || type == "16cast32"),
              "x1 has dtype float32; expected float16 or bfloat16, where "
              "fused_op_type is '",
              type, "'");
  TORCH_CHECK(y.scalar_type() == (type == "16cast32" ? at::kFloat : x1.scalar_type()), "y has dtype ", y.scalar_type(),
              "; expected ", type == "16cast32" ? "float32" : "that of x1");
}

}  // namespace

ACLNN_TYPED_CHECKED(
    FusedMatmul,
    "x1: float16 bfloat16 float32; x2, x3: as x1; bias: float16 bfloat16 float32; y: float16 bfloat16 float32",
    [](Phase phase, In x1, In x2, OptionalIn bias, OptionalIn x3, Text fused_op_type, CubeMathType, Out y) {
      check_fused(x1, x2, bias, x3, fused_op_type, y);
      if (phase == Phase::Check) return;
      const bool is_plain = fused_op_type.empty() || fused_op_type == "16cast32";
      if (is_plain && y.scalar_type() == x1.scalar_type()) return write_product(y, x1, x2, bias);
      at::Tensor sums = y.scalar_type() == at::kFloat ? y : at::empty(y.sizes(), y.options().dtype(at::kFloat));
      write_product(sums, x1, x2, bias);
      apply_fused(fused_op_type, sums, x3);
      if (!sums.is_same(y)) y.copy_(sums);
    });

namespace {

// V-ABFT: the sums over 256 columns of a given product, weighted, against the product with the sums of b. Their
// difference is at most e_max times a bound that the means and deviations of a's and b's rows give.
constexpr int64_t kSegment = 256, kRowsInByte = 8;

int64_t segments_of(int64_t columns) { return (columns + kSegment - 1) / kSegment; }

// Means of the rows and what their variances are at most, (max - mean) * (mean - min).
std::pair<at::Tensor, at::Tensor> statistics(const at::Tensor& rows) {
  const auto mean = rows.mean(1);
  const auto [least, greatest] = at::aminmax(rows, 1);
  return {mean, (greatest - mean) * (mean - least)};
}

// Whether each of a block of rows is right, (rows, segments).
class AbftVerifier {
 public:
  AbftVerifier(const at::Tensor& b, const at::Tensor& weight, double e_max) : weight_(in_float(weight)), e_max_(e_max) {
    const int64_t segments = segments_of(b.size(1));
    sums_ = at::empty({b.size(0), segments}, at::kFloat);
    for (int64_t i = 0; i < segments; ++i) {
      const auto part = in_float(segment(b, i));
      const auto [mean, variance] = statistics(part);
      sums_.select(1, i).copy_(at::mv(part, segment_of_weight(i)));
      of_b_.push_back({static_cast<double>(part.size(1)), sum(mean.abs()), sum(mean * mean), sum(variance)});
    }
  }

  at::Tensor verdicts(const at::Tensor& a, const at::Tensor& c) const {
    const auto rows = in_float(a);
    const auto [mean, variance] = statistics(rows);
    const auto square = mean * mean, deviation = variance.sqrt();
    const auto expected = at::mm(rows, sums_);
    auto right = at::empty(expected.sizes(), at::kBool);
    for (int64_t i = 0; i < expected.size(1); ++i) {
      const auto& [count, means, squares, variances] = of_b_[static_cast<size_t>(i)];
      const auto linear = (square * (count * variances) + variance * (count * count * squares)).sqrt();
      const auto bound = mean.abs() * (count * means) + linear * 4 + deviation * (4 * std::sqrt(count * variances));
      const auto difference = at::mv(segment(c, i), segment_of_weight(i)) - expected.select(1, i);
      right.select(1, i).copy_(difference.abs() <= bound * e_max_);  // false for NaN
    }
    return right;
  }

 private:
  struct OfSegment {
    double count, means, squares, variances;  // sums over the rows of b
  };

  static double sum(const at::Tensor& values) { return values.sum(at::kDouble).item<double>(); }
  static at::Tensor segment(const at::Tensor& matrix, int64_t i) {
    return matrix.narrow(1, i * kSegment, std::min(kSegment, matrix.size(1) - i * kSegment));
  }
  at::Tensor segment_of_weight(int64_t i) const {
    return weight_.narrow(0, i * kSegment, std::min(kSegment, weight_.size(0) - i * kSegment));
  }

  at::Tensor weight_, sums_;
  double e_max_;
  std::vector<OfSegment> of_b_;
};

}  // namespace

ACLNN_TYPED_CHECKED(MatmulAbftVerify,
                    "a: float32 float16 bfloat16; b, checksum_weight: as a; c: float32; comp_row: uint8",
                    [](Phase phase, In a, In b, In c, In checksum_weight, double e_max, Out comp_row) {
                      check_rank("a", a, 2);
                      check_rank("b", b, 2);
                      TORCH_CHECK(a.numel() > 0 && b.numel() > 0, "a and b have shapes ", a.sizes(), " and ", b.sizes(),
                                  "; expected no empty matrix");
                      check_shape("b", b, {a.size(1), b.size(1)});
                      check_shape("c", c, {a.size(0), b.size(1)});
                      check_shape("checksum_weight", checksum_weight, {b.size(1)});
                      TORCH_CHECK(e_max >= 0, "e_max is ", e_max, "; expected at least 0");
                      check_shape("comp_row", comp_row,
                                  {(a.size(0) + kRowsInByte - 1) / kRowsInByte * segments_of(b.size(1))});
                      check_contiguous("a", a);
                      check_contiguous("b", b);
                      check_contiguous("c", c);
                      check_contiguous("checksum_weight", checksum_weight);
                      if (phase == Phase::Check) return;
                      constexpr int64_t kMost = 4 << 20;  // elements of a that are converted to float at a time
                      const AbftVerifier verifier(b, checksum_weight, e_max);
                      const int64_t rows = a.size(0), bytes = (rows + kRowsInByte - 1) / kRowsInByte;
                      auto packed =
                          at::empty({segments_of(b.size(1)), bytes}, at::kByte).fill_(255);  // no row is no error
                      for (int64_t first = 0, count; first < rows; first += count) {
                        count = std::min(rows - first, std::max<int64_t>(kMost / a.size(1), 1));
                        const auto right = verifier.verdicts(a.narrow(0, first, count), c.narrow(0, first, count));
                        const auto verdict = right.accessor<bool, 2>();
                        auto byte = packed.accessor<uint8_t, 2>();
                        for (int64_t row = 0; row < count; ++row) {
                          const int64_t place = first + row;
                          const auto bit = static_cast<uint8_t>(1 << (place % kRowsInByte));
                          for (int64_t i = 0; i < right.size(1); ++i) {
                            if (!verdict[row][i]) byte[i][place / kRowsInByte] &= static_cast<uint8_t>(~bit);
                          }
                        }
                      }
                      assign(comp_row, packed.flatten());
                    });
