// SPDX-License-Identifier: Apache-2.0
// Sparse flash attention: the kernel of the operator that is nothing else.
#include "sparse_flash_attention.h"

using namespace AscendC;

namespace {

template <class T>
__aicore__ inline GlobalTensor<T> Tensor(GM_ADDR address) {
  GlobalTensor<T> tensor;
  tensor.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address));
  return tensor;
}

}  // namespace

extern "C" __global__ __aicore__ void sparse_flash_attention_pto(
    GM_ADDR query, GM_ADDR key, GM_ADDR value, GM_ADDR sparse_indices, GM_ADDR block_table,
    GM_ADDR actual_seq_lengths_query, GM_ADDR actual_seq_lengths_kv, GM_ADDR query_rope, GM_ADDR key_rope,
    GM_ADDR attention_sinks, GM_ADDR attention_out, GM_ADDR softmax_lse, GM_ADDR workspace, GM_ADDR tiling_address) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  REGISTER_TILING_DEFAULT(opp::SparseFlashAttentionTiling);
  GET_TILING_DATA(tiling, tiling_address);
  const opp::AttentionTensors<DTYPE_QUERY> tensors{
      Tensor<DTYPE_QUERY>(query),      Tensor<DTYPE_QUERY>(key),
      Tensor<DTYPE_QUERY>(value),      Tensor<DTYPE_QUERY>(query_rope),
      Tensor<DTYPE_QUERY>(key_rope),   Tensor<DTYPE_QUERY>(attention_out),
      Tensor<int32_t>(sparse_indices), Tensor<float>(attention_sinks),
      Tensor<float>(softmax_lse),      value == key && tiling.value_depth == tiling.depth};
  const opp::Sequences sequences(tiling.sequences, {"actual_seq_lengths_kv", "key"}, actual_seq_lengths_query,
                                 actual_seq_lengths_kv, block_table);
  TPipe pipe;
  opp::AttendSparsely(tiling, tensors, sequences, GetUserWorkspace(workspace), pipe);
}
