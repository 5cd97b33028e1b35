// SPDX-License-Identifier: Apache-2.0
// Logs the scalar unit's accesses to the unified buffer since the last access of another unit. Kernels access element
// after element in loops, and recording the history of each would make them a hundred times slower. Accesses are
// checked at once, and recorded as runs before another unit's access.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "ascendc/block.h"
#include "shadow.h"

namespace AscendC::cpu {

class ScalarLog {
 public:
  explicit ScalarLog(const std::byte* unified_buffer) : unified_buffer_(unified_buffer) {}

  struct Site {
    const char* name;
    Where where;
    Use use;
    LocalMemory memory;
  };

  // Bytes of the unified buffer in which a use was checked and is right.
  struct Range {
    uint64_t begin = 0, end = 0;
    bool holds(uint64_t from, uint64_t to) const { return begin <= from && to <= end; }
  };

  // Logs an access by a site that has logged one since the log was emptied, where that use is right. False if there is
  // more to it.
  bool repeat(const Where& where, Use use, const LocalMemory& memory, int64_t offset, int64_t bytes) {
    const Recent& recent = recent_[slot(where)];
    if (recent.where != identity(where) || recent.buffer != memory.buffer || recent.number != number_) return false;
    if (recent.use != use || recent.generation != memory.generation || offset + bytes > memory.bytes) return false;
    const auto begin = static_cast<uint64_t>(memory.data + offset - unified_buffer_);
    const auto size = static_cast<uint64_t>(bytes);
    if (!recent.right.holds(begin, begin + size) || begin % kBits + size > kBits) return false;
    note(*recent.touched, begin, size);
    return true;
  }

  // The same for any access to memory that is alive. False if it does not take the access: it must be emptied before,
  // and the access be noted otherwise. check(begin) gives the range around a byte; what is not right is not taken.
  template <class Check>
  bool add(const char* name, const Where& where, Use use, const LocalMemory& memory, int64_t offset, uint32_t bytes,
           const Check& check) {
    const auto begin = static_cast<uint64_t>(memory.data + offset - unified_buffer_);
    if (begin % kBits + bytes > kBits) return false;
    const auto of_buffer = static_cast<uint64_t>(memory.buffer->data - unified_buffer_);
    const uint64_t end_of_buffer = of_buffer + memory.buffer->bytes;
    if (begin + bytes > end_of_buffer) return false;  // by SetSize
    if (known_.empty()) known_.resize(kWords);
    const uint64_t bits = bits_of(begin, bytes);
    if (use == Use::Read && (known_[begin / kBits] & bits) == bits) return true;
    Range& right = right_[use == Use::Read ? 0 : 1];
    if (!right.holds(begin, begin + bytes)) right = check(begin);
    if (!right.holds(begin, begin + bytes)) return false;
    Touched* touched = find(name, where, use, memory);
    if (touched == nullptr) return false;
    note(*touched, begin, bytes);
    const Range of_both{std::max(right.begin, of_buffer), std::min(right.end, end_of_buffer)};
    recent_[slot(where)] = {identity(where), memory.buffer, memory.generation, use, number_, of_both, touched};
    return true;
  }

  // Before memory is given back.
  void forget_recent() { ++number_; }

  // Empties it, and calls see(site, offset, bytes) for all that was in it.
  template <class See>
  void take(const See& see) {
    right_ = {};
    forget_recent();
    for (Touched* touched : used_) {
      const Site& site = touched->site;
      uint64_t begin = 0, end = 0;  // of the run
      const auto end_run = [&] {
        const int64_t offset = static_cast<int64_t>(begin) - (site.memory.data - unified_buffer_);
        if (begin != end) see(site, offset, static_cast<int64_t>(end - begin));
      };
      for (uint32_t word = touched->lowest; word <= touched->highest; ++word) {
        uint64_t bits = std::exchange(touched->bits[word - touched->first], 0);
        if (bits != 0) known_[word] = 0;
        while (bits != 0) {
          const int first = std::countr_zero(bits), count = std::countr_one(bits >> first);
          const uint64_t from = word * kBits + static_cast<uint64_t>(first);
          if (from != end) {
            end_run();
            begin = from;
          }
          end = from + static_cast<uint64_t>(count);
          bits &= ~((~uint64_t{0} >> (kBits - static_cast<uint64_t>(count))) << first);
        }
      }
      end_run();
      touched->lowest = ~uint32_t{0}, touched->highest = 0;
    }
    used_.clear();
  }

