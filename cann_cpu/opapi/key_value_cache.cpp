// SPDX-License-Identifier: Apache-2.0
// Writes keys and values to caches, by page or by position, and gathers them from pages.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_put.h>

#include "checks.h"
#include "pages.h"
#include "quantization.h"
#include "rotary.h"

using namespace cann_cpu;

namespace {

constexpr int64_t kPartBytes = 32;  // of a row of FRACTAL_NZ
constexpr int64_t kSkipped = -1;    // the slot of a token that is not written

#define CACHE_DTYPES "float16 float32 bfloat16 int8 uint8 int16 uint16 int32 uint32 float8_e5m2 float8_e4m3fn"

// The same memory as integers, for the dtypes that ATen cannot index.
at::Tensor as_integers(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1:
      return tensor.view(at::kChar);
    case 2:
      return tensor.view(at::kShort);
    default:
      return tensor.view(at::kInt);
  }
}

}  // namespace

namespace cann_cpu {

Pages::Pages(const at::Tensor& view) : cache(as_integers(view)), row(view.sizes().slice(2).vec()) {}

Pages pages_of(const char* name, const at::Tensor& cache, CacheLayout layout) {
  at::Tensor view = cache;
  if (layout == CacheLayout::Parts) {
    TORCH_CHECK(cache.dim() == 4 || cache.dim() == 5, name, " has shape ", cache.sizes(),
                "; expected 4 or 5 dimensions with cache_mode PA_NZ");
    TORCH_CHECK(cache.size(-1) * cache.element_size() == kPartBytes, name, " has shape ", cache.sizes(), "; expected ",
                kPartBytes, " bytes in the last dimension with cache_mode PA_NZ");
    view = cache.dim() == 4 ? cache.permute({0, 2, 1, 3}) : cache.permute({0, 3, 1, 2, 4});
  } else {
    check_rank(name, cache, 4);
    if (layout == CacheLayout::HeadsFirst) view = cache.transpose(1, 2);
  }
  return Pages(view);
}

void check_tokens(const char* name, const at::Tensor& tokens, const Pages& pages, int64_t count) {
  TORCH_CHECK(
      tokens.size(0) == count && c10::multiply_integers(tokens.sizes().slice(1)) == c10::multiply_integers(pages.row),
      name, " has shape ", tokens.sizes(), "; expected [", count, "] tokens of ", c10::multiply_integers(pages.row),
      " elements, as the cache has");
}

void scatter(const Pages& pages, const at::Tensor& tokens, const at::Tensor& slots) {
  const auto kept = slots.ge(0).nonzero().reshape({-1});
  const auto places = slots.index_select(0, kept);
  std::vector<int64_t> shape = pages.row;
  shape.insert(shape.begin(), tokens.size(0));
  auto rows = as_integers(tokens).reshape(shape);
  if (kept.numel() != slots.numel()) rows = rows.index_select(0, kept);
  c10::List<std::optional<at::Tensor>> indices;
  indices.push_back(places.div(pages.tokens(), "floor"));
  indices.push_back(places.remainder(pages.tokens()));
  at::Tensor cache = pages.cache;
  at::index_put_(cache, indices, rows);
}

void PagedRead::check() const {
  check_rank(tables_name, block_tables, 2);
  check_shape(lengths_name, seq_lens, {batch() + (is_seq_lens_cumsum ? 1 : 0)});
  if (seq_offset.has_value()) check_shape(offsets_name, *seq_offset, {batch()});
  const auto keys = pages_of("key_cache", key_cache, layout), values = pages_of("value_cache", value_cache, layout);
  TORCH_CHECK(keys.cache.sizes().slice(0, 2) == values.cache.sizes().slice(0, 2), "value_cache has shape ",
              value_cache.sizes(), ", key_cache has shape ", key_cache.sizes(), ": their blocks differ");
  check_tokens("key", key, keys, key.size(0));
  check_tokens("value", value, values, key.size(0));
}

void PagedRead::run() const {
  const auto keys = pages_of("key_cache", key_cache, layout), values = pages_of("value_cache", value_cache, layout);
  const auto lengths = seq_lens.to(at::kLong).contiguous(), table = block_tables.to(at::kLong).contiguous();
  const auto skipped = seq_offset.has_value() ? seq_offset->to(at::kLong).contiguous() : at::Tensor();
  const auto* length = lengths.const_data_ptr<int64_t>();
  struct Copy {
    int64_t page, row, count;
  };
  std::vector<Copy> copies;
  int64_t row = 0;
  for (int64_t b = 0; b < batch(); ++b) {
    const int64_t count = is_seq_lens_cumsum ? length[b + 1] - length[b] : length[b];
    const int64_t offset = skipped.defined() ? skipped[b].item<int64_t>() : 0;
    const int64_t first = offset / keys.tokens();
    const int64_t most = (table.size(1) - first) * keys.tokens();
    TORCH_CHECK(offset >= 0 && first <= table.size(1), offsets_name, "[", b, "] is ", offset, "; expected 0 to ",
                table.size(1) * keys.tokens());
    TORCH_CHECK(count >= 0 && count <= most, lengths_name, "[", b, "] is ", count, "; expected 0 to ", most);
    for (int64_t done = 0; done < count; done += keys.tokens(), row += copies.back().count) {
      const int64_t column = first + done / keys.tokens();
      const int64_t page = table.const_data_ptr<int64_t>()[b * table.size(1) + column];
      TORCH_CHECK(page >= 0 && page < keys.cache.size(0), tables_name, "[", b, ", ", column, "] is ", page,
                  "; expected 0 to ", keys.cache.size(0) - 1);
      copies.push_back({page, row, std::min(keys.tokens(), count - done)});
    }
  }
  TORCH_CHECK(row <= key.size(0), lengths_name, " add up to ", row, "; expected at most ", key.size(0), ", as key has");
  for (const auto& [tokens, pages] : {std::pair(key, &keys), std::pair(value, &values)}) {
    std::vector<int64_t> shape = pages->row;
    shape.insert(shape.begin(), tokens.size(0));
    const auto rows = as_integers(tokens).view(shape);
    for (const auto& copy : copies) {
      rows.narrow(0, copy.row, copy.count).copy_(pages->cache[copy.page].narrow(0, 0, copy.count));
    }
  }
}

}  // namespace cann_cpu

