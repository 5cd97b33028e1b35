// SPDX-License-Identifier: Apache-2.0
// Copies across dtypes, strides and formats.
#include <algorithm>

#include "checks.h"
#include "table.h"

namespace cann_cpu {
namespace {

// An output in ND, or the blocks of an output in FRACTAL_NZ.
struct WrittenTensor : StoredTensor {};

}  // namespace

template <>
struct Argument<WrittenTensor&> {
  using CType = aclTensor*;
  using Bound = WrittenTensor;
  static StoredArgument store(CType argument, Operands& operands) {
    const aclTensor& tensor = detail::not_null(argument);
    if (tensor.format != ACL_FORMAT_FRACTAL_NZ) {
      return detail::store_tensor<detail::Direction::Output>(tensor, operands);
    }
    if (detail::is_empty(tensor)) {  // has no blocks, and strides of any kind
      aclTensor rows = tensor;
      rows.format = ACL_FORMAT_ND;
      StoredArgument stored = detail::store_tensor<detail::Direction::Output>(rows, operands);
      operands.given.back() = &tensor;
      return stored;
    }
    if (!is_whole(tensor)) throw std::invalid_argument("is a view of FRACTAL_NZ; expected all of it");
    return detail::store_tensor<detail::Direction::Input>(tensor, operands);
  }
  static Bound bind(const StoredArgument& stored, AddressCursor& addresses) {
    const auto& tensor = detail::stored_as<aclTensor>(stored);
    if (tensor.format != ACL_FORMAT_FRACTAL_NZ)
      return {{view_of(tensor, addresses.take()), ACL_FORMAT_ND, tensor.shape}};
    const auto options = at::TensorOptions().dtype(scalar_type(tensor.dtype));
    return {{at::from_blob(addresses.take(), tensor.storage_shape, options), tensor.format, tensor.shape}};
  }
};

}  // namespace cann_cpu

using namespace cann_cpu;

// torchair's reduce-overhead ends with copies onto itself of every input that the graph has written in place.
ACLNN(InplaceCopy, [](Out self, In source) {
  const bool onto_itself = self.const_data_ptr() == source.const_data_ptr() && self.dtype() == source.dtype() &&
                           self.sizes() == source.sizes() && self.strides() == source.strides();
  if (!onto_itself) self.copy_(source);
});
ACLNN(Cast, [](In self, Dtype, Out out) { assign(out, self); });

ACLNN_TYPED_CHECKED(NpuFormatCast,
                    "src_tensor: int8 uint8 int32 float16 bfloat16 float32 int16 int64 bool; dst_tensor: as src_tensor",
                    [](Phase phase, In src_tensor, WrittenTensor& dst_tensor) {
                      TORCH_CHECK(at::IntArrayRef(dst_tensor.shape) == src_tensor.sizes(), "dst_tensor has shape ",
                                  at::IntArrayRef(dst_tensor.shape), "; expected ", src_tensor.sizes());
                      if (phase == Phase::Check) return;
                      const at::Tensor& to = dst_tensor.tensor;
                      if (dst_tensor.format != ACL_FORMAT_FRACTAL_NZ) {
                        to.copy_(src_tensor);
                      } else {
                        const FractalNz blocks(dst_tensor.shape, to.sizes().vec(), to.element_size());
                        const at::Tensor rows = src_tensor.contiguous();
                        blocks.to_blocks(rows.const_data_ptr(), to.mutable_data_ptr());
                      }
                    });

// The storage that a tensor has in another format; the caller deletes the array. additional_dtype says how many columns
// a block of 32 bytes has; -1 stands for the tensor's own.
extern "C" CANN_EXPORT aclnnStatus
aclnnNpuFormatCastCalculateSizeAndFormat(const aclTensor* src_tensor, const int dst_format, const int additional_dtype,
                                         int64_t** dst_shape, uint64_t* dst_shape_size, int* actual_format) {
  return detail::guarded("aclnnNpuFormatCastCalculateSizeAndFormat", ACLNN_ERR_PARAM_INVALID, [&] {
    const aclTensor& source = detail::not_null(src_tensor);
    if (dst_shape == nullptr || dst_shape_size == nullptr || actual_format == nullptr) {
      throw NullArgument("dst_shape, dst_shape_size or actual_format is null");
    }
    TORCH_CHECK(dst_format == ACL_FORMAT_FRACTAL_NZ || dst_format == ACL_FORMAT_ND, "dst_format is ", dst_format,
                "; expected 2 (ND) or 29 (FRACTAL_NZ)");
    std::vector<int64_t> shape = source.shape;
    if (dst_format == ACL_FORMAT_FRACTAL_NZ) {
      TORCH_CHECK(shape.size() >= 2 && shape.size() <= 6, "src_tensor has ", shape.size(),
                  " dimensions; expected 2 to 6");
      const auto dtype = additional_dtype == -1 ? source.dtype : static_cast<aclDataType>(additional_dtype);
      const auto itemsize = static_cast<int64_t>(dtype_size(dtype));
      TORCH_CHECK(itemsize > 0, "additional_dtype is ", additional_dtype, "; expected a dtype of whole bytes");
      const int64_t rows = shape[shape.size() - 2], columns = shape.back(), block_columns = 32 / itemsize;
      shape[shape.size() - 2] = (columns + block_columns - 1) / block_columns;
      shape.back() = (rows + 15) / 16;
      shape.insert(shape.end(), {16, block_columns});
    }
    *dst_shape = new int64_t[shape.size()];
    std::copy(shape.begin(), shape.end(), *dst_shape);
    *dst_shape_size = shape.size();
    *actual_format = dst_format;
  });
}
