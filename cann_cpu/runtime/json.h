// SPDX-License-Identifier: Apache-2.0
// A reader of JSON: of aclInit's file, of rank tables, and of the rules in graphs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "cann_cpu/export.h"

namespace cann_cpu {

struct CANN_EXPORT JsonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct CANN_EXPORT Json {
  struct Literal {
    std::string text;  // null, true, false or a number, as it is written
  };
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json>;
  std::variant<Literal, std::string, Array, Object> value;

  bool is_null() const;
  // What some files write as a number, and others as a text; nothing if it is neither.
  const std::string* scalar() const;
  // Such a one, if it is an integer of 31 bits.
  std::optional<int32_t> index() const;

  // Each throws JsonError when the value is of another kind, or has no such member.
  double number() const;
  const std::string& text() const;
  const Array& array() const;
  const Object& object() const;
  const Json& member(const std::string& name) const;
  // Null if there is none.
  const Json* find(const std::string& name) const;
};

// Throws JsonError.
CANN_EXPORT Json parse_json(const std::string& text);

}  // namespace cann_cpu
