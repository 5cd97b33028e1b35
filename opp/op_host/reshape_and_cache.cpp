// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of reshape_and_cache, and says where its rows lie.
#include "op_host/reshape_and_cache.h"

#include <c10/util/Exception.h>

#include "cpu/checks.h"
#include "cpu/sequences.h"
#include "cpu/slots.h"

namespace opp {
namespace {

constexpr int64_t kFractalBytes = 32;

TensorView view(const at::Tensor& tensor) {
  return {tensor.sizes().data(), tensor.strides().data(), tensor.dim(), static_cast<int64_t>(tensor.element_size())};
}

void check_cache(const char* name, const at::Tensor& cache, const ReshapeAndCache& call) {
  if (call.nz()) {
    check_rank(name, cache, 4, "(block_num, hidden / c0, block_size, c0)");
    const int64_t c0 = kFractalBytes / static_cast<int64_t>(cache.element_size());
    TORCH_CHECK(cache.size(3) == c0, name, " must have a last size c0 of ", c0, ", the elements of ", kFractalBytes,
                " bytes, but has shape ", cache.sizes());
  } else {
    TORCH_CHECK(
        cache.dim() == 3 || cache.dim() == 4, name,
        " must be 4-dimensional, (block_num, block_size, N, D), or 3-dimensional, (block_num, block_size, hidden)"
        ", but has shape ",
        cache.sizes());
  }
  check_at_least_1(name, "hidden", width_of(view(cache), call.nz()));
}

void check_part(const char* name, const at::Tensor& rows, const char* cache_name, const at::Tensor& cache,
                const ReshapeAndCache& call) {
  const auto dtype = rows.scalar_type();
  TORCH_CHECK(dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kChar || dtype == at::kFloat, name,
              " must be float16, bfloat16, int8 or float32, but is ", dtype);
  check_dtype(cache_name, cache.scalar_type(), dtype, name);
  check_cache(cache_name, cache, call);
  TORCH_CHECK(rows.dim() >= 2 && rows.dim() <= 4, name,
              " must have 2 to 4 dimensions, (T, hidden), (T, N, D), (B, S, hidden) or (B, S, N, D), but has shape ",
              rows.sizes());
  const int64_t tokens = rows.dim() - dimensions_of_row(view(rows), view(cache), call.nz());
  const int64_t width = c10::multiply_integers(rows.sizes().slice(tokens));
  TORCH_CHECK(width == width_of(view(cache), call.nz()), name, " must have ", width_of(view(cache), call.nz()),
              " elements a token, as ", cache_name, " has, but has shape ", rows.sizes());
  TORCH_CHECK(c10::multiply_integers(rows.sizes().slice(0, tokens)) == call.slot_mapping.numel(), name, " must have ",
              call.slot_mapping.numel(), " tokens, as slot_mapping has, but has shape ", rows.sizes());
}

}  // namespace

void check(const ReshapeAndCache& call) {
  TORCH_CHECK(call.cache_layout == "ND" || call.cache_layout == "NZ", "cache_layout must be ND or NZ, but is '",
              call.cache_layout, "'");
  TORCH_CHECK(call.value.has_value() == call.value_cache.has_value(),
              "value and value_cache must be given together, but only ", call.value ? "value" : "value_cache", " is");
  TORCH_CHECK(call.slot_mapping.dim() == 1 || call.slot_mapping.dim() == 2,
              "slot_mapping must be 1-dimensional, (T), or 2-dimensional, (B, S), but has shape ",
              call.slot_mapping.sizes());
  check_slots("slot_mapping", call.slot_mapping, call.slot_mapping.sizes(), "(T)");
  check_part("key", call.key, "key_cache", call.key_cache, call);
  check_at_least_1("key_cache", "block_size", call.block_size());
  if (!call.value) return;
  check_part("value", *call.value, "value_cache", *call.value_cache, call);
  const int64_t slots = call.nz() ? 2 : 1;
  TORCH_CHECK(call.value_cache->size(0) == call.key_cache.size(0) &&
                  call.value_cache->size(slots) == call.key_cache.size(slots),
              "value_cache must have ", call.key_cache.size(0), " blocks of ", call.block_size(),
              " tokens, as key_cache has, but has shape ", call.value_cache->sizes());
}

bool has_dense_rows(const at::Tensor& rows, const at::Tensor& cache, bool nz) {
  int64_t stride = 1;
  for (int64_t dim = rows.dim() - 1; dim >= rows.dim() - dimensions_of_row(view(rows), view(cache), nz); --dim) {
    if (rows.size(dim) != 1 && rows.stride(dim) != stride) return false;
    stride *= rows.size(dim);
  }
  return true;
}

ReshapeAndCacheTiling tile(const ReshapeAndCache& call, uint32_t cores) {
  ReshapeAndCacheTiling tiling{};
  tiling.tokens = call.slot_mapping.numel();
  tiling.capacity = call.capacity();
  tiling.slot_bytes = static_cast<int64_t>(call.slot_mapping.element_size());
  tiling.copy[tiling.copies++] = tile(view(call.key), view(call.key_cache), call.nz());
  if (call.value) tiling.copy[tiling.copies++] = tile(view(*call.value), view(*call.value_cache), call.nz());
  divide(tiling, cores);
  return tiling;
}

}  // namespace opp
