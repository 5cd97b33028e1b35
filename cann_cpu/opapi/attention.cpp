// SPDX-License-Identifier: Apache-2.0
// Attention with materialised scores, its gradient, and the sum of two attentions to parts of the keys.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>

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

// True where a query does not see a key; nullopt where all is seen.
std::optional<at::Tensor> hidden(int64_t queries, int64_t keys, const std::optional<at::Tensor>& mask,
                                 const Attributes& attributes) {
  const auto ahead = [&](int64_t diagonal) {  // how far each key lies after the last one that its query sees
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
    case 4: {
      const auto distance = ahead(keys - queries);
      return distance.gt(attributes.next_tokens).logical_or(distance.neg().gt(attributes.previous_tokens));
    }
    default:
      TORCH_CHECK(false, "sparse mode ", attributes.sparse_mode, " is not served; expected 0 to 4");
  }
}

// torch_npu has each number of the statistics eight times.
at::Tensor first_of(const at::Tensor& statistics) { return statistics.slice(-1, 0, 1); }

struct Probabilities {
  at::Tensor values;   // (heads, queries, keys), 0 where a query sees nothing
  at::Tensor maximum;  // (heads, queries, 1)
  at::Tensor sum;
};

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
std::optional<at::Tensor> dropout_factor(const std::optional<at::Tensor>& mask, at::IntArrayRef shape,
                                         const Attributes& attributes) {
  if (!mask.has_value() || mask->numel() == 0 || attributes.keep_probability >= 1) return std::nullopt;
  return unpack_dropout_mask(*mask, shape) / at::Scalar(attributes.keep_probability);
}

// Tensors of (batch, heads, tokens, size), those of a query's heads that share a key's at a time: the scores of all
// would take more memory than there is.
class Attention {
 public:
  Attention(In query, In key, In value, OptionalIn mask, const Attributes& attributes)
      : query_(query), key_(key), value_(value), attributes_(attributes) {
    const int64_t heads = query.size(1), key_heads = key.size(1);
    TORCH_CHECK(key_heads > 0 && heads % key_heads == 0, heads, " heads of the query do not divide among ", key_heads);
    shared_ = heads / key_heads;
    const auto unseen = hidden(query.size(2), key.size(2), mask, attributes);
    if (unseen.has_value()) unseen_ = unseen->expand(scores_shape());
  }

  std::vector<int64_t> scores_shape() const { return {query_.size(0), query_.size(1), query_.size(2), key_.size(2)}; }

  std::optional<at::Tensor> dropout;  // what each probability is multiplied by

  void forward(OptionalOut maximum, OptionalOut sum, Out out) const {
    for (int64_t i = 0; i < blocks(); ++i) {
      auto p = probabilities(scores(i));
      if (dropout.has_value()) p.values = p.values * of_query(*dropout, i);
      of_query(out, i).copy_(at::matmul(p.values, in_key(value_, i)));
      if (maximum.has_value()) of_query(*maximum, i).copy_(p.maximum);
      if (sum.has_value()) of_query(*sum, i).copy_(p.sum);
    }
  }

  // With what the forward pass has kept: the statistics give the probabilities again, and its result, times the
  // gradient, the sum of each query's probabilities times theirs.
  void backward(In grad, In out, In maximum, In sum, Out grad_query, Out grad_key, Out grad_value) const {
    for (int64_t i = 0; i < blocks(); ++i) {
      const auto dy = of_query(grad, i).to(at::kFloat);
      const auto p = normalized(weights(scores(i), first_of(of_query(maximum, i))), first_of(of_query(sum, i)));
      auto dp = at::matmul(dy, in_key(value_, i).mT());
      if (dropout.has_value()) dp = dp * of_query(*dropout, i);
      const auto dropped = dropout.has_value() ? p * of_query(*dropout, i) : p;
      const auto total = (dy * of_query(out, i)).sum({-1}, /*keepdim=*/true);
      const auto ds = p * (dp - total) * at::Scalar(attributes_.scale);
      of_query(grad_query, i).copy_(at::matmul(ds, in_key(key_, i)));
      of_key(grad_key, i).copy_(at::matmul(ds.mT(), of_query(query_, i).to(at::kFloat)).sum(0));
      of_key(grad_value, i).copy_(at::matmul(dropped.mT(), dy).sum(0));
    }
  }

 private:
  int64_t blocks() const { return key_.size(0) * key_.size(1); }
  at::Tensor of_key(In tensor, int64_t i) const { return tensor[i / key_.size(1)][i % key_.size(1)]; }
  at::Tensor of_query(In tensor, int64_t i) const {
    return tensor[i / key_.size(1)].narrow(0, i % key_.size(1) * shared_, shared_);
  }
  at::Tensor in_key(In tensor, int64_t i) const { return of_key(tensor, i).to(at::kFloat).unsqueeze(0); }

