// SPDX-License-Identifier: Apache-2.0
// Elements moved within the unified buffer: copies of repeats, broadcasts, gathers, a transposed matrix, sorted pairs.
#pragma once

#include "ascendc/instruction.h"

namespace AscendC {

struct BrcbRepeatParams {
  uint16_t dstBlkStride = 1;
  uint16_t dstRepStride = 8;
};

struct GatherRepeatParams {
  uint8_t dstBlkStride = 1;
  uint8_t dstRepStride = 8;
};

struct GatherMaskParams {
  uint8_t src0BlockStride = 1;
  uint16_t repeatTimes = 1;
  uint16_t src0RepeatStride = 8;
  uint8_t src1RepeatStride = 0;
};

namespace cpu {

template <class T>
concept Movable = sizeof(T) == 2 || sizeof(T) == 4;

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;

// Element (repeat, lane) of dst is that at the byte offset which the offset of the same number says.
template <class T>
void gather(Where where, const Operand& dst, const LocalMemory& src, const LocalTensor<uint32_t>& offsets,
            uint32_t base, const Lanes& lanes) {
  constexpr uint32_t n = kLanes<T>;
  needs<T>("Gather", where);
  if (checker() != nullptr) [[unlikely]]
    check_vector("Gather", where, lanes, {dst});
  for (uint32_t repeat = 0; repeat < lanes.repeats; ++repeat) {
    const Mask& mask = lanes.of_repeat(repeat);
    BitsOf<T> values[n] = {};
    for (uint32_t lane = 0; lane < n; ++lane) {
      if (!mask.has(lane)) continue;
      const int64_t place = int64_t{repeat * n + lane} * sizeof(uint32_t);
      check_bytes("Gather", where, Use::Read, offsets.memory(), place, sizeof(uint32_t));
      const uint32_t offset = base + load<uint32_t>(offsets.memory().data + place);
      check_bytes("Gather", where, Use::Read, src, offset, sizeof(T));
      values[lane] = load<BitsOf<T>>(src.data + offset);
    }
    Values<BitsOf<T>, n>::scatter(values, dst, repeat, mask);
  }
}

}  // namespace cpu

// dst = src, lane by lane
template <class T, bool isSetMask = true>
  requires cpu::Movable<T>
void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const cpu::MaskArgument& mask,
          cpu::RepeatArgument repeats, const CopyRepeatParams& p, cpu::Where where = cpu::Where::current()) {
  using Bits = cpu::BitsOf<T>;
  cpu::Elementwise<Bits, Bits>::run(
      "Copy", where, cpu::Lanes::of_mask("Copy", where, cpu::kLanes<Bits>, cpu::chosen<isSetMask>(mask), repeats),
      [](Bits bits) { return bits; }, cpu::strided(cpu::Use::Write, dst, p.dstStride, p.dstRepeatSize),
      cpu::strided(cpu::Use::Read, src, p.srcStride, p.srcRepeatSize));
}

// Each of eight elements of src in a repeat fills a block of 32 bytes of dst.
template <class T>
  requires cpu::Movable<T>
void Brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src, cpu::RepeatArgument repeats, const BrcbRepeatParams& p,
          cpu::Where where = cpu::Where::current()) {
  constexpr uint32_t kPerRepeat = 8;
  const uint32_t blocks = repeats.checked("Brcb", where) * kPerRepeat;
  cpu::check_repeats<T>("Brcb", where, blocks / kPerRepeat);
  cpu::check_bytes("Brcb", where, cpu::Use::Read, src.memory(), 0, int64_t{blocks} * sizeof(T));
  for (uint32_t i = 0; i < blocks; ++i) {
    const int64_t block = int64_t{i / kPerRepeat} * p.dstRepStride + i % kPerRepeat * p.dstBlkStride;
    const int64_t offset = block * cpu::kBlockBytes;
    cpu::check_bytes("Brcb", where, cpu::Use::Write, dst.memory(), offset, cpu::kBlockBytes);
    const T value = cpu::load<T>(src.memory().data + i * sizeof(T));
    for (uint32_t at = 0; at < cpu::kBlockBytes; at += sizeof(T)) cpu::store(dst.memory().data + offset + at, value);
  }
}

