// SPDX-License-Identifier: Apache-2.0
// Nodes that are aclnn functions, eager's own. A row names the function and says, in the order of its C parameters,
// where each argument comes from and how each output is made:
//
//   {"Elu", aclnn("Elu", in(0), scalar("alpha", 1), scalar("scale", 1), scalar("input_scale", 1), out(like(0)))},
#pragma once

#include <c10/core/Scalar.h>

#include "graph_engine/compiled_graph/aclnn_function.h"
#include "table.h"

namespace cann_cpu::graph {

// A call under construction.
struct AclnnCall {
  NodeCall& node;
  AclnnArguments arguments;
  std::vector<at::Tensor> outputs;
  std::vector<std::function<void(AclnnCall&)>> conversions;  // of outputs, after the call

  void set_output(size_t place, at::Tensor tensor);
};

using Parameter = std::function<void(AclnnCall&)>;

// Computes a tensor from a node's inputs and attributes.
using Rule = std::function<at::Tensor(NodeCall&)>;

NodeFunction aclnn_call(const char* name, std::vector<Parameter> parameters);

template <class... Parameters>
NodeFunction aclnn(const char* name, Parameters... parameters) {
  return aclnn_call(name, {Parameter(std::move(parameters))...});
}

constexpr int64_t kKeepPrecision = 0;  // cubeMathType
inline const at::Scalar kZero(0), kOne(1);

// Inputs, by their place in the node.
Parameter in(size_t i);
Parameter in(size_t i, at::ScalarType dtype);  // cast to this dtype
Parameter stored(size_t i);                    // in the format of its memory, FRACTAL_NZ or ND
Parameter optional(size_t i);                  // a null pointer where the node leaves it out
Parameter number(size_t i);                    // aclScalar, from a tensor of one element
Parameter number(size_t i, at::Scalar fallback);
Parameter integer(size_t i);   // int64_t, from a tensor of one element
Parameter integers(size_t i);  // aclIntArray, from the elements

// Attributes, and their defaults in the node type's prototype; those without one are required.
Parameter scalar(std::string name, std::optional<double> fallback = {});    // aclScalar
Parameter real(std::string name, std::optional<double> fallback = {});      // double
Parameter real32(std::string name, std::optional<double> fallback = {});    // float
Parameter integer(std::string name, std::optional<int64_t> fallback = {});  // int64_t and narrower
Parameter flag(const char* name, bool fallback);                            // bool
Parameter text(const char* name, const char* fallback);                     // char*
Parameter integers(const char* name, std::vector<int64_t> fallback);        // aclIntArray
// The place of the attribute's text in `all`, whose first is the default.
Parameter choice(const char* name, std::vector<std::string> all);

// What the row knows.
Parameter value(at::Scalar scalar);                // aclScalar
Parameter value(std::vector<at::Scalar> scalars);  // aclScalarList
Parameter value(at::Tensor tensor);                // aclTensor
Parameter value(std::vector<at::Tensor> tensors);  // aclTensorList
Parameter value(std::vector<int64_t> integers);    // aclIntArray
Parameter value(std::vector<bool> flags);          // aclBoolArray
Parameter absent();                                // a null pointer
Parameter plain(int64_t integer);                  // an integer or enumerator
Parameter plain(bool flag);
Parameter plain(double real);
Parameter computed(Rule rule);  // a tensor, not one of the node's outputs

// The node's outputs, in the order of the parameters where no place is given.
Parameter out(Rule rule);
Parameter out(size_t place, Rule rule);
Parameter out_as(at::ScalarType dtype, Rule rule);  // written as the rule says, then cast to this dtype
Parameter out_as(size_t place, at::ScalarType dtype, Rule rule);
Parameter int4_out(size_t place, Rule rule);                             // written eight in an int32
Parameter outs(std::function<std::vector<at::Tensor>(NodeCall&)> rule);  // all of them, an aclTensorList

// Not passed: what the function does not have.
Parameter only(const char* name, Attribute value);  // other values are rejected
Parameter one_of(const char* name, std::vector<Attribute> values);
Parameter ignore(const char* name);  // says nothing that the inputs do not
Parameter ignore(size_t i);

// New tensors.
at::Tensor new_tensor(at::IntArrayRef shape, at::ScalarType dtype);
Rule like(size_t i);
Rule like(size_t i, at::ScalarType dtype);
Rule promoted(std::vector<size_t> inputs);  // broadcast, of the common dtype
Rule broadcast(std::vector<size_t> inputs, at::ScalarType dtype);
Rule quotient(std::vector<size_t> inputs);                          // like promoted, but float for integers
Rule shaped(size_t i, const char* dtype, at::ScalarType fallback);  // input i is the shape, an attribute the dtype
Rule vector_of(size_t i);                                           // a float for every channel of an image
// An input's memory, to write to.
Rule written(size_t i);
Rule referenced(size_t i);

// aclnnName(self, out) and aclnnName(self, other, out): of the inputs' dtype, or of bool.
NodeFunction unary(const char* name);
NodeFunction predicate(const char* name);
NodeFunction binary(const char* name);
NodeFunction comparison(const char* name);

}  // namespace cann_cpu::graph
