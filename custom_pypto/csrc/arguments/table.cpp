// SPDX-License-Identifier: Apache-2.0
// Checks the rows of an argument table.
#include "arguments/table.h"

#include <ATen/MemoryOverlap.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>

#include "arguments/overlap.h"
#include "arguments/recording.h"

namespace custom_pypto {
namespace {

constexpr int64_t kMaxDimensions = 25;  // gert::Shape::kMaxDimNum

std::string bracketed(const SizeNames& names) {
  std::string text;
  for (const std::string_view name : names) {
    text += c10::str(text.empty() ? "[" : ", ", name);
  }
  return text + "]";
}

// One of the tensors of a row, as a message calls it.
std::string named(const ArgumentRow& row, size_t i) {
  return row.tensors.size() == 1 ? c10::str("'", row.name, "'") : c10::str("'", row.name, "'[", i, "]");
}

// Rejects a written tensor that may share memory with another one.
void check_memory(const Checks& checks, const ArgumentRow& written, size_t i, const ArgumentRow& other, size_t j) {
  const at::Tensor &left = written.tensors[i], &right = other.tensors[j];
  const at::MemOverlapStatus found = overlap(left, right);
  if (found == at::MemOverlapStatus::No) {
    return;
  }
  const bool lists = written.tensors.size() > 1 || other.tensors.size() > 1;
  const std::string pair = c10::str(named(written, i), " and ", named(other, j));
  checks.reject(
      written.name,
      c10::str("share no memory with ", &written == &other ? "another tensor of it" : c10::str("'", other.name, "'"),
               ", as it is written to"),
      found == at::MemOverlapStatus::TooHard ? c10::str("may: views with strides ", left.strides(), " and ",
                                                        right.strides(), " interleave in too many ways to decide")
      : lists                                ? pair + " do"
                                             : "does",
      "pass a separate tensor");
}

void check_memory(const Checks& checks, c10::ArrayRef<ArgumentRow> rows) {
  for (const ArgumentRow& written : rows) {
    if (written.use != Use::kWritten) {
      continue;
    }
    for (const ArgumentRow& other : rows) {
      for (size_t i = 0; i < written.tensors.size(); ++i) {
        for (size_t j = &other == &written ? i + 1 : 0; j < other.tensors.size(); ++j) {
          check_memory(checks, written, i, other, j);
        }
      }
    }
  }
}

void record(const char* name, const char* use, c10::ArrayRef<at::ScalarType> dtypes, const SizeNames& sizes) {
  Recorded recorded{name, use};
  for (const at::ScalarType dtype : dtypes) {
    recorded.dtypes.push_back(name_of(dtype));
  }
  recorded.names.assign(sizes.begin(), sizes.end());
  Recording::current()->add(recorded);
}

void record(c10::ArrayRef<ArgumentRow> rows) {
  constexpr const char* kUses[] = {"read", "matrix", "written", "scalar"};
  for (const ArgumentRow& row : rows) {
    if (!row.tensors.empty()) {
      record(row.name, kUses[static_cast<int>(row.use)], row.dtypes.empty() ? Dtypes{kSame} : row.dtypes, row.sizes);
    }
  }
}

}  // namespace

Recording*& Recording::slot() {
  static thread_local Recording* recording = nullptr;
  return recording;
}

ArgumentTable::ArgumentTable(const Checks& checks, c10::ArrayRef<ArgumentRow> rows) : checks_(checks) {
  if (Recording::current() != nullptr) {
    record(rows);
  }
  check_placement(checks, rows);
  const auto* first = std::ranges::find_if(rows, [](const ArgumentRow& row) { return !row.tensors.empty(); });
  if (first == rows.end()) {
    return;
  }
  first_ = &first->tensors[0];
  device_ = first_->device();
  for (const ArgumentRow& row : rows) {
    for (const at::Tensor& tensor : row.tensors) {
      if (tensor.is_privateuseone() || tensor.is_meta()) {
        device_ = tensor.device();
      }
    }
  }
  for (const ArgumentRow& row : rows) {
    check_dtypes(row, *first);
  }
  for (const ArgumentRow& row : rows) {
    for (const at::Tensor& tensor : row.tensors) {
      check_sizes(row.name, tensor, row.sizes);
    }
  }
  check_memory(checks, rows);
}

// The tensors of a list have one dtype.
void ArgumentTable::check_dtypes(const ArgumentRow& row, const ArgumentRow& first) const {
  const at::ScalarType same = first_->scalar_type();
  for (const at::Tensor& tensor : row.tensors) {
    const at::ScalarType dtype = tensor.scalar_type();
    const bool alone = !row.dtypes.empty() && &tensor == row.tensors.data();
    const at::ScalarType other = row.dtypes.empty() ? same : row.tensors[0].scalar_type();
    const auto allows = [&](at::ScalarType each) { return each == dtype || (each == kSame && dtype == same); };
    if (alone ? std::ranges::any_of(row.dtypes, allows) : dtype == other) {
      continue;
    }
    Dtypes allowed = alone ? row.dtypes : Dtypes{other};
    std::ranges::replace(allowed, kSame, same);
    const char* like = row.dtypes.empty() ? first.name : row.name;
    checks_.dtype(row.name, tensor, allowed,
                  alone ? "" : c10::str("'", like, "' and '", row.name, "' have the same dtype"));
  }
}

void ArgumentTable::check_sizes(const char* name, const at::Tensor& tensor, const SizeNames& names) {
  if (names.empty()) {
    if (tensor.dim() > kMaxDimensions) {
      checks_.reject(name, c10::str("have at most ", kMaxDimensions, " dimensions, as CANN's tensors have"),
                     c10::str("its shape is ", tensor.sym_sizes()));
    }
    return;
  }
  if (tensor.dim() != static_cast<int64_t>(names.size())) {
    checks_.rank(name, tensor, static_cast<int64_t>(names.size()), bracketed(names));
  }
  const auto sizes = tensor.sym_sizes();
  for (size_t i = 0; i < names.size(); ++i) {
    const auto dim = static_cast<int64_t>(i);
    const Size* known = names[i] == "1" ? nullptr : find(names[i]);
    if (known == nullptr && names[i] != "1") {
      sizes_.push_back({names[i], sizes[i], name, &tensor, dim});
    } else if (const c10::SymInt& expected = known == nullptr ? c10::SymInt(1) : known->value;
               !sizes[i].sym_eq(expected).expect_true(__FILE__, __LINE__)) {
      checks_.size(name, tensor, dim, expected,
                   known == nullptr ? bracketed(names) : c10::str(names[i], ", as of '", known->argument, "'"));
    }
  }
}

const ArgumentTable::Size* ArgumentTable::find(std::string_view name) const {
  const auto* found = std::ranges::find(sizes_, name, &Size::name);
  return found == sizes_.end() ? nullptr : found;
}

void ArgumentTable::reject(const Size& size, std::string_view expected) const {
  checks_.reject(size.argument, expected, c10::str("its shape is ", size.tensor->sym_sizes()));
}

void ArgumentTable::check_positive(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    const Size* size = find(name);
    if (size != nullptr && !size->value.sym_ge(1).expect_true(__FILE__, __LINE__)) {
      checks_.at_least(size->argument, size->value, 1, c10::str("a size ", name));
    }
  }
}

