// SPDX-License-Identifier: Apache-2.0
// The loops of the vector unit. vector_loops.cpp is compiled for each level of vector instructions; vector_unit.cpp
// chooses a level and gives the loops operands that they may take as they lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ascendc/instruction.h"

namespace AscendC::cpu {

// OperandRows of consecutive elements. A row of a source is the same as that of dst, or apart from it.
struct OperandRows {
  std::byte* dst;
  const std::byte* src[3];
  int64_t dst_step;  // bytes from row to row
  int64_t src_step[3];
  uint32_t rows;
  uint32_t count;  // elements of a row
};

inline constexpr uint32_t kItemsizes[kDtypes] = {2, 2, 4, 1, 1, 2, 2, 4, 4, 8};
constexpr uint32_t itemsize_of(Dtype dtype) { return kItemsizes[static_cast<size_t>(dtype)]; }

using Loop = void (*)(const OperandRows&, uint32_t scalar);

struct Loops {
  Loop elements[kOperations][kDtypes];  // by the dtype of the sources, for MulCast by that of dst
  Loop casts[kDtypes][kDtypes];         // to, from; the scalar is the rounding mode
  // A bit of dst for each element. The rows are of whole bytes.
  Loop comparisons[kDtypes][6], scalar_comparisons[kDtypes][6];
  // dst[i] = bit i of src[0] ? src[1][i] : src[2][i], or the scalar; of 16 and 32 bits. src[0] is of whole bytes.
  Loop selections[2], scalar_selections[2];
  // Each element of src[0] fills a block of 32 bytes of dst; dst_step is that of blocks, `count` the number of blocks.
  Loop broadcasts[2];
  void (*widen[2])(const std::byte* from, float* to, uint32_t count);  // half, bfloat16
  void (*narrow[2])(const float* from, std::byte* to, uint32_t count);
  // Of each group in floats that follow each other: the sum, or the largest or smallest number, the first of equal
  // ones. NaN is neither larger nor smaller than a number.
  void (*sums)(const float* from, uint32_t groups, uint32_t group, float* to);
  void (*bests)(const float* from, uint32_t groups, uint32_t group, bool largest, float* to);
  double (*sum)(const float* from, uint32_t count);
  double (*sum_of_squares)(const float* from, uint32_t count, float mean);  // of the distances from the mean
  // The first place of a number that a group of floats has, or of NaN if this is the first of them.
  uint32_t (*place)(const float* from, uint32_t count, float number);
  // Whole lines of 64 bytes, aligned, past the caches.
  void (*store_lines)(std::byte* to, const std::byte* from, size_t bytes);
  void (*sort32)(const float* scores, uint8_t* order);  // descending, equal ones as they lie; no NaN
};

#define ASCENDC_CPU_LEVELS(level) level(generic) level(avx2) level(avx512)
#define ASCENDC_CPU_DECLARE(level) \
  namespace level {                \
  const Loops& loops();            \
  }
ASCENDC_CPU_LEVELS(ASCENDC_CPU_DECLARE)
#undef ASCENDC_CPU_DECLARE

// Returns the loops of the level that cpu_capability() names.
const Loops& loops();

}  // namespace AscendC::cpu
