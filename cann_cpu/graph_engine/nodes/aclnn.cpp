// SPDX-License-Identifier: Apache-2.0
// The parameters and rules that rows over aclnn functions are written with.
#include "aclnn.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

namespace cann_cpu::graph {
namespace {

const AclnnFunction& function(const std::string& name) {
  static std::map<std::string, AclnnFunction> found;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto entry = found.find(name);
  if (entry == found.end()) {
    std::string reason;
    const auto function = find_aclnn(name, reason);
    if (!function) {
      throw GraphError(reason);
    }
    entry = found.emplace(name, *function).first;
  }
  return entry->second;
}

std::vector<at::Tensor> tensors(NodeCall& n, const std::vector<size_t>& inputs) {
  std::vector<at::Tensor> tensors;
  for (const size_t i : inputs) {
    tensors.push_back(n.in(i));
  }
  return tensors;
}

at::ScalarType common_dtype(const std::vector<at::Tensor>& tensors) {
  auto state = at::native::ResultTypeState{};
  for (const at::Tensor& tensor : tensors) {
    state = at::native::update_result_type_state(tensor, state);
  }
  return at::native::result_type(state);
}

}  // namespace

void AclnnCall::set_output(size_t place, at::Tensor tensor) {
  outputs.resize(std::max(outputs.size(), place + 1));
  outputs[place] = std::move(tensor);
}

NodeFunction aclnn_call(const char* name, std::vector<Parameter> parameters) {
  // Looked up at the row's first call.
  const auto known = std::make_shared<std::atomic<const AclnnFunction*>>(nullptr);
  return [known, name = "aclnn" + std::string(name), parameters = std::move(parameters)](NodeCall& n) -> Outputs {
    AclnnCall call{n, {}, {}, {}};
    for (const Parameter& parameter : parameters) {
      parameter(call);
    }
    n.check_all_read();
    if (*known == nullptr) {
      *known = &function(name);
    }
    call.arguments.call(**known, n.stream());
    for (const auto& convert : call.conversions) {
      convert(call);
    }
    return std::move(call.outputs);
  };
}

Parameter in(size_t i) {
  return [=](AclnnCall& c) { c.arguments.tensor(c.node.in(i)); };
}
Parameter in(size_t i, at::ScalarType dtype) {
  return [=](AclnnCall& c) { c.arguments.tensor(c.node.in(i).to(dtype)); };
}
Parameter stored(size_t i) {
  return [=](AclnnCall& c) { c.arguments.tensor(c.node.stored(i)); };
}
Parameter optional(size_t i) {
  return [=](AclnnCall& c) { c.arguments.tensor(c.node.has(i) ? c.node.in(i) : at::Tensor()); };
}
Parameter number(size_t i) {
  return [=](AclnnCall& c) { c.arguments.scalar(c.node.number(i)); };
}
Parameter number(size_t i, at::Scalar fallback) {
  return [=](AclnnCall& c) { c.arguments.scalar(c.node.has(i) ? c.node.number(i) : fallback); };
}
Parameter integer(size_t i) {
  return [=](AclnnCall& c) { plain(c.node.integer(i))(c); };
}
Parameter integers(size_t i) {
  return [=](AclnnCall& c) { c.arguments.array(c.node.integers(i)); };
}

Parameter scalar(std::string name, std::optional<double> fallback) {
  return [=](AclnnCall& c) { c.arguments.scalar(c.node.real(name, fallback)); };
}
Parameter real(std::string name, std::optional<double> fallback) {
  return [=](AclnnCall& c) { c.arguments.real(c.node.real(name, fallback)); };
}
Parameter real32(std::string name, std::optional<double> fallback) {
  return [=](AclnnCall& c) { c.arguments.real32(static_cast<float>(c.node.real(name, fallback))); };
}
Parameter integer(std::string name, std::optional<int64_t> fallback) {
  return [=](AclnnCall& c) { plain(c.node.integer(name, fallback))(c); };
}
Parameter flag(const char* name, bool fallback) {
  return [=](AclnnCall& c) { plain(c.node.flag(name, fallback))(c); };
}
Parameter text(const char* name, const char* fallback) {
  return [=](AclnnCall& c) { c.arguments.text(c.node.text(name, fallback)); };
}
Parameter integers(const char* name, std::vector<int64_t> fallback) {
  return [=](AclnnCall& c) { c.arguments.array(c.node.integers(name, fallback)); };
}
Parameter choice(const char* name, std::vector<std::string> all) {
  return [=](AclnnCall& c) { plain(c.node.choice(name, all))(c); };
}

Parameter value(at::Scalar scalar) {
  return [=](AclnnCall& c) { c.arguments.scalar(scalar); };
}
Parameter value(std::vector<at::Scalar> scalars) {
  return [=](AclnnCall& c) { c.arguments.scalars(scalars); };
}
Parameter value(at::Tensor tensor) {
  return [=](AclnnCall& c) { c.arguments.tensor(tensor); };
}
Parameter value(std::vector<at::Tensor> tensors) {
  return [=](AclnnCall& c) {
    std::vector<StoredTensor> stored;
    for (const at::Tensor& tensor : tensors) {
      stored.push_back(in_rows(tensor));
    }
    c.arguments.list(stored);
  };
}
Parameter value(std::vector<int64_t> integers) {
  return [=](AclnnCall& c) { c.arguments.array(integers); };
}
Parameter value(std::vector<bool> flags) {
  return [=](AclnnCall& c) { c.arguments.array(flags); };
}
Parameter absent() { return value(at::Tensor()); }
Parameter plain(int64_t integer) {
  return [=](AclnnCall& c) { c.arguments.integer(static_cast<uint64_t>(integer)); };
}
Parameter plain(bool flag) { return plain(int64_t{flag}); }
Parameter plain(double real) {
  return [=](AclnnCall& c) { c.arguments.real(real); };
}
Parameter computed(Rule rule) {
  return [=](AclnnCall& c) { c.arguments.tensor(rule(c.node)); };
}

Parameter out(Rule rule) {
  return [=](AclnnCall& c) { out(c.outputs.size(), rule)(c); };
}
Parameter out(size_t place, Rule rule) {
  return [=](AclnnCall& c) {
    const at::Tensor tensor = rule(c.node);
    c.arguments.tensor(tensor);
    c.set_output(place, tensor);
  };
}
Parameter outs(std::function<std::vector<at::Tensor>(NodeCall&)> rule) {
  return [=](AclnnCall& c) {
    c.outputs = rule(c.node);
    value(c.outputs)(c);
  };
}
Parameter int4_out(size_t place, Rule rule) {
  return [=](AclnnCall& c) {
    out(place, rule)(c);
    c.conversions.push_back(
        [=](AclnnCall& done) { done.outputs[place] = int4_values(done.outputs[place]).flatten(-2); });
  };
}
Parameter out_as(at::ScalarType dtype, Rule rule) {
  return [=](AclnnCall& c) { out_as(c.outputs.size(), dtype, rule)(c); };
}
Parameter out_as(size_t place, at::ScalarType dtype, Rule rule) {
  return [=](AclnnCall& c) {
    out(place, rule)(c);
    c.conversions.push_back([=](AclnnCall& done) { done.outputs[place] = done.outputs[place].to(dtype); });
  };
}

Parameter only(const char* name, Attribute value) { return one_of(name, {std::move(value)}); }
Parameter one_of(const char* name, std::vector<Attribute> values) {
  return [=](AclnnCall& c) { c.node.one_of(name, values); };
}
Parameter ignore(const char* name) {
  return [=](AclnnCall& c) { c.node.ignore(name); };
}
Parameter ignore(size_t i) {
  return [=](AclnnCall& c) { c.node.ignore(i); };
}

at::Tensor new_tensor(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::empty(shape, at::TensorOptions().dtype(dtype));
}

Rule like(size_t i) {
  return [=](NodeCall& n) { return new_tensor(n.in(i).sizes(), n.in(i).scalar_type()); };
}
Rule like(size_t i, at::ScalarType dtype) {
  return [=](NodeCall& n) { return new_tensor(n.in(i).sizes(), dtype); };
}
Rule vector_of(size_t i) {
  return [=](NodeCall& n) { return new_tensor({n.in(i).size(1)}, at::kFloat); };
}
Rule promoted(std::vector<size_t> inputs) {
  return [=](NodeCall& n) { return broadcast(inputs, common_dtype(tensors(n, inputs)))(n); };
}
Rule broadcast(std::vector<size_t> inputs, at::ScalarType dtype) {
  return [=](NodeCall& n) {
    std::vector<int64_t> shape;
    for (const at::Tensor& tensor : tensors(n, inputs)) {
      shape = at::infer_size(shape, tensor.sizes());
    }
    return new_tensor(shape, dtype);
  };
}
Rule quotient(std::vector<size_t> inputs) {
  return [=](NodeCall& n) {
    const auto dtype = common_dtype(tensors(n, inputs));
    return broadcast(inputs, at::isIntegralType(dtype, /*includeBool=*/true) ? at::kFloat : dtype)(n);
  };
}
Rule shaped(size_t i, const char* dtype, at::ScalarType fallback) {
  return [=](NodeCall& n) { return new_tensor(n.integers(i), n.dtype(dtype, fallback)); };
}
Rule written(size_t i) {
  return [=](NodeCall& n) { return n.writable(i); };
}
Rule referenced(size_t i) {
  return [=](NodeCall& n) { return n.referenced(i); };
}

NodeFunction unary(const char* name) { return aclnn(name, in(0), out(like(0))); }
NodeFunction predicate(const char* name) { return aclnn(name, in(0), out(like(0, at::kBool))); }
NodeFunction binary(const char* name) { return aclnn(name, in(0), in(1), out(promoted({0, 1}))); }
NodeFunction comparison(const char* name) { return aclnn(name, in(0), in(1), out(broadcast({0, 1}, at::kBool))); }

}  // namespace cann_cpu::graph
