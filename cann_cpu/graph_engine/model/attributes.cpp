// SPDX-License-Identifier: Apache-2.0
// Conversions of attributes.
#include "model/attributes.h"

#include <charconv>
#include <cmath>
#include <sstream>
#include <type_traits>

#include "model/dtypes.h"

namespace cann_cpu::graph {
namespace {

void write(std::ostream& out, std::monostate) { out << "empty"; }
void write(std::ostream& out, int64_t value) { out << value; }
void write(std::ostream& out, float value) {
  char text[32];  // the shortest decimal
  out.write(text, std::to_chars(text, text + sizeof text, value).ptr - text);
}
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
  char text[32];
  const auto written = std::to_chars(text, text + sizeof text, value);
  double result = value;
  std::from_chars(text, written.ptr, result);
  return result;
}

std::string to_text(const Attribute& value) {
  std::ostringstream out;
  std::visit([&](const auto& held) { write(out, held); }, value);
  return out.str();
}

}  // namespace cann_cpu::graph
