// SPDX-License-Identifier: Apache-2.0
// npu_sparse_attention_pto: DeepSeek's sparse attention layer, from hidden states to what the heads read.
#include "aclnn_sparse_attention_pto.h"
#include "arguments/sparse_attention_pto.h"
#include "operator.h"

namespace custom_pypto {

TORCH_LIBRARY_FRAGMENT(custom_pypto, m) {
  implement<check_sparse_attention_pto>(m, "custom_pypto::npu_sparse_attention_pto", [](const auto&... arguments) {
    EXEC_NPU_CMD(aclnnSparseAttentionPto, arguments...);
  });
}

}  // namespace custom_pypto
