// The schemas of all operators, and the Python module.
#include <torch/extension.h>
#include <torch/library.h>

#include "ops_function.h"

namespace {

// Every operator but for its kernels: what it takes, what it gives, what it writes to.
TORCH_LIBRARY(custom_pypto, m) {
  m.def("add_custom(Tensor self, Tensor other) -> Tensor");
  m.def("add_custom_backward(Tensor self) -> (Tensor, Tensor)");
  m.def(
      "npu_lightning_indexer_pto(Tensor query, Tensor key, Tensor weights, *, Tensor? actual_seq_lengths_query=None, "
      "Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, str layout_query='BSND', "
      "str layout_key='PA_BSND', int sparse_count=2048, int sparse_mode=3) -> Tensor");
  m.def(
      "npu_sparse_flash_attention_pto(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, "
      "float scale_value, *, Tensor? block_table=None, Tensor? actual_seq_lengths_query=None, "
      "Tensor? actual_seq_lengths_kv=None, Tensor? query_rope=None, Tensor? key_rope=None, str layout_query='BSND', "
      "str layout_kv='PA_BSND', int sparse_mode=3) -> Tensor");
}

// The kernel of every operator for tensors on the CPU: it names the argument that should be on an NPU.
void refuse_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto arguments = torch::jit::last(*stack, schema.arguments().size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor()) {
      const at::Tensor& tensor = arguments[i].toTensor();
      TORCH_CHECK(tensor.is_privateuseone(), schema.name(), ": argument '", schema.arguments()[i].name(),
                  "' must be on an NPU, but is ",
                  tensor.defined() ? c10::str("on ", tensor.device()) : "undefined (null)",
                  "; move it there with .npu()");
    }
  }
}

TORCH_LIBRARY_IMPL(custom_pypto, CPU, m) {
  for (const char* name :
       {"add_custom", "add_custom_backward", "npu_lightning_indexer_pto", "npu_sparse_flash_attention_pto"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_cpu>());
  }
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("add_custom", &custom_pypto::add_custom, pybind11::arg("self"), pybind11::arg("other"),
        pybind11::call_guard<pybind11::gil_scoped_release>());
}
