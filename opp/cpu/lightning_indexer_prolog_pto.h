// SPDX-License-Identifier: Apache-2.0
// The prolog of the lightning indexer on the CPU.
#pragma once

#include "op_host/lightning_indexer_prolog_pto.h"

namespace opp {

// Runs a call that check() has passed on all cores. Throws c10::Error, before it writes anything, for a slot out of
// range.
void lightning_indexer_prolog_pto(const LightningIndexerPrologPto& call);

}  // namespace opp