// dst[i] = the element base + offsets[i] bytes from the start of src
template <class T>
  requires cpu::Movable<T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& offsets, uint32_t base,
            uint32_t count, cpu::Where where = cpu::Where::current()) {
  constexpr uint32_t n = cpu::kLanes<T>;
  cpu::gather<T>(where, cpu::consecutive(cpu::Use::Write, dst, n), src.memory(), offsets, base,
                 cpu::Lanes::of_count(n, count));
}

template <class T, bool isSetMask = true>
  requires cpu::Movable<T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& offsets, uint32_t base,
            const cpu::MaskArgument& mask, cpu::RepeatArgument repeats, uint16_t dst_repeat_stride,
            cpu::Where where = cpu::Where::current()) {
  cpu::gather<T>(where, cpu::strided(cpu::Use::Write, dst, 1, dst_repeat_stride), src.memory(), offsets, base,
                 cpu::Lanes::of_mask("Gather", where, cpu::kLanes<T>, cpu::chosen<isSetMask>(mask), repeats));
}

// Block i of dst = the 32 bytes that lie offsets[i] bytes from the start of src; eight blocks a repeat.
template <class T>
  requires cpu::Movable<T>
void Gatherb(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& offsets,
             cpu::RepeatArgument repeats, const GatherRepeatParams& p, cpu::Where where = cpu::Where::current()) {
  constexpr uint32_t kPerRepeat = 8;
  const uint32_t blocks = repeats.checked("Gatherb", where) * kPerRepeat;
  cpu::check_repeats<T>("Gatherb", where, blocks / kPerRepeat);
  cpu::check_bytes("Gatherb", where, cpu::Use::Read, offsets.memory(), 0, int64_t{blocks} * 4);
  for (uint32_t i = 0; i < blocks; ++i) {
    const uint32_t from = cpu::load<uint32_t>(offsets.memory().data + i * sizeof(uint32_t));
    const int64_t block = int64_t{i / kPerRepeat} * p.dstRepStride + i % kPerRepeat * p.dstBlkStride;
    if (from % cpu::kBlockBytes != 0) cpu::fail(where, "Gatherb: offset %u is not a multiple of 32", from);
    cpu::check_bytes("Gatherb", where, cpu::Use::Read, src.memory(), from, cpu::kBlockBytes);
    cpu::check_bytes("Gatherb", where, cpu::Use::Write, dst.memory(), block * cpu::kBlockBytes, cpu::kBlockBytes);
    std::memmove(dst.memory().data + block * cpu::kBlockBytes, src.memory().data + from, cpu::kBlockBytes);
  }
}

namespace cpu {

// Calls see(offset, index) for the elements that GatherMask looks at: their bytes' offset, and their number in a
// repeat.
template <class T, class See>
void for_each_candidate(bool counted, uint32_t elements, const GatherMaskParams& p, const See& see) {
  constexpr uint32_t kPerBlock = kBlockBytes / sizeof(T);
  const uint32_t per_repeat = counted ? elements : kLanes<T>;
  for (uint32_t repeat = 0; repeat < p.repeatTimes; ++repeat) {
    for (uint32_t i = 0; i < per_repeat; ++i) {
      const int64_t block = int64_t{repeat} * p.src0RepeatStride + int64_t{i / kPerBlock} * p.src0BlockStride;
      see(block * kBlockBytes + i % kPerBlock * sizeof(T), repeat, i);
    }
  }
}

template <class T, class Wanted>
uint64_t gather_mask(Where where, const LocalTensor<T>& dst, const LocalTensor<T>& src, bool counted, uint32_t elements,
                     const GatherMaskParams& p, const Wanted& wanted) {
  check_repeats<T>("GatherMask", where,
                   counted ? p.repeatTimes * ((elements + kLanes<T> - 1) / kLanes<T>) : p.repeatTimes);
  uint64_t gathered = 0;
  for_each_candidate<T>(counted, elements, p, [&](int64_t offset, uint32_t repeat, uint32_t i) {
    if (!wanted(repeat, i)) return;
    const auto to = static_cast<int64_t>(gathered++ * sizeof(T));
    check_bytes("GatherMask", where, Use::Read, src.memory(), offset, sizeof(T));
    check_bytes("GatherMask", where, Use::Write, dst.memory(), to, sizeof(T));
    store(dst.memory().data + to, load<T>(src.memory().data + offset));
  });
  return gathered;
}

}  // namespace cpu

