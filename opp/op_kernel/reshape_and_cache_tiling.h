// SPDX-License-Identifier: Apache-2.0
// The division of reshape_and_cache's work, in plain C++: the host computes it, the kernel reads it.
#pragma once

#include <cstdint>

namespace opp {

// Things that are counted over two dimensions: `inner` of them lie inner_stride bytes apart, and the next ones begin
// outer_stride bytes further.
struct Strided {
  int64_t inner;
  int64_t inner_stride;
  int64_t outer_stride;
};

// The places of the rows of keys or values, and their places in a cache. A row is `runs` runs of `run` bytes that lie
// side by side in both. In keys and values the runs of a row also lie side by side.
struct RowCopy {
  uint32_t run;
  uint32_t runs;
  uint32_t together;   // max runs that one instruction copies
  uint32_t pitch;      // bytes from run to run in the unified buffer
  uint32_t in_buffer;  // runs that a buffer holds
  int64_t from_step;   // bytes from run to run of those that go together: runs of a row, or rows that are one run
  int64_t to_step;
  Strided tokens;
  Strided slots;
  Strided runs_in_cache;
};

struct ReshapeAndCacheTiling {
  static constexpr uint32_t kBufferBytes = 32 * 1024;  // of the two that rows go through
  static constexpr uint32_t kSlotsAtATime = 4096;      // that lie in the unified buffer

  int64_t tokens;
  int64_t capacity;    // slots that the caches have
  int64_t slot_bytes;  // 4 or 8
  int64_t copies;      // keys, and values if there are any
  uint32_t blocks;
  uint32_t slots_shift;  // 2 ** slots_shift consecutive slots are one block's
  RowCopy copy[2];
};

}  // namespace opp
