// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit floats: with one scale for a tensor, a row or a column, or (MX) an exponent for 32 numbers of k.
#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>

#include "checks.h"
#include "hifloat8.h"
#include "product.h"
#include "quantization.h"

using namespace cann_cpu;

namespace {

constexpr int64_t kExponentNumbers = 32, kExponentPair = 2 * kExponentNumbers;
constexpr int64_t kFloat8Elements = 1 << 21;  // of a temporary

int64_t pairs_of(int64_t k) { return (k + kExponentPair - 1) / kExponentPair; }

// (rows, k), and the exponents of each row, (rows, pairs, 2).
struct Float8Matrix {
  at::Tensor numbers;
  std::optional<at::Tensor> exponents = std::nullopt;

  at::Tensor part(int64_t first, int64_t count) const {
    const at::Tensor wide = in_wide_float(numbers.narrow(0, first, count));
    if (!exponents.has_value()) return wide;
    const at::Tensor of_rows = exponents->narrow(0, first, count).to(at::kFloat).flatten(1);
    return wide * of_rows.repeat_interleave(kExponentNumbers, 1).narrow(1, 0, wide.size(1));
  }
};

// out = left x right^T, or out + it, in float; the sums are times row_scale and column_scale, (n) or (1).
void write_float8_product(const at::Tensor& out, const Float8Matrix& left, const Float8Matrix& right,
                          OptionalIn row_scale, OptionalIn column_scale, bool is_added) {
  const int64_t m = left.numbers.size(0), n = right.numbers.size(0), k = std::max<int64_t>(left.numbers.size(1), 1);
  const int64_t columns = std::clamp<int64_t>(kFloat8Elements / k, 1, 1024);
  const int64_t rows = std::max<int64_t>(kFloat8Elements / std::max(k, columns), 1);
  by_steps(n, columns, [&](int64_t column, int64_t width) {
    const at::Tensor of_columns = right.part(column, width).t();
    by_steps(m, rows, [&](int64_t row, int64_t height) {
      at::Tensor sums = at::mm(left.part(row, height), of_columns);
      if (column_scale.has_value()) {
        sums.mul_(column_scale->numel() == 1 ? *column_scale : column_scale->narrow(0, column, width));
      }
      if (row_scale.has_value()) sums.mul_(row_scale->narrow(0, row, height).unsqueeze(1));
      const at::Tensor result = out.narrow(0, row, height).narrow(1, column, width);
      if (is_added) {
        result.add_(sums);
      } else {
        result.copy_(out.scalar_type() == kHiFloat8 ? saturated(sums, kHiFloat8) : sums);
      }
    });
  });
}

bool are_exponents(In scale) { return scale.scalar_type() == at::kFloat8_e8m0fnu; }

// The sizes of groups in m, n and k, 16 bits each; 0 says that shapes tell it.
void check_group_size(int64_t group_size) {
  constexpr int64_t kBits = 16, kLowest = (1 << kBits) - 1;
  const int64_t m = group_size >> (2 * kBits) & kLowest, n = group_size >> kBits & kLowest, k = group_size & kLowest;
  TORCH_CHECK(m <= 1 && n <= 1 && (k == 0 || k == kExponentNumbers), "group_size is of ", m, ", ", n, ", ", k,
              " numbers of m, n, k; expected 0 or 1, 0 or 1, 0 or ", kExponentNumbers);
}

void check_formats(const char* first_name, In first, const char* second_name, In second, In scale,
                   const char* scale_name) {
  TORCH_CHECK((first.scalar_type() == kHiFloat8) == (second.scalar_type() == kHiFloat8), first_name, " and ",
              second_name, " have different formats; expected both or none to be hifloat8");
  TORCH_CHECK(are_exponents(scale) == (first.scalar_type() != kHiFloat8), scale_name, " has dtype ",
              are_exponents(scale) ? "float8_e8m0fnu" : "float32", "; expected ",
              are_exponents(scale) ? "float32, since " : "float8_e8m0fnu, since ", first_name, " is ",
              are_exponents(scale) ? "hifloat8" : "not hifloat8");
}

struct ProductToAdd {
  In x1, x2, x1_scale, x2_scale, y;
  bool transpose_x1, transpose_x2;
  int64_t group_size;

  // (m, k) and (n, k)
  at::Tensor left() const { return transpose_x1 ? x1.t() : x1; }
  at::Tensor right() const { return transpose_x2 ? x2 : x2.t(); }

