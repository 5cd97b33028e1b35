// SPDX-License-Identifier: Apache-2.0
// Elements moved within the unified buffer, and sorted.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

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

// The number of a pair's score; dtype is half or float.
float score_of(const std::byte* pair, Dtype dtype) {
  return dtype == Dtype::Half ? static_cast<float>(load<half>(pair)) : load<float>(pair);
}

void check_apart(const char* name, Where where, const LocalMemory& dst, int64_t dst_bytes, const LocalMemory& src,
                 int64_t src_bytes) {
  if (checker() == nullptr || dst.data + dst_bytes <= src.data || src.data + src_bytes <= dst.data) return;
  fail(where, "%s: source and destination overlap; they must lie apart", name);
}

enum class Ending : uint8_t { AllRuns, OneRun, OnePair };

// Runs of pairs that are not yet merged, each with what is left of it.
struct PairRuns {
  explicit PairRuns(Dtype dtype) : dtype(dtype) {}

  Dtype dtype;
  uint32_t count = 0;
  float score[4];  // of the next pair
  const std::byte* next[4];
  uint32_t left[4];
  uint32_t number[4];

  void add(uint32_t run, const std::byte* first, uint32_t length) {
    score[count] = score_of(first, dtype), next[count] = first, left[count] = length, number[count++] = run;
  }

  // Of the largest score; the first of equal ones.
  uint32_t best() const {
    const auto of = [&](uint32_t one, uint32_t other) { return score[other] > score[one] ? other : one; };
    switch (count) {
      case 4:
        return of(of(0, 1), of(2, 3));
      case 3:
        return of(of(0, 1), 2);
      case 2:
        return of(0, 1);
      default:
        return 0;
    }
  }

  // Writes the pairs in descending order. Returns their number, and counts in `taken` how many come from each run.
  uint32_t merge(Ending ending, std::byte* to, uint16_t (&taken)[4]) {
    uint32_t merged = 0;
    while (count != 0) {
      const uint32_t run = best();
      std::memcpy(to + int64_t{merged++} * kPairBytes, next[run], kPairBytes);
      ++taken[number[run]];
      next[run] += kPairBytes;
      if (--left[run] != 0) {
        score[run] = score_of(next[run], dtype);
      } else {
        if (ending == Ending::OneRun) break;
        --count;
        for (uint32_t i = run; i < count; ++i) {
          score[i] = score[i + 1], next[i] = next[i + 1], left[i] = left[i + 1], number[i] = number[i + 1];
        }
      }
      if (ending == Ending::OnePair) break;
    }
    return merged;
  }
};

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

void merge_sorted(Where where, Dtype dtype, const LocalMemory& dst, const LocalMemory (&sources)[4],
                  const MrgSort4Info& info) {
  constexpr const char* kName = "MrgSort";
  if (info.validBit != 3 && info.validBit != 7 && info.validBit != 15) {
    fail(where, "%s: validBit %u; it is 0b11, 0b111 or 0b1111", kName, info.validBit);
  }
  const auto runs = static_cast<uint32_t>(std::bit_width(info.validBit));
  int64_t total = 0;
  for (uint32_t run = 0; run < runs; ++run) total += info.elementLengths[run];
  // How many pairs a merge gives that stops early shows when it has.
  check_repeats<uint64_t>(kName, where, info.ifExhaustedSuspension ? 0 : (info.repeatTimes * total + 31) / 32);
  uint16_t (&taken)[4] = block(where).merged;
  std::vector<std::byte> merged(static_cast<size_t>(total * kPairBytes));  // a run may lie where its pairs go
  for (int64_t repeat = 0; repeat < info.repeatTimes; ++repeat) {
    const int64_t first = repeat * total * kPairBytes;
    PairRuns left(dtype);
    bool one_ended = false;
    for (uint32_t run = 0; run < runs; ++run) {
      const uint32_t length = info.elementLengths[run];
      check_bytes(kName, where, Use::Read, sources[run], first, length * kPairBytes);
      check_apart(kName, where, dst, info.repeatTimes * total * kPairBytes, sources[run], length * kPairBytes);
      one_ended |= length == 0;
      if (length != 0) left.add(run, sources[run].data + first, length);
    }
    std::fill(taken, taken + 4, uint16_t{0});
    // Where a run is empty from the start, it stops after the first pair.
    const Ending ending = !info.ifExhaustedSuspension ? Ending::AllRuns : one_ended ? Ending::OnePair : Ending::OneRun;
    const int64_t bytes = left.merge(ending, merged.data(), taken) * kPairBytes;
    check_bytes(kName, where, Use::Write, dst, first, bytes);
    if (bytes != 0) std::memcpy(dst.data + first, merged.data(), static_cast<size_t>(bytes));
  }
}

}  // namespace AscendC::cpu
