// SPDX-License-Identifier: Apache-2.0
#include "cann_cpu/signature.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "cann_cpu/dtypes.h"

namespace cann_cpu {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(' ');
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (const auto part = trimmed(text.substr(begin, end - begin)); !part.empty()) parts.push_back(part);
    begin = end + 1;
  }
  return parts;
}

// "float16 or bfloat16"
std::string alternatives(const std::vector<std::string_view>& all) {
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0) text += i + 1 == all.size() ? " or " : ", ";
    text += all[i];
  }
  return text;
}

}  // namespace

std::string_view parameters_in(std::string_view source) {
  source.remove_prefix(source.find('(') + 1);
  int depth = 1;
  size_t end = 0;
  while (end < source.size() && (depth += (source[end] == '(') - (source[end] == ')')) > 0) ++end;
  source = source.substr(0, end);
  const bool has_phase = source.starts_with("Phase ") || source.starts_with("cann_cpu::Phase ");
  return has_phase ? trimmed(source.substr(source.find(',') + 1)) : source;
}

std::vector<std::string> parameter_names(std::string_view source) {
  std::vector<std::string> names(1);
  int depth = 0;
  for (const char character : parameters_in(source)) {
    depth += (character == '<' || character == '(') - (character == '>' || character == ')');
    if (character == ',' && depth == 0) {
      names.emplace_back();
    } else if (character == ' ' || character == '>' || character == '*' || character == '&') {
      names.back().clear();
    } else {
      names.back() += character;
    }
  }
  return names;
}

std::string in_brackets(const char* source, size_t position) {
  const auto names = parameter_names(source);
  if (position >= names.size() || names[position].empty()) return "";
  return std::string(" (").append(names[position]).append(")");
}

void check_dtypes(std::string_view source, std::string_view dtypes, const Operands& operands) {
  const auto names = parameter_names(source);
  std::map<std::string_view, std::vector<std::string>> given;  // the dtypes of each tensor parameter
  for (const TensorParameter& parameter : operands.parameters) {
    auto& of_parameter = given[names.at(parameter.argument - 1)];
    for (size_t i = 0; i < parameter.count; ++i) {
      of_parameter.push_back(dtype_name(operands.given[parameter.first + i]->dtype));
    }
  }
  for (const auto entry : split(dtypes, ';')) {
    const size_t colon = entry.find(':');
    auto expected = split(entry.substr(colon + 1), ' ');
    std::string like;
    if (expected.front() == "as") {
      const auto& other = given.at(expected.at(1));
      if (other.empty()) continue;  // null, so that there is nothing to be like
      like = ", as " + std::string(expected[1]);
      expected = {other.front()};
    }
    for (const auto name : split(entry.substr(0, colon), ',')) {
      const auto& all = given.at(name);
      for (size_t i = 0; i < all.size(); ++i) {
        if (std::ranges::find(expected, all[i]) != expected.end()) continue;
        std::string place(name);
        if (all.size() > 1) place.append("[").append(std::to_string(i)).append("]");
        throw std::invalid_argument(place + " has dtype " + all[i] + "; expected " + alternatives(expected) + like);
      }
    }
  }
}

}  // namespace cann_cpu