// The elements of src that a pattern selects, consecutively, and their number. Patterns: 1 and 2, the first and
// the second of every two; 3 to 6, the first to the fourth of every four; 7, all. With `counted` a repeat has
// `elements` elements, otherwise 256 bytes.
template <class T>
  requires cpu::Movable<T>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint8_t pattern, bool counted, uint32_t elements,
                const GatherMaskParams& params, uint64_t& gathered, cpu::Where where = cpu::Where::current()) {
  if (pattern < 1 || pattern > 7) cpu::fail(where, "GatherMask: pattern %u; there are 1 to 7", pattern);
  gathered = cpu::gather_mask(where, dst, src, counted, elements, params, [pattern](uint32_t, uint32_t i) {
    return pattern == 7 || (pattern < 3 ? i % 2 == pattern - 1u : i % 4 == pattern - 3u);
  });
}

// The same, with a bit of `pattern` for each element; each repeat's bits begin src1RepeatStride blocks further on.
template <class T, class Pattern>
  requires(cpu::Movable<T> && sizeof(Pattern) == sizeof(T) && std::is_unsigned_v<Pattern>)
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<Pattern>& pattern, bool counted,
                uint32_t elements, const GatherMaskParams& params, uint64_t& gathered,
                cpu::Where where = cpu::Where::current()) {
  gathered = cpu::gather_mask(where, dst, src, counted, elements, params, [&](uint32_t repeat, uint32_t i) {
    const int64_t byte = int64_t{repeat} * params.src1RepeatStride * cpu::kBlockBytes + i / 8;
    cpu::check_bytes("GatherMask", where, cpu::Use::Read, pattern.memory(), byte, 1);
    return (pattern.memory().data[byte] >> i % 8 & std::byte{1}) != std::byte{0};
  });
}

// dst = src transposed; both are matrices of 16 x 16 elements of 16 bits.
template <class T>
  requires(sizeof(T) == 2)
void Transpose(const LocalTensor<T>& dst, const LocalTensor<T>& src, cpu::Where where = cpu::Where::current()) {
  constexpr uint32_t kSize = 16;
  uint16_t matrix[kSize * kSize];
  cpu::check_bytes("Transpose", where, cpu::Use::Read, src.memory(), 0, sizeof(matrix));
  cpu::check_bytes("Transpose", where, cpu::Use::Write, dst.memory(), 0, sizeof(matrix));
  for (uint32_t i = 0; i < kSize * kSize; ++i) {
    matrix[i % kSize * kSize + i / kSize] = cpu::load<uint16_t>(src.memory().data + i * sizeof(T));
  }
  std::memcpy(dst.memory().data, matrix, sizeof(matrix));
}

// Halves of blocks: which half of dst and src, for dtypes of 8 bits. The strides of repeats are in blocks.
struct TransDataTo5HDParams {
  bool dstHighHalf = false, srcHighHalf = false;
  uint8_t repeatTimes = 1;
  uint16_t dstRepStride = 0, srcRepStride = 0;
};

