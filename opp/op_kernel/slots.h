// SPDX-License-Identifier: Apache-2.0
// The slots of a call's tokens: where in a cache each token is written.
#pragma once

#include "cores.h"
#include "kernel_operator.h"

namespace opp {

// Tokens that are written together, counted from the first that is loaded, and their slots, all different.
struct SlotGroup {
  static constexpr uint32_t kMax = 16;

  uint32_t count;
  int64_t tokens[kMax];
  int64_t slots[kMax];
};

// Slots of 32 or 64 bits, [tokens] or, with `inner` of a row, [., inner]. -1 is a token that is not cached. They are in
// the unified buffer, kAtOnce at a time.
class Slots {
 public:
  static constexpr int64_t kAtOnce = 256;

  __aicore__ inline Slots(AscendC::TPipe& pipe, const char* name, GM_ADDR slots, uint32_t bytes, int64_t inner,
                          int64_t capacity)
      : name_(name), bytes_(bytes), inner_(inner), capacity_(capacity) {
    device_.SetGlobalBuffer(slots);
    pipe.InitBuffer(buffer_, kAtOnce * sizeof(int64_t));
  }

  // Stops the kernel at a slot of these tokens that the cache does not have.
  __aicore__ inline void Check(const Run& tokens) {
    for (int64_t first = tokens.first; first < tokens.end; first += kAtOnce) {
      const int64_t count = Smaller(kAtOnce, tokens.end - first);
      Load(first, count);
      for (int64_t i = 0; i < count; ++i) Check(first + i, Get(i));
    }
  }

  // Reads those of tokens [first, first + count).
  __aicore__ inline void Load(int64_t first, int64_t count) {
    const auto read = GetTPipePtr()->FetchEventID(AscendC::HardEvent::S_MTE2);
    AscendC::SetFlag<AscendC::HardEvent::S_MTE2>(read);
    AscendC::WaitFlag<AscendC::HardEvent::S_MTE2>(read);
    AscendC::DataCopyPad(buffer_.Get<uint8_t>(), device_[first * bytes_],
                         AscendC::DataCopyExtParams{1, static_cast<uint32_t>(count * bytes_), 0, 0, 0},
                         AscendC::DataCopyPadExtParams<uint8_t>{false, 0, 0, 0});
    const auto loaded = GetTPipePtr()->FetchEventID(AscendC::HardEvent::MTE2_S);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_S>(loaded);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_S>(loaded);
  }

  // This core's next slots, at most `max`, from token `next` on, which advances. Each slot belongs to one core, so the
  // last of several tokens with the same slot remains.
  __aicore__ inline SlotGroup Take(int64_t& next, int64_t count, uint32_t max, int64_t core, int64_t cores) {
    SlotGroup group;
    group.count = 0;
    while (next < count && group.count < max) {
      const int64_t token = next++, slot = Get(token);
      if (slot < 0 || slot % cores != core) continue;
      uint32_t place = 0;
      while (place < group.count && group.slots[place] != slot) ++place;
      group.tokens[place] = token;
      group.slots[place] = slot;
      if (place == group.count) ++group.count;
    }
    return group;
  }

 private:
  // The slot of the i-th token.
  __aicore__ inline int64_t Get(int64_t i) {
    const auto place = static_cast<uint32_t>(i);
    return bytes_ == sizeof(int64_t) ? buffer_.Get<int64_t>().GetValue(place) : buffer_.Get<int32_t>().GetValue(place);
  }

  __aicore__ inline void Check(int64_t token, int64_t slot) const {
    const bool fits = -1 <= slot && slot < capacity_;
    if (inner_ == 0) {
      ascendc_assert(fits,
                     "%s[%lld] is %lld, but must lie between 0 and %lld (the slots of the cache), or be -1 for a token "
                     "that is not cached",
                     name_, static_cast<long long>(token), static_cast<long long>(slot),
                     static_cast<long long>(capacity_ - 1));
    } else {
      ascendc_assert(fits,
                     "%s[%lld][%lld] is %lld, but must lie between 0 and %lld (the slots of the cache), or be -1 for a "
                     "token that is not cached",
                     name_, static_cast<long long>(token / inner_), static_cast<long long>(token % inner_),
                     static_cast<long long>(slot), static_cast<long long>(capacity_ - 1));
    }
  }

  const char* name_;
  const uint32_t bytes_;
  const int64_t inner_;
  const int64_t capacity_;
  AscendC::GlobalTensor<uint8_t> device_;
  AscendC::TBuf<> buffer_;
};

}  // namespace opp
