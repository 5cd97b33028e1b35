// SPDX-License-Identifier: Apache-2.0
// Finds the addresses of the keys that indices name, on the vector unit: for an index, the scalar unit takes about as
// long as copying its key.
#pragma once

#include "workspace.h"

namespace opp {

class KeyAddresses {
 public:
  // For up to `count` indices at a time.
  __aicore__ inline KeyAddresses(const SequencesTiling& tiling, const Sequences& sequences, uint32_t count, TPipe& pipe)
      : tiling_(tiling), sequences_(sequences), size_(AlignUp(count, kRepeat)) {
    pipe.InitBuffer(numberBuffer_, kNumbers * size_ * sizeof(int32_t));
    pipe.InitBuffer(signBuffer_, AlignUp(size_ / 8, 32u));
    pipe.InitBuffer(tableBuffer_, kTable * sizeof(int32_t));
    positions_ = numberBuffer_.Get<int32_t>();
    rows_ = positions_[size_];
    past_ = positions_[2 * size_];
    quotients_ = positions_[3 * size_];
    addresses_ = positions_[4 * size_];
    signs_ = signBuffer_.Get<uint32_t>();
    table_ = tableBuffer_.Get<int32_t>();
  }

  // Finds the rows in key of the sequence's keys that the indices name. `visible` keys, more than 0, are seen.
  __aicore__ inline void Find(const Sequence& sequence, int64_t visible, const GlobalTensor<int32_t>& indices,
                              uint32_t count) {
    const auto n = static_cast<int32_t>(count), end = static_cast<int32_t>(visible);
    WaitFor<HardEvent::V_MTE2>();
    DataCopyPad(positions_, indices, BytesOf<int32_t>(count), DataCopyPadExtParams<int32_t>{});
    if (tiling_.paged) LoadTable(sequence);
    WaitFor<HardEvent::MTE2_V>();
    Adds(past_, positions_, -end, n);
    Maxs(positions_, positions_, 0, n);
    Mins(positions_, positions_, end - 1, n);
    if (tiling_.paged) {
      FindRows(n, end);
    } else {
      Adds(rows_, positions_, static_cast<int32_t>(sequence.first_key), n);
    }
    // What is past the end, or in no block, is not below 0 here.
    const LocalTensor<float> floats = quotients_.ReinterpretCast<float>();
    Duplicate(floats, 0.0f, static_cast<int32_t>(size_));
    Cast(floats, past_, RoundMode::CAST_RINT, count);
    CompareScalar(signs_.ReinterpretCast<uint8_t>(), floats, 0.0f, CMPMODE::LT, size_);
  }

  // Takes the first `count` of what was found, in their order, without what is not seen and what has no page; gives how
  // many are left.
  __aicore__ inline uint32_t Take(uint32_t count) {
    uint64_t taken = 0;
    WaitFor<HardEvent::S_V>();  // those that were taken before are read
    GatherMask(addresses_, rows_, signs_, true, count, {1, 1, 8, 0}, taken);
    WaitFor<HardEvent::V_S>();
    return static_cast<uint32_t>(taken);
  }

  __aicore__ inline int64_t Get(uint32_t i) const { return addresses_.GetValue(i); }

 private:
  static constexpr uint32_t kRepeat = 64;   // numbers that an instruction takes at a time
  static constexpr uint32_t kNumbers = 5;   // for each index
  static constexpr uint32_t kTable = 2048;  // pages of a sequence whose blocks are in the unified buffer

  __aicore__ inline uint32_t PagesOf(const Sequence& sequence) const {
    return static_cast<uint32_t>((sequence.keys + tiling_.page_size - 1) / tiling_.page_size);
  }

  __aicore__ inline void LoadTable(const Sequence& sequence) {
    if (sequence.batch == batch_) return;
    batch_ = sequence.batch;
    blocks_ = sequences_.Blocks(sequence);
    pagesOfTable_ = PagesOf(sequence);
    if (pagesOfTable_ > kTable) return;
    DataCopyPad(table_, blocks_, BytesOf<int32_t>(pagesOfTable_), DataCopyPadExtParams<int32_t>{});
  }

  // The rows of positions, in rows_, and whether there is a page, in past_.
  __aicore__ inline void FindRows(int32_t n, int32_t end) {
    Divide(n, end);
    if (pagesOfTable_ <= kTable) {
      Muls(rows_, rows_, static_cast<int32_t>(sizeof(int32_t)), n);
      Gather(quotients_, table_, rows_.ReinterpretCast<uint32_t>(), 0, static_cast<uint32_t>(n));
    } else {
      WaitFor<HardEvent::V_S>();
      for (int32_t i = 0; i < n; ++i) quotients_.SetValue(i, blocks_.GetValue(rows_.GetValue(i)));
      WaitFor<HardEvent::S_V>();
    }
    Muls(rows_, quotients_, static_cast<int32_t>(tiling_.page_size), n);
    Add(rows_, rows_, positions_, n);
    Adds(positions_, quotients_, -static_cast<int32_t>(tiling_.pages), n);
    Max(past_, past_, positions_, n);
    Muls(quotients_, quotients_, -1, n);
    Adds(quotients_, quotients_, -1, n);
    Max(past_, past_, quotients_, n);
  }

  // Positions below `end` to pages, in rows_, and what is left in them. The unit divides floats only. A quotient of
  // small numbers is right, since half of a position lies between it and the next; one of larger numbers is off by 2^31
  // / 2^22 at most, so that what it leaves is small.
  __aicore__ inline void Divide(int32_t n, int32_t end) {
    constexpr int32_t kSmall = 1 << 21;
    const LocalTensor<float> floats = quotients_.ReinterpretCast<float>();
    const uint32_t steps = end < kSmall ? 1 : 2;
    for (uint32_t i = 0; i < steps; ++i) {
      Cast(floats, positions_, RoundMode::CAST_RINT, static_cast<uint32_t>(n));
      Adds(floats, floats, 0.5f, n);
      Muls(floats, floats, 1.0f / static_cast<float>(tiling_.page_size), n);
      Cast(quotients_, floats, RoundMode::CAST_FLOOR, static_cast<uint32_t>(n));
      if (i == 0) {
        Adds(rows_, quotients_, 0, n);
      } else {
        Add(rows_, rows_, quotients_, n);
      }
      Muls(quotients_, quotients_, -static_cast<int32_t>(tiling_.page_size), n);
      Add(positions_, positions_, quotients_, n);
    }
  }

  const SequencesTiling& tiling_;
  const Sequences& sequences_;
  const uint32_t size_;
  TBuf<TPosition::VECCALC> numberBuffer_, signBuffer_, tableBuffer_;
  LocalTensor<int32_t> positions_, rows_, past_, quotients_, addresses_, table_;
  LocalTensor<uint32_t> signs_;
  GlobalTensor<int32_t> blocks_;
  int64_t batch_ = -1;  // whose blocks are in the table
  uint32_t pagesOfTable_ = 0;
};

}  // namespace opp
