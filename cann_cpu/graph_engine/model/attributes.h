// SPDX-License-Identifier: Apache-2.0
// Access to a node's attributes by name and type.
#pragma once

#include "model.h"

namespace cann_cpu::graph {

// The attribute's value when it is there and has this type, else nullptr.
template <class T>
const T* find_attribute(const Attributes& attributes, const std::string& name) {
  const auto found = attributes.find(name);
  return found == attributes.end() ? nullptr : std::get_if<T>(&found->second);
}

// Whether the attribute asks for nothing: torchair's and the engine's own names, and where the model says which layout
// an input or output has, for a compiler that may change it.
inline bool is_hint(const std::string& name) {
  return name.starts_with('_') || name == "input_layout_info" || name == "output_layout_info";
}

inline std::vector<int64_t> integers_or(const Attributes& attributes, const std::string& name,
                                        std::vector<int64_t> fallback) {
  const auto* value = find_attribute<std::vector<int64_t>>(attributes, name);
  return value == nullptr ? std::move(fallback) : *value;
}

// An attribute's float as the double that its shortest decimal names: 0.1f gives 0.1, the number that the author wrote
// and that eager passes. Rounded to float again it is the same float.
double widened(float value);

// For messages: 1.5, "mean", [1, 2].
std::string to_text(const Attribute& value);

}  // namespace cann_cpu::graph
