// SPDX-License-Identifier: Apache-2.0
// The checks of single arguments and their one wording.
#include "arguments/checks.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "arguments/recording.h"

namespace custom_pypto {
namespace {

// The choices of an attribute: "be 'ND' or 'NZ'".
template <typename T>
std::string any_of(c10::ArrayRef<T> allowed, const char* quote) {
  std::string text;
  for (const T& choice : allowed) {
    text += c10::str(text.empty() ? "be " : " or ", quote, choice, quote);
  }
  return text;
}

template <typename T>
void record_choices(const char* name, c10::ArrayRef<T> allowed) {
  if (Recording* recording = Recording::current()) {
    Recorded attribute{name, "one of"};
    for (const T& choice : allowed) {
      attribute.names.push_back(c10::str(choice));
    }
    recording->add(attribute);
  }
}

void record(const char* name, const char* use, int64_t min) {
  if (Recording* recording = Recording::current()) {
    recording->add({name, use, {}, {c10::str(min)}});
  }
}

}  // namespace

void Checks::reject(const char* name, std::string_view expected, std::string_view found, std::string_view hint) const {
  TORCH_CHECK(false, op_, ": argument '", name, "' must ", expected, ", but ", found, hint.empty() ? "" : "; ", hint);
}

void Checks::defined(const char* name, const at::Tensor& tensor) const {
  if (!tensor.defined()) {
    reject(name, "be a tensor", "is undefined (null)");
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
  if (what.empty()) {
    record(name, "at least", min);
  }
  if (!value.sym_ge(min).expect_true(__FILE__, __LINE__)) {
    reject(name, c10::str(what.empty() ? "" : "have ", what, what.empty() ? "be " : " of ", min, " or more"),
           c10::str(what.empty() ? "is " : "that is ", value));
  }
}

void Checks::epsilon(const char* name, double value) const {
  record(name, "at least", 0);
  if (!std::isfinite(value) || value < 0) {
    reject(name, "be a finite number of 0 or more", c10::str("is ", value));
  }
}

void Checks::one_of(const char* name, std::string_view value, c10::ArrayRef<std::string_view> allowed) const {
  record_choices(name, allowed);
  if (std::ranges::find(allowed, value) == allowed.end()) {
    reject(name, any_of(allowed, "'"), c10::str("is '", value, "'"));
  }
}

void Checks::one_of(const char* name, int64_t value, c10::ArrayRef<int64_t> allowed, std::string_view hint) const {
  record_choices(name, allowed);
  if (std::ranges::find(allowed, value) == allowed.end()) {
    reject(name, any_of(allowed, ""), c10::str("is ", value), hint);
  }
}

void Checks::together(const char* name, bool given, const char* other, bool other_given) const {
  if (given != other_given) {
    reject(given ? other : name, c10::str("be given with '", given ? name : other, "'"), "is None");
  }
}

}  // namespace custom_pypto
