// SPDX-License-Identifier: Apache-2.0
// Quantisation with a scale for each block of a matrix, or (MX) an exponent for each block of a dimension.
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/where.h>

#include "checks.h"
#include "hifloat8.h"
#include "product.h"
#include "quantization.h"

using namespace cann_cpu;

namespace {

constexpr int64_t kBlockQuantElements = 1 << 21;  // of a temporary

int64_t blocks_of(int64_t size, int64_t block) { return (size + block - 1) / block; }

void check_dst_type(int64_t dst_type, In y) {
  TORCH_CHECK(dst_type == static_cast<int64_t>(acl_dtype(y.scalar_type())), "dst_type is ", dst_type, "; expected ",
              static_cast<int64_t>(acl_dtype(y.scalar_type())), ", the dtype of y_out");
}

// A dimension in blocks: its size becomes (blocks, block), the last filled up with 0.
at::Tensor in_blocks_of(In x, int64_t dim, int64_t block) {
  const int64_t size = x.size(dim), missing = blocks_of(size, block) * block - size;
  std::vector<int64_t> padding(static_cast<size_t>(2 * (x.dim() - dim)), 0);
  padding.back() = missing;
  return (missing == 0 ? x : at::constant_pad_nd(x, padding)).unflatten(dim, {-1, block});
}

// A scale for rows x columns numbers: the greatest magnitude over the greatest number of y's dtype.
struct BlockQuant {
  In x;
  double min_scale;
  Text round_mode;
  int64_t dst_type, rows, columns;
  double greatest;  // 0: y's own
  In y, scale;

  void check() const {
    TORCH_CHECK(x.dim() == 2 || x.dim() == 3, "x has ", x.dim(), " dimensions, shape ", x.sizes(), "; expected 2 or 3");
    TORCH_CHECK(min_scale >= 0, "min_scale is ", min_scale, "; expected at least 0");
    const char* mode = y.scalar_type() == kHiFloat8 ? "round" : "rint";
    TORCH_CHECK(round_mode.empty() || round_mode == mode, "round_mode is '", round_mode, "'; expected ", mode);
    check_dst_type(dst_type, y);
    TORCH_CHECK(one_of(rows, {1, 64, 128, 256, 512}), "row_block_size is ", rows, "; expected 1, 64, 128, 256 or 512");
    TORCH_CHECK(one_of(columns, {1, 64, 128, 192, 256}), "col_block_size is ", columns,
                "; expected 1, 64, 128, 192 or 256");
    TORCH_CHECK(greatest == 0 || (y.scalar_type() == kHiFloat8 &&
                                  (greatest == 15 || greatest == 56 || greatest == 224 || greatest == kHiFloat8Max)),
                "dst_type_max is ", greatest, "; expected 0, or for hifloat8 15, 56, 224 or 32768");
    check_shape("y_out", y, x.sizes());
    auto expected = x.sizes().vec();
    expected[expected.size() - 2] = blocks_of(x.size(-2), rows);
    expected.back() = blocks_of(x.size(-1), columns);
    check_shape("scale_out", scale, expected);
  }

  void run() const {
    if (x.dim() == 2) return write_matrix(x, y, scale);
    for (int64_t i = 0; i < x.size(0); ++i) write_matrix(x[i], y[i], scale[i]);
  }

 private:
  static bool one_of(int64_t value, std::initializer_list<int64_t> all) {
    return std::find(all.begin(), all.end(), value) != all.end();
  }