namespace {

CacheLayout cache_layout(Text cache_mode, Text scatter_mode) {
  if (cache_mode == "PA_NZ") {
    TORCH_CHECK(scatter_mode.empty() || scatter_mode == "None", "scatter_mode is \"", scatter_mode,
                "\"; expected None with cache_mode PA_NZ");
    return CacheLayout::Parts;
  }
  TORCH_CHECK(cache_mode.empty() || cache_mode == "Norm", "cache_mode is \"", cache_mode, "\"; expected Norm or PA_NZ");
  if (scatter_mode == "NHSD") return CacheLayout::HeadsFirst;
  TORCH_CHECK(scatter_mode.empty() || scatter_mode == "None", "scatter_mode is \"", scatter_mode,
              "\"; expected None or NHSD");
  return CacheLayout::Rows;
}

struct PagedWrite {
  In key, value;
  const at::Tensor &key_cache, &value_cache;
  In slot_mapping;
  CacheLayout layout;

  bool has_value() const { return value.numel() > 0 || value_cache.numel() > 0; }

  void check() const {
    check_rank("slot_mapping", slot_mapping, 1);
    check_tokens("key", key, pages_of("key_cache", key_cache, layout), slot_mapping.size(0));
    if (has_value()) check_tokens("value", value, pages_of("value_cache", value_cache, layout), slot_mapping.size(0));
  }