  at::Tensor scores(int64_t i) const {
    auto scores = at::matmul(of_query(query_, i).to(at::kFloat), in_key(key_, i).mT()) * at::Scalar(attributes_.scale);
    if (unseen_.has_value()) scores.masked_fill_(of_query(*unseen_, i), -std::numeric_limits<double>::infinity());
    return scores;
  }

  at::Tensor query_, key_, value_;
  std::optional<at::Tensor> unseen_;
  const Attributes& attributes_;
  int64_t shared_;  // heads of the query to one of the key
};

// Consecutive sequences in a tensor of (tokens, heads, head size), by their ends.
struct Sequences {
  Sequences(In query, at::IntArrayRef query_ends, at::IntArrayRef key_ends, const Attributes& attributes)
      : queries(query_ends), keys(key_ends) {
    TORCH_CHECK(attributes.layout == "TND", "layout \"", attributes.layout,
                "\" is not served for sequences of several lengths; expected TND");
    TORCH_CHECK(query.dim() == 3 && query.size(1) == attributes.heads, "headNum is ", attributes.heads,
                ", the query has shape ", query.sizes());
    TORCH_CHECK(query_ends.size() == key_ends.size(), "actualSeqQLen has ", query_ends.size(),
                " sequences, actualSeqKvLen ", key_ends.size());
  }

  size_t count() const { return queries.size(); }
  static int64_t begin(at::IntArrayRef ends, size_t i) { return i == 0 ? 0 : ends[i - 1]; }
  static int64_t length(at::IntArrayRef ends, size_t i) { return ends[i] - begin(ends, i); }

  // Sequence i as a batch of one: (1, heads, tokens, head size).
  static at::Tensor of(const at::Tensor& tensor, at::IntArrayRef ends, size_t i) {
    return tensor.narrow(0, begin(ends, i), length(ends, i)).transpose(0, 1).unsqueeze(0);
  }

  at::IntArrayRef queries, keys;
};

// A sequence's statistics lie by token, as its queries do, or by head.
enum class StatisticsOrder { kByToken, kByHead };

StatisticsOrder statistics_order(Text layout) {
  if (layout == "same_as_input" || layout == "TND") return StatisticsOrder::kByToken;
  TORCH_CHECK(layout.empty() || layout == "SBH", "the layout of the statistics is \"", layout,
              "\"; expected same_as_input or nothing");
  return StatisticsOrder::kByHead;
}

// The statistics of sequence i as (1, heads, tokens, 8), from those of all in (tokens, heads, 8).
at::Tensor statistics_of(const at::Tensor& all, at::IntArrayRef ends, size_t i, StatisticsOrder order) {
  if (order == StatisticsOrder::kByToken) return Sequences::of(all, ends, i);
  TORCH_CHECK(all.is_contiguous(), "statistics that lie by head must be contiguous, got strides ", all.strides());
  const auto part = all.narrow(0, Sequences::begin(ends, i), Sequences::length(ends, i));
  return part.view({1, all.size(1), part.size(0), all.size(2)});
}

// Sequence i's part of a mask of as many bits as there are scores.
std::optional<at::Tensor> next_dropout(const std::optional<at::Tensor>& factor, int64_t& begin,
                                       const std::vector<int64_t>& shape) {
  if (!factor.has_value()) return std::nullopt;
  const int64_t count = c10::multiply_integers(shape);
  const auto part = factor->narrow(0, begin, count).view(shape);
  begin += count;
  return part;
}

std::optional<at::Tensor> dropout_factors(const std::optional<at::Tensor>& mask, const at::Tensor& query,
                                          const Sequences& sequences, const Attributes& attributes) {
  int64_t count = 0;
  for (size_t i = 0; i < sequences.count(); ++i) {
    count += query.size(1) * Sequences::length(sequences.queries, i) * Sequences::length(sequences.keys, i);
  }
  return dropout_factor(mask, {count}, attributes);
}

void attend(In query, In key, In value, OptionalIn drop_mask, OptionalIn mask, Ints query_ends, Ints key_ends,
            const Attributes& attributes, StatisticsOrder order, OptionalOut maximum, OptionalOut sum, Out out) {
  const Sequences sequences(query, query_ends, key_ends, attributes);
  const auto dropout = dropout_factors(drop_mask, query, sequences, attributes);
  int64_t dropped = 0;
  for (size_t i = 0; i < sequences.count(); ++i) {
    const auto statistics = [&](OptionalOut all) {
      return all.has_value() ? std::optional(statistics_of(*all, query_ends, i, order)) : std::nullopt;
    };
    Attention attention(Sequences::of(query, query_ends, i), Sequences::of(key, key_ends, i),
                        Sequences::of(value, key_ends, i), mask, attributes);
    attention.dropout = next_dropout(dropout, dropped, attention.scores_shape());
    auto highest = statistics(maximum), total = statistics(sum);
    auto result = Sequences::of(out, query_ends, i);
    attention.forward(highest, total, result);
  }
}

