// SPDX-License-Identifier: Apache-2.0
// The fused layer of DeepSeek's sparse attention on the CPU.
#pragma once

#include "op_host/sparse_attention_pto.h"

namespace opp {

// Runs a call that check() has passed on all cores. Throws c10::Error, before it writes anything, for a slot, a length
// or a block number out of range.
void sparse_attention_pto(const SparseAttentionPto& call);

}  // namespace opp