  void run() const {
    const auto keys = pages_of("key_cache", key_cache, layout);
    check_values("slot_mapping", slot_mapping, 0, keys.slots() - 1, kSkipped);
    const auto slots = slot_mapping.to(at::kLong);
    if (has_value()) {
      const auto values = pages_of("value_cache", value_cache, layout);
      check_values("slot_mapping", slot_mapping, 0, values.slots() - 1, kSkipped);
      scatter(values, value, slots);
    }
    scatter(keys, key, slots);
  }
};

using CompressLens = Absent<"compress_lens", OptionalIn>;
using CompressOffset = Absent<"compress_seq_offset", OptionalIn>;
using SequenceLens = Absent<"seq_lens", OptionalIn>;
using TokenSteps = Ignored<OptionalInts>;  // of scatter_mode Nct, which is rejected
using ReservedMode = Ignored<Text>;        // reserved, as its document says

}  // namespace

ACLNN_TYPED_CHECKED(ScatterPaKvCache,
                    "key: " CACHE_DTYPES "; key_cache, value, value_cache: as key; slot_mapping: int32 int64",
                    [](Phase phase, In key, InOut key_cache, In slot_mapping, In value, InOut value_cache, CompressLens,
                       CompressOffset, SequenceLens, Text cache_mode, Text scatter_mode, TokenSteps, TokenSteps) {
                      check_or_run(phase, PagedWrite({key, value, key_cache, value_cache, slot_mapping,
                                                      cache_layout(cache_mode, scatter_mode)}));
                    });

namespace {

// Keys (batch, tokens, heads, size): those of each head to the slots from slot_mapping[batch, head] on. Some of them
// are written as their mean, or only the last ones are written.
void scatter_compressed(In key, const at::Tensor& key_cache, In slot_mapping, In lens, OptionalIn offsets, In ends) {
  const auto pages = pages_of("key_cache", key_cache, CacheLayout::Rows);
  const auto integers = [](In tensor) { return tensor.to(at::kLong).reshape({-1}).contiguous(); };
  const auto slots = integers(slot_mapping), lengths = integers(lens), all_ends = integers(ends);
  const auto starts = offsets.has_value() ? integers(*offsets) : at::Tensor();
  const int64_t heads = key.size(2);
  check_values("seq_lens", ends, 0, key.size(1));
  struct Part {
    at::Tensor rows;
    int64_t slot;
  };
  std::vector<Part> parts;
  for (int64_t i = 0; i < slots.numel(); ++i) {
    const auto rows = key[i / heads].select(1, i % heads);
    const int64_t end = all_ends[i / heads].item<int64_t>(), length = lengths[i].item<int64_t>();
    Part part{{}, slots[i].item<int64_t>()};
    if (starts.defined()) {
      const int64_t start = starts[i].item<int64_t>();
      TORCH_CHECK(start >= 0 && length >= 0 && start + length <= end, "compress_seq_offset[", i, "] is ", start,
                  " and compress_lens[", i, "] ", length, "; expected a range in the ", end, " tokens");
      const auto before = rows.narrow(0, 0, start), after = rows.narrow(0, start + length, end - start - length);
      const auto replaced = rows.narrow(0, start, length).to(at::kFloat);
      const auto mean = length > 0 ? replaced.mean(0, /*keepdim=*/true) : replaced;
      part.rows = at::cat({before, mean.to(key.scalar_type()), after}, 0);
    } else {
      TORCH_CHECK(length >= 0 && length <= end, "compress_lens[", i, "] is ", length, "; expected 0 to ", end);
      part.rows = rows.narrow(0, end - length, length);
    }
    TORCH_CHECK(part.slot >= 0 && part.slot + part.rows.size(0) <= pages.slots(), "slot_mapping[", i / heads, ", ",
                i % heads, "] is ", part.slot, "; expected 0 to ", pages.slots() - part.rows.size(0));
    parts.push_back(std::move(part));
  }
  const auto cache = pages.cache.flatten(0, 1).squeeze(1);
  for (const auto& part : parts) cache.narrow(0, part.slot, part.rows.size(0)).copy_(as_integers(part.rows));
}

}  // namespace