void attend_backward(In query, In key, In value, In grad, OptionalIn drop_mask, OptionalIn mask, In maximum, In sum,
                     In result, Ints query_ends, Ints key_ends, const Attributes& attributes, StatisticsOrder order,
                     Out grad_query, Out grad_key, Out grad_value) {
  const Sequences sequences(query, query_ends, key_ends, attributes);
  const auto dropout = dropout_factors(drop_mask, query, sequences, attributes);
  int64_t dropped = 0;
  for (size_t i = 0; i < sequences.count(); ++i) {
    const auto by_query = [&](In tensor) { return Sequences::of(tensor, query_ends, i); };
    const auto by_key = [&](In tensor) { return Sequences::of(tensor, key_ends, i); };
    Attention attention(by_query(query), by_key(key), by_key(value), mask, attributes);
    attention.dropout = next_dropout(dropout, dropped, attention.scores_shape());
    auto dq = by_query(grad_query), dk = by_key(grad_key), dv = by_key(grad_value);
    attention.backward(by_query(grad), by_query(result), statistics_of(maximum, query_ends, i, order),
                       statistics_of(sum, query_ends, i, order), dq, dk, dv);
  }
}

// What the functions do not implement, and what makes no difference.
using Shift = Absent<"realShift", OptionalIn>;
using PaddingMask = Absent<"paddingMask", OptionalIn>;
using Prefix = Absent<"prefix", OptionalInts>;
using SoftmaxOut = Absent<"softmaxOut", OptionalOut>;
using SoftmaxIn = Absent<"softmaxIn", OptionalIn>;
using ShiftGradient = Absent<"dpse", OptionalOut>;
using InnerPrecise = Ignored<int64_t>;  // how precisely to compute; all is float here

}  // namespace

ACLNN(FlashAttentionScore,
      [](In query, In key, In value, Shift, OptionalIn drop_mask, PaddingMask, OptionalIn mask, Prefix, double scale,
         double keep_probability, int64_t previous_tokens, int64_t next_tokens, int64_t heads, Text layout,
         InnerPrecise, int64_t sparse_mode, OptionalOut maximum, OptionalOut sum, SoftmaxOut, Out out) {
        const Attributes attributes{scale, keep_probability, previous_tokens, next_tokens, heads, layout, sparse_mode};
        const auto size = head_size(query, attributes);
        const auto viewed = [&](const at::Tensor& tensor) { return by_head(tensor, layout, size); };
        Attention attention(viewed(query), viewed(key), viewed(value), mask, attributes);
        attention.dropout = dropout_factor(drop_mask, attention.scores_shape(), attributes);
        auto result = viewed(out);
        attention.forward(maximum, sum, result);
      });

ACLNN(FlashAttentionScoreGrad,
      [](In query, In key, In value, In grad, Shift, OptionalIn drop_mask, PaddingMask, OptionalIn mask, In maximum,
         In sum, SoftmaxIn, In result, Prefix, double scale, double keep_probability, int64_t previous_tokens,
         int64_t next_tokens, int64_t heads, Text layout, InnerPrecise, int64_t sparse_mode, Out grad_query,
         Out grad_key, Out grad_value, ShiftGradient) {
        const Attributes attributes{scale, keep_probability, previous_tokens, next_tokens, heads, layout, sparse_mode};
        const auto size = head_size(query, attributes);
        const auto viewed = [&](const at::Tensor& tensor) { return by_head(tensor, layout, size); };
        Attention attention(viewed(query), viewed(key), viewed(value), mask, attributes);
        attention.dropout = dropout_factor(drop_mask, attention.scores_shape(), attributes);
        auto dq = viewed(grad_query), dk = viewed(grad_key), dv = viewed(grad_value);
        attention.backward(viewed(grad), viewed(result), maximum, sum, dq, dk, dv);
      });

ACLNN(FlashAttentionVarLenScore,
      [](In query, In key, In value, Shift, OptionalIn drop_mask, PaddingMask, OptionalIn mask, Prefix, Ints query_ends,
         Ints key_ends, double scale, double keep_probability, int64_t previous_tokens, int64_t next_tokens,
         int64_t heads, Text layout, InnerPrecise, int64_t sparse_mode, OptionalOut maximum, OptionalOut sum,
         SoftmaxOut, Out out) {
        attend(query, key, value, drop_mask, mask, query_ends, key_ends,
               {scale, keep_probability, previous_tokens, next_tokens, heads, layout, sparse_mode},
               StatisticsOrder::kByHead, maximum, sum, out);
      });
