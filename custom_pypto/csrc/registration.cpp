// SPDX-License-Identifier: Apache-2.0
// Defines operators, with the kernels that all of them share.
#include "registration.h"

#include <algorithm>
#include <utility>
#include <vector>

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

// The kernel of every operator for tensors on the CPU: it names the argument that should be on an NPU.
void refuse_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
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

// Operators that write to arguments, under autograd: a backward that saved such an argument before finds out.
void count_writes(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto values = torch::jit::last(*stack, arguments.size());
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_written(arguments[i])) {
      const auto tensors = tensors_of(values[i]);
      written.insert(written.end(), tensors.begin(), tensors.end());
    }
  }
  op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
  for (const at::Tensor& tensor : written) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace

void define(torch::Library& m, const char* schema) {
  c10::FunctionSchema parsed = torch::schema(schema);
  const std::string name = c10::toString(parsed.operator_name());
  const bool writes = std::ranges::any_of(parsed.arguments(), is_written);
  m.def(std::move(parsed), {at::Tag::pt2_compliant_tag});
  m.impl(name.c_str(), torch::dispatch(c10::kCPU, torch::CppFunction::makeFromBoxedFunction<&refuse_cpu>()));
  if (writes) {
    m.impl(name.c_str(), torch::dispatch(c10::DispatchKey::ADInplaceOrView,
                                         torch::CppFunction::makeFromBoxedFunction<&count_writes>()));
  }
}

}  // namespace custom_pypto
