// SPDX-License-Identifier: Apache-2.0
// The lightning indexer on the CPU.
#pragma once

#include "op_host/lightning_indexer_pto.h"

namespace opp {

// Runs a call that check() has passed on all cores. Throws c10::Error, before it writes anything, for a length or a
// block number out of range.
void lightning_indexer_pto(const LightningIndexerPto& call);

}  // namespace opp
