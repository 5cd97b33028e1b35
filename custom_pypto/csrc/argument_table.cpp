// SPDX-License-Identifier: Apache-2.0
// Checks the rows of an argument table.
#include "argument_table.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>
#include <utility>

namespace custom_pypto {
namespace {

std::string bracketed(const SizeNames& names) {
  std::string text;
  for (const std::string_view name : names) {
    text += c10::str(text.empty() ? "[" : ", ", name);
  }
  return text + "]";
}

// The bytes of its storage that a tensor's elements lie in.
struct Extent {
  c10::SymInt begin;
  c10::SymInt end;
};

Extent extent(const at::Tensor& tensor) {
  c10::SymInt last = tensor.sym_storage_offset();
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.sym_size(dim) - 1) * tensor.sym_stride(dim);
  }
  const auto bytes = static_cast<int64_t>(tensor.element_size());
  return {tensor.sym_storage_offset() * bytes, (last + 1) * bytes};
}

// Whether the tensors share memory for certain. Two that interleave, such as the parts of the rows of one buffer, are
// taken not to.
bool share_memory(const at::Tensor& left, const at::Tensor& right) {
  if (left.is_same(right)) {
    return true;
  }
  if (!left.has_storage() || !right.has_storage() || !left.is_alias_of(right)) {
    return false;
  }
  for (const at::Tensor* tensor : {&left, &right}) {
    if (!tensor->sym_numel().sym_gt(0).guard_or_false(__FILE__, __LINE__) ||
        !tensor->unsafeGetTensorImpl()->is_non_overlapping_and_dense_or_false()) {
      return false;
    }
  }
  const Extent a = extent(left), b = extent(right);
  return a.begin.sym_lt(b.end).guard_or_false(__FILE__, __LINE__) &&
         b.begin.sym_lt(a.end).guard_or_false(__FILE__, __LINE__);
}

}  // namespace

Sizes::Sizes(const Checks& checks, std::vector<ArgumentRow> rows) : checks_(checks), rows_(std::move(rows)) {
  check_devices();
  check_dtypes();
  for (const ArgumentRow& row : rows_) {
    check_sizes(row);
  }
  check_memory();
}

void Sizes::check_devices() const {
  std::vector<Checks::Named> named;
  for (const ArgumentRow& row : rows_) {
    named.push_back(
        {row.name, &row.tensor, row.use == Use::kMatrix ? Checks::Format::NdOrFractalNz : Checks::Format::Nd});
  }
  checks_.one_device(named);
}

void Sizes::check_dtypes() const {
  const ArgumentRow& first = rows_.front();
  for (const ArgumentRow& row : rows_) {
    if (row.dtypes.empty()) {
      checks_.dtype(row.name, row.tensor, {first.tensor.scalar_type()},
                    c10::str("'", first.name, "' and '", row.name, "' have the same dtype"));
    } else {
      checks_.dtype(row.name, row.tensor, row.dtypes);
    }
  }
}

void Sizes::check_sizes(const ArgumentRow& row) {
  checks_.rank(row.name, row.tensor, static_cast<int64_t>(row.sizes.size()), bracketed(row.sizes));
  for (size_t i = 0; i < row.sizes.size(); ++i) {
    const std::string_view name = row.sizes[i];
    const auto dim = static_cast<int64_t>(i);
    if (name == "1") {
      checks_.size(row.name, row.tensor, dim, 1, bracketed(row.sizes));
    } else if (const Size* size = find(name)) {
      checks_.size(row.name, row.tensor, dim, size->value, c10::str(name, ", as of '", size->decided_by.name, "'"));
    } else {
      sizes_.push_back({name, row.tensor.sym_size(dim), row, dim});
    }
  }
}

void Sizes::check_memory() const {
  for (const ArgumentRow& written : rows_) {
    if (written.use != Use::kWritten) {
      continue;
    }
    for (const ArgumentRow& other : rows_) {
      if (&other != &written && share_memory(written.tensor, other.tensor)) {
        checks_.reject(written.name, c10::str("share no memory with '", other.name, "', as it is written to"), "does",
                       "pass a tensor of its own");
      }
    }
  }
}

const Sizes::Size* Sizes::find(std::string_view name) const {
  const auto found = std::find_if(sizes_.begin(), sizes_.end(), [&](const Size& size) { return size.name == name; });
  return found == sizes_.end() ? nullptr : &*found;
}

void Sizes::check_positive(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    const Size& size = *find(name);
    checks_.at_least(size.decided_by.name, size.value, 1, c10::str("a size ", name));
  }
}

// Not one equation: a tracer would put the expression in the size's place, and torchair then looks for the sizes in it
// where they cannot be read off.
void Sizes::check_equal(std::string_view name, const c10::SymInt& expected, std::string_view meaning) const {
  const Size& size = *find(name);
  if (!size.value.sym_le(expected).expect_true(__FILE__, __LINE__) ||
      !size.value.sym_ge(expected).expect_true(__FILE__, __LINE__)) {
    checks_.size(size.decided_by.name, size.decided_by.tensor, size.dimension, expected, meaning);
  }
}

void Sizes::check_rope(std::string_view width, std::string_view head) const {
  const Size& size = *find(width);
  const c10::SymInt& limit = (*this)[head];
  if (!(size.value % 2).sym_eq(0).expect_true(__FILE__, __LINE__) ||
      !size.value.sym_le(limit).expect_true(__FILE__, __LINE__)) {
    checks_.reject(size.decided_by.name,
                   c10::str("have a size ", width, " that is even and at most ", head, " (", limit, ")"),
                   c10::str("its shape is ", size.decided_by.tensor.sym_sizes()));
  }
}

}  // namespace custom_pypto
