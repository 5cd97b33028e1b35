// SPDX-License-Identifier: Apache-2.0
// What sparse flash attention reads of its indices before it begins: where their rows end.
#pragma once

#include "workspace.h"

namespace opp {

// How many keys each row of indices names, found by the vector cores before anything else.
template <class T>
class NamedKeys {
  using Tiling = SparseFlashAttentionTiling;

 public:
  __aicore__ inline NamedKeys(const Tiling& tiling, const AttentionTensors<T>& tensors, const Sequences& sequences,
                              GM_ADDR workspace, TPipe& pipe)
      : tiling_(tiling),
        tensors_(tensors),
        sequences_(sequences),
        tokens_(tiling.sequences, sequences),
        workspace_(tiling, workspace, static_cast<uint32_t>(GetBlockIdx()) / Tiling::kVectorCores) {
    pipe.InitBuffer(in_, 2, kIndices * sizeof(int32_t));
    pipe.InitBuffer(floatBuffer_, kIndices * sizeof(float));
    pipe.InitBuffer(signBuffer_, kIndices / 8);
    pipe.InitBuffer(countBuffer_, kCounts * sizeof(int32_t));
    floats_ = floatBuffer_.template Get<float>();
    signs_ = signBuffer_.template Get<uint8_t>();
    counts_ = countBuffer_.template Get<int32_t>();
  }

  // Checks and counts this core's share; stops the kernel at a length, a block number or an index out of range.
  __aicore__ inline void Run() {
    const int64_t core = GetBlockIdx(), cores = GetBlockNum() * Tiling::kVectorCores;
    sequences_.CheckAll(core, cores);
    const int64_t rows = tiling_.rows / tiling_.tiles, end = rows * (core + 1) / cores;
    for (int64_t first = rows * core / cores; first < end; first += kCounts) {
      const auto count = static_cast<uint32_t>(end - first < kCounts ? end - first : kCounts);
      WaitFor<HardEvent::MTE3_S>();
      for (uint32_t i = 0; i < count; ++i) counts_.SetValue(i, Count(first + i));
      WaitFor<HardEvent::S_MTE3>();
      DataCopyPad(workspace_.Named()[first], counts_, BytesOf<int32_t>(count));
    }
  }

 private:
  static constexpr uint32_t kIndices = 8192;  // that are looked through at a time
  static constexpr uint32_t kCounts = 512;
  static constexpr uint32_t kRepeat = 64;  // floats that an instruction takes at a time

  // How many indices come before the first negative one, which must be -1. Those of padded tokens are not read.
  __aicore__ inline int64_t Count(int64_t row) {
    const int64_t token = row / tiling_.key_heads;
    const Sequence& sequence = tokens_.Of(token);
    if (token - sequence.first_query >= sequence.queries) return 0;
    const GlobalTensor<int32_t> indices = tensors_.indices[row * tiling_.named];
    for (int64_t first = 0; first < tiling_.named; first += kIndices) {
      const int64_t left = tiling_.named - first;
      const auto count = static_cast<uint32_t>(left < kIndices ? left : kIndices);
      const int64_t place = FirstNegative(indices[first], count);
      if (place == count) continue;
      CheckEnd(row, first + place, indices.GetValue(first + place));
      return first + place;
    }
    return tiling_.named;
  }

  // The place of the first negative one of up to kIndices numbers, or their count.
  __aicore__ inline uint32_t FirstNegative(const GlobalTensor<int32_t>& from, uint32_t count) {
    LocalTensor<int32_t> numbers = in_.template AllocTensor<int32_t>();
    DataCopyPad(numbers, from, BytesOf<int32_t>(count), DataCopyPadExtParams<int32_t>{});
    in_.EnQue(numbers);
    numbers = in_.template DeQue<int32_t>();
    const uint32_t whole = AlignUp(count, kRepeat);
    Duplicate(floats_, 0.0f, whole);
    Cast(floats_, numbers, RoundMode::CAST_RINT, count);
    in_.FreeTensor(numbers);
    WaitFor<HardEvent::S_V>();
    CompareScalar(signs_, floats_, 0.0f, CMPMODE::LT, whole);
    WaitFor<HardEvent::V_S>();
    for (uint32_t first = 0; first < count; first += 8) {
      uint32_t bits = signs_.GetValue(first / 8);
      if (bits == 0) continue;
      for (uint32_t place = first;; ++place, bits >>= 1) {
        if ((bits & 1) != 0) return place;
      }
    }
    return count;
  }

  __aicore__ inline void CheckEnd(int64_t row, int64_t place, int32_t index) const {
    const auto token = static_cast<long long>(row / tiling_.key_heads),
               head = static_cast<long long>(row % tiling_.key_heads), at = static_cast<long long>(place),
               queries = static_cast<long long>(tiling_.sequences.queries);
    if (tiling_.sequences.packed) {
      ascendc_assert(index == -1,
                     "sparse_indices[%lld][%lld][%lld] is %d, but must be the position of a key, or -1 to end the row",
                     token, head, at, index);
    } else {
      ascendc_assert(index == -1,
                     "sparse_indices[%lld][%lld][%lld][%lld] is %d, but must be the position of a key, or -1 to end "
                     "the row",
                     token / queries, token % queries, head, at, index);
    }
  }

  const Tiling& tiling_;
  const AttentionTensors<T>& tensors_;
  const Sequences& sequences_;
  TokenSequences tokens_;
  const AttentionWorkspace<T> workspace_;
  TQue<TPosition::VECIN, 2> in_;
  TBuf<TPosition::VECCALC> floatBuffer_, signBuffer_, countBuffer_;
  LocalTensor<float> floats_;
  LocalTensor<uint8_t> signs_;
  LocalTensor<int32_t> counts_;
};

}  // namespace opp
