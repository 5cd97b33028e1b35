// SPDX-License-Identifier: Apache-2.0
// Optimizers, and one operation on every tensor of a list, as those of torch.optim make them.
#include "aclnn.h"

#include <ATen/TensorOperators.h>

namespace cann_cpu::graph {
namespace {

// In float, as the optimizers compute; results are rounded once.
at::Tensor wide(const at::Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

// The elements of `stat` are 1 in a parameter's first step, which dampening leaves out. Without momentum the operator
// writes the parameters only.
Outputs stochastic_gradient_descent(NodeCall& n) {
  const bool nesterov = n.flag("nesterov", false);
  const double dampening = n.real("dampening", 0), decay = n.real("weight_decay", 0);
  reject_unless(!nesterov || dampening == 0, "nesterov with a dampening other than 0");
  const at::Tensor rate = without_dimensions(wide(n.in(2))), momentum = without_dimensions(wide(n.in(4)));
  at::Tensor& parameters = n.referenced(0);
  const at::Tensor gradient = decay == 0 ? wide(n.in(1)) : wide(n.in(1)) + wide(parameters) * decay;
  const at::Tensor sum = wide(n.in(3)) * momentum + gradient - gradient * (1 - wide(n.in(5))) * dampening;
  parameters.copy_(wide(parameters) - (nesterov ? gradient + sum * momentum : sum) * rate);
  if (momentum.item<double>() != 0) {
    n.referenced(3).copy_(sum);
    n.referenced(5).zero_();
  }
  return parameters;
}

Outputs momentum_step(NodeCall& n) {
  n.ignore("use_locking");
  const at::Tensor rate = without_dimensions(wide(n.in(2))), momentum = without_dimensions(wide(n.in(4)));
  const at::Tensor gradient = wide(n.in(3)), sum = wide(n.in(1)) * momentum + gradient;
  at::Tensor& var = n.referenced(0);
  var.copy_(wide(var) - (n.flag("use_nesterov", false) ? gradient + sum * momentum : sum) * rate);
  n.referenced(1).copy_(sum);
  return var;
}

// List i of a node whose inputs are `lists` lists of equal length, and then one tensor if one input remains.
std::vector<at::Tensor> list_at(NodeCall& n, size_t i, size_t lists) {
  const size_t length = n.input_count() / lists;
  return n.in_range(i * length, length);
}
Parameter list_of(size_t i, size_t lists) {
  return [=](AclnnCall& c) { value(list_at(c.node, i, lists))(c); };
}

// The last input, which is no part of a list: a number, or a number for each tensor.
size_t last(const NodeCall& n) { return n.input_count() - 1; }
Parameter last_tensor() {
  return [](AclnnCall& c) { in(last(c.node))(c); };
}
Parameter last_number() {
  return [](AclnnCall& c) { number(last(c.node))(c); };
}
Parameter last_numbers() {
  return [](AclnnCall& c) {
    std::vector<at::Scalar> numbers;
    for (const at::Tensor& element : c.node.in(last(c.node)).unbind()) {
      numbers.push_back(number_in(element));
    }
    value(numbers)(c);
  };
}
using Inputs = std::function<std::vector<at::Tensor>(NodeCall&)>;
Parameter outs_like(Inputs inputs) {
  return outs([=](NodeCall& n) {
    auto tensors = inputs(n);
    for (at::Tensor& tensor : tensors) {
      tensor = new_tensor(tensor.sizes(), tensor.scalar_type());
    }
    return tensors;
  });
}
Parameter outs_like(size_t lists) {
  return outs_like([=](NodeCall& n) { return list_at(n, 0, lists); });
}
std::vector<at::Tensor> all_but_last(NodeCall& n) { return n.in_range(0, last(n)); }
std::vector<at::Tensor> all_but_first(NodeCall& n) { return n.in_from(1); }

Parameter listed(Inputs inputs) {
  return [=](AclnnCall& c) { value(inputs(c.node))(c); };
}

// A number for each tensor.
Parameter norms() {
  return outs([](NodeCall& n) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : all_but_last(n)) {
      tensors.push_back(new_tensor({}, tensor.scalar_type()));
    }
    return tensors;
  });
}

NodeFunction each(const char* name) { return aclnn(name, list_of(0, 1), outs_like(1)); }
NodeFunction with_number(const char* name) {
  return aclnn(name, listed(all_but_last), last_number(), outs_like(all_but_last));
}
NodeFunction with_numbers(const char* name) {
  return aclnn(name, listed(all_but_last), last_numbers(), outs_like(all_but_last));
}
NodeFunction of_two(const char* name) { return aclnn(name, list_of(0, 2), list_of(1, 2), outs_like(2)); }
NodeFunction of_two_with_number(const char* name) {
  return aclnn(name, list_of(0, 2), list_of(1, 2), last_number(), outs_like(2));
}
NodeFunction of_three(const char* name) {
  return aclnn(name, list_of(0, 3), list_of(1, 3), list_of(2, 3), outs_like(3));
}
NodeFunction of_three_with(const char* name, const Parameter& last) {
  return aclnn(name, list_of(0, 3), list_of(1, 3), list_of(2, 3), last, outs_like(3));
}

}  // namespace

