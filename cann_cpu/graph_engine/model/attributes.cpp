// SPDX-License-Identifier: Apache-2.0
// Conversions of attributes.
#include "attributes.h"

#include <charconv>
#include <cmath>
#include <sstream>
#include <type_traits>

#include "dtypes.h"

namespace cann_cpu::graph {
namespace {

std::string shortest_decimal(float value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

void write(std::ostream& out, std::monostate) { out << "empty"; }
void write(std::ostream& out, int64_t value) { out << value; }
void write(std::ostream& out, float value) { out << shortest_decimal(value); }
void write(std::ostream& out, bool value) { out << (value ? "true" : "false"); }
void write(std::ostream& out, const std::string& value) { out << '"' << value << '"'; }
void write(std::ostream& out, ge::DataType value) { out << dtype_name(value); }
void write(std::ostream& out, const std::shared_ptr<const ConstTensor>&) { out << "a tensor"; }
template <class T>
void write(std::ostream& out, const std::vector<T>& values) {
  out << '[';
  for (size_t i = 0; i < values.size(); ++i) {
    out << (i == 0 ? "" : ", ");
    write(out, static_cast<T>(values[i]));
  }
  out << ']';
}

}  // namespace

double widened(float value) {
  if (!std::isfinite(value)) {
    return value;
  }
  const std::string text = shortest_decimal(value);
  double result = value;
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

std::string to_text(const Attribute& value) {
  std::ostringstream out;
  std::visit([&](const auto& held) { write(out, held); }, value);
  return out.str();
}

}  // namespace cann_cpu::graph
