// SPDX-License-Identifier: Apache-2.0
// The tensors of an operator with many of them as a table: what each must be, checked row by row.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/macros/Export.h>
#include <c10/util/SmallVector.h>

#include <initializer_list>
#include <string_view>
#include <vector>

#include "checks.h"

namespace custom_pypto {

// The sizes of a tensor by their names: {"B", "S1", "h"}. "1" is the size 1.
using SizeNames = c10::SmallVector<std::string_view, 4>;

enum class Use {
  kRead,
  kMatrix,  // read, and it may lie in FRACTAL_NZ
  kWritten,
};

struct ArgumentRow {
  const char* name;
  const at::Tensor& tensor;
  c10::SmallVector<at::ScalarType, 2> dtypes;  // none: that of the first row
  SizeNames sizes;
  Use use = Use::kRead;
};

// The sizes that the rows of a table name.
class C10_EXPORT Sizes {
 public:
  // Checks the rows: all are on one device, in their formats and of their dtypes, the first to name a size decides it
  // and the others agree, and what is written shares no memory with another argument.
  Sizes(const Checks& checks, std::vector<ArgumentRow> rows);

  const c10::SymInt& operator[](std::string_view name) const { return find(name)->value; }

  // Sizes that must not be 0.
  void check_positive(std::initializer_list<std::string_view> names) const;
  // One that follows from others; `meaning` says how.
  void check_equal(std::string_view name, const c10::SymInt& expected, std::string_view meaning) const;
  // The width of a rotary embedding: even, and no more than the heads that it turns.
  void check_rope(std::string_view width, std::string_view head) const;

 private:
  struct Size {
    std::string_view name;
    c10::SymInt value;
    const ArgumentRow& decided_by;
    int64_t dimension;
  };

  void check_devices() const;
  void check_dtypes() const;
  void check_sizes(const ArgumentRow& row);
  void check_memory() const;
  const Size* find(std::string_view name) const;

  const Checks& checks_;
  const std::vector<ArgumentRow> rows_;
  std::vector<Size> sizes_;
};

}  // namespace custom_pypto