  void write_matrix(const at::Tensor& from, const at::Tensor& to, const at::Tensor& scales) const {
    const float most = greatest > 0 ? greatest : range_of(to.scalar_type()).second;
    const int64_t step = std::max<int64_t>(kBlockQuantElements / std::max<int64_t>(from.size(1) * rows, 1), 1);
    by_steps(scales.size(0), step, [&](int64_t block, int64_t count) {
      const int64_t first = block * rows, height = std::min(count * rows, from.size(0) - first);
      const at::Tensor wide = from.narrow(0, first, height).to(at::kFloat);
      const at::Tensor greatest_of =
          at::amax(in_blocks_of(in_blocks_of(wide.abs(), 1, columns), 0, rows), {1, 3});  // (blocks, blocks)
      at::Tensor scale_of = greatest_of.div(most);
      if (min_scale > 0) scale_of = scale_of.clamp_max(at::Scalar(static_cast<float>(1 / min_scale)));
      scales.narrow(0, block, count).copy_(scale_of);
      const at::Tensor each = scale_of.repeat_interleave(rows, 0)
                                  .narrow(0, 0, height)
                                  .repeat_interleave(columns, 1)
                                  .narrow(1, 0, from.size(1));
      to.narrow(0, first, height).copy_(saturated(wide / each, to.scalar_type()));
    });
  }
};

constexpr int64_t kMxBlock = 32, kMostMxBlock = 1024, kExponentBits = 23, kExponentMask = 0xFF;

// The exponents of a dimension's blocks, in pairs: (.., pairs of blocks, .., 2).
std::vector<int64_t> shape_of_exponents(In x, int64_t axis, int64_t block) {
  auto shape = x.sizes().vec();
  shape[static_cast<size_t>(axis)] = (blocks_of(x.size(axis), block) + 1) / 2;
  shape.push_back(2);
  return shape;
}

struct MxQuant {
  In x;
  int64_t axis;
  Text round_mode;
  int64_t dst_type, block, algorithm;
  double dst_type_max, lowest_maximum;
  In y, scale;

  int64_t dim() const { return axis < 0 ? axis + x.dim() : axis; }

  void check() const {
    TORCH_CHECK(x.dim() >= 1 && x.dim() <= 7, "x has ", x.dim(), " dimensions; expected 1 to 7");
    check_range("axis", axis, -x.dim(), x.dim() - 1);
    TORCH_CHECK(round_mode.empty() || round_mode == "rint", "round_mode is '", round_mode,
                "'; expected rint, since y_out is a float8");
    check_dst_type(dst_type, y);
    TORCH_CHECK(block > 0 && block % kMxBlock == 0 && block <= kMostMxBlock, "blocksize is ", block,
                "; expected a multiple of ", kMxBlock, " up to ", kMostMxBlock);
    TORCH_CHECK(x.scalar_type() != at::kFloat || (block == kMxBlock && x.size(dim()) >= kMxBlock),
                "x is float32; expected a blocksize of 32, and at least 32 numbers along axis");
    TORCH_CHECK(algorithm == 0 || algorithm == 1, "scale_alg is ", algorithm,
                "; expected 0 or 1, since y_out is a float8");
    TORCH_CHECK(dst_type_max == 0, "dst_type_max is ", dst_type_max, "; expected 0, since y_out is a float8");
    TORCH_CHECK(lowest_maximum >= 0 && (lowest_maximum == 0 || algorithm == 1), "max_low_bound is ", lowest_maximum,
                "; expected 0, or with scale_alg 1 a positive number");
    check_shape("y_out", y, x.sizes());
    check_shape("mxscale_out", scale, shape_of_exponents(x, dim(), block));
  }

  void run() const {
    const at::Tensor from = x.movedim(dim(), -1), to = y.movedim(dim(), -1), exponents = scale.movedim(dim(), -2);
    if (from.dim() > 1) return by_leading(from, to, exponents);
    write_rows(from.unsqueeze(0), to.unsqueeze(0), exponents.unsqueeze(0));
  }

 private:
  // One row of the first dimensions after the other, several at a time.
  void by_leading(const at::Tensor& from, const at::Tensor& to, const at::Tensor& exponents) const {
    if (from.dim() > 2) {
      for (int64_t i = 0; i < from.size(0); ++i) by_leading(from[i], to[i], exponents[i]);
      return;
    }
    by_steps(from.size(0), std::max<int64_t>(kBlockQuantElements / std::max<int64_t>(from.size(1), 1), 1),
             [&](int64_t first, int64_t count) {
               write_rows(from.narrow(0, first, count), to.narrow(0, first, count), exponents.narrow(0, first, count));
             });
  }

