// SPDX-License-Identifier: Apache-2.0
// Matrix products.
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addbmm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmv.h>
#include <ATen/ops/addr.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/tensor.h>
#include <c10/util/strides.h>

#include <numeric>

#include "product.h"
#include "table.h"

using namespace cann_cpu;

namespace {

// The dtype that matrices are multiplied in. Where oneDNN has no products of a half type, as without AVX-512, ATen's
// own loops take many times as long as converting to float and back.
at::ScalarType product_dtype(at::ScalarType dtype) {
  static const auto supported = [](const char* question) {
    const auto schema = c10::Dispatcher::singleton().findSchema({question, ""});
    return schema.has_value() && schema->typed<bool()>().call();
  };
  static const bool bfloat16 = supported("mkldnn::_is_mkldnn_bf16_supported");
  static const bool float16 = supported("mkldnn::_is_mkldnn_fp16_supported");
  const bool slow = (dtype == at::kBFloat16 && !bfloat16) || (dtype == at::kHalf && !float16);
  return slow ? at::kFloat : dtype;
}

at::Tensor in_product_dtype(const at::Tensor& tensor) { return tensor.to(product_dtype(tensor.scalar_type())); }

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
  const bool is_converted = product_dtype(second.scalar_type()) != second.scalar_type();
  if (!is_converted || first.dim() < 2 || second.dim() != 2 || second.numel() <= kElements || !out.is_contiguous()) {
    return product(out, factor(first), factor(second), 0);
  }
  const int64_t depth = second.size(0), columns = second.size(1), step = std::max<int64_t>(kElements / depth, 16);
  const at::Tensor rows = factor(first).reshape({-1, depth}), results = out.view({-1, columns});
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
  multiply(out, [&](Out sums) {
    multiply_by_columns(sums, first, second,
                        [](at::Tensor part, In rows, In columns, int64_t) { at::matmul_out(part, rows, columns); });
    if (bias.has_value()) sums.add_(*bias);
  });
}

ACLNN_CHECKED(
    Mm, [](In self, In mat2, Out, CubeMathType) { check_product(self, mat2, 2); },
    [](In self, In mat2, Out out, CubeMathType) { write_product(out, self, mat2, std::nullopt); });
