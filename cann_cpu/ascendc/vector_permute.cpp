// SPDX-License-Identifier: Apache-2.0
// Elements moved within the unified buffer, and sorted.
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <span>

#include "ascendc/permute.h"
#include "ascendc/sort.h"
#include "vector_loops.h"

namespace AscendC::cpu {
namespace {

// Calls then(a uint16_t or uint32_t) for the size of an element.
template <class Then>
auto by_size(uint32_t itemsize, const Then& then) {
  return itemsize == 2 ? then(uint16_t{}) : then(uint32_t{});
}

template <class Bits>
void gather(Where where, const Operand& dst, const LocalMemory& src, const LocalMemory& offsets, uint32_t base,
            const Lanes& lanes) {
  constexpr const char* kName = "Gather";
  constexpr uint32_t n = kLanes<Bits>;
  const bool checked = checker() != nullptr;
  if (checked) [[unlikely]]
    check_vector(kName, where, lanes, std::span(&dst, 1));
  for (uint32_t repeat = 0; repeat < lanes.repeats; ++repeat) {
    const Mask& mask = lanes.of_repeat(repeat);
    const uint32_t end = std::min(mask.elements, n);
    const std::byte* from = offsets.data + size_t{repeat} * n * sizeof(uint32_t);
    Bits values[n];
    for (uint32_t lane = 0; lane < end; ++lane) {
      if (mask.elements > n && !mask.has(lane)) continue;
      if (checked) [[unlikely]] {
        check_local(kName, where, PIPE_V, Use::Read, offsets, from - offsets.data + lane * sizeof(uint32_t),
                    sizeof(uint32_t));
      }
      const uint32_t offset = base + load<uint32_t>(from + lane * sizeof(uint32_t));
      if (checked) [[unlikely]]
        check_local(kName, where, PIPE_V, Use::Read, src, offset, sizeof(Bits));
      values[lane] = load<Bits>(src.data + offset);
    }
    Values<Bits, n>::scatter(values, dst, repeat, mask);
  }
}

void check_apart(const char* name, Where where, const LocalMemory& dst, int64_t dst_bytes, const LocalMemory& src,
                 int64_t src_bytes) {
  if (checker() == nullptr || dst.data + dst_bytes <= src.data || src.data + src_bytes <= dst.data) return;
  fail(where, "%s: source and destination overlap; they must lie apart", name);
}

// Pairs in descending order of their scores.
using PairRun = std::span<const Pair>;

// Merges two runs, from both ends at the same time and without branches that depend on scores, which are hard to
// predict. Of equal scores the first run's comes first. Returns the end of what is written.
template <class T>
Pair* merge_two(PairRun one, PairRun other, Pair* to) {
  const Pair *a = one.data(), *a_end = a + one.size(), *b = other.data(), *b_end = b + other.size();
  const auto take = [](bool second, const Pair* from, const Pair* or_from) {  // both are read: no branch
    const auto pair = std::bit_cast<uint64_t>(*from), or_pair = std::bit_cast<uint64_t>(*or_from);
    return std::bit_cast<Pair>(second ? or_pair : pair);
  };
  Pair* const end = to + one.size() + other.size();
  Pair* back = end;
  while (a != a_end && b != b_end) {
    // Of so many pairs half can be taken from each end, whichever run they come from; a single one is the front's.
    const ptrdiff_t safe = std::min(a_end - a, b_end - b);
    for (ptrdiff_t i = 0; i < std::max<ptrdiff_t>(safe / 2, 1); ++i) {
      const bool second = score<T>(*b) > score<T>(*a);
      *to++ = take(second, a, b);
      a += second ? 0 : 1;
      b += second ? 1 : 0;
      if (safe == 1) break;
      const bool first = score<T>(b_end[-1]) > score<T>(a_end[-1]);
      *--back = take(first, b_end - 1, a_end - 1);
      a_end -= first ? 1 : 0;
      b_end -= first ? 0 : 1;
    }
  }
  std::copy(b, b_end, std::copy(a, a_end, to));  // one of them is empty
  return end;
}

// Leaves of the runs what is merged before one of them is at its end.
template <class T>
void stop_where_one_ends(std::span<PairRun> runs) {
  const auto ends_before = [](PairRun a, PairRun b) { return score<T>(a.back()) > score<T>(b.back()); };
  const auto first = std::ranges::min_element(runs, ends_before);
  const T last = score<T>(first->back());
  for (auto run = runs.begin(); run != runs.end(); ++run) {
    if (run == first) continue;
    const auto comes_before = [&](const Pair& pair) {
      return score<T>(pair) > last || (run < first && score<T>(pair) == last);
    };
    *run = {run->begin(), std::ranges::partition_point(*run, comes_before)};
  }
}

// Leaves of the runs the pair that comes first.
template <class T>
void stop_after_one(std::span<PairRun> runs) {
  PairRun* best = nullptr;
  for (PairRun& run : runs) {
    if (run.empty()) continue;
    if (best == nullptr || score<T>(run.front()) > score<T>(best->front())) best = &run;
  }
  for (PairRun& run : runs) run = run.first(&run == best ? 1 : 0);
}

}  // namespace

void gather(Where where, uint32_t itemsize, const LocalMemory& dst, const LocalMemory& src, const LocalMemory& offsets,
            uint32_t base, int64_t count) {
  const Operand to{dst, Use::Write, itemsize, kBlockBytes, kRepeatBytes};
  by_size(itemsize, [&](auto bits) {
    gather<decltype(bits)>(where, to, src, offsets, base, Lanes::of_count(kLanes<decltype(bits)>, count));
  });
}

void gather(Where where, uint32_t itemsize, const LocalMemory& dst, const LocalMemory& src, const LocalMemory& offsets,
            uint32_t base, const MaskArgument& mask, RepeatArgument repeats, uint32_t dst_repeat_stride) {
  const Operand to{dst, Use::Write, itemsize, kBlockBytes, dst_repeat_stride * kBlockBytes};
  by_size(itemsize, [&](auto bits) {
    const Lanes lanes = Lanes::of_mask("Gather", where, kLanes<decltype(bits)>, mask, repeats);
    gather<decltype(bits)>(where, to, src, offsets, base, lanes);
  });
}

uint64_t gather_mask(Where where, uint32_t itemsize, const LocalMemory& dst, const LocalMemory& src, uint8_t pattern,
                     const LocalMemory* bits, bool counted, uint32_t elements, const GatherMaskParams& p) {
  constexpr const char* kName = "GatherMask";
  const uint32_t lanes = kRepeatBytes / itemsize, per_repeat = counted ? elements : lanes;
  const bool checked = checker() != nullptr;
  if (checked) [[unlikely]] {
    const Mask all = Mask::first(lanes);
    const uint32_t repeats = counted ? p.repeatTimes * ((elements + lanes - 1) / lanes) : p.repeatTimes;
    check_vector(kName, where, {lanes, repeats, all, all}, {});
  }
  // Which of every four elements a pattern selects.
  constexpr uint8_t kPatterns[] = {0, 0b0101, 0b1010, 0b0001, 0b0010, 0b0100, 0b1000, 0b1111};
  const uint8_t selected = kPatterns[pattern];
  return by_size(itemsize, [&](auto element) {
    using Bits = decltype(element);
    constexpr uint32_t kPerBlock = kBlockBytes / sizeof(Bits);
    uint64_t gathered = 0;
    for (uint32_t repeat = 0; repeat < p.repeatTimes; ++repeat) {
      const int64_t first = int64_t{repeat} * p.src0RepeatStride * kBlockBytes;
      const int64_t first_bits = int64_t{repeat} * p.src1RepeatStride * kBlockBytes;
      for (uint32_t i = 0; i < per_repeat; ++i) {
        if (bits != nullptr) {
          if (checked) [[unlikely]]
            check_local(kName, where, PIPE_V, Use::Read, *bits, first_bits + i / 8, 1);
          if ((bits->data[first_bits + i / 8] >> i % 8 & std::byte{1}) == std::byte{0}) continue;
        } else if ((selected >> i % 4 & 1) == 0) {
          continue;
        }
        const int64_t from = first + int64_t{i / kPerBlock} * p.src0BlockStride * kBlockBytes +
                             i % kPerBlock * static_cast<int64_t>(sizeof(Bits));
        const auto to = static_cast<int64_t>(gathered++ * sizeof(Bits));
        if (checked) [[unlikely]] {
          check_local(kName, where, PIPE_V, Use::Read, src, from, sizeof(Bits));
          check_local(kName, where, PIPE_V, Use::Write, dst, to, sizeof(Bits));
        }
        store(dst.data + to, load<Bits>(src.data + from));
      }
    }
    return gathered;
  });
}

void broadcast_elements(Where where, uint32_t itemsize, const LocalMemory& dst, const LocalMemory& src,
                        RepeatArgument repeats, const BrcbRepeatParams& p) {
  constexpr const char* kName = "Brcb";
  constexpr uint32_t kPerRepeat = 8;
  const uint32_t count = repeats.checked(kName, where);
  const int64_t repeat_step = int64_t{p.dstRepStride} * kBlockBytes, block_step = int64_t{p.dstBlkStride} * kBlockBytes;
  const bool is_even = repeat_step == kPerRepeat * block_step;  // all blocks are equally far from each other
  if (checker() != nullptr) [[unlikely]] {
    const uint32_t lanes = kRepeatBytes / itemsize;
    check_vector(kName, where, {lanes, count, Mask::first(lanes), Mask::first(lanes)}, {});
    check_local(kName, where, PIPE_V, Use::Read, src, 0, int64_t{count} * kPerRepeat * itemsize);
    // Blocks that follow each other are one piece.
    const uint32_t together = block_step != kBlockBytes ? 1 : is_even ? count * kPerRepeat : kPerRepeat;
    for (uint32_t i = 0; i < count * kPerRepeat; i += together) {
      const int64_t offset = i / kPerRepeat * repeat_step + i % kPerRepeat * block_step;
      check_local(kName, where, PIPE_V, Use::Write, dst, offset, together * kBlockBytes);
    }
  }
  const uint32_t blocks = is_even ? count * kPerRepeat : kPerRepeat;
  for (uint32_t repeat = 0; repeat < (is_even ? 1 : count); ++repeat) {
    OperandRows rows{};
    rows.dst = dst.data + repeat * repeat_step, rows.dst_step = block_step;
    rows.src[0] = src.data + size_t{repeat} * kPerRepeat * itemsize;
    rows.rows = 1, rows.count = blocks;
    loops().broadcasts[itemsize / 4](rows, 0);
  }
}

void sort32(Where where, Dtype dtype, const LocalMemory& dst, const LocalMemory& scores, const LocalMemory& indices,
            int32_t repeats) {
  constexpr const char* kName = "Sort32";
  constexpr uint32_t kSize = 32;
  const uint32_t itemsize = itemsize_of(dtype);
  const int64_t count = int64_t{repeats} * kSize;
  if (checker() != nullptr) [[unlikely]] {
    check_local(kName, where, PIPE_V, Use::Read, scores, 0, count * itemsize);
    check_local(kName, where, PIPE_V, Use::Read, indices, 0, count * static_cast<int64_t>(sizeof(uint32_t)));
    check_local(kName, where, PIPE_V, Use::Write, dst, 0, count * kPairBytes);
  }
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    const std::byte* from = scores.data + repeat * kSize * itemsize;
    float values[kSize];
    if (dtype == Dtype::Half) {
      loops().widen[0](from, values, kSize);
    } else {
      std::memcpy(values, from, sizeof(values));
    }
    uint8_t order[kSize];
    if (std::any_of(values, values + kSize, [](float value) { return value != value; })) {
      for (uint32_t i = 0; i < kSize; ++i) {
        uint32_t at = i;
        for (; at > 0 && values[i] > values[order[at - 1]]; --at) order[at] = order[at - 1];
        order[at] = static_cast<uint8_t>(i);
      }
    } else {
      loops().sort32(values, order);
    }
    std::byte pairs[kSize * kPairBytes] = {};
    for (uint32_t i = 0; i < kSize; ++i) {
      std::memcpy(pairs + i * kPairBytes, from + order[i] * itemsize, itemsize);
      std::memcpy(pairs + i * kPairBytes + sizeof(uint32_t),
                  indices.data + (repeat * kSize + order[i]) * static_cast<int64_t>(sizeof(uint32_t)),
                  sizeof(uint32_t));
    }
    std::memcpy(dst.data + repeat * static_cast<int64_t>(sizeof(pairs)), pairs, sizeof(pairs));
  }
}

