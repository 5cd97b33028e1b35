// SPDX-License-Identifier: Apache-2.0
// Reads a node's inputs and attributes.
#include "node_call.h"

#include <algorithm>

#include "graph_engine/model/dtypes.h"

namespace cann_cpu::graph {

void NodeCall::ignore(size_t i) const {
  if (i < read_inputs_.size()) {
    read_inputs_[i] = true;
  }
}

const Edge& NodeCall::source(size_t i) const {
  ignore(i);
  if (!has(i)) {
    throw GraphError("input " + std::to_string(i) + " is missing");
  }
  return node_.inputs[i];
}

const at::Tensor& NodeCall::in(size_t i) const { return values_.at(source(i)); }

StoredTensor NodeCall::stored(size_t i) const { return values_.stored(source(i)); }

std::vector<int64_t> NodeCall::shape(size_t i) const { return values_.shape(source(i)); }

std::vector<at::Tensor> NodeCall::in_from(size_t i) const {
  return in_range(i, node_.inputs.size() < i ? 0 : node_.inputs.size() - i);
}

std::vector<at::Tensor> NodeCall::in_range(size_t i, size_t count) const {
  std::vector<at::Tensor> tensors;
  for (size_t k = i; k < i + count; ++k) {
    tensors.push_back(in(k));
  }
  return tensors;
}

std::vector<int64_t> NodeCall::integers(size_t i) const {
  const at::Tensor tensor = in(i).to(at::kLong).contiguous();
  const auto* begin = tensor.const_data_ptr<int64_t>();
  return {begin, begin + tensor.numel()};
}

int64_t NodeCall::integer(size_t i) const {
  const auto values = integers(i);
  if (values.size() != 1) {
    throw GraphError("input " + std::to_string(i) + " has " + std::to_string(values.size()) + " elements, expected 1");
  }
  return values[0];
}

at::Tensor NodeCall::contiguous(size_t i) {
  return node_.may_be_written ? in(i).clone(at::MemoryFormat::Contiguous) : values_.contiguous(in(i));
}

at::Tensor& NodeCall::referenced(size_t i) {
  const at::Tensor& tensor = in(i);
  const bool through = tensor.is_contiguous() && values_.owner_of(tensor) == Owner::caller;
  return through ? values_.at(source(i)) : writable(i);
}

namespace {

template <class T>
T required(const std::string& name, const std::optional<T>& value) {
  if (!value) {
    throw GraphError("attribute '" + name + "' is missing");
  }
  return *value;
}

}  // namespace

void NodeCall::check_all_read() const {
  for (const auto& [name, value] : node().attributes) {
    const auto read = std::find(read_attributes_.begin(), read_attributes_.end(), &value);
    if (read == read_attributes_.end() && !is_hint(name)) {
      throw GraphError("attribute '" + name + "', here " + to_text(value) + ", is not implemented");
    }
  }
  for (size_t i = 0; i < node_.inputs.size(); ++i) {
    if (has(i) && !read_inputs_[i]) {
      const std::string name = input_name(i).empty() ? std::to_string(i) : "'" + input_name(i) + "'";
      throw GraphError("input " + name + " is not implemented; leave it out");
    }
  }
}

const Attribute* NodeCall::attribute(const std::string& name) const {
  const auto found = node().attributes.find(name);
  if (found == node().attributes.end()) {
    return nullptr;
  }
  read_attributes_.push_back(&found->second);
  return &found->second;
}

template <class T>
const T* NodeCall::find(const std::string& name) const {
  const Attribute* given = attribute(name);
  if (given == nullptr) {
    return nullptr;
  }
  const T* value = std::get_if<T>(given);
  if (value == nullptr) {
    throw GraphError("attribute '" + name + "', here " + to_text(*given) + ", has another type than the node's");
  }
  return value;
}

int64_t NodeCall::integer(const std::string& name, std::optional<int64_t> fallback) const {
  const auto* value = find<int64_t>(name);
  return value == nullptr ? required(name, fallback) : *value;
}

double NodeCall::real(const std::string& name, std::optional<double> fallback) const {
  const auto* value = find<float>(name);
  return value == nullptr ? required(name, fallback) : widened(*value);
}

bool NodeCall::flag(const std::string& name, bool fallback) const {
  const auto* value = find<bool>(name);
  return value == nullptr ? fallback : *value;
}

std::string NodeCall::text(const std::string& name, const std::string& fallback) const {
  const auto* value = find<std::string>(name);
  return value == nullptr ? fallback : *value;
}

std::vector<int64_t> NodeCall::integers(const std::string& name, std::vector<int64_t> fallback) const {
  const auto* value = find<std::vector<int64_t>>(name);
  return value == nullptr ? std::move(fallback) : *value;
}

at::ScalarType NodeCall::dtype(const std::string& name, std::optional<at::ScalarType> fallback) const {
  const Attribute* value = attribute(name);
  if (value == nullptr) {
    return required(name, fallback);
  }
  const auto* dtype = std::get_if<ge::DataType>(value);
  const int64_t number = dtype == nullptr ? *find<int64_t>(name) : int64_t{*dtype};
  return number == ge::DT_UNDEFINED && fallback.has_value() ? *fallback : scalar_type(dtype_of_number(number));
}

int64_t NodeCall::choice(const std::string& name, const std::vector<std::string>& all) const {
  const auto found = std::find(all.begin(), all.end(), text(name, all.front()));
  if (found == all.end()) {
    throw GraphError("attribute '" + name + "' = " + to_text(*attribute(name)) + " is not implemented");
  }
  return found - all.begin();
}

void NodeCall::one_of(const std::string& name, const std::vector<Attribute>& values) const {
  const Attribute* given = attribute(name);
  if (given != nullptr && std::find(values.begin(), values.end(), *given) == values.end()) {
    std::string expected;
    for (const Attribute& value : values) {
      expected += (expected.empty() ? "" : " or ") + to_text(value);
    }
    throw GraphError("attribute '" + name + "' = " + to_text(*given) + " is not implemented, only " + expected);
  }
}

}  // namespace cann_cpu::graph
