// SPDX-License-Identifier: Apache-2.0
// The aclnn functions of the prototypes in op_proto.cpp, written as CANN's generator declares them.
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>

#include "cann_cpu/op.h"

ACLNN(ProbeMix, [](const at::Tensor& x, const std::optional<at::Tensor>& bias, const std::vector<at::Tensor>& rest,
                   double scale, int64_t shift, bool negate, const std::string& mode, at::ArrayRef<float> weights,
                   at::Tensor& y, at::Tensor& total) {
  at::Tensor result = (bias ? x + *bias : x) * scale + shift;
  for (size_t i = 0; i < rest.size(); ++i) {
    result = result + rest[i] * (weights.empty() ? 1.0 : static_cast<double>(weights[i]));
  }
  TORCH_CHECK(mode == "plain" || mode == "double", "mode is ", mode);
  result = mode == "double" ? result * 2 : result;
  y.copy_(negate ? -result : result);
  total.copy_(result.sum());
});

ACLNN(ProbeIncrement, [](cann_cpu::InOut self, const at::Tensor& other, const std::optional<cann_cpu::InOut>& also) {
  self.add_(other);
  if (also) also->add_(other);
});

// The matrix, and the format that it came in.
ACLNN(ProbeStored, [](const cann_cpu::StoredTensor& x, at::Tensor& y, at::Tensor& format) {
  y.copy_(cann_cpu::in_nd(x));
  format.fill_(x.format);
});

void append(const at::Tensor& x, const at::Tensor& cache, const at::Tensor& slots, at::Tensor& doubled,
            at::Tensor& address) {
  for (int64_t i = 0; i < slots.numel(); ++i) {
    cache[slots[i].item<int64_t>()].copy_(x[i]);
  }
  doubled.copy_(x * 2);
  address.fill_(reinterpret_cast<int64_t>(cache.data_ptr()));
}

ACLNN(ProbeAppend, [](const at::Tensor& x, cann_cpu::InOut cache, const at::Tensor& slots, at::Tensor& doubled,
                      at::Tensor& address) { append(x, cache, slots, doubled, address); });

ACLNN(ProbeAppendList,
      [](const std::vector<at::Tensor>& x, std::vector<at::Tensor>& y) { append(x[0], x[1], x[2], y[0], y[1]); });

ACLNN(ProbeFail, [](const at::Tensor& x, at::Tensor& y) {
  TORCH_CHECK((x >= 0).all().item<bool>(), "x has a negative element");
  y.copy_(x);
});
