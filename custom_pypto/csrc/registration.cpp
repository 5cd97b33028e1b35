// SPDX-License-Identifier: Apache-2.0
// Defines operators, with the kernels that all of them share.
#include "registration.h"

#include <ATen/FuncTorchTLS.h>
#include <ATen/MemoryOverlap.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/functions/basic_ops.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "arguments/checks.h"

namespace custom_pypto {
namespace {

// The tensors of an argument: itself, those of a list, or none.
std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensor()) {
    return {value.toTensor()};
  }
  return value.isTensorList() ? value.toTensorVector() : std::vector<at::Tensor>();
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Whether two elements of a tensor may lie at one address. No view that was cut out of a dense tensor has such
// elements.
bool overlaps_itself(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || at::has_internal_overlap(tensor) == at::MemOverlap::No) {
    return false;
  }
  if (tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    return at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
  }
  c10::SmallVector<int64_t, 8> dims(tensor.dim());
  std::iota(dims.begin(), dims.end(), 0);
  std::ranges::sort(dims, {}, [&](int64_t dim) { return tensor.stride(dim); });
  int64_t reach = 0;  // of the elements along the dimensions so far
  for (const int64_t dim : dims) {
    if (tensor.size(dim) > 1 && tensor.stride(dim) <= reach) {
      return tensor.numel() != 0;
    }
    reach += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return false;
}

// Operators that write to arguments, on every device and on Meta: none of them may overlap itself, and each counts as
// written, so that a backward that saved it before finds out.
void write(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto values = torch::jit::last(*stack, schema.arguments().size());
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!is_written(schema.arguments()[i])) {
      continue;
    }
    for (at::Tensor& tensor : tensors_of(values[i])) {
      if (!tensor.defined()) {
        continue;  // rejected by name below
      }
      if (overlaps_itself(tensor)) {
        Checks(schema.name().c_str())
            .reject(schema.arguments()[i].name().c_str(), "not overlap itself, as it is written to",
                    c10::str("its shape is ", tensor.sym_sizes(), " with strides ", tensor.sym_strides()),
                    "copy it with .contiguous()");
      }
      written.push_back(std::move(tensor));
    }
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect),
                     stack);
  for (const at::Tensor& tensor : written) {
    if (!tensor.is_inference()) {
      tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
}

// A node of autograd's graph. torch 2.10 holds nodes in std::shared_ptr, later ones in c10::intrusive_ptr.
template <typename T, typename... Args>
auto make_node(Args&&... args) {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, T>) {
    return c10::make_intrusive<T>(std::forward<Args>(args)...);
  } else {
    return std::shared_ptr<T>(new T(std::forward<Args>(args)...), [](T* node) { deleteNode(node); });
  }
}

// The kernel under autograd of every operator: a backward through its results raises, and so does one through what it
// has written, which torch's autogradNotImplementedFallback leaves as it was.
void no_gradient(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto values = torch::jit::last(*stack, schema.arguments().size());
  std::vector<at::Tensor> inputs, written;
  for (size_t i = 0; i < values.size(); ++i) {
    for (const at::Tensor& tensor : tensors_of(values[i])) {
      TORCH_CHECK_NOT_IMPLEMENTED(!tensor.defined() || !torch::autograd::isFwGradDefined(tensor), schema.name(),
                                  ": argument '", schema.arguments()[i].name(),
                                  "' has a forward gradient, but the operator has no forward-mode derivative");
      inputs.push_back(tensor);
      if (is_written(schema.arguments()[i])) {
        written.push_back(tensor);
      }
    }
  }
  const bool differentiated = at::GradMode::is_enabled() && std::ranges::any_of(inputs, [](const at::Tensor& tensor) {
                                return tensor.defined() && tensor.requires_grad();
                              });
  for (const at::Tensor& tensor : written) {
    torch::autograd::check_inplace(tensor, differentiated);
  }
  const torch::autograd::edge_list edges =
      differentiated ? torch::autograd::collect_next_edges(inputs) : torch::autograd::edge_list();
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }
  if (!differentiated) {
    return;
  }
  // A node for each tensor: one that is a view takes no part of a node.
  const auto node = [&] {
    return make_node<torch::autograd::NotImplemented>(schema.name(), torch::autograd::edge_list(edges));
  };
  for (const at::Tensor& tensor : written) {
    if (torch::autograd::isDifferentiableType(tensor.scalar_type())) {
      torch::autograd::rebase_history(tensor, node());
    }
  }
  for (const c10::IValue& result : torch::jit::last(*stack, schema.returns().size())) {
    for (const at::Tensor& tensor : tensors_of(result)) {
      if (torch::autograd::isDifferentiableType(tensor.scalar_type())) {
        torch::autograd::set_history(tensor, node());
      }
    }
  }
}

// The kernel of every operator for tensors on the CPU: it names the argument that should be on an NPU.
void reject_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto arguments = torch::jit::last(*stack, schema.arguments().size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    for (const at::Tensor& tensor : tensors_of(arguments[i])) {
      TORCH_CHECK(tensor.is_privateuseone(), schema.name(), ": argument '", schema.arguments()[i].name(),
                  "' must be on an NPU, but is ",
                  tensor.defined() ? c10::str("on ", tensor.device()) : "undefined (null)",
                  "; move it there with .npu()");
    }
  }
  TORCH_CHECK(false, schema.name(), ": at least one argument must be a tensor on an NPU, but none is");
}

}  // namespace

void reject_transforms(const char* op) {
  const auto& transforms = at::functorch::functorchTLSAccessor();
  if (transforms == nullptr) {
    return;
  }
  try {
    transforms->checkSupportsCppAutogradFunction();
  } catch (const c10::Error&) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, op,
                                ": transforms of torch.func cannot differentiate it, as its gradient is a C++ "
                                "torch::autograd::Function; use torch.autograd.grad or backward()");
  }
}

void define(torch::Library& m, const char* schema) {
  c10::FunctionSchema parsed = torch::schema(schema);
  const std::string name = c10::toString(parsed.operator_name());
  const bool writes = std::ranges::any_of(parsed.arguments(), is_written);
  m.def(std::move(parsed), {at::Tag::pt2_compliant_tag});
  m.impl(name.c_str(), torch::dispatch(c10::kCPU, torch::CppFunction::makeFromBoxedFunction<&reject_cpu>()));
  // An operator's own gradient is that of a device, AutogradPrivateUse1, and goes before what all devices have.
  m.impl(name.c_str(),
         torch::dispatch(c10::DispatchKey::Autograd, torch::CppFunction::makeFromBoxedFunction<&no_gradient>()));
  if (writes) {
    // The one key that every call passes, in inference mode too.
    m.impl(name.c_str(),
           torch::dispatch(c10::DispatchKey::BackendSelect, torch::CppFunction::makeFromBoxedFunction<&write>()));
  }
}

}  // namespace custom_pypto
