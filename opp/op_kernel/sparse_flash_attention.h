// SPDX-License-Identifier: Apache-2.0
// Sparse flash attention on a block's cube core and its two vector cores. Kernels include it as a part.
//
// A row's indices are processed in pieces. The vector cores gather a piece's keys and values from their pages, side by
// side, in the workspace. The cube core multiplies the queries with the gathered keys, step by step. The vector cores
// turn a piece's scores into softmax weights, relative to its own maximum. The cube core sums the weighted values, and
// the vector cores merge the sums of a row's pieces by their maxima. The vector cores gather two pieces ahead, and the
// cube core multiplies with the next piece's keys before it sums the values of the current one, so that cores seldom
// wait for each other.
//
// The keys go through the workspace, although that costs a copy. Otherwise the cube core would need an instruction for
// each row and each time it reads it (as key and as value), and it has no buffer from which its scalar unit could read
// the places of the rows. So it reads whole matrices.
#pragma once

#include "sparse_flash_attention/products.h"
#include "sparse_flash_attention/softmax.h"

namespace opp {

template <class T>
__aicore__ inline void AttendSparsely(const SparseFlashAttentionTiling& tiling, const AttentionTensors<T>& tensors,
                                      const Sequences& sequences, GM_ADDR workspace, TPipe& pipe) {
  if ASCEND_IS_AIC {
    AttentionProducts<T>(tiling, tensors, workspace, pipe).Run();
  }
  if ASCEND_IS_AIV {
    AttentionSoftmax<T>(tiling, tensors, sequences, workspace, pipe).Run();
  }
}

}  // namespace opp
