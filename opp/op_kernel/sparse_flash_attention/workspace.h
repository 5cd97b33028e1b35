// SPDX-License-Identifier: Apache-2.0
// What the cores of a block share in sparse flash attention: the arguments, the workspace, and their notes.
#pragma once

#include "../sequences.h"
#include "../sparse_flash_attention_pto_tiling.h"
#include "cores.h"

namespace opp {

using namespace AscendC;

// All that a call reads and writes. Of absent tensors nothing is used.
template <class T>
struct AttentionTensors {
  GlobalTensor<T> query, key, value, queryRope, keyRope, out;
  GlobalTensor<int32_t> indices;
  GlobalTensor<float> sinks, lse;
  bool valueIsKey;  // the first columns of the same rows
};

// Heads [firstHead, firstHead + heads) of a token, and the row of its indices.
struct AttentionRow {
  int64_t token;
  int64_t keyHead;
  int64_t indices;
  int64_t firstHead;
  uint32_t heads;
};

__aicore__ inline AttentionRow AttentionRowOf(const SparseFlashAttentionTiling& tiling, int64_t row) {
  constexpr int64_t kHeads = SparseFlashAttentionTiling::kHeads;
  const int64_t indices = row / tiling.tiles, keyHead = indices % tiling.key_heads;
  const int64_t first = row % tiling.tiles * kHeads, left = tiling.group - first;
  return {indices / tiling.key_heads, keyHead, indices, keyHead * tiling.group + first,
          static_cast<uint32_t>(left < kHeads ? left : kHeads)};
}

// Which sequences query tokens belong to. They are asked for in ascending order.
class TokenSequences {
 public:
  __aicore__ inline TokenSequences(const SequencesTiling& tiling, const Sequences& sequences)
      : tiling_(tiling), sequences_(sequences) {}

  __aicore__ inline const Sequence& Of(int64_t token) {
    if (tiling_.packed) {
      while (now_.batch < 0 || token >= now_.first_query + now_.rows) now_ = sequences_.Read(now_.batch + 1);
    } else if (now_.batch != token / tiling_.queries) {
      now_ = sequences_.Read(token / tiling_.queries);
    }
    return now_;
  }

 private:
  const SequencesTiling& tiling_;
  const Sequences& sequences_;
  Sequence now_{-1, 0, 0, 0, 0, 0, false};
};

// A block's parts of the workspace, which its cores share.
template <class T>
class AttentionWorkspace {
  using Tiling = SparseFlashAttentionTiling;

 public:
  static constexpr uint32_t kNoteElements = Tiling::kNoteBytes / sizeof(int64_t);