namespace {

template <class T>
void merge_sorted(Where where, const LocalMemory& dst, const LocalMemory (&sources)[4], const MrgSort4Info& info) {
  constexpr const char* kName = "MrgSort";
  if (info.validBit != 3 && info.validBit != 7 && info.validBit != 15) {
    fail(where, "%s: validBit %u; it is 0b11, 0b111 or 0b1111", kName, info.validBit);
  }
  const auto count = static_cast<uint32_t>(std::bit_width(info.validBit));
  int64_t total = 0;
  for (uint32_t run = 0; run < count; ++run) total += info.elementLengths[run];
  // How many pairs a merge gives that stops early shows when it has.
  check_repeats<uint64_t>(kName, where, info.ifExhaustedSuspension ? 0 : (info.repeatTimes * total + 31) / 32);
  uint16_t (&taken)[4] = block(where).merged;
  const auto halves = std::make_unique_for_overwrite<Pair[]>(static_cast<size_t>(total));
  for (int64_t repeat = 0; repeat < info.repeatTimes; ++repeat) {
    const int64_t first = repeat * total * kPairBytes;
    PairRun runs[4] = {};
    bool one_is_empty = false;
    for (uint32_t run = 0; run < count; ++run) {
      const int64_t bytes = info.elementLengths[run] * kPairBytes;
      check_bytes(kName, where, Use::Read, sources[run], first, bytes);
      check_apart(kName, where, dst, info.repeatTimes * total * kPairBytes, sources[run], bytes);
      one_is_empty |= bytes == 0;
      runs[run] = {reinterpret_cast<const Pair*>(sources[run].data + first), info.elementLengths[run]};
    }
    const std::span valid(runs, count);
    if (info.ifExhaustedSuspension) {
      // Where a run is empty from the start, it stops after the first pair.
      one_is_empty ? stop_after_one<T>(valid) : stop_where_one_ends<T>(valid);
    }
    for (uint32_t run = 0; run < 4; ++run) taken[run] = static_cast<uint16_t>(runs[run].size());
    // A run may lie where its pairs go: all are read before the first is written.
    Pair* const begin = halves.get();
    Pair* const middle = merge_two<T>(runs[0], runs[1], begin);
    Pair* const end = merge_two<T>(runs[2], runs[3], middle);
    check_bytes(kName, where, Use::Write, dst, first, (end - begin) * kPairBytes);
    merge_two<T>({begin, middle}, {middle, end}, reinterpret_cast<Pair*>(dst.data + first));
  }
}

}  // namespace

void merge_sorted(Where where, Dtype dtype, const LocalMemory& dst, const LocalMemory (&sources)[4],
                  const MrgSort4Info& info) {
  dtype == Dtype::Half ? merge_sorted<half>(where, dst, sources, info) : merge_sorted<float>(where, dst, sources, info);
}

}  // namespace AscendC::cpu
