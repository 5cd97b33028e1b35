// SPDX-License-Identifier: Apache-2.0
// The lightning indexer on queries and keys of 16 bits.
#include "lightning_indexer.h"

extern "C" __global__ __aicore__ void lightning_indexer_pto(GM_ADDR query, GM_ADDR key, GM_ADDR weights,
                                                            GM_ADDR query_lengths, GM_ADDR key_lengths,
                                                            GM_ADDR block_table, GM_ADDR indices, GM_ADDR values,
                                                            GM_ADDR workspace, GM_ADDR tiling_address) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  REGISTER_TILING_DEFAULT(opp::LightningIndexerTiling);
  GET_TILING_DATA(tiling, tiling_address);
  AscendC::TPipe pipe;
  opp::RunIndexer<DTYPE_QUERY, DTYPE_WEIGHTS>(tiling, {"actual_seq_lengths_key", "key"},
                                              {query, key, weights, nullptr, nullptr, query_lengths, key_lengths,
                                               block_table, indices, values, AscendC::GetUserWorkspace(workspace)},
                                              pipe);
}
