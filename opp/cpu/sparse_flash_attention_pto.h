// SPDX-License-Identifier: Apache-2.0
// Sparse flash attention on the CPU.
#pragma once

#include "op_host/sparse_flash_attention_pto.h"

namespace opp {

// Runs a call that check() has passed on all cores. Throws c10::Error, before it writes anything, for a length, a block
// number or an index out of range.
void sparse_flash_attention_pto(const SparseFlashAttentionPto& call);

}  // namespace opp
