// SPDX-License-Identifier: Apache-2.0
// Operators as authors make them, by define and implement; on an NPU they add 1 to what they write to.
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include "operator.h"

namespace {

using namespace custom_pypto;
using at::Tensor;

void check_optional(const Checks& checks, const OptionalTensor& bias, const Tensor& x) {
  const ArgumentTable table(checks, {{"bias", bias}, {"x", x, {at::kFloat}, {}, Use::kWritten}});
}

void check_masked(const Checks& checks, const Tensor& mask, const Tensor& cache) {
  const ArgumentTable table(
      checks, {{"mask", mask, {at::kFloat}}, {"cache", cache, {at::kFloat, at::kByte}, {}, Use::kWritten}});
}

void check_lists(const Checks& checks, at::TensorList keys, at::TensorList caches) {
  const ArgumentTable table(checks,
                            {{"keys", keys, {at::kFloat}}, {"caches", caches, {at::kFloat}, {}, Use::kWritten}});
}

Tensor check_and_copy(const Checks& checks, const Tensor& x, const Tensor& state) {
  const ArgumentTable table(checks, {{"x", x, {at::kFloat}}, {"state", state, {at::kFloat}, {}, Use::kWritten}});
  return at::empty_symint(x.sym_sizes(), x.options());
}

Results<1> check_scaled(const Checks& checks, const Tensor& factor, const Tensor& x, std::optional<at::ScalarType>) {
  const ArgumentTable table(checks,
                            {{"factor", factor, {at::kFloat}, {}, Use::kScalar}, {"x", x, {at::kFloat}, {"N"}}});
  return table.results({{"out", at::kFloat, {"N"}}});
}

void copy_and_add(const Tensor& x, const Tensor& state, const Tensor& out) {
  out.copy_(x);
  state.add_(1);
}

TORCH_LIBRARY_FRAGMENT(custom_pypto_probe, m) {
  define(m, "optional(Tensor? bias, Tensor(a!) x) -> ()");
  implement<check_optional>(m, "custom_pypto_probe::optional",
                            [](const OptionalTensor&, const Tensor& x) { x.add_(1); });
  define(m, "masked(Tensor mask, Tensor(a!) cache) -> ()");
  implement<check_masked>(m, "custom_pypto_probe::masked", [](const Tensor&, const Tensor& cache) { cache.add_(1); });
  define(m, "lists(Tensor[] keys, Tensor(a!)[] caches) -> ()");
  implement<check_lists>(m, "custom_pypto_probe::lists", [](at::TensorList, at::TensorList caches) {
    for (const Tensor& cache : caches) {
      cache.add_(1);
    }
  });
  define(m, "scaled(Tensor factor, Tensor x, *, ScalarType? dtype=None) -> Tensor");
  implement<check_scaled>(m, "custom_pypto_probe::scaled",
                          [](const Tensor&, const Tensor&, at::ScalarType dtype, const Tensor& out) {
                            out.fill_(dtype == at::ScalarType::Undefined ? -1 : static_cast<int>(dtype));
                          });
  // The same operator by `define` and by torch's own means.
  for (const char* name : {"stateful", "stateful_by_torch"}) {
    const std::string schema = c10::str(name, "(Tensor x, Tensor(a!) state) -> Tensor");
    if (std::string_view(name) == "stateful") {
      define(m, schema.c_str());
    } else {
      m.def(schema.c_str());
      m.impl(name, torch::dispatch(c10::DispatchKey::Autograd, torch::autograd::autogradNotImplementedFallback()));
    }
  }
  implement<check_and_copy>(m, "custom_pypto_probe::stateful",
                            [](const auto&... arguments) { copy_and_add(arguments...); });
  implement<check_and_copy>(m, "custom_pypto_probe::stateful_by_torch",
                            [](const auto&... arguments) { copy_and_add(arguments...); });
}

}  // namespace
