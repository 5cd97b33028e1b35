// SPDX-License-Identifier: Apache-2.0
// A reader of JSON texts, as small as the attributes of a graph need.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

namespace cann_cpu::graph {

struct Json {
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json>;
  std::variant<std::nullptr_t, bool, double, std::string, Array, Object> value = nullptr;

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value); }
  // Each throws GraphError when the value is of another kind, or has no such member.
  double number() const;
  const std::string& text() const;
  const Array& array() const;
  const Json& member(const std::string& name) const;
};

// Throws GraphError.
Json parse_json(const std::string& text);

}  // namespace cann_cpu::graph
