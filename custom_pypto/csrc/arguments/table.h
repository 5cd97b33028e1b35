// SPDX-License-Identifier: Apache-2.0
// The arguments of an operator as a table, said once: a row for each tensor with its dtypes, the names of its sizes and
// what it is used for, the relations of sizes, and the results. The extension checks and allocates by it, eagerly and
// on Meta.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/macros/Export.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "arguments/checks.h"

namespace custom_pypto {

// Stands for the dtype of the first tensor.
constexpr at::ScalarType kSame = at::ScalarType::Undefined;

// The dtypes that a tensor may have; none is that of the first.
struct Dtypes : c10::SmallVector<at::ScalarType, 10> {
  Dtypes() = default;
  Dtypes(std::initializer_list<at::ScalarType> dtypes) : SmallVector(dtypes) {}
  template <size_t n>
  Dtypes(const at::ScalarType (&dtypes)[n]) : SmallVector(dtypes, dtypes + n) {}
};

// The sizes of a tensor by their names: {"B", "S1", "h"}. "1" is the size 1, and "0" that of a result that is empty. No
// names are any sizes.
using SizeNames = c10::SmallVector<std::string_view, 4>;

enum class Use {
  kRead,
  kMatrix,  // read, and it may lie in FRACTAL_NZ
  kWritten,
  kScalar,  // read, and it may be a CPU tensor without dimensions
};

// A tensor, one that may be missing, or a list.
struct Tensors : at::TensorList {
  Tensors(const at::Tensor& tensor) : ArrayRef(tensor) {}
  Tensors(const OptionalTensor& tensor) : ArrayRef(tensor ? &*tensor : nullptr, tensor ? 1 : 0) {}
  Tensors(at::TensorList tensors) : ArrayRef(tensors) {}
};

struct ArgumentRow {
  const char* name;
  Tensors tensors;
  Dtypes dtypes = {};
  SizeNames sizes = {};
  Use use = Use::kRead;
};

struct ResultRow {
  const char* name;
  at::ScalarType dtype;
  SizeNames sizes;
};

struct Result {
  const char* name;
  at::ScalarType dtype;
  c10::SmallVector<c10::SymInt, 5> sizes;
};

// The results of an operator, which the extension allocates.
template <size_t n>
struct Results {
  std::array<Result, n> rows;
  at::Device device;
};

class C10_EXPORT ArgumentTable {
 public:
  // Checks the rows: tensors lie where they may, and are of their dtypes; the first to name a size decides it and the
  // others agree; and what is written shares no memory with another argument. What the rows refer to outlives it.
  ArgumentTable(const Checks& checks, c10::ArrayRef<ArgumentRow> rows);

  const c10::SymInt& operator[](std::string_view name) const { return find(name)->value; }

  // A size of results that is an attribute.
  void define(std::string_view name, const c10::SymInt& value) { sizes_.push_back({name, value, "", nullptr, 0}); }

  // Sizes that must not be 0, those of them that a row has named.
  void check_positive(std::initializer_list<std::string_view> names) const;
  // One that follows from others; `meaning` says how.
  void check_equal(std::string_view name, const c10::SymInt& expected, std::string_view meaning) const;
  // One that another is a multiple of.
  void check_divides(std::string_view name, std::string_view multiple) const;
  void check_at_most(std::string_view name, const c10::SymInt& limit, std::string_view meaning) const;
  // The width of a rotary embedding: even, and no more than the heads that it turns.
  void check_rope(std::string_view width, std::string_view head) const;

  template <size_t n>
  Results<n> results(const ResultRow (&rows)[n]) const {
    return [&]<size_t... i>(std::index_sequence<i...>) -> Results<n> {
      return {{result(rows[i])...}, *device_};
    }(std::make_index_sequence<n>());
  }

 private:
  struct Size {
    std::string_view name;
    c10::SymInt value;
    const char* argument;  // that decides it
    const at::Tensor* tensor;
    int64_t dimension;
  };

  void check_dtypes(const ArgumentRow& row, const ArgumentRow& first) const;
  void check_sizes(const char* name, const at::Tensor& tensor, const SizeNames& names);
  const Size* find(std::string_view name) const;
  [[noreturn]] void reject(const Size& size, std::string_view expected) const;
  Result result(const ResultRow& row) const;

  const Checks& checks_;
  const at::Tensor* first_ = nullptr;  // of those that are given
  std::optional<at::Device> device_;   // of all but scalars on the CPU
  c10::SmallVector<Size, 12> sizes_;
};

// Checks where the tensors of a table lie.
void check_placement(const Checks& checks, c10::ArrayRef<ArgumentRow> rows);

}  // namespace custom_pypto
