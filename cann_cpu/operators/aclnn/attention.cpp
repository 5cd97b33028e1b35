// SPDX-License-Identifier: Apache-2.0
// Attention with a materialised score matrix, and its gradient.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>

#include "dropout_mask.h"
#include "table.h"

using namespace cann_cpu;

namespace {

struct Attributes {
  double scale;
  double keep_probability;
  int64_t previous_tokens;
  int64_t next_tokens;
  int64_t heads;
  const std::string& layout;
  int64_t sparse_mode;
};

// A view of shape (batch, heads, tokens, head size).
at::Tensor by_head(const at::Tensor& tensor, const std::string& layout, int64_t head_size) {
  if (layout == "BNSD") return tensor;
  if (layout == "BSND") return tensor.transpose(1, 2);
  if (layout == "BSH") return tensor.unflatten(2, {-1, head_size}).transpose(1, 2);
  if (layout == "SBH") return tensor.unflatten(2, {-1, head_size}).permute({1, 2, 0, 3});
  TORCH_CHECK(false, "layout \"", layout, "\" is not served; expected BNSD, BSND, BSH or SBH");
}

int64_t head_size(const at::Tensor& query, const Attributes& attributes) {
  return query.dim() == 4 ? query.size(3) : query.size(2) / attributes.heads;
}

// Keys and values of fewer heads serve several heads of the query each.
at::Tensor for_heads(const at::Tensor& tensor, int64_t heads) {
  TORCH_CHECK(heads % tensor.size(1) == 0, heads, " heads of the query do not divide among ", tensor.size(1));
  return tensor.repeat_interleave(heads / tensor.size(1), 1);
}

at::Tensor sum_over_heads(const at::Tensor& gradient, int64_t heads) {
  return gradient.unflatten(1, {heads, -1}).sum(2);
}

// True where a query does not see a key; nullopt where all is seen.
std::optional<at::Tensor> hidden(int64_t queries, int64_t keys, const std::optional<at::Tensor>& mask,
                                 const Attributes& attributes) {
  const auto ahead = [&](int64_t diagonal) {  // how far each key lies behind the last that its query sees
    return at::arange(keys).unsqueeze(0) - at::arange(queries).unsqueeze(1) - at::Scalar(diagonal);
  };
  switch (attributes.sparse_mode) {
    case 0:
      if (!mask.has_value()) return std::nullopt;
      return mask->to(at::kBool)
          .logical_or(ahead(0).gt(attributes.next_tokens))
          .logical_or(ahead(0).neg().gt(attributes.previous_tokens));
    case 1:
      return mask.has_value() ? std::optional<at::Tensor>(mask->to(at::kBool)) : std::nullopt;
    case 2:
      return ahead(0).gt(0);
    case 3:
      return ahead(keys - queries).gt(0);
    default:
      TORCH_CHECK(false, "sparse mode ", attributes.sparse_mode, " is not served; expected 0 to 3");
  }
}

// torch_npu has each number of the statistics eight times.
at::Tensor first_of(const at::Tensor& statistics) { return statistics.slice(-1, 0, 1); }

struct Probabilities {
  at::Tensor values;   // (batch, heads, queries, keys), 0 where a query sees nothing
  at::Tensor maximum;  // (batch, heads, queries, 1)
  at::Tensor sum;
};

at::Tensor masked_scores(const at::Tensor& query, const at::Tensor& key, const std::optional<at::Tensor>& mask,
                         const Attributes& attributes) {
  auto scores = at::matmul(query, key.mT()) * at::Scalar(attributes.scale);
  const auto unseen = hidden(query.size(2), key.size(2), mask, attributes);
  if (unseen.has_value()) scores.masked_fill_(*unseen, -std::numeric_limits<double>::infinity());
  return scores;
}

at::Tensor weights(const at::Tensor& scores, const at::Tensor& maximum) { return (scores - maximum).exp_(); }

at::Tensor normalized(const at::Tensor& weights, const at::Tensor& sum) {
  return (weights / sum).masked_fill_(sum.eq(0), 0);
}

Probabilities probabilities(const at::Tensor& scores) {
  auto maximum = scores.amax({-1}, /*keepdim=*/true);
  maximum.masked_fill_(maximum.isinf(), 0);
  const auto exponentials = weights(scores, maximum);
  const auto sum = exponentials.sum({-1}, /*keepdim=*/true);
  return {normalized(exponentials, sum), maximum, sum};
}

// What each probability is multiplied by in dropout; nullopt without dropout.
std::optional<at::Tensor> dropout_factor(const std::optional<at::Tensor>& mask, const at::Tensor& values,
                                         const Attributes& attributes) {
  if (!mask.has_value() || mask->numel() == 0 || attributes.keep_probability >= 1) return std::nullopt;
  return unpack_dropout_mask(*mask, values.sizes()) / at::Scalar(attributes.keep_probability);
}

// What neither function implements, and what makes no difference.
using Shift = Absent<"realShift", OptionalIn>;
using PaddingMask = Absent<"paddingMask", OptionalIn>;
using Prefix = Absent<"prefix", OptionalInts>;
using InnerPrecise = Ignored<int64_t>;  // how precisely to compute; all is float here

}  // namespace

