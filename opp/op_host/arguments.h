// SPDX-License-Identifier: Apache-2.0
// Checks of a call's arguments: attributes, the sizes of tensors by their names, and how sizes go together.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "definition.h"

namespace opp {

// The sizes of a tensor by their names: {"B", "S1", "h"}. "0" and "1" are these sizes.
using SizeNames = std::vector<std::string>;

inline SizeNames joined(SizeNames sizes, const SizeNames& names) {
  sizes.insert(sizes.end(), names.begin(), names.end());
  return sizes;
}

struct ArgumentRow {
  const char* name;
  SizeNames sizes;
};

// Sums of that many products of int8 fit into int32.
constexpr int64_t kMaxProducts = (int64_t{1} << 31) / (128 * 128) - 1;

// Checks what it is asked in turn, and keeps the first thing that is wrong: nothing is checked after that.
class Arguments {
 public:
  explicit Arguments(const gert::TilingContext& context) : context_(context) {}

  // Empty, or what is wrong.
  const std::string& error() const { return error_; }

  // Rows for inputs or outputs, in the order of the definition. The first to name a size decides it, and the others
  // agree. An optional input that is left out is skipped.
  void inputs(const std::vector<ArgumentRow>& rows) {
    for (std::size_t i = 0; i < rows.size(); ++i) add(rows[i], context_.GetOptionalInputShape(i));
  }
  void outputs(const std::vector<ArgumentRow>& rows) {
    for (std::size_t i = 0; i < rows.size(); ++i) add(rows[i], context_.GetOutputShape(i));
  }

  // A size that is an attribute.
  void define(const char* name, int64_t value) { sizes_.push_back({name, value, name, 0, {}}); }

  // 0 if no row has named it.
  int64_t operator[](const std::string& name) const {
    const Size* size = find(name);
    return size == nullptr ? 0 : size->value;
  }

  // Sizes that must not be 0, those of them that a row has named.
  void positive(const SizeNames& names) {
    for (const std::string& name : names) {
      const Size* size = find(name);
      if (size != nullptr && size->value < 1) wrong(*size, "a size " + name + " of 1 or more");
    }
  }
  // One that follows from others; `meaning` says how.
  void equal(const std::string& name, int64_t expected, const std::string& meaning) {
    const Size* size = find(name);
    if (error_.empty() && size->value != expected) wrong(*size, expected, size->dimension, meaning);
  }
  // One that another is a multiple of.
  void divides(const std::string& name, const std::string& multiple) {
    if (error_.empty() && (*this)[multiple] % (*this)[name] != 0) {
      wrong(*find(name),
            "a size " + name + " that divides " + multiple + " (" + std::to_string((*this)[multiple]) + ")");
    }
  }
  void at_most(const std::string& name, int64_t limit, const std::string& why) {
    if ((*this)[name] > limit)
      wrong(*find(name), "a size " + name + " of " + std::to_string(limit) + " or less, " + why);
  }
  // The width of a rotary embedding: even, and no more than the heads that it turns.
  void rope(const std::string& width, const std::string& head) {
    if (error_.empty() && ((*this)[width] % 2 != 0 || (*this)[width] > (*this)[head])) {
      wrong(*find(width),
            "a size " + width + " that is even and at most " + head + " (" + std::to_string((*this)[head]) + ")");
    }
  }

  // Attributes.
  void at_least(const char* name, int64_t value, int64_t min) {
    check(value >= min, name, std::to_string(min) + " or more", std::to_string(value));
  }
  void epsilon(const char* name, float value) {
    check(std::isfinite(value) && value >= 0, name, "a finite number of 0 or more", std::to_string(value));
  }
  void one_of(const char* name, const std::string& value, const std::vector<std::string>& allowed) {
    std::string all;
    bool found = false;
    for (const std::string& each : allowed) {
      all += (all.empty() ? "" : " or ") + each;
      found = found || each == value;
    }
    check(found, name, all, "'" + value + "'");
  }
  void check(bool good, const char* name, const std::string& expected, const std::string& found) {
    if (!good) wrong(std::string(name) + " must be " + expected + ", but is " + found);
  }

 private:
  struct Size {
    std::string name;
    int64_t value;
    const char* argument;  // that decides it
    std::size_t dimension;
    std::vector<int64_t> sizes;
  };

  const Size* find(const std::string& name) const {
    for (const Size& size : sizes_) {
      if (size.name == name) return &size;
    }
    return nullptr;
  }

  void add(const ArgumentRow& row, const gert::StorageShape* shape) {
    if (shape == nullptr) return;
    const std::vector<int64_t> sizes = sizes_of(shape->GetOriginShape());
    std::string names;
    for (const std::string& name : row.sizes) names += (names.empty() ? "" : ", ") + name;
    if (sizes.size() != row.sizes.size()) {
      wrong({"", 0, row.name, 0, sizes}, std::to_string(row.sizes.size()) + " dimensions, [" + names + "]");
      return;
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::string& name = row.sizes[i];
      const Size here{name, sizes[i], row.name, i, sizes};
      const Size* known = find(name);
      if (name == "0" || name == "1") {
        if (sizes[i] != name[0] - '0') wrong(here, name[0] - '0', i, "[" + names + "]");
      } else if (known == nullptr) {
        sizes_.push_back(here);
      } else if (sizes[i] != known->value) {
        wrong(here, known->value, i, name + ", as of " + known->argument);
      }
    }
  }

  void wrong(const std::string& what) {
    if (error_.empty()) error_ = what;
  }
  void wrong(const Size& size, const std::string& expected) {
    wrong(std::string(size.argument) + " must have " + expected + ", but has shape " + text_of(size.sizes));
  }
  void wrong(const Size& size, int64_t expected, std::size_t dimension, const std::string& meaning) {
    wrong(size,
          "size " + std::to_string(expected) + " in dimension " + std::to_string(dimension) + " (" + meaning + ")");
  }

  const gert::TilingContext& context_;
  std::vector<Size> sizes_;
  std::string error_;
};

}  // namespace opp