ACLNN_TYPED_CHECKED(ScatterPaCache,
                    "key: " CACHE_DTYPES
                    "; key_cache: as key; slot_mapping: int32 int64;"
                    "compress_lens, compress_seq_offset, seq_lens: as slot_mapping",
                    [](Phase phase, In key, InOut key_cache, In slot_mapping, OptionalIn compress_lens,
                       OptionalIn compress_seq_offset, OptionalIn seq_lens, ReservedMode) {
                      if (phase == Phase::Check) {
                        check_contiguous("key_cache", key_cache);
                        TORCH_CHECK(compress_lens.has_value() == seq_lens.has_value(),
                                    "compress_lens and seq_lens must be given together");
                        TORCH_CHECK(compress_lens.has_value() || !compress_seq_offset.has_value(),
                                    "compress_seq_offset is given without compress_lens");
                        const auto pages = pages_of("key_cache", key_cache, CacheLayout::Rows);
                        if (!compress_lens.has_value()) {
                          check_rank("slot_mapping", slot_mapping, 1);
                          check_tokens("key", key, pages, slot_mapping.size(0));
                          return;
                        }
                        check_rank("key", key, 4);
                        check_shape("slot_mapping", slot_mapping, {key.size(0), key.size(2)});
                        check_shape("seq_lens", *seq_lens, {key.size(0)});
                        TORCH_CHECK(compress_lens->numel() == slot_mapping.numel(), "compress_lens has shape ",
                                    compress_lens->sizes(), "; expected ", slot_mapping.sizes());
                        TORCH_CHECK(
                            !compress_seq_offset.has_value() || compress_seq_offset->numel() == slot_mapping.numel(),
                            "compress_seq_offset has not one element for each head; expected ", slot_mapping.numel());
                        TORCH_CHECK(key_cache.size(2) == 1 && key_cache.size(3) == key.size(3), "key_cache has shape ",
                                    key_cache.sizes(), "; expected 1 head of size ", key.size(3));
                        return;
                      }
                      if (!compress_lens.has_value()) {
                        const auto pages = pages_of("key_cache", key_cache, CacheLayout::Rows);
                        check_values("slot_mapping", slot_mapping, 0, pages.slots() - 1, kSkipped);
                        scatter(pages, key, slot_mapping.to(at::kLong));
                      } else {
                        scatter_compressed(key, key_cache, slot_mapping, *compress_lens, compress_seq_offset,
                                           *seq_lens);
                      }
                    });

ACLNN_TYPED_CHECKED(GatherPaKvCache,
                    "key_cache, value_cache: " CACHE_DTYPES
                    "; key: as key_cache; value: as value_cache; block_tables: int32 int64;"
                    "seq_lens, seq_offset: as block_tables",
                    [](Phase phase, In key_cache, In value_cache, In block_tables, In seq_lens, InOut key, InOut value,
                       OptionalIn seq_offset, Text cache_mode, bool is_seq_lens_cumsum) {
                      check_or_run(phase, PagedRead({key_cache, value_cache, block_tables, seq_lens, key, value,
                                                     seq_offset, cache_layout(cache_mode, ""), is_seq_lens_cumsum}));
                    });

namespace {

constexpr int64_t kUpdate = 1;  // the only reduction

// Quantises updates by channel, and writes those of each sequence from its position on.
struct QuantizedWrite {
  const at::Tensor& self;
  In indices, updates, quant_scales;
  OptionalIn quant_zero_points;
  int64_t axis, quant_axis, reduction;

  int64_t dim() const { return axis < 0 ? axis + updates.dim() : axis; }

