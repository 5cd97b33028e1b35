// SPDX-License-Identifier: Apache-2.0
// DeepSeek's sparse attention layer: the prolog, the lightning indexer and sparse flash attention, one after the other.
// Between them all cores wait for each other.
#include "lightning_indexer.h"
#include "sparse_attention_prolog.h"
#include "sparse_attention_pto_tiling.h"
#include "sparse_flash_attention.h"

namespace {

template <class T>
__aicore__ inline void RunLayer(const opp::SparseAttentionPtoTiling& tiling,
                                const opp::SparseAttentionPrologArguments& arguments, GM_ADDR block_table,
                                GM_ADDR act_seqs, GM_ADDR attn_out) {
  using opp::TensorAt;
  const opp::SequenceNames names{"act_seqs", "kv_cache"};
  const opp::Sequences sequences(tiling.attention.sequences, names, nullptr, act_seqs, block_table);
  GM_ADDR workspace = arguments.workspace;
  GM_ADDR selected = workspace + tiling.selected;
  AscendC::TPipe pipe;
  if ASCEND_IS_AIV {
    sequences.CheckAll(AscendC::GetBlockIdx(), tiling.indexer.vector_cores());
  }
  opp::RunSparseAttentionProlog<T>(tiling.prolog, arguments, pipe);
  pipe.Reset();
  opp::RunIndexer<T, T>(
      tiling.indexer, names,
      {workspace + tiling.prolog.index_query, arguments.index_k_cache, workspace + tiling.prolog.index_weights, nullptr,
       nullptr, nullptr, act_seqs, block_table, selected, nullptr, workspace + tiling.of_indexer},
      pipe);
  AscendC::SyncAll<false>();
  pipe.Reset();
  const opp::AttentionTensors<T> tensors{TensorAt<T>(workspace + tiling.prolog.absorbed),
                                         TensorAt<T>(arguments.kv_cache),
                                         TensorAt<T>(arguments.kv_cache),
                                         TensorAt<T>(workspace + tiling.prolog.query_rope),
                                         TensorAt<T>(arguments.kr_cache),
                                         TensorAt<T>(attn_out),
                                         TensorAt<int32_t>(selected),
                                         {},
                                         {},
                                         true};
  opp::AttendSparsely(tiling.attention, tensors, sequences, workspace + tiling.of_attention, pipe);
}

}  // namespace

extern "C" __global__ __aicore__ void sparse_attention_pto(
    GM_ADDR x, GM_ADDR w_dq, GM_ADDR w_uq_qr, GM_ADDR w_uk, GM_ADDR w_dkv_kr, GM_ADDR gamma_cq, GM_ADDR gamma_ckv,
    GM_ADDR sin, GM_ADDR cos, GM_ADDR cache_index, GM_ADDR kv_cache, GM_ADDR kr_cache, GM_ADDR block_table,
    GM_ADDR act_seqs, GM_ADDR w_idx_qb, GM_ADDR w_idx_k, GM_ADDR w_idx_proj, GM_ADDR in_gamma_k, GM_ADDR in_beta_k,
    GM_ADDR index_k_cache, GM_ADDR attn_out, GM_ADDR, GM_ADDR, GM_ADDR, GM_ADDR workspace, GM_ADDR tiling_address) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  REGISTER_TILING_DEFAULT(opp::SparseAttentionPtoTiling);
  GET_TILING_DATA(tiling, tiling_address);
  RunLayer<DTYPE_X>(
      tiling,
      {x, w_dq, w_uq_qr, w_uk, w_dkv_kr, gamma_cq, gamma_ckv, sin, cos, cache_index, kv_cache, kr_cache, w_idx_qb,
       w_idx_k, w_idx_proj, in_gamma_k, in_beta_k, index_k_cache, AscendC::GetUserWorkspace(workspace)},
      block_table, act_seqs, attn_out);
}