ACLNN_CHECKED(
    BatchMatMul, [](In self, In mat2, Out, CubeMathType) { check_product(self, mat2, 3); },
    [](In self, In mat2, Out out, CubeMathType) {
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

ACLNN_CHECKED(
    Addmm, [](In, In mat1, In mat2, Scalar, Scalar, Out, CubeMathType) { check_product(mat1, mat2, 2); },
    [](In self, In mat1, In mat2, Scalar beta, Scalar alpha, Out out, CubeMathType) {
      add_matrix_product(out, self, mat1, mat2, beta, alpha);
    });
ACLNN_CHECKED(
    InplaceAddmm, [](Out, In mat1, In mat2, Scalar, Scalar, CubeMathType) { check_product(mat1, mat2, 2); },
    [](Out self, In mat1, In mat2, Scalar beta, Scalar alpha, CubeMathType) {
      add_matrix_product(self, self, mat1, mat2, beta, alpha);
    });
ACLNN_CHECKED(
    Baddbmm, [](In, In batch1, In batch2, Scalar, Scalar, Out, CubeMathType) { check_product(batch1, batch2, 3); },
    [](In self, In batch1, In batch2, Scalar beta, Scalar alpha, Out out, CubeMathType) {
      add_product<kBaddbmm>(out, self, batch1, batch2, beta, alpha);
    });
ACLNN_CHECKED(
    InplaceBaddbmm, [](Out, In batch1, In batch2, Scalar, Scalar, CubeMathType) { check_product(batch1, batch2, 3); },
    [](Out self, In batch1, In batch2, Scalar beta, Scalar alpha, CubeMathType) {
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

// Products of groups: of tensors that come as a list, or as one that is divided, by rows (M) or by what is summed (K).
namespace {

enum Division : int64_t { kNone = -1, kRows = 0, kSummed = 2 };

using GroupTensors = std::vector<at::Tensor>;  // a tensor for each group

// The sizes of the groups, of a list that holds where each ends, or their sizes.
std::vector<int64_t> group_sizes(const at::Tensor& list, int64_t list_type) {
  TORCH_CHECK(list_type == 0 || list_type == 1, "groupListType must be 0 (ends) or 1 (sizes), got ", list_type);
  const auto numbers = list.to(at::kLong).contiguous();
  std::vector<int64_t> sizes(numbers.const_data_ptr<int64_t>(), numbers.const_data_ptr<int64_t>() + numbers.numel());
  if (list_type == 0) std::adjacent_difference(sizes.begin(), sizes.end(), sizes.begin());
  return sizes;
}

GroupTensors divided(const at::Tensor& whole, int64_t dim, const std::vector<int64_t>& sizes) {
  GroupTensors parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    TORCH_CHECK(size >= 0 && size <= whole.size(dim) - begin, "groupList has a group of ", size, " from ", begin,
                "; dimension ", dim, " of shape ", whole.sizes(), " is what it divides");
    parts.push_back(whole.narrow(dim, begin, size));
    begin += size;
  }
  return parts;
}

// One tensor for all groups is a dimension more in front; nothing is given where there are no tensors.
GroupTensors of_each(const char* name, const std::vector<at::Tensor>& given, int64_t rank, size_t groups) {
  if (given.empty()) return {};
  GroupTensors each = given.size() == 1 && given[0].dim() == rank + 1 ? given[0].unbind(0) : given;
  TORCH_CHECK(each.size() == groups, name, " has ", each.size(), " tensors, there are ", groups, " groups");
  return each;
}
GroupTensors of_each(const char* name, OptionalTensors given, int64_t rank, size_t groups) {
  return given.has_value() ? of_each(name, *given, rank, groups) : GroupTensors();
}

struct GroupedProduct {
  GroupTensors x, weight, bias, scale, token_scale, weight_scale, weight_offset, out;

  GroupedProduct(Tensors given_x, Tensors given_weight, OutTensors given_out, const std::vector<int64_t>& sizes,
                 int64_t division) {
    TORCH_CHECK(!given_x.empty() && !given_weight.empty() && !given_out.empty(), "x, weight or y is empty");
    TORCH_CHECK(division == kNone || division == kRows || division == kSummed,
                "groupType must be -1 (none), 0 (rows) or 2 (what is summed), got ", division);
    const bool one = given_x.size() == 1 && !sizes.empty();
    x = one ? divided(given_x[0], division == kSummed ? 1 : 0, sizes) : given_x;
    if (one && division == kSummed && given_weight.size() == 1) {
      weight = divided(given_weight[0], 0, sizes);
    } else {
      weight = of_each("weight", given_weight, 2, x.size());
    }
    if (given_out.size() == 1 && division == kSummed) {
      out = given_out[0].unbind(0);
    } else if (given_out.size() == 1 && x.size() > 1) {
      std::vector<int64_t> rows;
      for (const at::Tensor& part : x) rows.push_back(part.size(0));
      out = divided(given_out[0], 0, rows);
    } else {
      out = given_out;
    }
    TORCH_CHECK(out.size() == x.size(), "y has ", out.size(), " tensors, there are ", x.size(), " groups");
  }

  void run() {
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i].scalar_type() == at::kChar) {
        quantized(i);
      } else {
        write_product(out[i], x[i], dequantized(weight[i], i), bias.empty() ? std::nullopt : std::optional(bias[i]));
      }
    }
  }

 private:
  // The values of an int8 weight that is multiplied by a half type.
  at::Tensor dequantized(const at::Tensor& of, size_t i) const {
    if (of.scalar_type() != at::kChar) return of;
    TORCH_CHECK(!weight_scale.empty(), "weight is int8 and x ", x[i].scalar_type(),
                ", so antiquantScale must be given");
    const auto value = of.to(x[i].scalar_type());
    return (weight_offset.empty() ? value : value + weight_offset[i]) * weight_scale[i];
  }

  // Exact sums, scaled by column and by row.
  void quantized(size_t i) {
    TORCH_CHECK(weight[i].scalar_type() == at::kChar, "x is int8, so weight must be int8, got ",
                weight[i].scalar_type());
    auto sums = at::matmul(x[i].to(at::kInt), weight[i].to(at::kInt));
    if (!bias.empty()) sums = sums + bias[i];
    if (!scale.empty()) {
      TORCH_CHECK(at::isFloatingType(scale[i].scalar_type()), "scale must be float32 or bfloat16, got ",
                  scale[i].scalar_type());
      sums = sums.to(at::kFloat) * in_float(scale[i]);
    }
    if (!token_scale.empty()) sums = sums * in_float(token_scale[i]).unsqueeze(1);
    assign(out[i], sums);
  }
};

}  // namespace

