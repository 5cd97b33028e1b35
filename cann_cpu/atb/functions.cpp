// SPDX-License-Identifier: Apache-2.0
// The functions AtbX of libatb, but for attention (attention.cpp).
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include "expert_groups.h"
#include "operation.h"
#include "paged_cache.h"

using namespace cann_cpu;

namespace {

constexpr int kSigmoid = 8;

bool is_given(OptionalIn tensor) { return tensor.has_value() && tensor->numel() > 0; }

}  // namespace

// The k experts with the largest sigmoid(x) + add_num within the best groups, and their shares of sigmoid(x).
ATB_FUNCTION(AtbFusedAddTopkDiv,
             "x: float16 bfloat16 float32; add_num: as x; mapping_num, mapping_table, indices: int32; y: float32",
             [](Phase phase, In x, In add_num, OptionalIn mapping_num, OptionalIn mapping_table, int64_t groups,
                int64_t kept_groups, int64_t n, int64_t k, int activation, bool is_norm, float scale, bool maps, Out y,
                Out indices) {
               if (phase == Phase::Check) {
                 check_expert_groups(x, groups, kept_groups, n);
                 check_shape("add_num", add_num, {x.size(1)});
                 check_range("k", k, 1, x.size(1));
                 check_range("activation_type", activation, kSigmoid, kSigmoid);
                 check_shape("y", y, {x.size(0), k});
                 check_shape("indices", indices, y.sizes());
                 if (!maps) return;
                 TORCH_CHECK(is_given(mapping_num) && is_given(mapping_table),
                             "enable_expert_mapping is true, so mapping_num and mapping_table must be given");
                 check_shape("mapping_num", *mapping_num, {x.size(1)});
                 check_rank("mapping_table", *mapping_table, 2);
                 TORCH_CHECK(mapping_table->size(0) == x.size(1), "mapping_table has shape ", mapping_table->sizes(),
                             "; expected a row for each of ", x.size(1), " experts");
                 return;
               }
               if (maps) check_values("mapping_num", *mapping_num, 0, mapping_table->size(1));
               const auto share = x.to(at::kFloat).sigmoid();
               const auto best = with_best_groups(share + add_num.to(at::kFloat), groups, kept_groups, n);
               auto experts = std::get<1>(best.sort(/*stable=*/true, -1, /*descending=*/true)).narrow(1, 0, k);
               auto shares = share.gather(1, experts);
               if (is_norm) shares = shares / shares.sum({1}, /*keepdim=*/true) * at::Scalar(scale);
               if (maps) {  // copies of an expert take its tokens in turn
                 const auto copies = mapping_num->to(at::kLong).clamp_min(1).index_select(0, experts.reshape({-1}));
                 const auto turn =
                     at::arange(x.size(0)).unsqueeze(1).expand_as(experts).reshape({-1}).remainder(copies);
                 const auto place = experts.reshape({-1}) * at::Scalar(mapping_table->size(1)) + turn;
                 experts = mapping_table->reshape({-1}).index_select(0, place).view_as(experts);
               }
               assign(y, shares);
               assign(indices, experts);
             });

namespace {

constexpr int8_t kNd = 1;  // kv_cache_cfg

void check_loaded(const char* name, In rows, In cache) {
  check_rank(name, rows, 3);
  check_shape(name, rows, {rows.size(0), cache.size(2), cache.size(3)});
}

}  // namespace

// The rows of all sequences, one sequence after the other, each from the block that contains its seq_starts.
ATB_FUNCTION(
    AtbPagedCacheLoad,
    "key_cache: float16 bfloat16 int8; value_cache, key, value: as key_cache; block_table, context_lens, seq_starts: "
    "int32",
    [](Phase phase, In key_cache, In value_cache, In block_table, In context_lens, Out key, Out value,
       OptionalIn seq_starts, int8_t config, bool is_cumulative, bool has_starts) {
      TORCH_CHECK(config == kNd, "caches in FRACTAL_NZ are not implemented; expected ND");
      check_rank("key_cache", key_cache, 4);
      check_rank("value_cache", value_cache, 4);
      TORCH_CHECK(key_cache.sizes().slice(0, 2) == value_cache.sizes().slice(0, 2), "key_cache has shape ",
                  key_cache.sizes(), ", value_cache ", value_cache.sizes(), "; expected the same blocks");
      check_loaded("key", key, key_cache);
      check_loaded("value", value, value_cache);
      check_rank("block_table", block_table, 2);
      check_shape("context_lens", context_lens, {block_table.size(0) + (is_cumulative ? 1 : 0)});
      TORCH_CHECK(has_starts == seq_starts.has_value(), "seq_starts is missing");
      if (seq_starts.has_value()) check_shape("seq_starts", *seq_starts, {block_table.size(0)});
      if (phase == Phase::Check) return;
      const int64_t blocks = key_cache.size(0), block_size = key_cache.size(1), each = block_table.size(1);
      auto lengths = context_lens.to(at::kLong);
      if (is_cumulative) lengths = lengths.diff();
      check_values("context_lens", lengths, 0, each * block_size);
      const auto total = lengths.sum().item<int64_t>();
      TORCH_CHECK(total == key.size(0) && total == value.size(0), "context_lens add up to ", total, ", key has ",
                  key.size(0), " rows and value ", value.size(0));
      std::vector<at::Tensor> rows;
      for (int64_t i = 0; i < lengths.size(0); ++i) {
        const auto start = seq_starts.has_value() ? (*seq_starts)[i].item<int64_t>() : 0;
        const auto length = lengths[i].item<int64_t>();
        const int64_t first = start / block_size, count = (length + block_size - 1) / block_size;
        TORCH_CHECK(start >= 0 && first + count <= each, "seq_starts[", i, "] is ", start, " and context_lens[", i,
                    "] ", length, "; block_table has ", each, " blocks of ", block_size);
        const auto named = block_table[i].narrow(0, first, count);
        check_values(c10::str("block_table[", i, "], from ", first, ",").c_str(), named, 0, blocks - 1);
        const auto place = named.to(at::kLong).unsqueeze(1) * at::Scalar(block_size) + at::arange(block_size);
        rows.push_back(place.reshape({-1}).narrow(0, 0, length));
      }
      const auto all = rows.empty() ? at::arange(0) : at::cat(rows);
      key.copy_(key_cache.reshape({-1, key.size(1), key.size(2)}).index_select(0, all));
      value.copy_(value_cache.reshape({-1, value.size(1), value.size(2)}).index_select(0, all));
    });
