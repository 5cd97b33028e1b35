// SPDX-License-Identifier: Apache-2.0
// Finds the ends of rows of indices: the first negative one, which must be -1.
#pragma once

#include "workspace.h"

namespace opp {

class IndexRows {
 public:
  static constexpr uint32_t kIndices = SparseFlashAttentionTiling::kElements;  // that are looked through at a time

  __aicore__ inline IndexRows(const SparseFlashAttentionTiling& tiling, const GlobalTensor<int32_t>& indices,
                              TPipe& pipe)
      : tiling_(tiling), indices_(indices) {
    pipe.InitBuffer(signBuffer_, kIndices / 8);
    signs_ = signBuffer_.Get<uint8_t>();
  }

  // How many of the first `end` indices of a row come before the first negative one; stops the kernel if that is not
  // -1. `numbers` and `floats` have room for kIndices.
  template <class Queue>
  __aicore__ inline int64_t Count(int64_t row, int64_t end, Queue& numbers, const LocalTensor<float>& floats) const {
    const GlobalTensor<int32_t> indices = indices_[row * tiling_.named];
    for (int64_t first = 0; first < end; first += kIndices) {
      const auto count = static_cast<uint32_t>(end - first < kIndices ? end - first : kIndices);
      const uint32_t place = FirstNegative(indices[first], count, numbers, floats);
      if (place == count) continue;
      CheckEnd(row, first + place, indices.GetValue(first + place));
      return first + place;
    }
    return end;
  }

 private:
  static constexpr uint32_t kRepeat = 64;  // floats that an instruction takes at a time

  // The place of the first negative one of up to kIndices numbers, or their count.
  template <class Queue>
  __aicore__ inline uint32_t FirstNegative(const GlobalTensor<int32_t>& from, uint32_t count, Queue& queue,
                                           const LocalTensor<float>& floats) const {
    LocalTensor<int32_t> numbers = queue.template AllocTensor<int32_t>();
    DataCopyPad(numbers, from, BytesOf<int32_t>(count), DataCopyPadExtParams<int32_t>{});
    queue.EnQue(numbers);
    numbers = queue.template DeQue<int32_t>();
    const uint32_t whole = AlignUp(count, kRepeat);
    Duplicate(floats, 0.0f, static_cast<int32_t>(whole));
    Cast(floats, numbers, RoundMode::CAST_RINT, count);
    queue.FreeTensor(numbers);
    WaitFor<HardEvent::S_V>();
    CompareScalar(signs_, floats, 0.0f, CMPMODE::LT, whole);
    WaitFor<HardEvent::V_S>();
    const LocalTensor<uint64_t> bits = signs_.ReinterpretCast<uint64_t>();
    for (uint32_t first = 0; first < count; first += kRepeat) {
      uint64_t negative = bits.GetValue(first / kRepeat);
      if (negative == 0) continue;
      for (uint32_t place = first;; ++place, negative >>= 1) {
        if ((negative & 1) != 0) return place;
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

  const SparseFlashAttentionTiling& tiling_;
  const GlobalTensor<int32_t> indices_;
  TBuf<TPosition::VECCALC> signBuffer_;
  LocalTensor<uint8_t> signs_;
};

}  // namespace opp