 private:
  static constexpr uint64_t kBits = 64;
  static constexpr uint32_t kWords = largest_bytes_of(Hardware::UB) / kBits;
  static constexpr size_t kMaxSites = 16, kRecent = 32;

  using Bits = std::vector<uint64_t>;  // one for each byte
  struct Touched {
    void add(uint32_t word, uint64_t of_word) {
      bits[word - first] |= of_word;
      lowest = std::min(lowest, word);
      highest = std::max(highest, word);
    }

    bool is_used() const { return lowest <= highest; }

    Site site;
    uint32_t first = 0;                           // word of the unified buffer
    Bits bits;                                    // from there on
    uint32_t lowest = ~uint32_t{0}, highest = 0;  // words with bits
  };

  // A site that has logged something since the log was emptied for the number-th time.
  struct Recent {
    const void* where = nullptr;
    const Buffer* buffer = nullptr;
    uint32_t generation = 0;
    Use use = Use::Read;
    uint32_t number = 0;
    Range right;  // in the buffer
    Touched* touched = nullptr;
  };

  static uint64_t bits_of(uint64_t begin, uint64_t bytes) {
    return (~uint64_t{0} >> (kBits - bytes)) << (begin % kBits);
  }

  void note(Touched& touched, uint64_t begin, uint64_t bytes) {
    const auto word = static_cast<uint32_t>(begin / kBits);
    const uint64_t bits = bits_of(begin, bytes);
    touched.add(word, bits);
    known_[word] |= bits;
  }

  // Fibonacci hashing: places of a program lie at multiples of 24 bytes.
  static size_t slot(const Where& where) {
    constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
    return reinterpret_cast<uintptr_t>(identity(where)) * kGolden >> (64 - std::bit_width(kRecent - 1));
  }

  static bool is_same(const Site& site, const Where& where, Use use, const Buffer* buffer) {
    return site.where.line() == where.line() && site.use == use && site.memory.buffer == buffer &&
           site.where.column() == where.column() && site.where.file_name() == where.file_name();
  }

  // What a site has touched; nullptr where there are too many.
  Touched* find(const char* name, const Where& where, Use use, const LocalMemory& memory) {
    for (Touched* touched : used_) {
      if (is_same(touched->site, where, use, memory.buffer)) return touched;
    }
    if (used_.size() == kMaxSites) return nullptr;
    Touched& touched = unused(where, use, memory.buffer);
    touched.site = {name, where, use, memory};
    touched.first = static_cast<uint32_t>((memory.buffer->data - unified_buffer_) / static_cast<int64_t>(kBits));
    touched.bits.resize(memory.buffer->bytes / kBits + 2);
    used_.push_back(&touched);
    return &touched;
  }

  // One that is not used: the site's from before, whose memory is there already, if there is one.
  Touched& unused(const Where& where, Use use, const Buffer* buffer) {
    const auto same = [&](const Touched& touched) { return is_same(touched.site, where, use, buffer); };
    if (const auto found = std::ranges::find_if(sites_, same); found != sites_.end()) return *found;
    while (sites_[next_ % kMaxSites].is_used()) ++next_;
    return sites_[next_++ % kMaxSites];
  }

  const std::byte* const unified_buffer_;
  Bits known_;                  // of the whole unified buffer: what was read or written, and may be read again
  std::array<Range, 2> right_;  // to read, to write
  std::array<Recent, kRecent> recent_;
  uint32_t number_ = 1;
  std::array<Touched, kMaxSites> sites_;
  size_t next_ = 0;
  std::vector<Touched*> used_;  // in the order of their first access
};

}  // namespace AscendC::cpu
