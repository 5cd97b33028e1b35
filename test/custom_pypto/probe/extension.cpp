// SPDX-License-Identifier: Apache-2.0
// Operators on the functions of opapi.cpp, through our EXEC_NPU_CMD and through torch_npu's.
#include <ATen/ops/empty.h>
#include <op_plugin/include/npu_cpp_extension.h>
#include <torch/library.h>

#include <atomic>

#include "aclnn_probe.h"
#include "ops_common.h"
#include "registration.h"

namespace {

using at::Tensor;

void nothing(const Tensor& self, Tensor out, int64_t times) {
  for (int64_t i = 0; i < times; ++i) {
    EXEC_NPU_CMD(aclnnProbeNothing, self, out);
  }
}

void nothing_ext(const Tensor& self, Tensor out, int64_t times) {
  for (int64_t i = 0; i < times; ++i) {
    EXEC_NPU_CMD_EXT(aclnnProbeNothing, self, out);
  }
}

// torch.add without its dispatch, to be timed beside it.
Tensor add(const Tensor& self, const Tensor& other) {
  Tensor out = at::empty(self.sizes(), self.options());
  EXEC_NPU_CMD(aclnnAdd, self, other, at::Scalar(1), out);
  return out;
}

Tensor add_ext(const Tensor& self, const Tensor& other) {
  Tensor out = at::empty(self.sizes(), self.options());
  at::Scalar alpha = 1;
  EXEC_NPU_CMD_EXT(aclnnAdd, self, other, alpha, out);
  return out;
}

void increment(const Tensor& self, Tensor out) { EXEC_NPU_CMD(aclnnProbeIncrement, self, out); }
void format(const Tensor& self, Tensor out) { EXEC_NPU_CMD(aclnnProbeFormat, self, out); }
void missing(const Tensor& self, Tensor out) { EXEC_NPU_CMD(aclnnProbeMissing, self, out); }
void phase_one_fails(const Tensor& self, Tensor out) { EXEC_NPU_CMD(aclnnProbePhaseOneFails, self, out); }
void phase_two_fails(const Tensor& self, Tensor out) { EXEC_NPU_CMD(aclnnProbePhaseTwoFails, self, out); }
void phase_two_fails_ext(const Tensor& self, Tensor out) { EXEC_NPU_CMD_EXT(aclnnProbePhaseTwoFails, self, out); }
void kernel_fails(const Tensor& self, Tensor out) { EXEC_NPU_CMD(aclnnProbeKernelFails, self, out); }
void workspace(const Tensor& self, Tensor out) { EXEC_NPU_CMD(aclnnProbeWorkspace, self, out); }
void undefined(const Tensor& self) { EXEC_NPU_CMD(aclnnProbeNothing, self, Tensor()); }

std::atomic<bool> held;

// A task of torch_npu's queue that ends when copy_directly lets it.
void hold_the_queue(const Tensor&) {
  held = true;
  at_npu::native::OpCommand command;
  command.Name("Hold").SetCustomHandler([] {
    held.wait(true);
    return 0;
  });
  command.Run();
}

// A copy that does not go through torch_npu's queue; it waits for the queue only with `drains`.
void copy_directly(const Tensor& self, Tensor out, bool drains) {
  const auto release = [] {
    held = false;
    held.notify_all();
  };
  if (drains) release();
  const aclError code = aclrtMemcpyAsync(out.data_ptr(), out.nbytes(), self.data_ptr(), self.nbytes(),
                                         ACL_MEMCPY_DEVICE_TO_DEVICE, c10_npu::getCurrentNPUStream().stream(drains));
  release();
  TORCH_CHECK(code == ACL_SUCCESS, "aclrtMemcpyAsync returned ", code);
}

// Tasks of torch_npu's queue that allocate device memory and give it back.
void allocate_in_the_queue(const Tensor& self, int64_t times) {
  for (int64_t i = 0; i < times; ++i) {
    at_npu::native::OpCommand command;
    command.Name("Allocate").SetCustomHandler([options = self.options()] { return at::empty({1024}, options), 0; });
    command.Run();
  }
}

void arguments(const Tensor& tensor, const std::optional<Tensor>& optional, at::TensorList list,
               const at::Scalar& scalar, at::IntArrayRef ints, at::ArrayRef<double> reals, c10::List<bool> flags,
               at::ScalarType dtype, const std::string& text, int64_t integer, double real, bool flag, Tensor out) {
  EXEC_NPU_CMD(aclnnProbeArguments, tensor, optional, list, scalar, ints, reals, flags, dtype, text, integer, real,
               flag, out);
}

// Operators with one error each, which custom_pypto.authoring.check must find.
Tensor incremented(const Tensor& self) {
  Tensor out = at::empty(self.sizes(), self.options());
  EXEC_NPU_CMD(aclnnProbeIncrement, self, out);
  return out;
}

Tensor scribbled(const Tensor& self) {
  Tensor out = at::empty(self.sizes(), self.options());
  EXEC_NPU_CMD(aclnnProbeScribble, self, out);
  return out;
}

Tensor overrun(const Tensor& self) {
  Tensor out = at::empty(self.sizes(), self.options());
  EXEC_NPU_CMD(aclnnProbeOverrun, self, out);
  return out;
}

Tensor aliased(const Tensor& self) {
  EXEC_NPU_CMD(aclnnProbeNothing, self, self);
  return self.detach();
}

Tensor empty(const Tensor& self) { return at::empty_symint(self.sym_sizes(), self.options()); }
Tensor empty_half(const Tensor& self) { return at::empty_symint(self.sym_sizes(), self.options().dtype(at::kHalf)); }
Tensor empty_row(const Tensor& self) { return at::empty_symint(self.sym_sizes().slice(1), self.options()); }

TORCH_LIBRARY(custom_pypto_probe, m) {
  m.def("add(Tensor self, Tensor other) -> Tensor");
  m.def("add_ext(Tensor self, Tensor other) -> Tensor");
  m.def("nothing(Tensor self, Tensor(a!) out, int times) -> ()");
  m.def("nothing_ext(Tensor self, Tensor(a!) out, int times) -> ()");
  for (const char* name : {"increment", "format", "missing", "phase_one_fails", "phase_two_fails",
                           "phase_two_fails_ext", "kernel_fails", "workspace"}) {
    m.def(c10::str(name, "(Tensor self, Tensor(a!) out) -> ()").c_str());
  }
  for (const char* name : {"correct", "other_dtype", "other_shape", "scribbled", "overrun", "aliased"}) {
    custom_pypto::define(m, c10::str(name, "(Tensor self) -> Tensor").c_str());
  }
  m.def("undefined(Tensor self) -> ()");
  m.def("hold_the_queue(Tensor self) -> ()");
  m.def("copy_directly(Tensor self, Tensor(a!) out, bool drains) -> ()");
  m.def("allocate_in_the_queue(Tensor self, int times) -> ()");
  m.def(
      "arguments(Tensor tensor, Tensor? optional, Tensor[] list, Scalar scalar, int[] ints, float[] reals, "
      "bool[] flags, ScalarType dtype, str text, int integer, float real, bool flag, Tensor(a!) out) -> ()");
}

TORCH_LIBRARY_IMPL(custom_pypto_probe, PrivateUse1, m) {
  for (const char* name : {"correct", "other_dtype", "other_shape"}) {
    m.impl(name, &incremented);
  }
  m.impl("scribbled", &scribbled);
  m.impl("overrun", &overrun);
  m.impl("aliased", &aliased);
  m.impl("add", &add);
  m.impl("add_ext", &add_ext);
  m.impl("hold_the_queue", &hold_the_queue);
  m.impl("copy_directly", &copy_directly);
  m.impl("allocate_in_the_queue", &allocate_in_the_queue);
}

TORCH_LIBRARY_IMPL(custom_pypto_probe, Meta, m) {
  for (const char* name : {"correct", "scribbled", "overrun", "aliased"}) {
    m.impl(name, &empty);
  }
  m.impl("other_dtype", &empty_half);
  m.impl("other_shape", &empty_row);
}

// CompositeExplicitAutograd: tensors on any device arrive, so EXEC_NPU_CMD's own checks are seen.
TORCH_LIBRARY_IMPL(custom_pypto_probe, CompositeExplicitAutograd, m) {
  m.impl("nothing", &nothing);
  m.impl("nothing_ext", &nothing_ext);
  m.impl("increment", &increment);
  m.impl("format", &format);
  m.impl("missing", &missing);
  m.impl("phase_one_fails", &phase_one_fails);
  m.impl("phase_two_fails", &phase_two_fails);
  m.impl("phase_two_fails_ext", &phase_two_fails_ext);
  m.impl("kernel_fails", &kernel_fails);
  m.impl("workspace", &workspace);
  m.impl("undefined", &undefined);
  m.impl("arguments", &arguments);
}

}  // namespace