// Not one equation: a tracer would put the expression in the size's place, and torchair then looks for the sizes in it
// where they cannot be read off.
void ArgumentTable::check_equal(std::string_view name, const c10::SymInt& expected, std::string_view meaning) const {
  const Size& size = *find(name);
  if (!size.value.sym_le(expected).expect_true(__FILE__, __LINE__) ||
      !size.value.sym_ge(expected).expect_true(__FILE__, __LINE__)) {
    checks_.size(size.argument, *size.tensor, size.dimension, expected, meaning);
  }
}

void ArgumentTable::check_divides(std::string_view name, std::string_view multiple) const {
  const Size& whole = *find(multiple);
  const Size& part = *find(name);
  if (!(whole.value % part.value).sym_eq(0).expect_true(__FILE__, __LINE__)) {
    reject(part, c10::str("have a size ", name, " that divides ", multiple, " of '", whole.argument, "' (", whole.value,
                          ")"));
  }
}

void ArgumentTable::check_at_most(std::string_view name, const c10::SymInt& limit, std::string_view meaning) const {
  const Size& size = *find(name);
  if (!size.value.sym_le(limit).expect_true(__FILE__, __LINE__)) {
    reject(size, c10::str("have a size ", name, " of ", limit, " or less", meaning));
  }
}

void ArgumentTable::check_rope(std::string_view width, std::string_view head) const {
  const Size& size = *find(width);
  const c10::SymInt& limit = (*this)[head];
  if (!(size.value % 2).sym_eq(0).expect_true(__FILE__, __LINE__) ||
      !size.value.sym_le(limit).expect_true(__FILE__, __LINE__)) {
    reject(size, c10::str("have a size ", width, " that is even and at most ", head, " (", limit, ")"));
  }
}

Result ArgumentTable::result(const ResultRow& row) const {
  if (Recording::current() != nullptr) {
    record(row.name, "result", row.dtype, row.sizes);
  }
  Result result{row.name, row.dtype == kSame ? first_->scalar_type() : row.dtype, {}};
  for (const std::string_view name : row.sizes) {
    result.sizes.push_back(name == "0" || name == "1" ? c10::SymInt(name[0] - '0') : (*this)[name]);
  }
  return result;
}

}  // namespace custom_pypto