// Transposes 16 blocks of 32 bytes: element i of block k becomes element k of block i. With elements of 32 bits a row
// of 16 takes two blocks of dst; with such of 8 bits half a block takes part.
template <class T>
void TransDataTo5HD(const LocalTensor<T> (&dst)[16], const LocalTensor<T> (&src)[16],
                    const TransDataTo5HDParams& params, cpu::Where where = cpu::Where::current()) {
  static_assert(sizeof(T) <= 4, "TransDataTo5HD: elements of 8, 16 or 32 bits");
  constexpr const char* kName = "TransDataTo5HD";
  constexpr int64_t kRows = 16, kSize = sizeof(T), kColumns = kSize == 4 ? 8 : 16;
  const int64_t from = kSize == 1 && params.srcHighHalf ? 16 : 0, to = kSize == 1 && params.dstHighHalf ? 16 : 0;
  // The lists specify where a single repeat begins. The strides do not matter for it.
  const int64_t dst_step = params.repeatTimes == 1 ? 0 : int64_t{params.dstRepStride} * cpu::kBlockBytes;
  const int64_t src_step = params.repeatTimes == 1 ? 0 : int64_t{params.srcRepStride} * cpu::kBlockBytes;
  constexpr int64_t kBytes = kRows * kColumns * kSize;
  cpu::check_repeats<T>(kName, where, (params.repeatTimes * kBytes + cpu::kRepeatBytes - 1) / cpu::kRepeatBytes);
  for (int64_t repeat = 0; repeat < params.repeatTimes; ++repeat) {
    std::byte matrix[kRows * kColumns * kSize];
    for (int64_t row = 0; row < kRows; ++row) {
      cpu::check_bytes(kName, where, cpu::Use::Read, src[row].memory(), repeat * src_step + from, kColumns * kSize);
      const std::byte* at = src[row].memory().data + repeat * src_step + from;
      for (int64_t column = 0; column < kColumns; ++column) {
        std::memcpy(matrix + (column * kRows + row) * kSize, at + column * kSize, kSize);
      }
    }
    constexpr int64_t kWritten = sizeof(matrix) / kRows;
    for (int64_t i = 0; i < kRows; ++i) {
      cpu::check_bytes(kName, where, cpu::Use::Write, dst[i].memory(), repeat * dst_step + to, kWritten);
      std::memcpy(dst[i].memory().data + repeat * dst_step + to, matrix + i * kWritten, kWritten);
    }
  }
}

// The same, by addresses in the unified buffer.
template <class T>
void TransDataTo5HD(uint64_t dst[16], uint64_t src[16], const TransDataTo5HDParams& params,
                    cpu::Where where = cpu::Where::current()) {
  LocalTensor<T> to[16], from[16];
  const auto begin = reinterpret_cast<uintptr_t>(cpu::block(where).memories[static_cast<size_t>(Hardware::UB)]);
  const auto tensor = [&](uint64_t address) {
    const auto offset = static_cast<uint32_t>(address - begin);
    return LocalTensor<T>(TPosition::VECCALC, offset, (cpu::kArchitecture.unified_buffer - offset) / sizeof(T), where);
  };
  for (int i = 0; i < 16; ++i) to[i] = tensor(dst[i]), from[i] = tensor(src[i]);
  TransDataTo5HD(to, from, params, where);
}

// Sorts every 32 scores in descending order, equal ones as they lie, each with its index: dst has 8 bytes for each,
// the score in the first and the index in the last four.
template <class T>
  requires cpu::OneOf<T, half, float>
void Sort32(const LocalTensor<T>& dst, const LocalTensor<T>& scores, const LocalTensor<uint32_t>& indices,
            int32_t repeats, cpu::Where where = cpu::Where::current()) {
  constexpr uint32_t kSize = 32, kPairBytes = 8;
  cpu::needs<T>("Sort32", where);
  const int64_t count = int64_t{repeats} * kSize;
  cpu::check_bytes("Sort32", where, cpu::Use::Read, scores.memory(), 0, count * sizeof(T));
  cpu::check_bytes("Sort32", where, cpu::Use::Read, indices.memory(), 0, count * sizeof(uint32_t));
  cpu::check_bytes("Sort32", where, cpu::Use::Write, dst.memory(), 0, count * kPairBytes);
  for (int32_t repeat = 0; repeat < repeats; ++repeat) {
    T score[kSize];
    uint32_t index[kSize];
    std::memcpy(score, scores.memory().data + repeat * sizeof(score), sizeof(score));
    std::memcpy(index, indices.memory().data + repeat * sizeof(index), sizeof(index));
    uint32_t order[kSize];
    for (uint32_t i = 0; i < kSize; ++i) {
      uint32_t at = i;
      for (; at > 0 && score[i] > score[order[at - 1]]; --at) order[at] = order[at - 1];
      order[at] = i;
    }
    for (uint32_t i = 0; i < kSize; ++i) {
      std::byte* to = dst.memory().data + (repeat * kSize + i) * kPairBytes;
      std::memset(to, 0, kPairBytes);
      cpu::store(to, score[order[i]]);
      cpu::store(to + sizeof(uint32_t), index[order[i]]);
    }
  }
}

}  // namespace AscendC
