// SPDX-License-Identifier: Apache-2.0
// Tiles of a matrix in device memory that a kernel goes through with equal steps: the next one is brought into the
// cache while this one is multiplied.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace AscendC::cpu {

class TilePrefetch {
 public:
  // A tile is copied: `rows` rows of `bytes`, `step` bytes apart.
  void copied(const std::byte* tile, int64_t rows, int64_t bytes, int64_t step) {
    if (rows * bytes < kLeast) return;
    Walk& walk = walks_[walks_[0].step == step ? 0 : walks_[1].step == step ? 1 : oldest_ ^= 1];
    const auto at = reinterpret_cast<uintptr_t>(tile);
    const uintptr_t stride = at - walk.last;
    const bool goes_on = walk.step == step && walk.stride == stride && stride != 0;
    walk = {at, stride, step};
    rows_ = 0;
    if (!goes_on) return;
    row_ = at + stride, rows_ = rows, step_ = step;
    first_ = line_ = row_ / kLine * kLine;
    length_ = static_cast<uintptr_t>(bytes) + row_ % kLine;
  }

  // Asks for so many more bytes of the next tile.
  void ask(uint32_t bytes) {
    for (uint32_t i = 0; i < bytes && rows_ > 0; i += kLine) {
      __builtin_prefetch(reinterpret_cast<const void*>(line_), 0, 2);
      line_ += kLine;
      if (line_ - first_ >= length_) {
        first_ = line_ = first_ + static_cast<uintptr_t>(step_);
        --rows_;
      }
    }
  }

 private:
  static constexpr uintptr_t kLine = 64;
  static constexpr int64_t kLeast = 4096;  // bytes of a tile

  struct Walk {
    uintptr_t last = 0, stride = 0;
    int64_t step = 0;
  };
  Walk walks_[2];  // of the left and of the right matrix
  int oldest_ = 0;
  uintptr_t row_ = 0, first_ = 0, line_ = 0, length_ = 0;
  int64_t rows_ = 0, step_ = 0;
};

// Of the core that runs in this thread.
extern constinit thread_local TilePrefetch tile_prefetch;

}  // namespace AscendC::cpu