  void check() const {
    check_rank("x1", x1, 2);
    check_rank("x2", x2, 2);
    const int64_t m = left().size(0), n = right().size(0), k = left().size(1), pairs = pairs_of(k);
    TORCH_CHECK(k > 0 && right().size(1) == k, "x1 has shape ", x1.sizes(), ", x2 ", x2.sizes(),
                "; expected the same k, at least 1");
    check_shape("y_ref", y, {m, n});
    check_formats("x1", x1, "x2", x2, x1_scale, "x1_scale");
    if (!are_exponents(x1_scale)) {
      TORCH_CHECK(group_size == 0, "group_size is ", group_size, "; expected 0, since x1 is hifloat8");
      check_shape("x1_scale", x1_scale, {1});
      check_shape("x2_scale", x2_scale, {1});
      return;
    }
    check_group_size(group_size);
    const auto shape = [&](int64_t rows, bool by_row) {
      return by_row ? std::vector<int64_t>{rows, pairs, 2} : std::vector<int64_t>{pairs, rows, 2};
    };
    check_shape("x1_scale", x1_scale, shape(m, !transpose_x1));
    check_shape("x2_scale", x2_scale, shape(n, transpose_x2));
  }

  void run() const {
    if (!are_exponents(x1_scale)) {
      const at::Tensor scale = x1_scale * x2_scale;
      return write_float8_product(y, {left()}, {right()}, std::nullopt, scale, /*is_added=*/true);
    }
    const auto by_row = [](In scale, bool is) { return is ? scale : scale.transpose(0, 1); };
    write_float8_product(y, {left(), by_row(x1_scale, !transpose_x1)}, {right(), by_row(x2_scale, transpose_x2)},
                         std::nullopt, std::nullopt, /*is_added=*/true);
  }
};

// One product for each group of adjoining k. torch_npu gives x1, and its exponents, as (m, k); CANN's documents as
// (k, m).
struct GroupedProductsToAdd {
  In x1, x2;
  OptionalIn scale1;
  In scale2, group_list, y;
  int64_t group_list_type, group_size;

  int64_t groups() const { return y.size(0); }
  int64_t k() const { return x2.size(0); }
  at::Tensor left() const { return x1.size(0) == y.size(1) ? x1 : x1.t(); }  // (m, k)
  // (rows, pairs, 2)
  at::Tensor exponents_of_left() const {
    return scale1->size(1) == y.size(1) && scale1->size(0) == scale2.size(0) ? scale1->transpose(0, 1) : *scale1;
  }

  void check() const {
    check_rank("x1", x1, 2);
    check_rank("x2", x2, 2);
    check_rank("y_ref", y, 3);
    const int64_t m = y.size(1), n = y.size(2), all = k();
    TORCH_CHECK(x1.sizes() == at::IntArrayRef({m, all}) || x1.sizes() == at::IntArrayRef({all, m}), "x1 has shape ",
                x1.sizes(), "; expected [", m, ", ", all, "] or [", all, ", ", m, "]");
    check_shape("x2", x2, {all, n});
    check_shape("group_list", group_list, {groups()});
    check_range("group_list_type", group_list_type, 0, 1);
    TORCH_CHECK(group_size == 0, "group_size is ", group_size, "; expected 0");
    check_formats("x1", x1, "x2", x2, scale2, "scale2");
    TORCH_CHECK(scale1.has_value(), "scale1 is null; expected a scale");
    TORCH_CHECK(are_exponents(*scale1) == are_exponents(scale2), "scale1 and scale2 differ in dtype");
    if (!are_exponents(scale2)) {
      check_shape("scale2", scale2, {groups(), n});
      if (scale1->dim() != 1) return check_shape("scale1", *scale1, {groups(), 1});
      return check_shape("scale1", *scale1, {groups()});
    }
    const int64_t pairs = all / kExponentPair + groups();
    check_shape("scale2", scale2, {pairs, n, 2});
    if (scale1->dim() == 3 && scale1->size(0) == m && scale1->size(1) == pairs && scale1->size(2) == 2) return;
    check_shape("scale1", *scale1, {pairs, m, 2});
  }

  void run() const {
    std::vector<int64_t> ends;
    const at::Tensor list = group_list.to(at::kLong).contiguous();
    for (int64_t i = 0, end = 0; i < groups(); ++i) {
      const int64_t given = list.const_data_ptr<int64_t>()[i], least = group_list_type == 0 ? end : 0;
      const int64_t most = group_list_type == 0 ? k() : k() - end;
      TORCH_CHECK(given >= least && given <= most, "group_list[", i, "] is ", given, "; expected ", least, " to ",
                  most);
      end = group_list_type == 0 ? given : end + given;
      ends.push_back(end);
    }
    int64_t begin = 0, group = 0;
    for (const int64_t end : ends) {
      const int64_t size = end - begin;
      if (size > 0) add_group(group, begin, size);
      begin = end;
      ++group;
    }
  }