ACLNN(GroupedMatmul, [](Tensors x, Tensors weight, OptionalTensors bias, OptionalTensors scale,
                        Absent<"offset", OptionalTensors>, OptionalTensors weight_scale, OptionalTensors weight_offset,
                        OptionalInts group_ends, int64_t split_item, OutTensors out) {
  TORCH_CHECK(0 <= split_item && split_item <= 3, "splitItem must be 0 to 3, got ", split_item);
  std::vector<int64_t> sizes;
  if (group_ends.has_value() && !group_ends->empty()) sizes = group_sizes(at::tensor(*group_ends), 0);
  GroupedProduct product(x, weight, out, sizes, sizes.empty() && split_item < 2 ? kNone : kRows);
  product.bias = of_each("bias", bias, 1, product.x.size());
  product.scale = of_each("scale", scale, 1, product.x.size());
  product.weight_scale = of_each("antiquantScale", weight_scale, 1, product.x.size());
  product.weight_offset = of_each("antiquantOffset", weight_offset, 1, product.x.size());
  product.run();
});
ACLNN_OF_VALUES(GroupedMatmulV4,
                [](Tensors x, Tensors weight, OptionalTensors bias, OptionalTensors scale,
                   Absent<"offset", OptionalTensors>, OptionalTensors weight_scale, OptionalTensors weight_offset,
                   OptionalTensors token_scale, OptionalIn group_list, Absent<"activationInput", OptionalTensors>,
                   Absent<"activationQuantScale", OptionalTensors>, Absent<"activationQuantOffset", OptionalTensors>,
                   int64_t split_item, int64_t group_type, int64_t group_list_type, int64_t activation, OutTensors out,
                   Absent<"activationFeatureOut", OptionalTensors>, Absent<"dynQuantScaleOut", OptionalTensors>) {
                  TORCH_CHECK(0 <= split_item && split_item <= 3, "splitItem must be 0 to 3, got ", split_item);
                  TORCH_CHECK(activation == 0, "actType ", activation, " is not implemented; expected 0 (none)");
                  std::vector<int64_t> sizes;
                  if (group_list.has_value() && group_list->numel() > 0)
                    sizes = group_sizes(*group_list, group_list_type);
                  GroupedProduct product(x, weight, out, sizes, group_type);
                  const size_t groups = product.x.size();
                  product.bias = of_each("bias", bias, 1, groups);
                  product.scale = of_each("scale", scale, 1, groups);
                  product.weight_scale = of_each("antiquantScale", weight_scale, 1, groups);
                  product.weight_offset = of_each("antiquantOffset", weight_offset, 1, groups);
                  if (token_scale.has_value() && !token_scale->empty()) {
                    product.token_scale = token_scale->size() == 1 && !sizes.empty()
                                              ? divided((*token_scale)[0], 0, sizes)
                                              : of_each("perTokenScale", token_scale, 1, groups);
                  }
                  product.run();
                });
// Each group's product of what it divides, added to its part of the result.
ACLNN_OF_VALUES(GroupedMatmulAdd, [](In x, In weight, In group_list, Out result, bool transpose_x,
                                     bool transpose_weight, int64_t group_type) {
  TORCH_CHECK(transpose_x && !transpose_weight && group_type == kSummed,
              "expected transposeX true, transposeWeight false and groupType 2, got ", transpose_x, ", ",
              transpose_weight, " and ", group_type);
  const auto sizes = group_sizes(group_list, 0);
  const auto xs = divided(x, 0, sizes), weights = divided(weight, 0, sizes);
  const std::vector<int64_t> each{static_cast<int64_t>(sizes.size()), x.size(1), weight.size(1)};
  TORCH_CHECK(result.numel() == c10::multiply_integers(each), "y has shape ", result.sizes(), "; groups of ", each,
              " are expected");
  const auto results = result.view(each).unbind(0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    results[i].add_(at::matmul(factor(in_float(xs[i]).t()), factor(in_float(weights[i]))));
  }
});
