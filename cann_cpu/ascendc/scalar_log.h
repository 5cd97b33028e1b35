// SPDX-License-Identifier: Apache-2.0
// What the scalar unit has touched of the unified buffer since any other unit did or could. Kernels touch element after
// element in loops: to note each with its history would make them a hundred times slower. Of one byte the first read
// and the first write matter, by whichever instruction: what follows is in order with them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "ascendc/block.h"

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

  // False if it does not take the access: it must be emptied before, and the access be noted otherwise.
  bool add(const char* name, const Where& where, Use use, const LocalMemory& memory, int64_t offset, uint32_t bytes) {
    const auto begin = static_cast<uint64_t>(memory.data + offset - unified_buffer_);
    if (begin + bytes > kUnifiedBufferBytes || begin % kBits + bytes > kBits) return false;
    if (++accesses_ == kMaxAccesses) return false;  // a loop that waits for what nobody writes is found out, too
    if (read_.empty()) read_.resize(kWords), written_.resize(kWords);
    const auto word = static_cast<uint32_t>(begin / kBits);
    const uint64_t bits = (~uint64_t{0} >> (kBits - bytes)) << (begin % kBits);
    const uint64_t written = written_[word] & bits;
    if (written == bits || (use == Use::Read && (read_[word] & bits) == bits)) return true;
    if (written != 0) return false;
    Touched* touched = find(name, where, use, memory);
    if (touched == nullptr) return false;
    touched->bits[word - touched->first] |= bits;
    (use == Use::Read ? read_ : written_)[word] |= bits;
    return true;
  }

  // Empties it, and calls see(site, offset, bytes) for all that was in it: reads, then writes.
  template <class See>
  void take(const See& see) {
    accesses_ = 0;
    if (sites_.empty()) return;
    std::vector<Touched> sites;
    sites.swap(sites_);
    std::stable_sort(sites.begin(), sites.end(),
                     [](const Touched& a, const Touched& b) { return a.site.use < b.site.use; });
    std::vector<Run> runs;
    for (uint32_t i = 0; i < sites.size(); ++i) {
      const uint32_t first_word = sites[i].first;
      for (uint32_t word = first_word; word < first_word + sites[i].bits.size(); ++word) {
        uint64_t bits = sites[i].bits[word - first_word];
        if (bits != 0) read_[word] = written_[word] = 0;
        while (bits != 0) {
          const int first = std::countr_zero(bits), count = std::countr_one(bits >> first);
          const uint64_t begin = word * kBits + static_cast<uint64_t>(first);
          if (!runs.empty() && runs.back().site == i && runs.back().end == begin) {
            runs.back().end += static_cast<uint64_t>(count);
          } else {
            runs.push_back({i, begin, begin + static_cast<uint64_t>(count)});
          }
          bits &= count == 64 ? 0 : ~(((uint64_t{1} << count) - 1) << first);
        }
      }
    }
    for (const Run& run : runs) {
      const Site& site = sites[run.site].site;
      const auto begin = static_cast<int64_t>(run.begin), end = static_cast<int64_t>(run.end);
      see(site, begin - (site.memory.data - unified_buffer_), end - begin);
    }
  }

 private:
  static constexpr uint64_t kBits = 64;
  static constexpr uint32_t kWords = kUnifiedBufferBytes / kBits;
  static constexpr size_t kMaxSites = 16;
  static constexpr uint32_t kMaxAccesses = 1 << 16;

  using Bits = std::vector<uint64_t>;  // one for each byte
  struct Touched {
    Site site;
    uint32_t first;  // word of the unified buffer
    Bits bits;       // from there on
  };
  struct Run {
    uint32_t site;
    uint64_t begin, end;
  };

  // What a site has touched; nullptr where there are too many.
  Touched* find(const char* name, const Where& where, Use use, const LocalMemory& memory) {
    for (Touched& touched : sites_) {
      const Site& site = touched.site;
      if (site.where.line() == where.line() && site.use == use && site.memory.buffer == memory.buffer &&
          site.where.column() == where.column() && site.where.file_name() == where.file_name()) {
        return &touched;
      }
    }
    if (sites_.size() == kMaxSites) return nullptr;
    const auto first = static_cast<uint32_t>((memory.buffer->data - unified_buffer_) / static_cast<int64_t>(kBits));
    sites_.push_back({{name, where, use, memory}, first, Bits(memory.buffer->bytes / kBits + 2)});
    return &sites_.back();
  }

  const std::byte* const unified_buffer_;
  Bits read_, written_;  // of the whole unified buffer, by any
  std::vector<Touched> sites_;
  uint32_t accesses_ = 0;
};

}  // namespace AscendC::cpu