  void check() const {
    TORCH_CHECK(self.dim() >= 3, "self has shape ", self.sizes(), "; expected at least 3 dimensions");
    check_rank("updates", updates, self.dim());
    TORCH_CHECK(dim() >= 1 && dim() < updates.dim() - 1, "axis is ", axis, "; expected 1 to ", updates.dim() - 2);
    TORCH_CHECK(quant_axis == -1 || quant_axis == updates.dim() - 1, "quant_axis is ", quant_axis, "; expected -1 or ",
                updates.dim() - 1);
    check_range("reduction", reduction, kUpdate, kUpdate);
    const bool pairs = indices.dim() == 2;
    TORCH_CHECK(indices.dim() == 1 || (pairs && indices.size(1) == 2), "indices has shape ", indices.sizes(),
                "; expected 1 dimension, or 2 with pairs");
    TORCH_CHECK(indices.size(0) == updates.size(0), "indices has shape ", indices.sizes(), "; expected ",
                updates.size(0), " rows, as updates");
    for (int64_t d = 0; d < self.dim(); ++d) {
      const bool fits = d == 0 || d == dim() ? updates.size(d) <= self.size(d) : updates.size(d) == self.size(d);
      TORCH_CHECK(fits, "updates has shape ", updates.sizes(), ", self has shape ", self.sizes(), ": dimension ", d,
                  " does not fit");
    }
    const auto check_channels = [&](const char* name, In tensor) {
      TORCH_CHECK(tensor.numel() == updates.size(-1), name, " has shape ", tensor.sizes(), "; expected ",
                  updates.size(-1), " elements");
    };
    check_channels("quant_scales", quant_scales);
    if (quant_zero_points.has_value()) check_channels("quant_zero_points", *quant_zero_points);
  }

  void run() const {
    const int64_t last = self.size(dim()) - updates.size(dim());
    const bool pairs = indices.dim() == 2;
    if (pairs) {
      check_values("indices", indices.select(1, 0), 0, self.size(0) - 1);
      check_values("indices", indices.select(1, 1), 0, last);
    } else {
      check_values("indices", indices, 0, last);
    }
    const auto places = indices.to(at::kLong);
    const auto inverse = quant_scales.to(at::kFloat).reshape({-1});
    for (int64_t i = 0; i < updates.size(0); ++i) {
      auto values = updates[i].to(at::kFloat).div(inverse);
      if (quant_zero_points.has_value()) values.add_(quant_zero_points->to(at::kFloat).reshape({-1}));
      const int64_t row = pairs ? places[i][0].item<int64_t>() : i;
      const int64_t first = (pairs ? places[i][1] : places[i]).item<int64_t>();
      self[row].narrow(dim() - 1, first, updates.size(dim())).copy_(saturated(values, self.scalar_type()));
    }
  }
};

#define QUANT_SCATTER_DTYPES                                                                                         \
  "self: int8; indices: int32 int64; updates: float16 bfloat16; quant_scales: float32 bfloat16; quant_zero_points: " \
  "int32 bfloat16"

}  // namespace

ACLNN_TYPED_CHECKED(InplaceQuantScatter, QUANT_SCATTER_DTYPES,
                    [](Phase phase, InOut self, In indices, In updates, In quant_scales, OptionalIn quant_zero_points,
                       int64_t axis, int64_t quant_axis, int64_t reduction) {
                      check_or_run(phase, QuantizedWrite({self, indices, updates, quant_scales, quant_zero_points, axis,
                                                          quant_axis, reduction}));
                    });
ACLNN_TYPED_CHECKED(InplaceQuantScatterV2, QUANT_SCATTER_DTYPES,
                    [](Phase phase, InOut self, In indices, In updates, In quant_scales, OptionalIn quant_zero_points,
                       int64_t axis, int64_t quant_axis, int64_t reduction, Text round_mode) {
                      const QuantizedWrite quantized_write{self, indices,    updates,  quant_scales, quant_zero_points,
                                                           axis, quant_axis, reduction};
                      TORCH_CHECK(round_mode == "rint", "round_mode is \"", round_mode, "\"; expected rint");
                      quantized_write.check();
                      if (phase == Phase::Check) return;
                      quantized_write.run();
                    });

