// SPDX-License-Identifier: Apache-2.0
// Records the requirements of a call's checks on its arguments, for tests with bad calls and for documentation.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/macros/Export.h>

#include <string>
#include <utility>
#include <vector>

namespace custom_pypto {

// As Python spells it: "bfloat16"; Undefined, which stands for the dtype of the first tensor, is "".
inline std::string name_of(at::ScalarType dtype) {
  return dtype == at::ScalarType::Undefined ? "" : std::string(c10::getDtypeNames(dtype).first);
}

// A tensor ("read", "matrix", "written", "scalar") or a "result", with its dtypes and the names of its sizes; or an
// attribute, "one of" some values or "at least" one.
struct Recorded {
  std::string argument;
  std::string use;
  std::vector<std::string> dtypes = {};
  std::vector<std::string> names = {};  // of the sizes, or the values
};

// Keeps what this thread checks while it lives.
class C10_EXPORT Recording {
 public:
  Recording() : outer_(std::exchange(slot(), this)) {}
  ~Recording() { slot() = outer_; }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // None, mostly.
  static Recording* current() { return slot(); }

  void add(Recorded argument) { arguments_.push_back(std::move(argument)); }
  const std::vector<Recorded>& arguments() const { return arguments_; }

 private:
  static Recording*& slot();

  Recording* outer_;
  std::vector<Recorded> arguments_;
};

}  // namespace custom_pypto
