// SPDX-License-Identifier: Apache-2.0
// npu_sparse_flash_attention_pto: attention of every query token over the key tokens that its indices name.
#include "aclnn_sparse_flash_attention_pto.h"
#include "arguments/sparse_flash_attention_pto.h"
#include "operator.h"

namespace custom_pypto {

TORCH_LIBRARY_FRAGMENT(custom_pypto, m) {
  implement_optional_result<check_sparse_flash_attention_pto>(
      m, "custom_pypto::npu_sparse_flash_attention_pto",
      [](const auto&... arguments) { EXEC_NPU_CMD(aclnnSparseFlashAttentionPto, arguments...); }, "return_softmax_lse");
}

}  // namespace custom_pypto
