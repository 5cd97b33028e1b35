// SPDX-License-Identifier: Apache-2.0
// CANN's functions that operators of ours can go to, by their documents, with ATen; aclnnAdd is cann_cpu's own.
#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>

#include <functional>
#include <limits>

#include "cann_cpu/op.h"

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Where the tokens of a call lie.
struct Sequences {
  const Tensor& query;
  const Tensor& key;
  const OptionalTensor& query_lengths;
  const OptionalTensor& key_lengths;
  const OptionalTensor& table;
  const std::string& layout_query;
  const std::string& layout_key;
  int64_t sparse_mode;

  bool packed() const { return layout_query == "TND"; }

  // First token and number of tokens of a sequence, by counts or running totals.
  static std::pair<int64_t, int64_t> span(const OptionalTensor& lengths, int64_t b, int64_t all, bool totals) {
    const int64_t last = lengths ? (*lengths)[b].item<int64_t>() : all;
    const int64_t first = totals && b > 0 ? (*lengths)[b - 1].item<int64_t>() : 0;
    return {first, last - first};
  }

  // A sequence's tokens of a tensor like the key: [positions, D].
  Tensor taken(const Tensor& tensor, int64_t b, const Tensor& positions) const {
    if (layout_key == "PA_BSND") {
      const Tensor page = (*table)[b].index_select(0, positions.div(tensor.size(1), "floor")).to(at::kLong);
      const Tensor token = page * tensor.size(1) + positions.remainder(tensor.size(1));
      return tensor.flatten(0, 1).index_select(0, token).squeeze(1);
    }
    const int64_t first = layout_key == "TND" ? span(key_lengths, b, 0, true).first : 0;
    return (layout_key == "TND" ? tensor : tensor[b]).index_select(0, positions + first).squeeze(1);
  }

  // Calls `visit` with a sequence, the place of each of its query tokens, and the number of keys that this one sees.
  void each(const std::function<void(int64_t, const std::vector<at::indexing::TensorIndex>&, int64_t)>& visit) const {
    const int64_t batch = packed() ? query_lengths->size(0) : query.size(0);
    for (int64_t b = 0; b < batch; ++b) {
      const auto [first, queries] = span(query_lengths, b, query.size(packed() ? 0 : 1), packed());
      const int64_t keys = span(key_lengths, b, key.size(-3), layout_key == "TND").second;
      for (int64_t s = 0; s < queries; ++s) {
        std::vector<at::indexing::TensorIndex> place{first + s};
        if (!packed()) {
          place.insert(place.begin(), b);
        }
        visit(b, place, std::max<int64_t>(0, keys - (sparse_mode == 3 ? queries - 1 - s : 0)));
      }
    }
  }
};

ACLNN(LightningIndexer,
      [](const Tensor& query, const Tensor& key, const Tensor& weights, const OptionalTensor& query_lengths,
         const OptionalTensor& key_lengths, const OptionalTensor& table, const std::string& layout_query,
         const std::string& layout_key, int64_t count, int64_t sparse_mode, int64_t before, int64_t after,
         bool with_values, Tensor& indices, Tensor& values) {
        TORCH_CHECK(before == INT64_MAX && after == INT64_MAX);
        indices.fill_(-1);
        values.fill_(-std::numeric_limits<float>::infinity());
        const Sequences sequences{query, key, query_lengths, key_lengths, table, layout_query, layout_key, sparse_mode};
        sequences.each([&](int64_t b, const auto& place, int64_t seen) {
          const Tensor keys = sequences.taken(key, b, at::arange(seen, at::kLong)).to(at::kFloat);
          const Tensor products = at::matmul(query.index(place).to(at::kFloat), keys.t()).relu();
          const Tensor scores = at::matmul(weights.index(place).to(at::kFloat), products);
          const Tensor best = std::get<1>(scores.sort(/*stable=*/true, -1, /*descending=*/true)).slice(0, 0, count);
          indices.index(place)[0].slice(0, 0, best.numel()).copy_(best);
          if (with_values) {
            values.index(place)[0].slice(0, 0, best.numel()).copy_(scores.index_select(0, best));
          }
        });
      });

ACLNN(SparseFlashAttention,
      [](const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& indices,
         const OptionalTensor& table, const OptionalTensor& query_lengths, const OptionalTensor& key_lengths,
         const OptionalTensor& query_rope, const OptionalTensor& key_rope, double scale, int64_t sparse_block,
         const std::string& layout_query, const std::string& layout_key, int64_t sparse_mode, int64_t before,
         int64_t after, int64_t attention_mode, bool with_lse, Tensor& out, Tensor&, Tensor&) {
        TORCH_CHECK(sparse_block == 1 && before == INT64_MAX && after == INT64_MAX && attention_mode == 2 && !with_lse);
        TORCH_CHECK(value.data_ptr() == key.data_ptr() && query_rope && key_rope);
        out.zero_();
        const Sequences sequences{query, key, query_lengths, key_lengths, table, layout_query, layout_key, sparse_mode};
        sequences.each([&](int64_t b, const auto& place, int64_t seen) {
          Tensor chosen = indices.index(place)[0].to(at::kLong);
          chosen = chosen.slice(0, 0, (chosen >= 0).to(at::kLong).cumprod(0).sum().template item<int64_t>());
          chosen = chosen.masked_select(chosen < seen);
          if (chosen.numel() != 0) {
            const Tensor values = sequences.taken(key, b, chosen).to(at::kFloat);
            const Tensor keys = at::cat({values, sequences.taken(*key_rope, b, chosen).to(at::kFloat)}, -1);
            const Tensor queries = at::cat({query.index(place), query_rope->index(place)}, -1).to(at::kFloat);
            const Tensor weights = (at::matmul(queries, keys.t()) * scale).softmax(-1);
            out.index_put_(place, at::matmul(weights, values).to(query.scalar_type()));
          }
        });
      });

ACLNN(ScatterPaKvCache,
      [](const Tensor& key, cann_cpu::InOut key_cache, const Tensor& slots, const Tensor& value,
         cann_cpu::InOut value_cache, const OptionalTensor& compress_lens, const OptionalTensor& compress_offsets,
         const OptionalTensor& lengths, const std::string& cache_mode, const std::string& scatter_mode, at::IntArrayRef,
         at::IntArrayRef) {
        TORCH_CHECK(!compress_lens && !compress_offsets && !lengths && scatter_mode == "None");
        TORCH_CHECK(cache_mode == "Norm" || cache_mode == "PA_NZ");
        const bool nz = cache_mode == "PA_NZ";
        const auto write = [&](const Tensor& rows, const Tensor& cache) {
          const int64_t block = cache.size(nz ? 2 : 1);
          for (int64_t t = 0; t < slots.numel(); ++t) {
            const auto slot = slots[t].item<int64_t>();
            if (slot >= 0) {
              const Tensor page = cache[slot / block];
              const Tensor place = nz ? page.select(1, slot % block) : page[slot % block];
              place.copy_(rows[t].reshape(place.sizes()));
            }
          }
        };
        write(key, key_cache);
        write(value, value_cache);
      });

}  // namespace
