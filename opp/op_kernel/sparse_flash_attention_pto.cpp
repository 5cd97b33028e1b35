// SPDX-License-Identifier: Apache-2.0
// Sparse flash attention: the kernel of the operator that is nothing else.
#include "sparse_flash_attention.h"

#include "chunks.h"

using namespace AscendC;
using opp::TensorAt;

extern "C" __global__ __aicore__ void sparse_flash_attention_pto(
    GM_ADDR query, GM_ADDR key, GM_ADDR value, GM_ADDR sparse_indices, GM_ADDR block_table,
    GM_ADDR actual_seq_lengths_query, GM_ADDR actual_seq_lengths_kv, GM_ADDR query_rope, GM_ADDR key_rope,
    GM_ADDR attention_sinks, GM_ADDR attention_out, GM_ADDR softmax_lse, GM_ADDR workspace, GM_ADDR tiling_address) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  REGISTER_TILING_DEFAULT(opp::SparseFlashAttentionTiling);
  GET_TILING_DATA(tiling, tiling_address);
  const opp::AttentionTensors<DTYPE_QUERY> tensors{
      TensorAt<DTYPE_QUERY>(query),      TensorAt<DTYPE_QUERY>(key),
      TensorAt<DTYPE_QUERY>(value),      TensorAt<DTYPE_QUERY>(query_rope),
      TensorAt<DTYPE_QUERY>(key_rope),   TensorAt<DTYPE_QUERY>(attention_out),
      TensorAt<int32_t>(sparse_indices), TensorAt<float>(attention_sinks),
      TensorAt<float>(softmax_lse),      value == key && tiling.value_depth == tiling.depth};
  const opp::Sequences sequences(tiling.sequences, {"actual_seq_lengths_kv", "key"}, actual_seq_lengths_query,
                                 actual_seq_lengths_kv, block_table);
  TPipe pipe;
  opp::AttendSparsely(tiling, tensors, sequences, GetUserWorkspace(workspace), pipe);
}
