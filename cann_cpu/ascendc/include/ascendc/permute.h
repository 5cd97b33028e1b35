// SPDX-License-Identifier: Apache-2.0
// Elements moved within the unified buffer: copies of repeats, broadcasts, gathers, a transposed matrix, sorted pairs.
#pragma once

#include "ascendc/vector.h"

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

// Element (repeat, lane) of dst is that at the byte offset which the offset of the same number says.
ASCENDC_CPU_EXPORT void gather(Where where, uint32_t itemsize, const LocalMemory& dst, const LocalMemory& src,
                               const LocalMemory& offsets, uint32_t base, int64_t count);
ASCENDC_CPU_EXPORT void gather(Where where, uint32_t itemsize, const LocalMemory& dst, const LocalMemory& src,
                               const LocalMemory& offsets, uint32_t base, const MaskArgument& mask,
                               RepeatArgument repeats, uint32_t dst_repeat_stride);
// The elements that `pattern` selects, a number from 1 to 7, or else the bits of a tensor.
ASCENDC_CPU_EXPORT uint64_t gather_mask(Where where, uint32_t itemsize, const LocalMemory& dst, const LocalMemory& src,
                                        uint8_t pattern, const LocalMemory* bits, bool counted, uint32_t elements,
                                        const GatherMaskParams& params);
ASCENDC_CPU_EXPORT void broadcast_elements(Where where, uint32_t itemsize, const LocalMemory& dst,
                                           const LocalMemory& src, RepeatArgument repeats, const BrcbRepeatParams& p);
ASCENDC_CPU_EXPORT void sort32(Where where, Dtype dtype, const LocalMemory& dst, const LocalMemory& scores,
                               const LocalMemory& indices, int32_t repeats);

}  // namespace cpu

// dst = src, lane by lane
template <class T, bool isSetMask = true>
  requires cpu::Movable<T>
void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const cpu::MaskArgument& mask,
          cpu::RepeatArgument repeats, const CopyRepeatParams& p, cpu::Where where = cpu::Where::current()) {
  cpu::elementwise(cpu::moving<T>("Copy", where, cpu::Operation::Copy), where, cpu::chosen<isSetMask>(mask), repeats,
                   {{p.dstStride, p.srcStride}, {p.dstRepeatSize, p.srcRepeatSize}}, 0, dst.memory(), &src.memory());
}

// Each of eight elements of src in a repeat fills a block of 32 bytes of dst.
template <class T>
  requires cpu::Movable<T>
void Brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src, cpu::RepeatArgument repeats, const BrcbRepeatParams& p,
          cpu::Where where = cpu::Where::current()) {
  cpu::needs<T>("Brcb", where);
  cpu::broadcast_elements(where, sizeof(T), dst.memory(), src.memory(), repeats, p);
}

// dst[i] = the element base + offsets[i] bytes from the start of src
template <class T>
  requires cpu::Movable<T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& offsets, uint32_t base,
            uint32_t count, cpu::Where where = cpu::Where::current()) {
  cpu::needs<T>("Gather", where);
  cpu::gather(where, sizeof(T), dst.memory(), src.memory(), offsets.memory(), base, count);
}

template <class T, bool isSetMask = true>
  requires cpu::Movable<T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& offsets, uint32_t base,
            const cpu::MaskArgument& mask, cpu::RepeatArgument repeats, uint16_t dst_repeat_stride,
            cpu::Where where = cpu::Where::current()) {
  cpu::needs<T>("Gather", where);
  cpu::gather(where, sizeof(T), dst.memory(), src.memory(), offsets.memory(), base, cpu::chosen<isSetMask>(mask),
              repeats, dst_repeat_stride);
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

// The elements of src that a pattern selects, consecutively, and their number. Patterns: 1 and 2, the first and
// the second of every two; 3 to 6, the first to the fourth of every four; 7, all. With `counted` a repeat has
// `elements` elements, otherwise 256 bytes.
template <class T>
  requires cpu::Movable<T>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint8_t pattern, bool counted, uint32_t elements,
                const GatherMaskParams& params, uint64_t& gathered, cpu::Where where = cpu::Where::current()) {
  if (pattern < 1 || pattern > 7) cpu::fail(where, "GatherMask: pattern %u; there are 1 to 7", pattern);
  cpu::needs<T>("GatherMask", where);
  gathered =
      cpu::gather_mask(where, sizeof(T), dst.memory(), src.memory(), pattern, nullptr, counted, elements, params);
}

// The same, with a bit of `pattern` for each element; each repeat's bits begin src1RepeatStride blocks further on.
template <class T, class Pattern>
  requires(cpu::Movable<T> && sizeof(Pattern) == sizeof(T) && std::is_unsigned_v<Pattern>)
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<Pattern>& pattern, bool counted,
                uint32_t elements, const GatherMaskParams& params, uint64_t& gathered,
                cpu::Where where = cpu::Where::current()) {
  cpu::needs<T>("GatherMask", where);
  gathered =
      cpu::gather_mask(where, sizeof(T), dst.memory(), src.memory(), 0, &pattern.memory(), counted, elements, params);
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
  cpu::needs<T>("Sort32", where);
  cpu::sort32(where, cpu::dtype_of<T>(), dst.memory(), scores.memory(), indices.memory(), repeats);
}

}  // namespace AscendC