namespace {

// Writes each row of updates to a tensor of the list, from its position on.
struct ListWrite {
  const std::vector<at::Tensor>& var;
  In indice, updates;
  OptionalIn mask;
  int64_t axis;

  int64_t dim() const { return axis < 0 ? axis + updates.dim() : axis; }
  int64_t count() const { return static_cast<int64_t>(var.size()); }

  void check(Text reduce) const {
    TORCH_CHECK(reduce.empty() || reduce == "update", "reduce is \"", reduce, "\"; expected update");
    TORCH_CHECK(count() > 0, "var is an empty list");
    TORCH_CHECK(updates.dim() == var[0].dim() + 1 && updates.size(0) == count(), "updates has shape ", updates.sizes(),
                "; expected a row for each of ", count(), " tensors of shape ", var[0].sizes());
    TORCH_CHECK(dim() > 0 && dim() < updates.dim(), "axis is ", axis, "; expected 1 to ", updates.dim() - 1);
    TORCH_CHECK((indice.dim() == 1 || (indice.dim() == 2 && indice.size(1) == 2)) && indice.size(0) == count(),
                "indice has shape ", indice.sizes(), "; expected [", count(), "] or [", count(), ", 2]");
    if (mask.has_value()) check_shape("mask", *mask, {count()});
    for (size_t i = 0; i < var.size(); ++i) {
      check_shape("var", var[i], var[0].sizes());
      for (int64_t d = 0; d < var[i].dim(); ++d) {
        const int64_t given = updates.size(d + 1), own = var[i].size(d);
        TORCH_CHECK(d + 1 == dim() ? given <= own : given == own, "updates has shape ", updates.sizes(),
                    ", var has tensors of shape ", var[i].sizes(), ": dimension ", d + 1, " does not fit");
      }
    }
  }

  void run() const {
    const int64_t along = dim() - 1, size = var[0].size(along), given = updates.size(dim());
    const bool ranges = indice.dim() == 2;
    const auto places = indice.to(at::kLong);
    for (const bool write : {false, true}) {
      for (int64_t i = 0; i < count(); ++i) {
        if (mask.has_value() && !(*mask)[i].to(at::kBool).item<bool>()) continue;
        const int64_t first = (ranges ? places[i][0] : places[i]).item<int64_t>();
        const int64_t length = ranges ? places[i][1].item<int64_t>() : given;
        if (write) {
          as_integers(var[i]).narrow(along, first, length).copy_(as_integers(updates[i]).narrow(along, 0, length));
          continue;
        }
        TORCH_CHECK(length >= 0 && length <= given, "indice[", i, ", 1] is ", length, "; expected 0 to ", given);
        TORCH_CHECK(first >= 0 && first + length <= size, "indice[", i, ranges ? ", 0" : "", "] is ", first,
                    "; expected 0 to ", size - length);
      }
    }
  }
};

}  // namespace

ACLNN_TYPED_CHECKED(
    ScatterList,
    "var: int8 int16 int32 uint8 uint16 uint32 float16 bfloat16 float32; updates: as var; indice: int32 int64;"
    "mask: uint8",
    [](Phase phase, OutTensors var, In indice, In updates, OptionalIn mask, Text reduce, int64_t axis) {
      const ListWrite list_write{var, indice, updates, mask, axis};
      list_write.check(reduce);
      if (phase == Phase::Check) return;
      list_write.run();
    });

