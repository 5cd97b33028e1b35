// SPDX-License-Identifier: Apache-2.0
// What operators check of their arguments before anything is allocated or launched, with one wording for all.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/macros/Export.h>
#include <c10/util/ArrayRef.h>

#include <optional>
#include <string_view>
#include <vector>

namespace custom_pypto {

// Checks the arguments of one operator, under eager and on Meta alike. Every message reads
//   OPERATOR: argument 'NAME' must be EXPECTED, but is FOUND[; what to do]
class C10_EXPORT Checks {
 public:
  // The operator with its namespace: "custom_pypto::add_custom".
  explicit Checks(const char* op) : op_(op) {}

  // The NPU formats that an argument may lie in; only a matrix lies in FRACTAL_NZ.
  enum class Format { Nd, NdOrFractalNz };

  // An argument by its name: a tensor, one that may be missing, or a list.
  struct Named {
    Named(const char* name, const at::Tensor& tensor) : Named(name, &tensor) {}
    Named(const char* name, const at::Tensor* tensor, Format format = Format::Nd)
        : name(name), tensors(tensor, tensor == nullptr ? 0 : 1), format(format) {}
    Named(const char* name, const std::optional<at::Tensor>& tensor)
        : Named(name, tensor.has_value() ? &*tensor : nullptr) {}
    Named(const char* name, at::TensorList tensors) : name(name), tensors(tensors) {}

    const char* name;
    at::TensorList tensors;
    Format format = Format::Nd;
  };

  // All tensors are defined: None comes as an undefined tensor where a tensor is needed.
  void defined(c10::ArrayRef<Named> tensors) const;
  // All tensors are defined, strided, on one device (that of the first, and an NPU if any of them is on one), and in a
  // format that they may lie in.
  void one_device(c10::ArrayRef<Named> tensors) const;
  // All tensors are of one of these dtypes, that of the first.
  void one_dtype(c10::ArrayRef<Named> tensors, c10::ArrayRef<at::ScalarType> allowed) const;
  void dtype(const char* name, const at::Tensor& tensor, c10::ArrayRef<at::ScalarType> allowed,
             std::string_view hint = "") const;
  // `shape` names the dimensions: "[B, S1, N1, D]".
  void rank(const char* name, const at::Tensor& tensor, int64_t expected, std::string_view shape) const;
  // A dimension's size equals that of another argument; `meaning` says which: "B, the first dimension of 'query'".
  void size(const char* name, const at::Tensor& tensor, int64_t dim, const c10::SymInt& expected,
            std::string_view meaning) const;
  void at_least(const char* name, const c10::SymInt& value, int64_t min, std::string_view what = "") const;
  // What a normalisation adds to a variance: finite and not negative.
  void epsilon(const char* name, double value) const;
  void one_of(const char* name, std::string_view value, c10::ArrayRef<std::string_view> allowed) const;
  [[noreturn]] void reject(const char* name, std::string_view expected, std::string_view found,
                           std::string_view hint = "") const;

 private:
  void format(const char* name, const at::Tensor& tensor, Format allowed) const;

  const char* op_;
};

}  // namespace custom_pypto
