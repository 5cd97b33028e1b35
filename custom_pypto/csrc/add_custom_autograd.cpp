// SPDX-License-Identifier: Apache-2.0
// add_custom: the sum of two tensors with broadcasting, type promotion and gradients; the operator to start from.
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "aclnn_add_custom.h"
#include "aclnn_add_custom_grad.h"
#include "operator.h"
#include "ops_function.h"

// CANN's function, with the parameters that op-plugin gives it.
extern "C" int aclnnAddGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclScalar* alpha,
                                        const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);

namespace custom_pypto {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr at::ScalarType kDtypes[] = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kChar,
                                      at::kByte, at::kShort,    at::kInt,   at::kLong,   at::kBool};

// The dtypes that the vector unit adds; our kernel takes no others.
constexpr at::ScalarType kVectorDtypes[] = {at::kHalf, at::kBFloat16, at::kFloat, at::kShort, at::kInt};

// A CPU tensor without dimensions goes along with a tensor on an NPU, as in torch.add.
bool is_cpu_scalar(const Tensor& tensor) { return tensor.is_cpu() && tensor.dim() == 0; }

// A size that only the data decides is taken not to be: it then equals the other one.
bool is_one(const c10::SymInt& size) { return size.sym_eq(1).guard_or_false(__FILE__, __LINE__); }

// The sizes that `self` and `other` broadcast to.
at::SymDimVector broadcast(const Checks& checks, const Tensor& self, const Tensor& other) {
  const bool self_is_longer = self.dim() >= other.dim();
  const auto longer = self_is_longer ? self.sym_sizes() : other.sym_sizes();
  const auto shorter = self_is_longer ? other.sym_sizes() : self.sym_sizes();
  at::SymDimVector sizes(longer.begin(), longer.end());
  for (size_t i = 0; i < shorter.size(); ++i) {
    c10::SymInt& size = sizes[longer.size() - shorter.size() + i];
    if (is_one(size)) {
      size = shorter[i];
    } else if (!is_one(shorter[i]) && !size.sym_eq(shorter[i]).expect_true(__FILE__, __LINE__)) {
      checks.reject("other", c10::str("broadcast with 'self' of shape ", self.sym_sizes()),
                    c10::str("its shape is ", other.sym_sizes()));
    }
  }
  return sizes;
}

// Checks the arguments, under eager and on Meta alike, and allocates the result.
Tensor check_add_custom(const Checks& checks, const Tensor& self, const Tensor& other) {
  const ArgumentTable table(checks,
                            {{"self", self, kDtypes, {}, Use::kScalar}, {"other", other, kDtypes, {}, Use::kScalar}});
  const Tensor& array = is_cpu_scalar(self) ? other : self;
  return at::empty_symint(broadcast(checks, self, other), array.options().dtype(at::result_type(self, other)));
}

// Two separate tensors, both equal to the gradient: the schema allows no aliases.
std::tuple<Tensor, Tensor> check_add_custom_backward(const Checks& checks, const Tensor& self) {
  const ArgumentTable table(checks, {{"self", self, kDtypes}});
  return {at::empty_symint(self.sym_sizes(), self.options()), at::empty_symint(self.sym_sizes(), self.options())};
}

// Of the result's dtype, on its device.
Tensor converted(const Tensor& tensor, const Tensor& out) {
  const bool is_it = tensor.scalar_type() == out.scalar_type() && tensor.device() == out.device();
  return is_it ? tensor : tensor.to(out.options());
}

void launch_add_custom(const Tensor& self, const Tensor& other, const Tensor& out) {
  if (out.numel() == 0) {
    return;
  }
  const Tensor left = converted(self, out), right = converted(other, out);
  if (std::ranges::find(kVectorDtypes, out.scalar_type()) != std::end(kVectorDtypes)) {
    EXEC_NPU_CMD(aclnnAddCustom, left, right, out);
  } else {
    EXEC_NPU_CMD(aclnnAdd, left, right, at::Scalar(1), out);
  }
}

struct AddCustom : torch::autograd::Function<AddCustom> {
  static Tensor forward(AutogradContext* ctx, const Tensor& self, const Tensor& other) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    Tensor out = add_custom(self, other);
    ctx->saved_data["self_sizes"] = self.sym_sizes();
    ctx->saved_data["self_dtype"] = self.scalar_type();
    ctx->saved_data["other_sizes"] = other.sym_sizes();
    ctx->saved_data["other_dtype"] = other.scalar_type();
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto [grad_self, grad_other] = add_custom_backward(grads[0]);
    const auto saved = [ctx](const char* name) { return ctx->saved_data.at(name); };
    return {share(grad_self, saved("self_sizes"), saved("self_dtype")),
            share(grad_other, saved("other_sizes"), saved("other_dtype"))};
  }

 private:
  // An input's share of the gradient: it was broadcast and promoted, so its gradient is summed and cast back.
  static Tensor share(const Tensor& grad, const c10::IValue& sizes, const c10::IValue& dtype) {
    const at::ScalarType type = dtype.toScalarType();
    return at::isFloatingType(type) ? grad.sum_to_size_symint(sizes.toSymIntVector()).to(type) : Tensor();
  }
};

struct AddCustomBackward : torch::autograd::Function<AddCustomBackward> {
  static variable_list forward(AutogradContext*, const Tensor& grad) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [grad_self, grad_other] = add_custom_backward(grad);
    return {grad_self, grad_other};
  }

  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {add_custom(grads[0], grads[1])};
  }
};

bool is_differentiated(const Tensor& tensor) {
  return (tensor.requires_grad() && at::GradMode::is_enabled()) || tensor._fw_grad(/*level=*/0).defined();
}

Tensor add_custom_autograd(const Tensor& self, const Tensor& other) {
  const Checks checks("custom_pypto::add_custom");
  checks.defined("self", self);
  checks.defined("other", other);
  if (!is_differentiated(self) && !is_differentiated(other)) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return add_custom(self, other);
  }
  reject_transforms("custom_pypto::add_custom");
  return AddCustom::apply(self, other);
}

std::tuple<Tensor, Tensor> add_custom_backward_autograd(const Tensor& grad) {
  reject_transforms("custom_pypto::add_custom_backward");
  const variable_list grads = AddCustomBackward::apply(grad);
  return {grads[0], grads[1]};
}

TORCH_LIBRARY_FRAGMENT(custom_pypto, m) {
  implement<check_add_custom>(m, "custom_pypto::add_custom",
                              [](const auto&... arguments) { launch_add_custom(arguments...); });
  implement<check_add_custom_backward>(m, "custom_pypto::add_custom_backward", [](const auto&... arguments) {
    EXEC_NPU_CMD(aclnnAddCustomGrad, arguments...);
  });
}

void register_autograd(torch::Library& m) {
  m.impl("add_custom", &add_custom_autograd);
  m.impl("add_custom_backward", &add_custom_backward_autograd);
}

TORCH_LIBRARY_IMPL(custom_pypto, AutogradPrivateUse1, m) { register_autograd(m); }
TORCH_LIBRARY_IMPL(custom_pypto, AutogradMeta, m) { register_autograd(m); }

}  // namespace

at::Tensor add_custom(const Tensor& self, const Tensor& other) {
  static const auto op = find_operator<Signature<check_add_custom>>("custom_pypto::add_custom");
  return op.call(self, other);
}

std::tuple<Tensor, Tensor> add_custom_backward(const Tensor& grad) {
  static const auto op = find_operator<Signature<check_add_custom_backward>>("custom_pypto::add_custom_backward");
  return op.call(grad);
}

}  // namespace custom_pypto