 private:
  void add_group(int64_t group, int64_t begin, int64_t size) const {
    Float8Matrix a{left().narrow(1, begin, size)}, b{x2.narrow(0, begin, size).t()};
    const at::Tensor out = y[group];
    if (!are_exponents(scale2)) {
      const at::Tensor scale = scale2[group] * scale1->reshape({-1})[group];
      return write_float8_product(out, a, b, std::nullopt, scale, /*is_added=*/true);
    }
    const int64_t first = begin / kExponentPair + group, pairs = pairs_of(size);
    a.exponents = exponents_of_left().narrow(1, first, pairs);
    b.exponents = scale2.narrow(0, first, pairs).transpose(0, 1);
    write_float8_product(out, a, b, std::nullopt, std::nullopt, /*is_added=*/true);
  }
};

// x1 (m, b, k) and x2 (b, k, n) or (b, n, k): a product for each of b, into out (m, b, n).
struct TransposedProducts {
  In x1, x2;
  OptionalIn x1_scale;
  In x2_scale;
  int64_t group_size;
  Ints perm_x1, perm_x2, perm_y;
  int64_t batch_split_factor;
  bool takes_exponents_only;
  In out;

  bool is_by_column() const { return perm_x2 == Ints({0, 2, 1}); }
  int64_t m() const { return x1.size(0); }
  int64_t batch() const { return x1.size(1); }
  int64_t k() const { return x1.size(2); }
  int64_t n() const { return x2.size(is_by_column() ? 1 : 2); }
  bool is_hifloat8() const { return x1.scalar_type() == kHiFloat8; }

  void check() const {
    check_rank("x1", x1, 3);
    check_rank("x2", x2, 3);
    TORCH_CHECK(perm_x1 == Ints({1, 0, 2}), "perm_x1 is ", perm_x1, "; expected [1, 0, 2]");
    TORCH_CHECK(perm_y == Ints({1, 0, 2}), "perm_y is ", perm_y, "; expected [1, 0, 2]");
    TORCH_CHECK(is_by_column() || perm_x2 == Ints({0, 1, 2}), "perm_x2 is ", perm_x2,
                "; expected [0, 1, 2] or [0, 2, 1]");
    TORCH_CHECK(batch_split_factor == 1, "batch_split_factor is ", batch_split_factor, "; expected 1");
    check_shape("x2", x2, is_by_column() ? Ints({batch(), n(), k()}) : Ints({batch(), k(), n()}));
    check_shape("out", out, {m(), batch(), n()});
    TORCH_CHECK(is_hifloat8() == (x2.scalar_type() == kHiFloat8),
                "x1 and x2 have different formats; expected both or none to be hifloat8");
    TORCH_CHECK(out.scalar_type() != kHiFloat8 || is_hifloat8(),
                "out has dtype hifloat8; expected float16 or bfloat16, since x1 is not hifloat8");
    if (is_hifloat8()) return check_packed_scales();
    TORCH_CHECK(x1_scale.has_value(), "x1_scale is null; only hifloat8 takes none");
    if (are_exponents(x2_scale) || takes_exponents_only) return check_exponents();
    TORCH_CHECK(x2_scale.scalar_type() == at::kFloat && x1_scale->scalar_type() == at::kFloat,
                "x1_scale and x2_scale must be float32 or float8_e8m0fnu, since x1 is not hifloat8");
    constexpr int64_t kDepth = 512, kWidth = 128;
    TORCH_CHECK(k() == kDepth && n() == kWidth, "x1 has k ", k(), ", x2 n ", n(), "; expected ", kDepth, " and ",
                kWidth, " with scales of rows and columns");
    TORCH_CHECK(!is_by_column(), "perm_x2 is [0, 2, 1]; expected [0, 1, 2] with scales of rows and columns");
    check_shape("x1_scale", *x1_scale, {m()});
    check_shape("x2_scale", x2_scale, {n()});
  }

  void run() const {
    std::optional<at::Tensor> row_scale, column_scale;
    if (is_hifloat8()) {
      column_scale = float_scales(x2_scale);
      if (x1_scale.has_value()) column_scale = *column_scale * *x1_scale;
    } else if (!are_exponents(x2_scale)) {
      row_scale = *x1_scale;
      column_scale = x2_scale;
    }
    for (int64_t i = 0; i < batch(); ++i) {
      Float8Matrix a{x1.select(1, i)}, b{is_by_column() ? x2[i] : x2[i].t()};
      if (are_exponents(x2_scale)) {
        a.exponents = x1_scale->select(1, i);
        b.exponents = is_by_column() ? x2_scale[i] : x2_scale[i].transpose(0, 1);
      }
      write_float8_product(out.select(1, i), a, b, row_scale, column_scale, /*is_added=*/false);
    }
  }

