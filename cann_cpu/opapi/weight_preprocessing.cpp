// SPDX-License-Identifier: Apache-2.0
// Weights in FLOAT4_E2M1, two in a byte, to the layout that the products of Ascend950 read.
#include "checks.h"
#include "table.h"

namespace cann_cpu {
namespace {

// Sizes and strides count elements.
struct Float4Tensor {
  std::vector<int64_t> shape, strides, storage_shape;
  aclFormat format;
  void* bytes;
};

template <bool is_written>
struct Float4Argument {
  using CType = const aclTensor*;
  using Bound = Float4Tensor;
  static StoredArgument store(CType argument, Operands& operands) {
    const aclTensor& tensor = detail::not_null(argument);
    if (tensor.dtype != ACL_FLOAT4_E2M1) {
      throw std::invalid_argument("has dtype " + dtype_name(tensor.dtype) + "; expected FLOAT4_E2M1");
    }
    if (tensor.offset != 0) throw std::invalid_argument("begins inside its storage; expected its start");
    aclTensor bytes = tensor;
    bytes.dtype = ACL_UINT8;
    bytes.format = ACL_FORMAT_ND;
    bytes.shape = bytes.storage_shape = {c10::multiply_integers(tensor.storage_shape) / 2};
    bytes.strides = {1};
    operands.add(bytes, is_written, operands.parameters.back().argument);
    operands.given.push_back(&tensor);
    return tensor;
  }
  static Bound bind(const StoredArgument& stored, AddressCursor& addresses) {
    const auto& tensor = detail::stored_as<aclTensor>(stored);
    return {tensor.shape, tensor.strides, tensor.storage_shape, tensor.format, addresses.take()};
  }
};

}  // namespace

template <>
struct Argument<const Float4Tensor&> : Float4Argument<false> {};
template <>
struct Argument<Float4Tensor&> : Float4Argument<true> {};

}  // namespace cann_cpu

using namespace cann_cpu;

namespace {

using Offset = Absent<"weight_offset", OptionalIn>;
using OutOffset = Absent<"out_weight_offset", OptionalOut>;

struct Float4Weight {
  const Float4Tensor& weight;
  In scale;
  OptionalIn bias;
  int64_t x_dtype, x_scale_dtype, group_size;

  int64_t groups() const { return weight.shape.size() == 3 ? weight.shape[0] : 1; }
  int64_t depth() const { return weight.shape[weight.shape.size() - 2]; }
  int64_t width() const { return weight.shape.back(); }
  std::vector<int64_t> in_batch(std::initializer_list<int64_t> sizes) const {
    std::vector<int64_t> all(weight.shape.begin(), weight.shape.end() - 2);
    all.insert(all.end(), sizes);
    return all;
  }
  std::vector<int64_t> blocks(int64_t columns) const {
    return in_batch({depth() / 32, (width() + 15) / 16, 16, columns});
  }

  void check(const Float4Tensor& out, In out_scale, OptionalOut& out_bias) const {
    TORCH_CHECK(x_dtype == ACL_FLOAT8_E4M3FN, "x_dtype is ", x_dtype, "; expected ", int{ACL_FLOAT8_E4M3FN},
                " (FLOAT8_E4M3FN)");
    TORCH_CHECK(x_scale_dtype == ACL_FLOAT8_E8M0, "x_scale_dtype is ", x_scale_dtype, "; expected ",
                int{ACL_FLOAT8_E8M0}, " (FLOAT8_E8M0)");
    check_range("k_group_size", group_size, 32, 32);
    const size_t rank = weight.shape.size();
    TORCH_CHECK(rank == 2 || rank == 3, "weight has ", rank, " dimensions; expected 2, or 3 with one for groups");
    TORCH_CHECK(depth() > 0 && depth() % 32 == 0 && width() > 0 && groups() > 0, "weight has shape ",
                at::IntArrayRef(weight.shape), "; expected [..., K, N] with K a multiple of 32");
    const auto strides =
        rank == 2 ? std::vector<int64_t>{1, depth()} : std::vector<int64_t>{depth() * width(), 1, depth()};
    TORCH_CHECK(weight.strides == strides, "weight has strides ", at::IntArrayRef(weight.strides), "; expected ",
                at::IntArrayRef(strides), ", those of a transposed tensor");
    TORCH_CHECK(out.shape == weight.shape, "out_weight has shape ", at::IntArrayRef(out.shape), "; expected ",
                at::IntArrayRef(weight.shape));
    TORCH_CHECK(out.format == ACL_FORMAT_FRACTAL_NZ_C0_32 && out.storage_shape == blocks(32),
                "out_weight is in format ", int{out.format}, " with storage ", at::IntArrayRef(out.storage_shape),
                "; expected ", int{ACL_FORMAT_FRACTAL_NZ_C0_32}, " (FRACTAL_NZ_C0_32) with ",
                at::IntArrayRef(blocks(32)));
    const auto scales = in_batch({(depth() + 63) / 64, width(), 2});
    check_shape("weight_scale", scale, scales);
    check_shape("out_weight_scale", out_scale, scales);
    TORCH_CHECK(bias.has_value() == out_bias.has_value(), "out_bias needs bias, and bias needs out_bias");
    if (bias.has_value()) check_shape("out_bias", *out_bias, bias->sizes());
  }

  void run(const Float4Tensor& out, Out out_scale, OptionalOut& out_bias) const {
    FractalNz(in_batch({width(), depth() / 2}), blocks(16), 1).to_blocks(weight.bytes, out.bytes);
    out_scale.copy_(scale);
    if (bias.has_value()) out_bias->copy_(*bias);
  }
};

}  // namespace

ACLNN_TYPED_CHECKED(WeightQuantPreprocess,
                    "weight_scale, out_weight_scale: float8_e8m0fnu; bias: float16 bfloat16; out_bias: as bias",
                    [](Phase phase, const Float4Tensor& weight, In weight_scale, Offset, OptionalIn bias,
                       int32_t x_dtype, int32_t x_scale_dtype, int64_t k_group_size, Float4Tensor& out_weight,
                       Out out_weight_scale, OutOffset, OptionalOut out_bias) {
                      check_or_run(phase,
                                   Float4Weight({weight, weight_scale, bias, x_dtype, x_scale_dtype, k_group_size}),
                                   out_weight, out_weight_scale, out_bias);
                    });