ACLNN(FlashAttentionScore, [](In query, In key, In value, Shift, OptionalIn drop_mask, PaddingMask, OptionalIn mask,
                              Prefix, double scale, double keep_probability, int64_t previous_tokens,
                              int64_t next_tokens, int64_t heads, Text layout, InnerPrecise, int64_t sparse_mode,
                              OptionalOut maximum, OptionalOut sum, Absent<"softmaxOut", OptionalOut>, Out out) {
  const Attributes attributes{scale, keep_probability, previous_tokens, next_tokens, heads, layout, sparse_mode};
  const auto size = head_size(query, attributes);
  const auto q = by_head(query, layout, size).to(at::kFloat);
  const auto k = for_heads(by_head(key, layout, size).to(at::kFloat), heads);
  const auto v = for_heads(by_head(value, layout, size).to(at::kFloat), heads);
  auto p = probabilities(masked_scores(q, k, mask, attributes));
  if (const auto factor = dropout_factor(drop_mask, p.values, attributes)) p.values = p.values * *factor;
  by_head(out, layout, size).copy_(at::matmul(p.values, v));
  if (maximum.has_value()) assign(maximum, p.maximum.expand(maximum->sizes()));
  if (sum.has_value()) assign(sum, p.sum.expand(sum->sizes()));
});

// With what the forward pass has kept: the statistics give the probabilities again, and its result, times the gradient,
// the sum of each query's probabilities times theirs.
ACLNN(FlashAttentionScoreGrad,
      [](In query, In key, In value, In grad, Shift, OptionalIn drop_mask, PaddingMask, OptionalIn mask, In maximum,
         In sum, Absent<"softmaxIn", OptionalIn>, In attention, Prefix, double scale, double keep_probability,
         int64_t previous_tokens, int64_t next_tokens, int64_t heads, Text layout, InnerPrecise, int64_t sparse_mode,
         Out grad_query, Out grad_key, Out grad_value, Absent<"dpse", OptionalOut>) {
        const Attributes attributes{scale, keep_probability, previous_tokens, next_tokens, heads, layout, sparse_mode};
        const auto size = head_size(query, attributes);
        const auto q = by_head(query, layout, size).to(at::kFloat);
        const auto k = for_heads(by_head(key, layout, size).to(at::kFloat), heads);
        const auto v = for_heads(by_head(value, layout, size).to(at::kFloat), heads);
        const auto dy = by_head(grad, layout, size).to(at::kFloat);
        const auto p = normalized(weights(masked_scores(q, k, mask, attributes), first_of(maximum)), first_of(sum));
        const auto factor = dropout_factor(drop_mask, p, attributes);
        auto dp = at::matmul(dy, v.mT());
        if (factor.has_value()) dp = dp * *factor;
        const auto dv = at::matmul((factor.has_value() ? p * *factor : p).mT(), dy);
        const auto total = (dy * by_head(attention, layout, size)).sum({-1}, /*keepdim=*/true);
        const auto ds = p * (dp - total) * at::Scalar(scale);
        const auto key_heads = by_head(key, layout, size).size(1);
        by_head(grad_query, layout, size).copy_(at::matmul(ds, k));
        by_head(grad_key, layout, size).copy_(sum_over_heads(at::matmul(ds.mT(), q), key_heads));
        by_head(grad_value, layout, size).copy_(sum_over_heads(dv, key_heads));
      });
