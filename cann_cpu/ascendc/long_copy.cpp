// SPDX-License-Identifier: Apache-2.0
// Copies of long runs of bytes between device memory and the unified buffer.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "ascendc/data_copy.h"
#include "running_block.h"
#include "vector_loops.h"

#ifdef __x86_64__
#include <emmintrin.h>
#endif

namespace AscendC::cpu {

void combine_runs(const Atomic& atomic, std::byte* to, const Runs& to_runs, const std::byte* from,
                  const Runs& from_runs) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  finish_stores();
  for (uint32_t run = 0; run < from_runs.count; ++run) {
    atomic.combine(to + run * to_runs.step, from + run * from_runs.step, static_cast<size_t>(from_runs.bytes));
  }
}

#ifdef __x86_64__

// Rows are often as long as a part of a page, and the buffer begins where a page does: then loads of a loop look like
// loads of what was just stored 4096 bytes away, and wait. The string instruction does not look.
void load_run(std::byte* to, const std::byte* from, size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

// A launch whose blocks store as much as this one, and more than a cache keeps, stores past the caches: no line is read
// before all of it is written.
void store_run(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr uint64_t kKept = uint64_t{2} << 20;
  Block& block = *current_block;
  block.bytes_stored += bytes;
  if (block.bytes_stored * block.count < kKept) {
    std::memcpy(to, from, bytes);
    return;
  }
  constexpr size_t kLine = 64;
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  const size_t lines = (bytes - head) / kLine * kLine;
  std::memcpy(to, from, head);
  loops().store_lines(to + head, from + head, lines);
  std::memcpy(to + head + lines, from + head + lines, bytes - head - lines);
}

void finish_stores() { _mm_sfence(); }

#else

void load_run(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }
void store_run(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }
void finish_stores() {}

#endif

}  // namespace AscendC::cpu
