// SPDX-License-Identifier: Apache-2.0
// The value of an attribute, in the form in which RuntimeAttrs gives it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exe_graph/runtime/continuous_vector.h"
#include "metadef/definition.h"

namespace cann_cpu {

struct AttributeValue {
  AttributeValue() = default;
  AttributeValue(const AttributeValue&) = delete;  // it points into itself
  AttributeValue& operator=(const AttributeValue&) = delete;

  void set(int64_t value) { integer = value, pointer = &integer; }
  void set(float value) { real = value, pointer = &real; }
  void set(bool value) { flag = value, pointer = &flag; }
  void set(const char* value) { text = value, pointer = text.c_str(); }
  template <class T>
  void set(const std::vector<T>& values) {
    const auto* first = reinterpret_cast<const char*>(values.data());
    bytes.assign(first, first + values.size() * sizeof(T));
    list = gert::ContinuousVector(bytes.data(), values.size());
    pointer = &list;
  }

  int64_t integer = 0;
  float real = 0;
  bool flag = false;
  std::string text;
  std::vector<char> bytes;
  gert::ContinuousVector list;
  const void* pointer = nullptr;
};

// An attribute that has a default, and is given no value.
CANN_EXPORT void set_default(AttributeValue& value, const ops::AttrDefinition& attribute);

}  // namespace cann_cpu
