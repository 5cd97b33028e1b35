// SPDX-License-Identifier: Apache-2.0
// JSON, as nlohmann's library reads and writes it: aclInit's file, rank tables, rules in graphs, reports and profiles.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cann_cpu {

struct JsonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Json {
  struct Literal {
    std::string text;  // null, true, false or a number, as it is written
  };
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in their order
  std::variant<Literal, std::string, Array, Object> value;

  Json() : value(Literal{"null"}) {}
  Json(Literal literal) : value(std::move(literal)) {}
  Json(std::same_as<bool> auto truth) : value(Literal{truth ? "true" : "false"}) {}
  template <std::integral Integer>
    requires(!std::same_as<Integer, bool>)
  Json(Integer integer) : value(Literal{std::to_string(integer)}) {}
  Json(std::string text) : value(std::move(text)) {}
  Json(std::string_view text) : value(std::string(text)) {}
  Json(const char* text) : value(std::string(text)) {}
  Json(Array array) : value(std::move(array)) {}
  Json(Object object) : value(std::move(object)) {}
  // A number with that many digits after the decimal point; null if JSON cannot express the number.
  static Json rounded(double number, int digits);

  bool is_null() const;
  // A value that some files write as a number and others as a text; null if it is neither.
  const std::string* scalar() const;
  // The same value if it is an integer of 31 bits.
  std::optional<int32_t> index() const;

  // Each throws JsonError when the value is of another kind, or has no such member.
  double number() const;
  const std::string& text() const;
  const Array& array() const;
  const Object& object() const;
  const Json& member(std::string_view name) const;
  // Null if there is none.
  const Json* find(std::string_view name) const;
};

// Throws JsonError.
Json parse_json(const std::string& text);

// In one line. Bytes of texts that are no UTF-8 are replaced.
std::string to_text(const Json& json);

}  // namespace cann_cpu