const NodeTable kForeachNodes = {
    {"SGD", stochastic_gradient_descent, "", "dampening weight_decay nesterov"},
    {"ApplyMomentum", momentum_step, "", "use_nesterov use_locking"},
    {"ApplyAdamD",
     aclnn("ApplyAdam", out(0, referenced(0)), out(1, referenced(1)), out(2, referenced(2)), in(3), in(4), in(5), in(6),
           in(7), in(8), in(9), flag("use_locking", false), flag("use_nesterov", false)),
     "", "use_locking use_nesterov"},
    {"ApplyAdamW",
     aclnn("ApplyAdamW", out(0, referenced(0)), out(1, referenced(1)), out(2, referenced(2)), in(3), in(4), in(5),
           in(6), in(7), in(8), in(9), in(10), optional(11), flag("amsgrad", false), flag("maximize", false))},
    {"ForeachAbs", each("ForeachAbs")},
    {"ForeachACos", each("ForeachAcos")},
    {"ForeachASin", each("ForeachAsin")},
    {"ForeachATan", each("ForeachAtan")},
    {"ForeachCos", each("ForeachCos")},
    {"ForeachCosh", each("ForeachCosh")},
    {"ForeachErf", each("ForeachErf")},
    {"ForeachErfc", each("ForeachErfc")},
    {"ForeachExp", each("ForeachExp")},
    {"ForeachExpm1", each("ForeachExpm1")},
    {"ForeachLog", each("ForeachLog")},
    {"ForeachLog10", each("ForeachLog10")},
    {"ForeachLog1p", each("ForeachLog1p")},
    {"ForeachLog2", each("ForeachLog2")},
    {"ForeachSigmoid", each("ForeachSigmoid")},
    {"ForeachSin", each("ForeachSin")},
    {"ForeachSinh", each("ForeachSinh")},
    {"ForeachTan", each("ForeachTan")},
    {"ForeachTanh", each("ForeachTanh")},
    {"ForeachAddScalar", with_number("ForeachAddScalarV2")},
    {"ForeachAddScalarList", with_numbers("ForeachAddScalarList")},
    {"ForeachAddList", of_two_with_number("ForeachAddListV2")},
    {"ForeachSubScalar", with_number("ForeachSubScalarV2")},
    {"ForeachSubScalarList", with_numbers("ForeachSubScalarList")},
    {"ForeachSubList", of_two_with_number("ForeachSubListV2")},
    {"ForeachMulScalar", with_number("ForeachMulScalarV2")},
    {"ForeachMulScalarList", with_numbers("ForeachMulScalarList")},
    {"ForeachMulList", of_two("ForeachMulList")},
    {"ForeachDivScalar", with_number("ForeachDivScalarV2")},
    {"ForeachDivScalarList", with_numbers("ForeachDivScalarList")},
    {"ForeachDivList", of_two("ForeachDivList")},
    {"ForeachMaximumScalar", with_number("ForeachMaximumScalarV2")},
    {"ForeachMaximumScalarList", with_numbers("ForeachMaximumScalarList")},
    {"ForeachMaximumList", of_two("ForeachMaximumList")},
    {"ForeachMinimumScalar", with_number("ForeachMinimumScalarV2")},
    {"ForeachMinimumScalarList", with_numbers("ForeachMinimumScalarList")},
    {"ForeachMinimumList", of_two("ForeachMinimumList")},
    {"ForeachPowScalar", with_number("ForeachPowScalarV2")},
    {"ForeachPowScalarList", with_numbers("ForeachPowScalarList")},
    {"ForeachPowList", of_two("ForeachPowList")},
    {"ForeachPowScalarAndTensor",
     aclnn("ForeachPowScalarAndTensor", number(0), listed(all_but_first), outs_like(all_but_first))},
    {"ForeachAddcmulScalar", of_three_with("ForeachAddcmulScalarV2", last_number())},
    {"ForeachAddcmulScalarList", of_three_with("ForeachAddcmulScalarList", last_tensor())},
    {"ForeachAddcmulList", of_three_with("ForeachAddcmulScalarList", last_tensor())},
    {"ForeachAddcdivScalar", of_three_with("ForeachAddcdivScalarV2", last_number())},
    {"ForeachAddcdivScalarList", of_three_with("ForeachAddcdivScalarList", last_tensor())},
    {"ForeachAddcdivList", of_three_with("ForeachAddcdivScalarList", last_tensor())},
    {"ForeachLerpScalar", of_two_with_number("ForeachLerpScalar")},
    {"ForeachLerpList", of_three("ForeachLerpList")},
    {"ForeachRoundOffNumber", with_number("ForeachRoundOffNumberV2")},
    {"ForeachNorm", aclnn("ForeachNorm", listed(all_but_last), last_number(), norms())},
};

}  // namespace cann_cpu::graph
