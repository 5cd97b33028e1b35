// SPDX-License-Identifier: Apache-2.0
// Checks where tensors lie, which only torch_npu knows: on one device, dense, in the formats that they may be in.
#include <acl/acl_base.h>
#include <c10/util/StringUtil.h>

#include "arguments/table.h"
#include "ops_common.h"

namespace custom_pypto {
namespace {

// A format that lays a tensor out by its strides: ND and those that only name the dimensions.
bool is_strided(int64_t format) {
  switch (format) {
    case ACL_FORMAT_ND:
    case ACL_FORMAT_NCL:
    case ACL_FORMAT_NCHW:
    case ACL_FORMAT_NHWC:
    case ACL_FORMAT_NCDHW:
    case ACL_FORMAT_NDHWC:
      return true;
    default:
      return false;
  }
}

// On Meta a tensor has no format. Only a matrix lies in FRACTAL_NZ.
void check_format(const Checks& checks, const ArgumentRow& row, const at::Tensor& tensor) {
  if (!tensor.is_privateuseone()) {
    return;
  }
  const int64_t format = format_of(tensor);
  const bool fractal_nz = format == ACL_FORMAT_FRACTAL_NZ;
  const bool may_be_nz = row.use == Use::kMatrix && tensor.dim() == 2;
  if (!is_strided(format) && !(fractal_nz && may_be_nz)) {
    checks.reject(row.name, may_be_nz ? "be in format ND or FRACTAL_NZ" : "be in format ND",
                  fractal_nz ? "is in FRACTAL_NZ" : c10::str("is in format ", format),
                  c10::str("cast it with torch_npu.npu_format_cast(", row.name, ", 2)"));
  }
}

// Calls function(row, tensor) for every tensor, but for those on the CPU that go along with one on an NPU.
template <typename Function>
void for_each(c10::ArrayRef<ArgumentRow> rows, const Function& function) {
  for (const ArgumentRow& row : rows) {
    for (const at::Tensor& tensor : row.tensors) {
      if (row.use != Use::kScalar || !tensor.is_cpu() || tensor.dim() != 0) {
        function(row, tensor);
      }
    }
  }
}

}  // namespace

// The device is that of the first tensor, and an NPU if any of them is on one.
void check_placement(const Checks& checks, c10::ArrayRef<ArgumentRow> rows) {
  const char* reference = nullptr;
  std::optional<at::Device> device;
  for_each(rows, [&](const ArgumentRow& row, const at::Tensor& tensor) {
    checks.defined(row.name, tensor);
    if (tensor.layout() != at::kStrided) {
      checks.reject(row.name, "be a dense tensor", c10::str("its layout is ", tensor.layout()),
                    "convert it with .to_dense()");
    }
    if (!device.has_value() || (tensor.is_privateuseone() && !device->is_privateuseone())) {
      reference = row.name;
      device = tensor.device();
    }
  });
  for_each(rows, [&](const ArgumentRow& row, const at::Tensor& tensor) {
    if (tensor.device() != *device) {
      checks.reject(row.name, c10::str("be on ", *device, " as '", reference, "' is"),
                    c10::str("is on ", tensor.device()), "move it there with .to()");
    }
    check_format(checks, row, tensor);
  });
}

}  // namespace custom_pypto