namespace {

// Splits x into queries, keys and values, turns queries and keys, and writes keys and values to their caches in int8.
struct RotatedWrite {
  In x, cos, sin;
  const at::Tensor &k_cache, &v_cache;
  In indices, scale_k, scale_v;
  OptionalIn offset_k, offset_v, weight_scale, activation_scale, bias;
  Ints size_splits;
  bool in_pages;
  bool kv_output;
  const at::Tensor &q, &k, &v;

  int64_t tokens() const { return x.dim() == 3 ? x.size(1) : 1; }
  int64_t rows() const { return x.size(0) * tokens(); }
  int64_t size() const { return k_cache.size(3); }
  int64_t key_heads() const { return k_cache.size(2); }

  void check(Text quant_mode, Text layout, Text cache_mode) const {
    TORCH_CHECK(x.dim() == 2 || x.dim() == 3, "x has shape ", x.sizes(), "; expected 2 or 3 dimensions");
    TORCH_CHECK(quant_mode == "static", "quant_mode is \"", quant_mode, "\"; expected static");
    TORCH_CHECK(layout == "BSND", "layout is \"", layout, "\"; expected BSND");
    TORCH_CHECK(cache_mode == "contiguous" || cache_mode == "page", "cache_mode is \"", cache_mode,
                "\"; expected contiguous or page");
    check_rank("k_cache", k_cache, 4);
    check_shape("v_cache", v_cache, k_cache.sizes());
    if (in_pages) {
      check_contiguous("k_cache", k_cache);
      check_contiguous("v_cache", v_cache);
    }
    const int64_t keys = key_heads() * size();
    TORCH_CHECK(size_splits.size() == 3 && size_splits[1] == keys && size_splits[2] == keys && size_splits[0] >= 0 &&
                    size() > 0 && size_splits[0] % size() == 0 && size_splits[0] + 2 * keys == x.size(-1),
                "size_splits is ", size_splits, "; x has ", x.size(-1), " columns; expected the columns of queries, ",
                keys, " and ", keys);
    const auto one_for_each = [&](const char* name, In tensor, int64_t count) {
      TORCH_CHECK(tensor.numel() == count, name, " has shape ", tensor.sizes(), "; expected ", count, " elements");
    };
    one_for_each("cos", cos, rows() * size());
    one_for_each("sin", sin, rows() * size());
    one_for_each("indices", indices, in_pages ? rows() : x.size(0));
    one_for_each("scale_k", scale_k, keys);
    one_for_each("scale_v", scale_v, keys);
    if (offset_k.has_value()) one_for_each("offset_k", *offset_k, keys);
    if (offset_v.has_value()) one_for_each("offset_v", *offset_v, keys);
    const bool integers = x.scalar_type() == at::kInt;
    TORCH_CHECK(integers == weight_scale.has_value(), "weight_scale is ", integers ? "null" : "given", "; x has dtype ",
                x.scalar_type(), integers ? "" : ", which has no scale");
    TORCH_CHECK(integers || (!activation_scale.has_value() && !bias.has_value()),
                "activation_scale and bias are for x of dtype int32, not ", x.scalar_type());
    if (weight_scale.has_value()) one_for_each("weight_scale", *weight_scale, x.size(-1));
    if (activation_scale.has_value()) one_for_each("activation_scale", *activation_scale, rows());
    if (bias.has_value()) one_for_each("bias", *bias, x.size(-1));
    one_for_each("q", q, rows() * size_splits[0]);
    if (!kv_output) return;
    one_for_each("k", k, rows() * keys);
    one_for_each("v", v, rows() * keys);
  }

  void run() const {
    const int64_t last = in_pages ? k_cache.size(0) * k_cache.size(1) - 1 : k_cache.size(1) - tokens();
    check_values("indices", indices, 0, last);
    auto slots = indices.to(at::kLong).reshape({-1});
    if (!in_pages) {
      const auto first = slots + at::arange(x.size(0)) * at::Scalar(k_cache.size(1));
      slots = (first.unsqueeze(1) + at::arange(tokens())).reshape({-1});
    }
    in_blocks(rows(), x.size(-1), [&](int64_t begin, int64_t count) { write(begin, slots.narrow(0, begin, count)); });
  }

