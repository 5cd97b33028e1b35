// SPDX-License-Identifier: Apache-2.0
// Reads a node's inputs and attributes.
#include "node_call.h"

#include "dtypes.h"

namespace cann_cpu::graph {

const Edge& NodeCall::source(size_t i) const {
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

at::Tensor NodeCall::moved(size_t i) {
  return node_.may_be_written ? in(i).clone(at::MemoryFormat::Contiguous) : values_.moved(in(i));
}

at::Tensor& NodeCall::referenced(size_t i) {
  const at::Tensor& tensor = in(i);
  const bool through = tensor.is_contiguous() && values_.owner_of(tensor) == Owner::caller;
  return through ? values_.at(source(i)) : writable(i);
}

namespace {

[[noreturn]] void missing(const std::string& name) { throw GraphError("attribute '" + name + "' is missing"); }

}  // namespace

int64_t NodeCall::integer(const std::string& name, int64_t fallback) const {
  const auto* value = find_attribute<int64_t>(node().attributes, name);
  return value == nullptr ? fallback : *value;
}

double NodeCall::real(const std::string& name, double fallback) const {
  const auto* value = find_attribute<float>(node().attributes, name);
  return value == nullptr ? fallback : widened(*value);
}

bool NodeCall::flag(const std::string& name, bool fallback) const {
  const auto* value = find_attribute<bool>(node().attributes, name);
  return value == nullptr ? fallback : *value;
}

std::string NodeCall::text(const std::string& name, const std::string& fallback) const {
  const auto* value = find_attribute<std::string>(node().attributes, name);
  return value == nullptr ? fallback : *value;
}

std::vector<int64_t> NodeCall::integers(const std::string& name, std::vector<int64_t> fallback) const {
  return integers_or(node().attributes, name, std::move(fallback));
}

at::ScalarType NodeCall::dtype(const std::string& name, at::ScalarType fallback) const {
  if (const auto* value = find_attribute<ge::DataType>(node().attributes, name)) {
    return scalar_type(*value);
  }
  const auto* number = find_attribute<int64_t>(node().attributes, name);
  return number == nullptr ? fallback : scalar_type(dtype_of_number(*number));
}

int64_t NodeCall::integer(const std::string& name) const {
  const auto* value = find_attribute<int64_t>(node().attributes, name);
  return value == nullptr ? (missing(name), 0) : *value;
}

at::ScalarType NodeCall::dtype(const std::string& name) const {
  const auto type = dtype(name, at::ScalarType::Undefined);
  return type == at::ScalarType::Undefined ? (missing(name), type) : type;
}

}  // namespace cann_cpu::graph
