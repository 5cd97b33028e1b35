// SPDX-License-Identifier: Apache-2.0
// Writes the rows of keys and values to their slots in paged caches.
//
// Every block reads all slots, checks them before anything is written, and copies the rows of those that are its own:
// two tokens with the same slot meet in one block, and there the later one is written last.
#include "kernel_operator.h"
#include "reshape_and_cache_tiling.h"

using namespace AscendC;

namespace {

using opp::ReshapeAndCacheTiling;
using opp::RowCopy;
using opp::Strided;

// Divisions cost as much as the copy of a short row, and most tensors need none: all they hold is evenly spaced.
__aicore__ inline int64_t OffsetOf(const Strided& places, int64_t i) {
  if (i < places.inner) return i * places.inner_stride;
  return i / places.inner * places.outer_stride + i % places.inner * places.inner_stride;
}

// How many from the i-th on are evenly spaced.
__aicore__ inline int64_t EvenFrom(const Strided& places, int64_t i) {
  return places.inner - (i < places.inner ? i : i % places.inner);
}

__aicore__ inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

template <class Slot>
class ReshapeAndCache {
 public:
  __aicore__ inline ReshapeAndCache(const ReshapeAndCacheTiling& tiling, GM_ADDR slot_mapping, TPipe& pipe)
      : tiling_(tiling) {
    slotMapping_.SetGlobalBuffer(slot_mapping, tiling.tokens * sizeof(Slot));
    pipe.InitBuffer(slotBuffer_, ReshapeAndCacheTiling::kSlotsAtATime * sizeof(Slot));
    pipe.InitBuffer(tokenBuffer_, ReshapeAndCacheTiling::kSlotsAtATime * sizeof(int32_t));
    pipe.InitBuffer(rows_, 2, ReshapeAndCacheTiling::kBufferBytes);
    slots_ = slotBuffer_.template Get<Slot>();
    tokens_ = tokenBuffer_.template Get<int32_t>();
  }

  __aicore__ inline void CheckSlots() {
    for (int64_t first = 0; first < tiling_.tokens; first += ReshapeAndCacheTiling::kSlotsAtATime) LoadSlots(first);
  }

  __aicore__ inline void Copy(const RowCopy& copy, GM_ADDR from, GM_ADDR to) {
    from_.SetGlobalBuffer(from);
    to_.SetGlobalBuffer(to);
    written_ = {};
    for (int64_t first = 0; first < tiling_.tokens; first += ReshapeAndCacheTiling::kSlotsAtATime) {
      if (first != first_) LoadSlots(first);
      for (Cursor next{0, 0}; next.place < own_;) next = CopyBuffer(copy, next);
    }
  }

 private:
  // The next run to copy, and the place of its token in the list.
  struct Cursor {
    uint32_t place;
    uint32_t run;
  };

  // Evenly spaced runs: bytes from the start of keys or values, and of the cache.
  struct Runs {
    int64_t from;
    int64_t to;
    uint32_t count;
  };

  struct SlotRange {
    int64_t first;
    int64_t end;
  };

  // Checks the slots of the next tokens from `first` on, and lists this block's tokens, counted from there, and slots.
  __aicore__ inline void LoadSlots(int64_t first) {
    first_ = first;
    const int64_t count = Smaller(tiling_.tokens - first, ReshapeAndCacheTiling::kSlotsAtATime);
    const auto readBefore = GetTPipePtr()->FetchEventID(HardEvent::S_MTE2);
    SetFlag<HardEvent::S_MTE2>(readBefore);
    WaitFlag<HardEvent::S_MTE2>(readBefore);
    const DataCopyExtParams bytes{1, static_cast<uint32_t>(count * sizeof(Slot)), 0, 0, 0};
    DataCopyPad(slots_.template ReinterpretCast<uint8_t>(), slotMapping_[first * sizeof(Slot)], bytes,
                DataCopyPadExtParams<uint8_t>{false, 0, 0, 0});
    const auto loaded = GetTPipePtr()->FetchEventID(HardEvent::MTE2_S);
    SetFlag<HardEvent::MTE2_S>(loaded);
    WaitFlag<HardEvent::MTE2_S>(loaded);
    own_ = 0;
    for (int64_t i = 0; i < count; ++i) {
      const Slot slot = slots_.GetValue(i);
      ascendc_assert(slot < tiling_.capacity,
                     "slot_mapping[%lld] is %lld, but must lie between 0 and %lld (the slots "
                     "of the cache), or be negative for a token that is not cached",
                     static_cast<long long>(first + i), static_cast<long long>(slot),
                     static_cast<long long>(tiling_.capacity - 1));
      if (slot < 0 || static_cast<uint32_t>(slot >> tiling_.slots_shift) % tiling_.blocks != GetBlockIdx()) continue;
      slots_.SetValue(own_, slot);
      tokens_.SetValue(own_, static_cast<int32_t>(i));
      ++own_;
    }
  }

