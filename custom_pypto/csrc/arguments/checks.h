// SPDX-License-Identifier: Apache-2.0
// Checks of single arguments, with one wording, eagerly and on Meta.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/macros/Export.h>
#include <c10/util/ArrayRef.h>

#include <optional>
#include <string_view>

namespace custom_pypto {

using OptionalTensor = std::optional<at::Tensor>;

// Checks the arguments of one operator. Every message reads
//   OPERATOR: argument 'NAME' must be EXPECTED, but is FOUND[; what to do]
class C10_EXPORT Checks {
 public:
  // The operator with its namespace, "custom_pypto::add_custom".
  explicit Checks(const char* op) : op_(op) {}

  void defined(const char* name, const at::Tensor& tensor) const;
  void dtype(const char* name, const at::Tensor& tensor, c10::ArrayRef<at::ScalarType> allowed,
             std::string_view hint = "") const;
  // `shape` names the dimensions: "[B, S1, N1, D]".
  void rank(const char* name, const at::Tensor& tensor, int64_t expected, std::string_view shape) const;
  // A dimension's size equals that of another argument; `meaning` says which: "B, as of 'query'".
  void size(const char* name, const at::Tensor& tensor, int64_t dim, const c10::SymInt& expected,
            std::string_view meaning) const;
  // An attribute; `what` is for what is none: "a size N".
  void at_least(const char* name, const c10::SymInt& value, int64_t min, std::string_view what = "") const;
  // What a normalisation adds to a variance: finite and not negative.
  void epsilon(const char* name, double value) const;
  void one_of(const char* name, std::string_view value, c10::ArrayRef<std::string_view> allowed) const;
  void one_of(const char* name, int64_t value, c10::ArrayRef<int64_t> allowed, std::string_view hint = "") const;
  // Two optional tensors: both are given, or neither.
  void together(const char* name, bool given, const char* other, bool other_given) const;
  [[noreturn]] void reject(const char* name, std::string_view expected, std::string_view found,
                           std::string_view hint = "") const;

 private:
  const char* op_;
};

}  // namespace custom_pypto
