// SPDX-License-Identifier: Apache-2.0
#include "combinations.h"

#include <algorithm>

namespace cann_cpu {
namespace {

std::string name_of_dtype(std::optional<at::ScalarType> dtype) {
  if (!dtype.has_value()) return "null";
  switch (*dtype) {
    case at::kFloat:
      return "float32";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kChar:
      return "int8";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kUInt64:
      return "uint64";
    default:
      return c10::toString(*dtype);
  }
}

std::vector<std::string> split_at(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (const auto part = text.substr(begin, end - begin); !part.empty()) parts.emplace_back(part);
    begin = end + 1;
  }
  return parts;
}

std::string joined(const std::vector<std::string>& parts, const char* last) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? last : ", ";
    text += parts[i];
  }
  return text;
}

}  // namespace

void check_combination(std::span<const GivenDtype> given, std::span<const char* const> rows) {
  size_t furthest = 0;
  std::vector<std::string> expected;
  for (const char* const row : rows) {
    const auto entries = split_at(row, ';');
    TORCH_CHECK(entries.size() == given.size(), "the row \"", row, "\" has ", entries.size(), " entries");
    size_t i = 0;
    std::vector<std::string> dtypes;
    for (; i < given.size(); ++i) {
      dtypes = split_at(entries[i], ' ');
      if (std::ranges::find(dtypes, name_of_dtype(given[i].dtype)) == dtypes.end()) break;
    }
    if (i == given.size()) return;
    if (i < furthest) continue;
    if (i > furthest) expected.clear();
    furthest = i;
    for (const std::string& dtype : dtypes) {
      if (std::ranges::find(expected, dtype) == expected.end()) expected.push_back(dtype);
    }
  }
  std::vector<std::string> before;
  for (const GivenDtype& tensor : given.first(furthest)) {
    before.push_back(std::string(tensor.name) + " is " + name_of_dtype(tensor.dtype));
  }
  const GivenDtype& wrong = given[furthest];
  TORCH_CHECK(false, wrong.name, wrong.dtype.has_value() ? " has dtype " : " is ", name_of_dtype(wrong.dtype),
              "; expected ", joined(expected, " or "), before.empty() ? "" : ", where ", joined(before, " and "));
}

}  // namespace cann_cpu