  // Copies as many runs as a buffer holds. Returns the cursor after them.
  __aicore__ inline Cursor CopyBuffer(const RowCopy& copy, Cursor first) {
    LocalTensor<uint8_t> buffer = rows_.template AllocTensor<uint8_t>();
    uint32_t filled = 0;
    Cursor next = first;
    while (filled < copy.in_buffer && next.place < own_) {
      const Runs runs = Take(copy, next, copy.in_buffer - filled);
      const DataCopyExtParams params{static_cast<uint16_t>(runs.count), copy.run, GapOf(copy.from_step, copy, runs), 0,
                                     0};
      DataCopyPad(buffer[filled * copy.pitch], from_[runs.from], params, DataCopyPadExtParams<uint8_t>{false, 0, 0, 0});
      filled += runs.count;
    }
    rows_.EnQue(buffer);
    buffer = rows_.template DeQue<uint8_t>();
    Cursor again = first;
    for (uint32_t written = 0; written < filled;) {
      const Cursor start = again;
      const Runs runs = Take(copy, again, copy.in_buffer - written);
      const DataCopyExtParams params{static_cast<uint16_t>(runs.count), copy.run, 0, GapOf(copy.to_step, copy, runs),
                                     0};
      if (start.run == 0) WaitForWritesTo(slots_.GetValue(start.place), copy.runs > 1 ? 1 : runs.count);
      DataCopyPad(to_[runs.to], buffer[written * copy.pitch], params);
      written += runs.count;
    }
    rows_.FreeTensor(buffer);
    return next;
  }

  // A copy may pass those before it, so that a slot would not keep the last token.
  __aicore__ inline void WaitForWritesTo(int64_t slot, uint32_t count) {
    const SlotRange slots{slot, slot + count};
    if (slots.first < written_.end && written_.first < slots.end) {
      PipeBarrier<PIPE_MTE3>();
      written_ = slots;
    } else if (written_.end == 0) {
      written_ = slots;
    } else {
      written_ = {Smaller(written_.first, slots.first), slots.end < written_.end ? written_.end : slots.end};
    }
  }

  __aicore__ inline static uint32_t GapOf(int64_t step, const RowCopy& copy, const Runs& runs) {
    return runs.count == 1 ? 0 : static_cast<uint32_t>(step - copy.run);
  }

  // The runs at the cursor that one instruction copies, at most `max`. Moves the cursor past them.
  __aicore__ inline Runs Take(const RowCopy& copy, Cursor& cursor, uint32_t max) const {
    const int64_t token = first_ + tokens_.GetValue(cursor.place), slot = slots_.GetValue(cursor.place);
    Runs runs{OffsetOf(copy.tokens, token) + int64_t{cursor.run} * copy.run,
              OffsetOf(copy.slots, slot) + OffsetOf(copy.runs_in_cache, cursor.run), 1};
    const int64_t limit = Smaller(max, copy.together);
    if (copy.runs > 1) {
      runs.count = Smaller(limit, Smaller(copy.runs - cursor.run, EvenFrom(copy.runs_in_cache, cursor.run)));
      cursor.run += runs.count;
      if (cursor.run == copy.runs) cursor = {cursor.place + 1, 0};
      return runs;
    }
    runs.count = CountInARow(copy, cursor.place, limit);
    cursor.place += runs.count;
    return runs;
  }

  // How many tokens from this one on follow one another, as their slots do, all evenly spaced.
  __aicore__ inline uint32_t CountInARow(const RowCopy& copy, uint32_t place, int64_t limit) const {
    if (!Follows(place, 1)) return 1;
    const int64_t token = first_ + tokens_.GetValue(place), slot = slots_.GetValue(place);
    limit = Smaller(limit, Smaller(EvenFrom(copy.tokens, token), EvenFrom(copy.slots, slot)));
    int64_t count = 1;
    while (count < limit && Follows(place, count)) ++count;
    return count;
  }

  __aicore__ inline bool Follows(uint32_t place, uint32_t count) const {
    return place + count < own_ &&
           tokens_.GetValue(place + count) == tokens_.GetValue(place) + static_cast<int32_t>(count) &&
           slots_.GetValue(place + count) == slots_.GetValue(place) + static_cast<Slot>(count);
  }

  const ReshapeAndCacheTiling& tiling_;
  GlobalTensor<uint8_t> slotMapping_, from_, to_;
  TBuf<TPosition::VECCALC> slotBuffer_, tokenBuffer_;
  TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> rows_;
  // The list of this block's tokens.
  LocalTensor<int32_t> tokens_;
  LocalTensor<Slot> slots_;
  int64_t first_ = -1;  // that the tokens are counted from
  uint32_t own_ = 0;
  SlotRange written_{};  // spans the slots of all copies that have not been waited for
};

template <class Slot>
__aicore__ inline void Run(const ReshapeAndCacheTiling& tiling, GM_ADDR key, GM_ADDR value, GM_ADDR slot_mapping,
                           GM_ADDR key_cache, GM_ADDR value_cache) {
  TPipe pipe;
  ReshapeAndCache<Slot> kernel(tiling, slot_mapping, pipe);
  kernel.CheckSlots();
  kernel.Copy(tiling.copy[0], key, key_cache);
  if (tiling.copies == 2) kernel.Copy(tiling.copy[1], value, value_cache);
}

}  // namespace

extern "C" __global__ __aicore__ void reshape_and_cache(GM_ADDR key, GM_ADDR value, GM_ADDR, GM_ADDR,
                                                        GM_ADDR slot_mapping, GM_ADDR key_cache, GM_ADDR value_cache,
                                                        GM_ADDR, GM_ADDR tiling_address) {
  REGISTER_TILING_DEFAULT(ReshapeAndCacheTiling);
  GET_TILING_DATA(tiling, tiling_address);
  if (tiling.slot_bytes == sizeof(int64_t)) {
    Run<int64_t>(tiling, key, value, slot_mapping, key_cache, value_cache);
  } else {
    Run<int32_t>(tiling, key, value, slot_mapping, key_cache, value_cache);
  }
}
