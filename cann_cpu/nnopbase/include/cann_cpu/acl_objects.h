// SPDX-License-Identifier: Apache-2.0
// The structs of the opaque arguments of aclnn functions.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "aclnn/acl_meta.h"
#include "cann_cpu/export.h"

struct aclTensor {
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // elements
  int64_t offset = 0;            // elements, from the start of the storage
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_ND;
  std::vector<int64_t> storage_shape;
  void* data = nullptr;  // start of the storage
};

namespace cann_cpu {

// Throws std::invalid_argument, whose text says what is wrong, unless the tensor lies within its storage; one that is
// written must not have a stride of 0.
CANN_EXPORT void check_view(const aclTensor& tensor, bool is_written);

}  // namespace cann_cpu

struct aclScalar {
  aclDataType dtype = ACL_DT_UNDEFINED;
  alignas(16) std::array<std::byte, 16> value{};  // wide enough for complex128
};

struct aclIntArray {
  std::vector<int64_t> values;
};

struct aclFloatArray {
  std::vector<float> values;
};

struct aclBoolArray {
  std::vector<char> values;  // of 0 and 1: a vector<bool> has no array of bool to point to
};

// A list owns its elements.
struct aclTensorList {
  std::vector<aclTensor*> tensors;
};

struct aclScalarList {
  std::vector<aclScalar*> scalars;
};
