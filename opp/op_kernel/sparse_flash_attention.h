// SPDX-License-Identifier: Apache-2.0
// Sparse flash attention on a block's cube core and its two vector cores, for the kernels of which it is a part.
//
// Piece by piece of a row's indices the vector cores gather keys and values from their pages, one beside the other, in
// the workspace; step by step of what is there the cube core multiplies the queries with the keys; the vector cores
// make softmax weights of a piece's scores, relative to its own maximum; the cube core sums the weighted values; and
// the vector cores merge the sums of a row's pieces by their maxima. The vector cores gather two pieces ahead, and the
// cube core multiplies with the next piece's keys before it sums the values of this one: cores wait for each other
// seldom.
//
// The keys go through the workspace, although that costs a copy of them, since the cube core would need an instruction
// for each row and each time it reads it (as key and as value), and has no buffer from which its scalar unit could read
// where the rows lie. So it reads whole matrices.
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