  // The bits of the exponent of a block whose greatest magnitude is given.
  at::Tensor bits_of_exponents(const at::Tensor& maximum) const {
    const bool is_e5m2 = y.scalar_type() == at::kFloat8_e5m2;
    if (algorithm == 0) {
      const int64_t greatest_exponent = is_e5m2 ? 15 : 8;
      const at::Tensor bits = maximum.view(at::kInt).__rshift__(kExponentBits).bitwise_and(kExponentMask);
      const at::Tensor shared = bits.sub(at::Scalar(greatest_exponent)).clamp_min(0);
      return at::where(bits.eq(kExponentMask), bits, shared);
    }
    const at::Tensor wanted = lowest_maximum > 0 ? maximum.clamp_min(static_cast<float>(lowest_maximum)) : maximum;
    const at::Tensor bits = wanted.div(at::Scalar(range_of(y.scalar_type()).second)).view(at::kInt);
    const at::Tensor exponent = bits.__rshift__(kExponentBits).bitwise_and(kExponentMask);
    const at::Tensor mantissa = bits.bitwise_and((1 << kExponentBits) - 1);
    const at::Tensor is_normal = exponent.gt(0);
    const at::Tensor is_up =
        is_normal.logical_and(exponent.lt(kExponentMask - 1))
            .logical_and(mantissa.gt(0))
            .logical_or(is_normal.logical_not().logical_and(mantissa.gt(1 << (kExponentBits - 1))));
    return exponent.add(is_up);
  }

  void write_rows(const at::Tensor& from, const at::Tensor& to, const at::Tensor& exponents) const {
    const at::Tensor wide = from.to(at::kFloat);
    const at::Tensor bits = bits_of_exponents(at::amax(in_blocks_of(wide.abs(), 1, block), {2}));
    const at::Tensor bytes = bits.to(at::kByte);
    const int64_t odd = exponents.size(1) * 2 - bytes.size(1);
    exponents.view(at::kByte).copy_((odd == 0 ? bytes : at::constant_pad_nd(bytes, {0, odd})).unflatten(1, {-1, 2}));
    const at::Tensor each =
        bytes.view(at::kFloat8_e8m0fnu).to(at::kFloat).repeat_interleave(block, 1).narrow(1, 0, wide.size(1));
    to.copy_(saturated(wide / each, to.scalar_type()));
  }
};

// The numbers of MxQuant again.
void write_from_mx(In x, In scale, int64_t axis, Out y) {
  const int64_t dim = axis < 0 ? axis + x.dim() : axis;
  const std::function<void(const at::Tensor&, const at::Tensor&, const at::Tensor&)> write =
      [&](const at::Tensor& from, const at::Tensor& exponents, const at::Tensor& to) {
        if (from.dim() > 2) {
          for (int64_t i = 0; i < from.size(0); ++i) write(from[i], exponents[i], to[i]);
          return;
        }
        const auto rows = [](const at::Tensor& tensor, int64_t dims) {
          return tensor.dim() < dims ? tensor.unsqueeze(0) : tensor;
        };
        const at::Tensor all = rows(from, 2), scales = rows(exponents, 3), results = rows(to, 2);
        by_steps(all.size(0), std::max<int64_t>(kBlockQuantElements / std::max<int64_t>(all.size(1), 1), 1),
                 [&](int64_t first, int64_t count) {
                   const at::Tensor each = scales.narrow(0, first, count)
                                               .flatten(1)
                                               .to(at::kFloat)
                                               .repeat_interleave(kMxBlock, 1)
                                               .narrow(1, 0, all.size(1));
                   results.narrow(0, first, count).copy_(all.narrow(0, first, count).to(at::kFloat) * each);
                 });
      };
  write(x.movedim(dim, -1), scale.movedim(dim, -2), y.movedim(dim, -1));
}

#define BLOCK_QUANT_DTYPES \
  "x: float16 bfloat16 float32; y_out: int8 float8_e5m2 float8_e4m3fn hifloat8; scale_out: float32"
#define MX_QUANT_DTYPES "x: float16 bfloat16 float32; y_out: float8_e5m2 float8_e4m3fn; mxscale_out: float8_e8m0fnu"

}  // namespace