  __aicore__ inline AttentionWorkspace(const Tiling& tiling, GM_ADDR workspace, uint32_t block)
      : tiling_(tiling), block_(block) {
    gathered_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(workspace + tiling.gathered),
                              tiling.blocks * Tiling::kGathered * tiling.gathered_elements);
    notes_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(workspace + tiling.notes),
                           tiling.blocks * Tiling::kGathered * kNoteElements);
    const uint64_t scores = uint64_t{tiling.blocks} * Tiling::kWeighed * ScoreElements();
    scores_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(workspace + tiling.scores), scores);
    weights_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(workspace + tiling.scores), 2 * scores);
    const uint64_t divided = (tiling.rows - tiling.whole_rows) * tiling.pieces;
    partials_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(workspace + tiling.partials),
                              (tiling.own_partials + divided) * tiling.partial_elements);
    merged_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(workspace + tiling.merged),
                            uint64_t{tiling.blocks} * Tiling::kVectorCores * MergedElements());
  }

  // The matrices of a block's n-th piece: kPiece keys, their rope parts, their values, in rows of their pitches.
  __aicore__ inline GlobalTensor<T> Keys(uint32_t n) const {
    return gathered_[(uint64_t{block_} * Tiling::kGathered + n % Tiling::kGathered) * tiling_.gathered_elements];
  }
  __aicore__ inline GlobalTensor<T> Ropes(uint32_t n) const {
    return Keys(n)[uint64_t{Tiling::kPiece} * tiling_.key_pitch];
  }
  __aicore__ inline GlobalTensor<T> Values(uint32_t n) const {
    return Ropes(n)[uint64_t{Tiling::kPiece} * tiling_.rope_pitch];
  }

  // The first vector core's note on the n-th piece.
  __aicore__ inline GlobalTensor<int64_t> Note(uint32_t n) const {
    return notes_[(uint64_t{block_} * Tiling::kGathered + n % Tiling::kGathered) * kNoteElements];
  }

  // Rows of kScoreRow columns for each head.
  __aicore__ inline GlobalTensor<float> Scores(uint32_t n) const {
    return scores_[(uint64_t{block_} * Tiling::kWeighed + n % Tiling::kWeighed) * ScoreElements()];
  }
  // The weights replace the scores: for each head kScoreRow weights rounded to 16 bits, and then their rounding errors.
  __aicore__ inline GlobalTensor<T> Weights(uint32_t n) const {
    return weights_[(uint64_t{block_} * Tiling::kWeighed + n % Tiling::kWeighed) * 2 * ScoreElements()];
  }

  // The place of the n-th piece's sums, in rows that are a block's, and of a piece of the others.
  __aicore__ inline int64_t PartialOf(uint32_t n) const {
    return int64_t{block_} * Tiling::kSummed + n % Tiling::kSummed;
  }
  __aicore__ inline int64_t PartialOf(int64_t row, int64_t piece) const {
    return tiling_.own_partials + (row - tiling_.whole_rows) * tiling_.pieces + piece;
  }
  __aicore__ inline GlobalTensor<float> Maxima(int64_t partial) const {
    return partials_[partial * tiling_.partial_elements];
  }
  __aicore__ inline GlobalTensor<float> Totals(int64_t partial) const { return Maxima(partial)[tiling_.height]; }
  __aicore__ inline GlobalTensor<float> Sums(int64_t partial) const { return Maxima(partial)[2 * tiling_.height]; }

  // Weighted values that a vector core has merged, in rows of value_pitch.
  __aicore__ inline GlobalTensor<float> Merged(uint32_t core) const {
    return merged_[(uint64_t{block_} * Tiling::kVectorCores + core) * MergedElements()];
  }

 private:
  __aicore__ inline uint64_t ScoreElements() const { return uint64_t{tiling_.height} * Tiling::kScoreRow; }
  __aicore__ inline uint64_t MergedElements() const { return uint64_t{tiling_.height} * tiling_.value_pitch; }

  const Tiling& tiling_;
  const uint32_t block_;
  GlobalTensor<T> gathered_, weights_;
  GlobalTensor<int64_t> notes_;
  GlobalTensor<float> scores_, partials_, merged_;
};

// The note on a piece for the cube core: the row, or kNoRow after the last piece; the number of keys that the vector
// cores gather; and the place of the sums.
enum AttentionNote : uint32_t { kNoteRow, kNoteKeys, kNotePartial, kNoteSize };
constexpr int64_t kNoRow = -1;

// What one kind of core sets, and the other waits for, once for each piece; kKeysGathered once for each step of it.
enum AttentionFlag : uint16_t { kKeysGathered, kScored, kWeighed, kSummed };
static_assert(3 * ((SparseFlashAttentionTiling::kPiece - 1) / SparseFlashAttentionTiling::kStep + 1) <= 15,
              "a flag counts to 15, and up to three pieces are gathered and wait");

// One run of so many numbers.
template <class Number>
__aicore__ inline DataCopyExtParams BytesOf(uint32_t count) {
  return {1, static_cast<uint32_t>(count * sizeof(Number)), 0, 0, 0};
}

}  // namespace opp
