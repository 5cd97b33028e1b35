// SPDX-License-Identifier: Apache-2.0
// ReshapeAndCache: writes the keys of new tokens, and their values if there are any, to paged caches.
//
// key is [T, N, D], [T, hidden], [B, S, N, D] or [B, S, hidden], value the same with separate sizes and type.
// key_cache and value_cache are [blocks, block_size, N, D] or [blocks, block_size, hidden] (cache_layout ND), or
// [blocks, hidden / c0, block_size, c0] (NZ), c0 being the elements of 32 bytes; they are written at the slots of
// slot_mapping [T] or [B, S]; negative slots are skipped. key and value may have more tokens, which are padding.
// Without value there is no value_cache, and its output is empty.
#include "op_kernel/reshape_and_cache_tiling.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "definition.h"

namespace {

using opp::ReshapeAndCacheTiling;

enum Input { kKey, kValue, kKeyCache, kValueCache, kSlotMapping };

constexpr int64_t kFractalBytes = 32;
constexpr int64_t kBlockBytes = 32;          // what the unified buffer is aligned to
constexpr int64_t kMaxBlocksOfACopy = 4095;  // DataCopyPad's blockCount
constexpr int64_t kMinBytesOfABlock = 16 * 1024;
constexpr uint32_t kMaxShift = 6;

struct Dimension {
  int64_t size;
  int64_t stride;
};

// Keys or values and their cache. Rows have two dimensions in the cache. The first may have size 1.
struct RowsAndCache {
  int64_t itemsize;
  Dimension tokens[2];
  Dimension slots[2];  // blocks, and slots of a block
  Dimension row[2];
};

Dimension dimension(const opp::StridedShape& tensor, std::size_t i) { return {tensor.sizes[i], tensor.strides[i]}; }

// The elements of a token in a cache, ND or NZ.
int64_t width_of(const opp::StridedShape& cache, bool nz) {
  if (nz) return cache.sizes[1] * cache.sizes[3];
  return cache.sizes.size() == 3 ? cache.sizes[2] : cache.sizes[2] * cache.sizes[3];
}

// The number of dimensions of keys or values after the tokens': 1 for (T, hidden) and (B, S, hidden), 2 for (T, N, D)
// and (B, S, N, D).
std::size_t dimensions_of_row(const opp::StridedShape& rows, const opp::StridedShape& cache, bool nz) {
  if (rows.sizes.size() != 3) return rows.sizes.size() / 2;
  return rows.sizes[2] == width_of(cache, nz) ? 1 : 2;
}

RowsAndCache describe(const opp::StridedShape& rows, const opp::StridedShape& cache, bool nz) {
  const std::size_t token = rows.sizes.size() - dimensions_of_row(rows, cache, nz) - 1;
  return {rows.itemsize,
          {token == 1 ? dimension(rows, 0) : Dimension{1, 0}, dimension(rows, token)},
          {dimension(cache, 0), dimension(cache, nz ? 2 : 1)},
          {cache.sizes.size() == 3 ? Dimension{1, 0} : dimension(cache, nz ? 1 : 2),
           dimension(cache, cache.sizes.size() - 1)}};
}

opp::Strided strided(const Dimension& outer, const Dimension& inner, int64_t itemsize) {
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
  opp::Strided places;
};

// The part of a row that is contiguous in the cache, at most as long as a buffer.
Runs runs_of_row(const Dimension& outer, const Dimension& inner, int64_t itemsize) {
  const bool dense = outer.size == 1 || outer.stride == inner.size;
  const int64_t bytes = (dense ? outer.size : 1) * inner.size * itemsize;
  const int64_t part = largest_part(bytes, ReshapeAndCacheTiling::kBufferBytes, itemsize);
  if (dense || part < bytes) return {part, {bytes / part, part, outer.stride * itemsize}};
  return {bytes, {outer.size, outer.stride * itemsize, 0}};
}

// DataCopyPad takes the gap between two blocks as 32 bits.
bool can_go_together(int64_t step, int64_t run) {
  return step >= run && step - run <= std::numeric_limits<uint32_t>::max();
}

// The copy of keys or values to their cache.
opp::RowCopy copy_of(const opp::StridedShape& rows, const opp::StridedShape& cache, bool nz) {
  const RowsAndCache part = describe(rows, cache, nz);
  const Runs runs = runs_of_row(part.row[0], part.row[1], part.itemsize);
  opp::RowCopy copy{};
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

// The blocks to launch, of at most `cores`, and the slots that belong to each: tokens with one slot are one block's,
// which writes them in their order.
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

// ---- checks: each is empty, or says what is wrong

std::string cache_error(const std::string& name, const opp::StridedShape& cache, bool nz) {
  const std::string has = ", but has shape " + opp::text_of(cache.sizes);
  if (nz) {
    const int64_t c0 = kFractalBytes / cache.itemsize;
    if (cache.sizes.size() != 4 || cache.sizes[3] != c0) {
      return name + "_cache must have shape [blocks, hidden / c0, block_size, c0] with c0 = " + std::to_string(c0) +
             has;
    }
  } else if (cache.sizes.size() != 3 && cache.sizes.size() != 4) {
    return name + "_cache must have shape [blocks, block_size, N, D] or [blocks, block_size, hidden]" + has;
  }
  if (width_of(cache, nz) < 1) return name + "_cache must have 1 element or more of a token of " + name + has;
  return "";
}

int64_t count(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

std::string rows_error(const std::string& name, const opp::StridedShape& rows, const opp::StridedShape& cache, bool nz,
                       const std::vector<int64_t>& slots) {
  const std::string has = ", but has shape " + opp::text_of(rows.sizes);
  if (rows.sizes.size() < 2 || rows.sizes.size() > 4) {
    return name + " must have shape [T, hidden], [T, N, D], [B, S, hidden] or [B, S, N, D]" + has;
  }
  std::vector<int64_t> tokens = rows.sizes;
  tokens.resize(rows.sizes.size() - dimensions_of_row(rows, cache, nz));
  const int64_t width = count({rows.sizes.begin() + static_cast<int64_t>(tokens.size()), rows.sizes.end()});
  if (width != width_of(cache, nz)) {
    return name + " must have " + std::to_string(width_of(cache, nz)) + " elements a token, as " + name + "_cache has" +
           has;
  }
  if (slots.size() == 2 ? tokens != slots : count(tokens) < slots[0]) {
    return name + " must have the tokens of slot_mapping, whose shape is " + opp::text_of(slots) +
           (slots.size() == 2 ? "" : ", or more") + has;
  }
  return "";
}

// Adds the copy of keys or values to the tiling.
std::string add_copy(ReshapeAndCacheTiling& tiling, const std::string& name, const opp::StridedShape& rows,
                     const opp::StridedShape& cache, bool nz, const std::vector<int64_t>& slots) {
  std::string wrong = cache_error(name, cache, nz);
  if (wrong.empty()) wrong = rows_error(name, rows, cache, nz, slots);
  if (wrong.empty()) tiling.copy[tiling.copies++] = copy_of(rows, cache, nz);
  return wrong;
}

ge::graphStatus tile(gert::TilingContext* context) {
  const std::string layout = context->GetAttrs()->GetStr(0);
  if (layout != "ND" && layout != "NZ") return opp::reject("cache_layout must be ND or NZ, but is '" + layout + "'");
  const bool nz = layout == "NZ";
  const opp::StridedShape key_cache = opp::required(*context, kKeyCache), slots = opp::required(*context, kSlotMapping);
  if (slots.sizes.size() != 1 && slots.sizes.size() != 2) {
    return opp::reject("slot_mapping must have shape [T] or [B, S], but has shape " + opp::text_of(slots.sizes));
  }
  auto& tiling = *context->GetTilingData<ReshapeAndCacheTiling>();
  tiling = {};
  tiling.tokens = slots.elements();
  tiling.slot_bytes = slots.itemsize;
  std::string wrong = add_copy(tiling, "key", opp::required(*context, kKey), key_cache, nz, slots.sizes);
  if (!wrong.empty()) return opp::reject(wrong);
  const std::size_t of_slots = nz ? 2 : 1;
  if (key_cache.sizes[of_slots] < 1) {
    return opp::reject("key_cache must have a block_size of 1 or more, but has shape " + opp::text_of(key_cache.sizes));
  }
  tiling.capacity = key_cache.sizes[0] * key_cache.sizes[of_slots];
  const gert::StorageShape* shape = context->GetOptionalInputShape(kValue);
  const gert::StorageShape* cache_shape = context->GetOptionalInputShape(kValueCache);
  if ((shape == nullptr) != (cache_shape == nullptr)) {
    return opp::reject(std::string("value and value_cache must be given together, but only ") +
                       (shape == nullptr ? "value_cache" : "value") + " is");
  }
  if (shape != nullptr) {
    const opp::StridedShape value(*shape, context->GetOptionalInputDesc(kValue)->GetDataType());
    const opp::StridedShape cache(*cache_shape, context->GetOptionalInputDesc(kValueCache)->GetDataType());
    wrong = add_copy(tiling, "value", value, cache, nz, slots.sizes);
    if (!wrong.empty()) return opp::reject(wrong);
    if (cache.sizes[0] != key_cache.sizes[0] || cache.sizes[of_slots] != key_cache.sizes[of_slots]) {
      return opp::reject("value_cache must have the blocks of key_cache, which has shape " +
                         opp::text_of(key_cache.sizes) + ", but has shape " + opp::text_of(cache.sizes));
    }
  }
  divide(tiling, opp::vector_cores(*context));
  return opp::launch(*context, tiling.blocks);
}

ge::graphStatus infer_shape(gert::InferShapeContext* context) {
  *context->GetOutputShape(0) = *context->GetRequiredInputShape(kKeyCache);
  if (const gert::Shape* shape = context->GetOptionalInputShape(kValueCache)) *context->GetOutputShape(1) = *shape;
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_type(gert::InferDataTypeContext* context) {
  context->SetOutputDataType(0, context->GetRequiredInputDataType(kKeyCache));
  context->SetOutputDataType(1, context->GetOptionalInputDataType(kValueCache));
  return ge::GRAPH_SUCCESS;
}

}  // namespace

namespace ops {

class ReshapeAndCache : public OpDef {
 public:
  explicit ReshapeAndCache(const char* name) : OpDef(name) {
    const opp::Types rows = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_INT8, ge::DT_FLOAT};
    const auto types = opp::combinations({rows, rows, {ge::DT_INT64, ge::DT_INT32}});
    opp::of_types(Input("key"), REQUIRED, types[0]);
    opp::of_types(Input("value"), OPTIONAL, types[1]);
    opp::of_types(Input("key_cache"), REQUIRED, types[0]);
    opp::of_types(Input("value_cache"), OPTIONAL, types[1]);
    opp::of_types(Input("slot_mapping"), REQUIRED, types[2]);
    opp::of_types(Output("key_cache"), REQUIRED, types[0]);
    opp::of_types(Output("value_cache"), REQUIRED, types[1]);
    Attr("cache_layout").AttrType(OPTIONAL).String("ND");
    SetInferShape(infer_shape);
    SetInferDataType(infer_type);
    AICore().SetTiling(tile);
    opp::for_all_socs(AICore());
  }
};

OP_ADD(ReshapeAndCache);

}  // namespace ops