ACLNN_TYPED_CHECKED(DynamicBlockQuant, BLOCK_QUANT_DTYPES,
                    [](Phase phase, In x, double min_scale, Text round_mode, int64_t dst_type, int64_t row_block_size,
                       int64_t col_block_size, Out y_out, Out scale_out) {
                      check_or_run(phase, BlockQuant({x, min_scale, round_mode, dst_type, row_block_size,
                                                      col_block_size, 0, y_out, scale_out}));
                    });
ACLNN_TYPED_CHECKED(DynamicBlockQuantV2, BLOCK_QUANT_DTYPES,
                    [](Phase phase, In x, double min_scale, Text round_mode, int64_t dst_type, int64_t row_block_size,
                       int64_t col_block_size, double dst_type_max, Out y_out, Out scale_out) {
                      check_or_run(phase, BlockQuant({x, min_scale, round_mode, dst_type, row_block_size,
                                                      col_block_size, dst_type_max, y_out, scale_out}));
                    });

ACLNN_TYPED_CHECKED(DynamicMxQuant, MX_QUANT_DTYPES,
                    [](Phase phase, In x, int64_t axis, Text round_mode, int64_t dst_type, int64_t blocksize,
                       int64_t scale_alg, Out y_out, Out mxscale_out) {
                      check_or_run(phase, MxQuant({x, axis, round_mode, dst_type, blocksize, scale_alg, 0, 0, y_out,
                                                   mxscale_out}));
                    });
ACLNN_TYPED_CHECKED(DynamicMxQuantV2, MX_QUANT_DTYPES,
                    [](Phase phase, In x, int64_t axis, Text round_mode, int64_t dst_type, int64_t blocksize,
                       int64_t scale_alg, double dst_type_max, Out y_out, Out mxscale_out) {
                      check_or_run(phase, MxQuant({x, axis, round_mode, dst_type, blocksize, scale_alg, dst_type_max, 0,
                                                   y_out, mxscale_out}));
                    });
ACLNN_TYPED_CHECKED(DynamicMxQuantV3, MX_QUANT_DTYPES,
                    [](Phase phase, In x, int64_t axis, Text round_mode, int64_t dst_type, int64_t blocksize,
                       int64_t scale_alg, double dst_type_max, double max_low_bound, Out y_out, Out mxscale_out) {
                      check_or_run(phase, MxQuant({x, axis, round_mode, dst_type, blocksize, scale_alg, dst_type_max,
                                                   max_low_bound, y_out, mxscale_out}));
                    });

ACLNN_TYPED_CHECKED(AntiMxQuant, "x: float8_e5m2 float8_e4m3fn; mxscale: float8_e8m0fnu; y: float32 float16 bfloat16",
                    [](Phase phase, In x, In mxscale, int64_t axis, int64_t dst_type, Out y) {
                      TORCH_CHECK(x.dim() >= 1 && x.dim() <= 7, "x has ", x.dim(), " dimensions; expected 1 to 7");
                      check_range("axis", axis, -x.dim(), x.dim() - 1);
                      TORCH_CHECK(dst_type == static_cast<int64_t>(acl_dtype(y.scalar_type())), "dst_type is ",
                                  dst_type, "; expected ", static_cast<int64_t>(acl_dtype(y.scalar_type())),
                                  ", the dtype of y");
                      check_shape("mxscale", mxscale,
                                  shape_of_exponents(x, axis < 0 ? axis + x.dim() : axis, kMxBlock));
                      check_shape("y", y, x.sizes());
                      if (phase == Phase::Check) return;
                      write_from_mx(x, mxscale, axis, y);
                    });
