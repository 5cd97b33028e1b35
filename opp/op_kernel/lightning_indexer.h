// SPDX-License-Identifier: Apache-2.0
// The lightning indexers on cube and vector cores.
//
// Query tokens that share a key head form tiles, and the keys of a tile units. The units of all tiles, one after the
// other, are divided among the vector cores. A block's cube core multiplies the next unit of each of its two vector
// cores in turn; the vector core weights and sums the heads, and keeps the best keys of each query token as a sorted
// run. The runs of tiles that several cores have in part are merged when all have come so far: positions ascend from
// core to core and within a core, so that of equal scores the lower position comes first. Where more keys are asked for
// than a run holds, another round leaves out those that the rounds before have found.
#pragma once

#include "lightning_indexer/selection.h"

namespace opp {

template <class T, class Value>
__aicore__ inline void RunIndexer(const LightningIndexerTiling& tiling, const SequenceNames& names,
                                  const IndexerArguments& arguments, TPipe& pipe) {
  const Sequences sequences(tiling.sequences, names, arguments.query_lengths, arguments.key_lengths,
                            arguments.block_table);
  const Division division(tiling, sequences);
  if ASCEND_IS_AIC {
    IndexerCube<T> cube(tiling, sequences, pipe, arguments);
    for (uint32_t round = 0; round < tiling.rounds; ++round) cube.Run(division);
  }
  if ASCEND_IS_AIV {
    sequences.CheckAll(GetBlockIdx(), tiling.vector_cores());
    SyncAll();  // a call that is rejected writes nothing
    for (uint32_t round = 0; round < tiling.rounds; ++round) {
      IndexerVector<T, Value>(tiling, sequences, pipe, arguments, round).Run(division);
      SyncAll();
      pipe.Reset();
      IndexerMerge<Value>(tiling, sequences, pipe, arguments, round).Run(division);
      if (round + 1 == tiling.rounds) break;
      SyncAll();
      pipe.Reset();
    }
  }
}

}  // namespace opp