 private:
  void check_packed_scales() const {
    TORCH_CHECK(x2_scale.scalar_type() == at::kLong || x2_scale.scalar_type() == at::kUInt64, "x2_scale has dtype ",
                x2_scale.scalar_type(), "; expected int64 or uint64, since x1 is hifloat8");
    check_shape("x2_scale", x2_scale, {n()});
    if (!x1_scale.has_value()) return;
    TORCH_CHECK(x1_scale->scalar_type() == at::kFloat, "x1_scale must be float32, since x1 is hifloat8");
    check_shape("x1_scale", *x1_scale, {1});
  }

  void check_exponents() const {
    TORCH_CHECK(are_exponents(x2_scale) && are_exponents(*x1_scale),
                "x1_scale and x2_scale must both be float8_e8m0fnu");
    TORCH_CHECK(x1.scalar_type() == at::kFloat8_e4m3fn && x2.scalar_type() == at::kFloat8_e4m3fn,
                "x1 and x2 must be float8_e4m3fn with scales in float8_e8m0fnu");
    TORCH_CHECK(k() % kExponentPair == 0, "x1 has k ", k(), "; expected a multiple of ", kExponentPair);
    check_group_size(group_size);
    const int64_t pairs = pairs_of(k());
    check_shape("x1_scale", *x1_scale, {m(), batch(), pairs, 2});
    check_shape("x2_scale", x2_scale, is_by_column() ? Ints({batch(), n(), pairs, 2}) : Ints({batch(), pairs, n(), 2}));
  }
};

using ProductBias = Absent<"bias", OptionalIn>;

#define FLOAT8_SCALES "float8_e8m0fnu float32"
}  // namespace

ACLNN_TYPED_CHECKED(QuantBatchMatmulInplaceAdd,
                    "x1, x2: float8_e4m3fn float8_e5m2 hifloat8; x1_scale: " FLOAT8_SCALES
                    "; x2_scale: as x1_scale; y_ref: float32",
                    [](Phase phase, In x1, In x2, In x1_scale, In x2_scale, Out y_ref, bool transpose_x1,
                       bool transpose_x2, int64_t group_size) {
                      check_or_run(phase, ProductToAdd({x1, x2, x1_scale, x2_scale, y_ref, transpose_x1, transpose_x2,
                                                        group_size}));
                    });

ACLNN_TYPED_CHECKED(QuantGroupedMatmulInplaceAdd,
                    "x1, x2: float8_e4m3fn float8_e5m2 hifloat8; scale1, scale2: " FLOAT8_SCALES
                    "; group_list: int64; y_ref: float32",
                    [](Phase phase, In x1, In x2, OptionalIn scale1, In scale2, In group_list, Out y_ref,
                       int64_t group_list_type, int64_t group_size) {
                      check_or_run(phase, GroupedProductsToAdd({x1, x2, scale1, scale2, group_list, y_ref,
                                                                group_list_type, group_size}));
                    });

ACLNN_TYPED_CHECKED(TransposeQuantBatchMatMul,
                    "x1, x2: float8_e4m3fn float8_e5m2 hifloat8; x1_scale: float32 float8_e8m0fnu; "
                    "x2_scale: float32 float8_e8m0fnu int64 uint64; out: float16 bfloat16 hifloat8",
                    [](Phase phase, In x1, In x2, ProductBias, OptionalIn x1_scale, In x2_scale, Dtype,
                       int64_t group_size, Ints perm_x1, Ints perm_x2, Ints perm_y, int32_t batch_split_factor,
                       Out out) {
                      check_or_run(phase,
                                   TransposedProducts({x1, x2, x1_scale, x2_scale, group_size, perm_x1, perm_x2, perm_y,
                                                       batch_split_factor, /*takes_exponents_only=*/false, out}));
                    });
ACLNN_TYPED_CHECKED(TransposeQuantBatchMatMulWeightNz,
                    "x1, x2: float8_e4m3fn; x1_scale, x2_scale: float8_e8m0fnu; out: float16 bfloat16",
                    [](Phase phase, In x1, In x2, ProductBias, OptionalIn x1_scale, In x2_scale, Dtype,
                       int64_t group_size, Ints perm_x1, Ints perm_x2, Ints perm_y, int32_t batch_split_factor,
                       Out out) {
                      check_or_run(phase,
                                   TransposedProducts({x1, x2, x1_scale, x2_scale, group_size, perm_x1, perm_x2, perm_y,
                                                       batch_split_factor, /*takes_exponents_only=*/true, out}));
                    });