 private:
  at::Tensor dequantized_rows(int64_t begin, int64_t count) const {
    const auto given = x.reshape({rows(), -1}).narrow(0, begin, count);
    if (!weight_scale.has_value()) return given.to(at::kFloat);
    const bool integer_bias = bias.has_value() && bias->scalar_type() == at::kInt;
    auto values = (integer_bias ? given + bias->reshape({-1}) : given).to(at::kFloat) *
                  weight_scale->to(at::kFloat).reshape({-1});
    if (activation_scale.has_value()) {
      values.mul_(activation_scale->to(at::kFloat).reshape({-1, 1}).narrow(0, begin, count));
    }
    if (bias.has_value() && !integer_bias) values.add_(bias->to(at::kFloat).reshape({-1}));
    return values;
  }

  void write(int64_t begin, const at::Tensor& slots) const {
    const int64_t count = slots.size(0);
    const auto parts = dequantized_rows(begin, count).split_with_sizes(size_splits, 1);
    const auto angle = [&](In tensor) { return tensor.reshape({rows(), 1, size()}).narrow(0, begin, count); };
    const auto turned = [&](const at::Tensor& part) {
      return rotated(part.unflatten(1, {-1, size()}), angle(cos).to(at::kFloat), angle(sin).to(at::kFloat),
                     Pairs::Half);
    };
    const auto keys = turned(parts[1]), values = parts[2].unflatten(1, {-1, size()});
    const auto keep = [&](const at::Tensor& out, const at::Tensor& part) {
      out.view({rows(), -1, size()}).narrow(0, begin, count).copy_(part);
    };
    keep(q, turned(parts[0]));
    if (kv_output) {
      keep(k, keys);
      keep(v, values);
    }
    store(k_cache, slots, keys, scale_k, offset_k);
    store(v_cache, slots, values, scale_v, offset_v);
  }

  void store(const at::Tensor& cache, In slots, const at::Tensor& part, In scale, OptionalIn offset) const {
    const auto channels = [&](In tensor) { return tensor.to(at::kFloat).reshape({key_heads(), size()}); };
    const auto shift = offset.has_value() ? std::optional<at::Tensor>(channels(*offset)) : std::nullopt;
    scatter(Pages(cache), quantized(part, channels(scale), shift, at::kChar), slots);
  }
};

}  // namespace

ACLNN_TYPED_CHECKED(
    DequantRopeQuantKvcache,
    "x: float16 bfloat16 float32 int32; cos: float16 bfloat16; sin, q, k, v: as cos; k_cache, v_cache: int8;"
    "indices: int32; scale_k, scale_v, offset_k, offset_v, weight_scale, activation_scale: float32;"
    "bias: int32 float16 bfloat16 float32",
    [](Phase phase, In x, In cos, In sin, InOut k_cache, InOut v_cache, In indices, In scale_k, In scale_v,
       OptionalIn offset_k, OptionalIn offset_v, OptionalIn weight_scale, OptionalIn activation_scale, OptionalIn bias,
       Ints size_splits, Text quant_mode, Text layout, bool kv_output, Text cache_mode, Out q, Out k, Out v) {
      const RotatedWrite rotated_write{x,
                                       cos,
                                       sin,
                                       k_cache,
                                       v_cache,
                                       indices,
                                       scale_k,
                                       scale_v,
                                       offset_k,
                                       offset_v,
                                       weight_scale,
                                       activation_scale,
                                       bias,
                                       size_splits,
                                       cache_mode == "page",
                                       kv_output,
                                       q,
                                       k,
                                       v};
      rotated_write.check(quant_mode, layout, cache_mode);
      if (phase == Phase::Check) return;
      rotated_write.run();
    });
