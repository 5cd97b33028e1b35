// SPDX-License-Identifier: Apache-2.0
// Bringing memory to the L2 cache before it is used.
#pragma once

#include <cstdint>

namespace opp {

constexpr int64_t kCacheLine = 64;

// Starts to bring a line. The assembly is for GCC, which drops calls of functions that do nothing but prefetch, as if
// they had no effect.
[[gnu::always_inline]] inline void prefetch_line(const char* line) {
  __builtin_prefetch(line, 0, 2);
  asm volatile("");
}

// Starts to bring so many bytes.
inline void prefetch(const void* first, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kCacheLine) prefetch_line(static_cast<const char*>(first) + i);
}

// Rows to be brought a few lines at a time, while something is computed: many at once would make the processor wait, or
// drop what it has no room for. The lines of a row follow one another, since memory is faster so.
class RowsAhead {
 public:
  // Rows of whole lines; distances are in bytes.
  RowsAhead(const void* rows, int64_t stride, int64_t bytes)
      : line_(static_cast<const char*>(rows)), lines_(bytes / kCacheLine), step_(stride - bytes + kCacheLine) {}

  template <int count>
  [[gnu::always_inline]] inline void bring() {
    for (int i = 0; i < count; ++i) {
      prefetch_line(line_);
      const bool ends = --left_ == 0;
      line_ += ends ? step_ : kCacheLine;
      left_ = ends ? lines_ : left_;
    }
  }

 private:
  const char* line_;
  int64_t lines_;  // of a row
  int64_t step_;   // from a row's last line to the next one's first
  int64_t left_ = lines_;
};

}  // namespace opp
