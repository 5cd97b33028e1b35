// SPDX-License-Identifier: Apache-2.0
// The functions AtbX of libatb, but for attention (attention.cpp).
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include "expert_groups.h"
#include "opapi/gating.h"
#include "opapi/pages.h"
#include "operation.h"

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
               const auto scores = share + add_num.to(at::kFloat);
               auto experts = highest_scores(with_best_groups(scores, groups, kept_groups, n, /*hidden=*/0), k).second;
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

// The rows of all sequences, one sequence after the other, each from the block that contains its seq_starts.
ATB_FUNCTION(
    AtbPagedCacheLoad,
    "key_cache: float16 bfloat16 int8; value_cache, key, value: as key_cache; block_table, context_lens, seq_starts: "
    "int32",
    [](Phase phase, In key_cache, In value_cache, In block_table, In context_lens, Out key, Out value,
       OptionalIn seq_starts, int8_t config, bool is_cumulative, bool has_starts) {
      constexpr int8_t kNd = 1;
      TORCH_CHECK(config == kNd, "caches in FRACTAL_NZ are not implemented; expected ND");
      TORCH_CHECK(has_starts == seq_starts.has_value(), "seq_starts is missing");
      check_or_run(phase, PagedRead({key_cache, value_cache, block_table, context_lens, key, value, seq_starts,
                                     CacheLayout::Rows, is_cumulative, "block_table", "context_lens", "seq_starts"}));
    });