ACLNN(FlashAttentionVarLenScoreV4,
      [](In query, In key, In value, Shift, OptionalIn drop_mask, PaddingMask, OptionalIn mask, Prefix, Ints query_ends,
         Ints key_ends, double scale, double keep_probability, int64_t previous_tokens, int64_t next_tokens,
         int64_t heads, Text layout, InnerPrecise, int64_t sparse_mode, Text statistics_layout, OptionalOut maximum,
         OptionalOut sum, SoftmaxOut, Out out) {
        attend(query, key, value, drop_mask, mask, query_ends, key_ends,
               {scale, keep_probability, previous_tokens, next_tokens, heads, layout, sparse_mode},
               statistics_order(statistics_layout), maximum, sum, out);
      });
ACLNN(FlashAttentionUnpaddingScoreGrad,
      [](In query, In key, In value, In grad, Shift, OptionalIn drop_mask, PaddingMask, OptionalIn mask, In maximum,
         In sum, SoftmaxIn, In result, Prefix, Ints query_ends, Ints key_ends, double scale, double keep_probability,
         int64_t previous_tokens, int64_t next_tokens, int64_t heads, Text layout, InnerPrecise, int64_t sparse_mode,
         Out grad_query, Out grad_key, Out grad_value, ShiftGradient) {
        attend_backward(query, key, value, grad, drop_mask, mask, maximum, sum, result, query_ends, key_ends,
                        {scale, keep_probability, previous_tokens, next_tokens, heads, layout, sparse_mode},
                        StatisticsOrder::kByHead, grad_query, grad_key, grad_value);
      });
ACLNN(FlashAttentionUnpaddingScoreGradV4,
      [](In query, In key, In value, In grad, Shift, OptionalIn drop_mask, PaddingMask, OptionalIn mask, In maximum,
         In sum, SoftmaxIn, In result, Prefix, Ints query_ends, Ints key_ends, double scale, double keep_probability,
         int64_t previous_tokens, int64_t next_tokens, int64_t heads, Text layout, InnerPrecise, int64_t sparse_mode,
         Out grad_query, Out grad_key, Out grad_value, ShiftGradient, Text statistics_layout) {
        attend_backward(query, key, value, grad, drop_mask, mask, maximum, sum, result, query_ends, key_ends,
                        {scale, keep_probability, previous_tokens, next_tokens, heads, layout, sparse_mode},
                        statistics_order(statistics_layout), grad_query, grad_key, grad_value);
      });

namespace {

// Two attentions of the same queries, each to some of the keys: each part counts by its share of the sum.
struct Joined {
  at::Tensor maximum, sum, first_share, second_share;

  Joined(In first_maximum, In first_sum, In second_maximum, In second_sum)
      : maximum(at::maximum(first_maximum, second_maximum)) {
    const auto first = first_sum * (first_maximum - maximum).exp();
    const auto second = second_sum * (second_maximum - maximum).exp();
    sum = first + second;
    first_share = first / sum;
    second_share = second / sum;
  }
};

// The shares of (tokens, heads, 8) as factors of (tokens, heads, 1).
at::Tensor by_token(const at::Tensor& shares, OptionalIn query_ends, StatisticsOrder order) {
  if (order == StatisticsOrder::kByToken) return first_of(shares);
  TORCH_CHECK(query_ends.has_value(), "actualSeqQlen is null; statistics that lie by head need it");
  const auto ends = query_ends->to(at::kLong).contiguous();
  const at::IntArrayRef all(ends.const_data_ptr<int64_t>(), static_cast<size_t>(ends.numel()));
  auto factors = at::empty_like(shares);
  for (size_t i = 0; i < all.size(); ++i) {
    Sequences::of(factors, all, i).copy_(statistics_of(shares, all, i, StatisticsOrder::kByHead));
  }
  return first_of(factors);
}

}  // namespace

ACLNN(RingAttentionUpdateV2, [](In first, In first_maximum, In first_sum, In second, In second_maximum, In second_sum,
                                OptionalIn query_ends, Text layout, Text statistics_layout, Out out, Out maximum,
                                Out sum) {
  const Joined joined(first_maximum, first_sum, second_maximum, second_sum);
  assign(maximum, joined.maximum);
  assign(sum, joined.sum);
  if (layout == "TND") {
    const auto order = statistics_order(statistics_layout);
    assign(out, first * by_token(joined.first_share, query_ends, order) +
                    second * by_token(joined.second_share, query_ends, order));
    return;
  }
  TORCH_CHECK(layout == "SBH", "layout \"", layout, "\" is not served; expected SBH or TND");
  const auto heads = [&](const at::Tensor& tensor) { return tensor.unflatten(2, {maximum.size(1), -1}); };
  const auto factor = [](const at::Tensor& share) { return first_of(share).permute({2, 0, 1, 3}); };
  assign(out, (heads(first) * factor(joined.first_share) + heads(second) * factor(joined.second_share)).flatten(2));
});
