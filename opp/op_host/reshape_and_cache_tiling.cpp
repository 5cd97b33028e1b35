// SPDX-License-Identifier: Apache-2.0
// Divides the work of reshape_and_cache.
#include "op_host/reshape_and_cache_tiling.h"

#include <algorithm>
#include <limits>

namespace opp {
namespace {

constexpr int64_t kBlockBytes = 32;          // what the unified buffer is aligned to
constexpr int64_t kMaxBlocksOfACopy = 4095;  // DataCopyPad's blockCount
constexpr int64_t kMinBytesOfABlock = 16 * 1024;
constexpr uint32_t kMaxShift = 6;

struct Dimension {
  int64_t size;
  int64_t stride;
};

// Keys or values and their cache, whose rows have two dimensions there, of which the first may have size 1.
struct RowsAndCache {
  int64_t itemsize;
  Dimension tokens[2];
  Dimension slots[2];  // blocks, and slots of a block
  Dimension row[2];
};

Dimension dimension(const TensorView& tensor, int64_t i) { return {tensor.sizes[i], tensor.strides[i]}; }

RowsAndCache describe(const TensorView& rows, const TensorView& cache, bool nz) {
  const int64_t token = rows.rank - dimensions_of_row(rows, cache, nz) - 1;
  return {rows.itemsize,
          {token == 1 ? dimension(rows, 0) : Dimension{1, 0}, dimension(rows, token)},
          {dimension(cache, 0), dimension(cache, nz ? 2 : 1)},
          {cache.rank == 3 ? Dimension{1, 0} : dimension(cache, nz ? 1 : 2), dimension(cache, cache.rank - 1)}};
}

Strided strided(const Dimension& outer, const Dimension& inner, int64_t itemsize) {
  const bool one = outer.size == 1 || outer.stride == inner.size * inner.stride;
  return {one ? outer.size * inner.size : inner.size, inner.stride * itemsize, outer.stride * itemsize};
}

// The largest divisor of `bytes` in whole elements that is at most `max`.
int64_t largest_part(int64_t bytes, int64_t max, int64_t itemsize) {
  int64_t parts = (bytes + max - 1) / max;
  while (bytes % (parts * itemsize) != 0) ++parts;
  return bytes / parts;
}

struct Runs {
  int64_t bytes;
  Strided places;
};

// What of a row lies side by side in the cache, and at most a buffer long.
Runs runs_of_row(const Dimension& outer, const Dimension& inner, int64_t itemsize) {
  const bool inner_dense = inner.stride == 1 || inner.size == 1;
  const bool dense = inner_dense && (outer.size == 1 || outer.stride == inner.size);
  if (!inner_dense) return {itemsize, {inner.size, inner.stride * itemsize, outer.stride * itemsize}};
  const int64_t bytes = (dense ? outer.size : 1) * inner.size * itemsize;
  const int64_t part = largest_part(bytes, ReshapeAndCacheTiling::kBufferBytes, itemsize);
  if (dense || part < bytes) return {part, {bytes / part, part, outer.stride * itemsize}};
  return {bytes, {outer.size, outer.stride * itemsize, 0}};
}

// DataCopyPad takes the gap between two blocks as 32 bits.
bool can_go_together(int64_t step, int64_t run) {
  return step >= run && step - run <= std::numeric_limits<uint32_t>::max();
}

}  // namespace

int64_t width_of(const TensorView& cache, bool nz) {
  if (nz) return cache.sizes[1] * cache.sizes[3];
  return cache.rank == 3 ? cache.sizes[2] : cache.sizes[2] * cache.sizes[3];
}

int64_t dimensions_of_row(const TensorView& rows, const TensorView& cache, bool nz) {
  if (rows.rank != 3) return rows.rank / 2;
  return rows.sizes[2] == width_of(cache, nz) ? 1 : 2;
}

RowCopy tile(const TensorView& rows, const TensorView& cache, bool nz) {
  const RowsAndCache part = describe(rows, cache, nz);
  const Runs runs = runs_of_row(part.row[0], part.row[1], part.itemsize);
  RowCopy copy{};
  copy.run = static_cast<uint32_t>(runs.bytes);
  copy.runs = static_cast<uint32_t>(part.row[0].size * part.row[1].size * part.itemsize / runs.bytes);
  copy.pitch = static_cast<uint32_t>((runs.bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes);
  copy.in_buffer = ReshapeAndCacheTiling::kBufferBytes / copy.pitch;
  copy.tokens = strided(part.tokens[0], part.tokens[1], part.itemsize);
  copy.slots = strided(part.slots[0], part.slots[1], part.itemsize);
  copy.runs_in_cache = runs.places;
  copy.from_step = copy.runs == 1 ? copy.tokens.inner_stride : copy.run;
  copy.to_step = copy.runs == 1 ? copy.slots.inner_stride : copy.runs_in_cache.inner_stride;
  const bool together = can_go_together(copy.from_step, copy.run) && can_go_together(copy.to_step, copy.run);
  copy.together = together ? static_cast<uint32_t>(std::min<int64_t>(copy.in_buffer, kMaxBlocksOfACopy)) : 1;
  return copy;
}

void divide(ReshapeAndCacheTiling& tiling, uint32_t cores) {
  int64_t bytes_of_token = 0;
  for (int64_t i = 0; i < tiling.copies; ++i) {
    bytes_of_token += int64_t{tiling.copy[i].run} * tiling.copy[i].runs;
  }
  const int64_t max = std::max<int64_t>(1, tiling.tokens * bytes_of_token / kMinBytesOfABlock);
  tiling.blocks = static_cast<uint32_t>(std::min<int64_t>({cores, max, std::max<int64_t>(1, tiling.tokens)}));
  // Each block gets several groups of slots: where all tokens follow one another the blocks have equally much to do.
  const int64_t share = tiling.tokens / (4 * tiling.blocks);
  while (tiling.slots_shift < kMaxShift && share >> tiling.slots_shift > 0) ++tiling.slots_shift;
}

}  // namespace opp
