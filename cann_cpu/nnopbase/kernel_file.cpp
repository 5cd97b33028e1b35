// SPDX-License-Identifier: Apache-2.0
#include "kernel_file.h"

#include <sstream>

#include "cann_cpu/read_number.h"

namespace cann_cpu {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

template <class Number>
std::optional<std::vector<Number>> read_numbers(const std::string& text) {
  std::vector<Number> numbers;
  for (const std::string& part : split(text, ' ')) {
    const auto number = read_number<Number>(part);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace

std::optional<KernelDescription> read_kernel_description(const std::string& text) {
  const std::vector<std::string> lines = split(text, '\n');
  if (lines.size() != 5) return std::nullopt;
  const auto parameters = read_number<size_t>(lines[4]);
  if (!parameters) return std::nullopt;
  KernelDescription kernel{lines[0], lines[1], {}, std::nullopt, *parameters};
  for (const std::string& combination : split(lines[2], ';')) {
    auto numbers = read_numbers<int>(combination);
    if (!numbers) return std::nullopt;
    kernel.combinations.insert(std::move(*numbers));
  }
  if (lines[3] != "*") {
    const auto keys = read_numbers<uint64_t>(lines[3]);
    if (!keys) return std::nullopt;
    kernel.keys.emplace(keys->begin(), keys->end());
  }
  return kernel;
}

}  // namespace cann_cpu
