// SPDX-License-Identifier: Apache-2.0
// The division of sparse flash attention's work, in plain C++: the host computes it, kernels read it.
#pragma once

#include <cstdint>

#include "sequences_tiling.h"

namespace opp {

// A row consists of up to kHeads query heads of one token that share a key head. Its indices are processed in pieces of
// kPiece, which are gathered and multiplied with the queries in steps. The results of the pieces are merged in their
// order, regardless of the core that computed them, so that results depend neither on the division nor on the possible
// number of indices.
struct SparseFlashAttentionTiling {
  static constexpr uint32_t kHeads = 128;
  static constexpr uint32_t kVectorCores = 2;       // of a block
  static constexpr uint32_t kStep = 104;            // keys; each vector core of a block gathers half
  static constexpr uint32_t kPiece = 352;           // 2048 indices are six
  static constexpr uint32_t kScoreRow = 384;        // columns of a piece's scores and weights: whole repeats of 64
  static constexpr uint32_t kGathered = 4;          // pieces of a block whose keys lie in the workspace
  static constexpr uint32_t kWeighed = 2;           // and whose scores and weights
  static constexpr uint32_t kMerged = 6;            // and that are merged at a time
  static constexpr uint32_t kSummed = kMerged + 2;  // and whose sums
  static constexpr uint32_t kMergedHeads = 32;      // of a divided row, at a time
  static constexpr uint32_t kElements = 6144;       // floats of a buffer of a vector core
  static constexpr uint32_t kNoteBytes = 64;        // of a piece's note: a line of the data cache
  static constexpr int64_t kMaxPage = 1 << 20;      // tokens that positions are divided by exactly

  SequencesTiling sequences;
  int64_t heads;
  int64_t key_heads;
  int64_t group;  // heads that share a key head
  int64_t tiles;  // of a group
  int64_t depth;
  int64_t rope_depth;
  int64_t value_depth;
  int64_t named;  // indices of a token and a key head
  float scale;
  uint8_t sinks;
  uint8_t with_lse;

  // The first whole_rows rows are one block's each; of the others the pieces are.
  uint32_t blocks;
  int64_t rows;
  int64_t whole_rows;
  int64_t pieces;  // of a row, at most

  // In whole fractals: heads of a row, at most, and elements of a gathered key, its rope part and its value.
  uint32_t height;
  uint32_t key_pitch;
  uint32_t rope_pitch;
  uint32_t value_pitch;

  int64_t own_partials;        // places for sums of pieces of whole rows
  uint64_t gathered_elements;  // of a piece
  uint64_t partial_elements;   // of a piece, in float: maxima, sums of weights, sums of weighted values
  uint32_t merged_columns;     // of divided rows, that a vector core merges at a time

  // Where parts of the workspace begin, in bytes.
  uint64_t gathered;
  uint64_t notes;
  uint64_t scores;    // then weights
  uint64_t partials;  // of kSummed pieces of each block, and of the pieces of rows that are no block's
  uint64_t merged;    // weighted values of each vector core's row
  uint64_t workspace;
};

}  // namespace opp
