// SPDX-License-Identifier: Apache-2.0
// The checks of arguments and their one wording.
#include "checks.h"

#include <acl/acl_base.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch_npu/csrc/core/npu/NPUFormat.h>

#include <algorithm>
#include <cmath>

namespace custom_pypto {
namespace {

// As Python spells it: "bfloat16".
std::string name_of(at::ScalarType dtype) { return std::string(c10::getDtypeNames(dtype).first); }

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

}  // namespace

void Checks::reject(const char* name, std::string_view expected, std::string_view found, std::string_view hint) const {
  TORCH_CHECK(false, op_, ": argument '", name, "' must ", expected, ", but ", found, hint.empty() ? "" : "; ", hint);
}

void Checks::defined(c10::ArrayRef<Named> tensors) const {
  for (const Named& named : tensors) {
    for (const at::Tensor& tensor : named.tensors) {
      if (!tensor.defined()) {
        reject(named.name, "be a tensor", "is undefined (null)");
      }
    }
  }
}

void Checks::one_device(c10::ArrayRef<Named> tensors) const {
  defined(tensors);
  const char* reference = nullptr;
  std::optional<at::Device> device;
  for (const Named& named : tensors) {
    for (const at::Tensor& tensor : named.tensors) {
      if (tensor.layout() != at::kStrided) {
        reject(named.name, "be a dense tensor", c10::str("its layout is ", tensor.layout()),
               "convert it with .to_dense()");
      }
      if (!device.has_value() || (tensor.is_privateuseone() && !device->is_privateuseone())) {
        reference = named.name;
        device = tensor.device();
      }
    }
  }
  for (const Named& named : tensors) {
    for (const at::Tensor& tensor : named.tensors) {
      if (tensor.device() != *device) {
        reject(named.name, c10::str("be on ", *device, " as '", reference, "' is"), c10::str("is on ", tensor.device()),
               "move it there with .to()");
      }
      format(named.name, tensor, named.format);
    }
  }
}

// On Meta a tensor has no format.
void Checks::format(const char* name, const at::Tensor& tensor, Format allowed) const {
  if (!tensor.is_privateuseone()) {
    return;
  }
  const int64_t format = at_npu::native::get_npu_format(tensor);
  const bool fractal_nz = format == ACL_FORMAT_FRACTAL_NZ;
  const bool may_be_nz = allowed == Format::NdOrFractalNz && tensor.dim() == 2;
  if (!is_strided(format) && !(fractal_nz && may_be_nz)) {
    reject(name, may_be_nz ? "be in format ND or FRACTAL_NZ" : "be in format ND",
           fractal_nz ? "is in FRACTAL_NZ" : c10::str("is in format ", format),
           c10::str("cast it with torch_npu.npu_format_cast(", name, ", 2)"));
  }
}

void Checks::one_dtype(c10::ArrayRef<Named> tensors, c10::ArrayRef<at::ScalarType> allowed) const {
  const char* first = nullptr;
  at::ScalarType expected{};
  for (const Named& named : tensors) {
    for (const at::Tensor& tensor : named.tensors) {
      if (first == nullptr) {
        dtype(named.name, tensor, allowed);
        first = named.name;
        expected = tensor.scalar_type();
      }
      if (tensor.scalar_type() != expected) {
        dtype(named.name, tensor, {expected}, c10::str("'", first, "' and '", named.name, "' have the same dtype"));
      }
    }
  }
}

void Checks::dtype(const char* name, const at::Tensor& tensor, c10::ArrayRef<at::ScalarType> allowed,
                   std::string_view hint) const {
  if (std::ranges::find(allowed, tensor.scalar_type()) != allowed.end()) {
    return;
  }
  std::string expected;
  for (const at::ScalarType dtype : allowed) {
    expected += c10::str(expected.empty() ? "be of dtype " : " or ", name_of(dtype));
  }
  reject(name, expected, c10::str("is ", name_of(tensor.scalar_type())), hint);
}

void Checks::rank(const char* name, const at::Tensor& tensor, int64_t expected, std::string_view shape) const {
  if (tensor.dim() != expected) {
    reject(name, c10::str("have ", expected, " dimensions, ", shape), c10::str("its shape is ", tensor.sym_sizes()));
  }
}

void Checks::size(const char* name, const at::Tensor& tensor, int64_t dim, const c10::SymInt& expected,
                  std::string_view meaning) const {
  const c10::SymInt size = tensor.sym_size(dim);
  if (!size.sym_eq(expected).expect_true(__FILE__, __LINE__)) {
    reject(name, c10::str("have size ", expected, " in dimension ", dim, " (", meaning, ")"),
           c10::str("its shape is ", tensor.sym_sizes()));
  }
}

void Checks::at_least(const char* name, const c10::SymInt& value, int64_t min, std::string_view what) const {
  if (!value.sym_ge(min).expect_true(__FILE__, __LINE__)) {
    reject(name, c10::str(what.empty() ? "" : "have ", what, what.empty() ? "be " : " of ", min, " or more"),
           c10::str(what.empty() ? "is " : "that is ", value));
  }
}

void Checks::epsilon(const char* name, double value) const {
  if (!std::isfinite(value) || value < 0) {
    reject(name, "be a finite number of 0 or more", c10::str("is ", value));
  }
}

void Checks::one_of(const char* name, std::string_view value, c10::ArrayRef<std::string_view> allowed) const {
  if (std::ranges::find(allowed, value) != allowed.end()) {
    return;
  }
  std::string expected;
  for (const std::string_view choice : allowed) {
    expected += c10::str(expected.empty() ? "be '" : " or '", choice, "'");
  }
  reject(name, expected, c10::str("is '", value, "'"));
}

}  // namespace custom_pypto
