// SPDX-License-Identifier: Apache-2.0
// An operator package for tests and benchmarks: functions that do nothing, fail at each stage, or report what they got.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <numeric>

#include "cann_cpu/op.h"

namespace {

ACLNN(ProbeNothing, [](const at::Tensor&, at::Tensor&) {});

ACLNN(ProbeIncrement, [](const at::Tensor& self, at::Tensor& out) { at::add_out(out, self, 1); });

// Also writes to its input.
ACLNN(ProbeScribble, [](at::Tensor& self, at::Tensor& out) {
  at::add_out(out, self, 1);
  self.zero_();
});

// Writes one element past the end of its input.
ACLNN(ProbeOverrun, [](const at::Tensor& self, at::Tensor& out) {
  at::add_out(out, self, 1);
  static_cast<float*>(const_cast<void*>(self.const_data_ptr()))[self.numel()] = 0;
});

// Writes the format's number and the sizes of the storage.
ACLNN(ProbeFormat, [](const cann_cpu::StoredTensor& self, at::Tensor& out) {
  auto* written = out.data_ptr<float>();
  std::fill_n(written, out.numel(), 0.0F);
  *written = static_cast<float>(self.format);
  std::copy(self.tensor.sizes().begin(), self.tensor.sizes().end(), written + 1);
});

ACLNN(ProbePhaseOneFails, [](cann_cpu::Phase phase, const at::Tensor&, at::Tensor&) {
  TORCH_CHECK(phase == cann_cpu::Phase::Run, "phase one rejects every call");
});

ACLNN(ProbeKernelFails, [](const at::Tensor&, at::Tensor&) { TORCH_CHECK(false, "the kernel gives up"); });

// Writes one number for each argument, so that the caller sees what arrived.
ACLNN(ProbeArguments,
      [](const at::Tensor& tensor, const std::optional<at::Tensor>& optional, const std::vector<at::Tensor>& list,
         const at::Scalar& scalar, at::IntArrayRef ints, at::ArrayRef<float> reals, at::ArrayRef<bool> flags,
         at::ScalarType dtype, const std::string& text, int64_t integer, double real, bool flag, at::Tensor& out) {
        double of_list = 0;
        for (const at::Tensor& entry : list) {
          of_list = of_list * 10 + entry.sum().item<double>();
        }
        double of_ints = 0;
        for (const int64_t value : ints) {
          of_ints = of_ints * 10 + static_cast<double>(value);
        }
        const double values[] = {
            tensor.sum().item<double>(),
            optional.has_value() ? optional->sum().item<double>() : -1,
            of_list,
            scalar.toDouble(),
            of_ints,
            std::accumulate(reals.begin(), reals.end(), static_cast<double>(reals.size())),
            static_cast<double>(std::count(flags.begin(), flags.end(), true) * 10) + static_cast<double>(flags.size()),
            static_cast<double>(dtype),
            static_cast<double>(text.size()),
            static_cast<double>(integer),
            real,
            flag ? 1.0 : 0.0};
        std::copy(std::begin(values), std::end(values), out.data_ptr<double>());
      });

int destroyed = 0;  // executors, without a phase two

}  // namespace

extern "C" {

// Found before that of CANN, as a function of an operator package.
CANN_EXPORT aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  ++destroyed;
  delete executor;
  return ACLNN_SUCCESS;
}

CANN_EXPORT int destroyedExecutors() { return destroyed; }

CANN_EXPORT aclnnStatus aclnnProbeWorkspaceGetWorkspaceSize(const aclTensor* self, const aclTensor* out,
                                                            uint64_t* workspace_size, aclOpExecutor** executor) {
  const aclnnStatus status = aclnnProbeNothingGetWorkspaceSize(self, out, workspace_size, executor);
  *workspace_size = uint64_t{1} << 50;
  return status;
}

CANN_EXPORT aclnnStatus aclnnProbeWorkspace(void*, uint64_t, aclOpExecutor*, aclrtStream) { return ACLNN_SUCCESS; }

CANN_EXPORT aclnnStatus aclnnProbePhaseTwoFailsGetWorkspaceSize(const aclTensor* self, const aclTensor* out,
                                                                uint64_t* workspace_size, aclOpExecutor** executor) {
  return aclnnProbeNothingGetWorkspaceSize(self, out, workspace_size, executor);
}

CANN_EXPORT aclnnStatus aclnnProbePhaseTwoFails(void*, uint64_t, aclOpExecutor* executor, aclrtStream) {
  aclDestroyAclOpExecutor(executor);
  return cann_cpu::error(ACLNN_ERR_INNER, "phase two rejects every call");
}

}  // extern "C"
