// SPDX-License-Identifier: Apache-2.0
// The tiling data of DeepSeek's sparse attention layer: the tilings of its stages.
#pragma once

#include "lightning_indexer_tiling.h"
#include "sparse_attention_prolog_tiling.h"
#include "sparse_flash_attention_pto_tiling.h"

namespace opp {

struct SparseAttentionPtoTiling {
  SparseAttentionPrologTiling prolog;
  LightningIndexerTiling indexer;
  SparseFlashAttentionTiling attention;

  // Offsets in the workspace, in bytes, after the prolog's: the selected positions, and the workspaces of the others.
  int64_t selected;
  int64_t of_indexer;
  int64_t of_attention;
};

}  // namespace opp
