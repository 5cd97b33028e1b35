// SPDX-License-Identifier: Apache-2.0
// Attention of training, of floats and of hifloat8, its gradient, and the sum of two attentions to parts of the keys.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include "attention.h"
#include "checks.h"
#include "hifloat8.h"

using namespace cann_cpu;

namespace {

using MaybeTensor = std::optional<at::Tensor>;

// A sequence's statistics lie by token, as its queries do, or by head.
enum class StatisticsOrder { kByToken, kByHead };

StatisticsOrder statistics_order(Text layout) {
  if (layout == "same_as_input" || layout == "TND") return StatisticsOrder::kByToken;
  TORCH_CHECK(layout.empty() || layout == "SBH", "the layout of the statistics is \"", layout,
              "\"; expected same_as_input or nothing");
  return StatisticsOrder::kByHead;
}

// The arguments of all versions; query_ends and key_ends are those of sequences that follow each other.
struct Training {
  at::Tensor query, key, value;
  MaybeTensor query_rope = {}, key_rope = {}, real_shift = {}, drop_mask = {}, atten_mask = {}, sink = {};
  OptionalInts prefix = {}, query_ends = {}, key_ends = {}, query_start = {}, key_start = {};
  double scale, keep_probability;
  int64_t previous_tokens, next_tokens, heads;
  std::string layout;
  int64_t sparse_mode, pse_type = 1;
  StatisticsOrder order = StatisticsOrder::kByHead;
};

constexpr int64_t kPrefix = 5, kCompressedPrefix = 6;  // sparse modes
// How a shift and the scale apply: (scores + shift) * scale, scores * scale + shift, or with a shift of the distance.
constexpr int64_t kAddThenScale = 1, kScaleThenAdd = 0, kDistance = 2, kRootOfDistance = 3;

// torch_npu has each number of the statistics eight times.
at::Tensor first_of(const at::Tensor& statistics) { return statistics.slice(-1, 0, 1); }

int64_t begin_of(at::IntArrayRef ends, size_t i) { return i == 0 ? 0 : ends[i - 1]; }

// Sequence i of (tokens, heads, size) as (heads, tokens, size).
at::Tensor sequence_of(const at::Tensor& tensor, at::IntArrayRef ends, size_t i) {
  return tensor.narrow(0, begin_of(ends, i), ends[i] - begin_of(ends, i)).transpose(0, 1);
}

// The statistics of sequence i as (heads, tokens, 8), from those of all in (tokens, heads, 8).
at::Tensor statistics_of(const at::Tensor& all, at::IntArrayRef ends, size_t i, StatisticsOrder order) {
  if (order == StatisticsOrder::kByToken) return sequence_of(all, ends, i);
  TORCH_CHECK(all.is_contiguous(), "statistics that lie by head must be contiguous, got strides ", all.strides());
  const auto part = all.narrow(0, begin_of(ends, i), ends[i] - begin_of(ends, i));
  return part.view({all.size(1), part.size(0), all.size(2)});
}

// The sequences of a call, and what belongs to each.
class Sequences {
 public:
  explicit Sequences(const Training& given) : given_(given), follow_(has(given.query_ends) || given.layout == "TND") {
    TORCH_CHECK(given.heads > 0, "head_num is ", given.heads, "; expected at least 1");
    if (follow_) {
      TORCH_CHECK(given.layout == "TND", "input_layout is \"", given.layout,
                  "\"; expected TND for sequences of several lengths");
      TORCH_CHECK(has(given.query_ends) && has(given.key_ends) && given.query_ends->size() == given.key_ends->size(),
                  "actual_seq_q_len has ", given.query_ends.has_value() ? given.query_ends->size() : 0,
                  " sequences, actual_seq_kv_len ", given.key_ends.has_value() ? given.key_ends->size() : 0);
      check_ends("actual_seq_q_len", *given.query_ends, given.query.size(0));
      check_ends("actual_seq_kv_len", *given.key_ends, given.key.size(0));
    } else {
      TORCH_CHECK(given.layout == "BNSD" || given.layout == "BSND" || given.layout == "BSH" || given.layout == "SBH",
                  "input_layout is \"", given.layout, "\"; expected BNSD, BSND, BSH or SBH");
    }
    const int64_t rank = static_cast<int64_t>(given.layout.size());
    TORCH_CHECK(given.query.dim() == rank && given.key.dim() == rank && given.value.dim() == rank,
                "query, key and value have shapes ", given.query.sizes(), ", ", given.key.sizes(), " and ",
                given.value.sizes(), "; expected ", rank, " dimensions in layout ", given.layout);
    size_ = given.layout.back() == 'H' ? given.query.size(2) / given.heads : given.query.size(-1);
    query_ = viewed(given.query, given.heads);
    TORCH_CHECK(query_.size(1) == given.heads, "head_num is ", given.heads, ", query has shape ", given.query.sizes());
    key_heads_ = given.layout.back() == 'H' ? given.key.size(2) / std::max<int64_t>(size_, 1)
                                            : given.key.size(given.layout == "BNSD" ? 1 : -2);
    TORCH_CHECK(key_heads_ > 0 && given.heads % key_heads_ == 0, "query has ", given.heads,
                " heads, which do not divide among the ", key_heads_, " of the keys");
    key_ = viewed(given.key, key_heads_);
    value_ = viewed(given.value, key_heads_);
    TORCH_CHECK(key_.size(3) == query_.size(3), "key has shape ", given.key.sizes(), ", query has shape ",
                given.query.sizes(), ": their heads differ in size");
    TORCH_CHECK(follow_ || key_.size(0) == query_.size(0), "key has shape ", given.key.sizes(), ", query has shape ",
                given.query.sizes(), ": they differ in the batch");
    TORCH_CHECK(given.query_rope.has_value() == given.key_rope.has_value(),
                "query_rope and key_rope must be given together");
    set_sequences();
    check_shift();
  }

  size_t count() const { return sequences_.size(); }
  int64_t key_heads() const { return key_heads_; }

  // By place in the batch: (heads, tokens, size) of a tensor like the queries or the keys.
  at::Tensor of_queries(In tensor, size_t i) const {
    const auto& s = sequences_[i];
    return viewed(tensor, given_.heads)[s.place].narrow(1, s.query, s.queries);
  }
  at::Tensor of_keys(In tensor, size_t i) const {
    const auto& s = sequences_[i];
    return viewed(tensor, key_heads_)[s.place].narrow(1, s.key, s.keys);
  }
  at::Tensor of_statistics(In tensor, size_t i) const {
    return follow_ ? statistics_of(tensor, *given_.query_ends, i, given_.order) : tensor[sequences_[i].place];
  }

  // The part of a shift, or of its gradient, that is sequence i's: (heads, queries or 1, keys).
  at::Tensor of_shift(In shift, size_t i) const {
    const auto& s = sequences_[i];
    const auto all = shift[shift.size(0) == 1 ? 0 : static_cast<int64_t>(i)].narrow(2, 0, s.keys);
    return all.size(1) == 1 ? all : all.narrow(1, 0, s.queries);
  }

  bool has_shift_tensor() const { return given_.real_shift.has_value() && given_.pse_type <= kAddThenScale; }

  // Of the heads of the keys from `head` on.
  Attention attention(size_t i, int64_t head, int64_t heads) const {
    const auto& s = sequences_[i];
    const int64_t shared = given_.heads / key_heads_, first = head * shared, count = heads * shared;
    const auto of_query = [&](In tensor) { return of_queries(tensor, i).narrow(0, first, count); };
    const auto of_key = [&](In tensor) { return rows_of(of_keys(tensor, i).narrow(0, head, heads)); };
    Attention attention{.query = of_query(given_.query),
                        .key = of_key(given_.key),
                        .value = of_key(given_.value),
                        .scale = given_.scale,
                        .visible = visible(i, first, count)};
    if (given_.query_rope.has_value()) {
      attention.query = at::cat({attention.query, of_query(*given_.query_rope)}, 2);
      attention.key = side_by_side(std::move(attention.key), of_key(*given_.key_rope));
    }
    if (given_.real_shift.has_value()) attention.shift = shift(i, first, count);
    if (given_.sink.has_value()) attention.sinks = given_.sink->narrow(0, first, count);
    if (given_.drop_mask.has_value() && given_.drop_mask->numel() > 0 && given_.keep_probability < 1) {
      TORCH_CHECK(given_.drop_mask->numel() * 8 >= s.dropped + given_.heads * s.queries * s.keys,
                  "drop_mask has shape ", given_.drop_mask->sizes(), "; expected a bit for each score");
      attention.dropout = [mask = given_.drop_mask->contiguous(), s, first,
                           factor = static_cast<float>(1 / given_.keep_probability)](const Block& block) {
        return dropout_of(mask, s, first, factor, block);
      };
    }
    return attention;
  }

 private:
  struct Sequence {
    int64_t place, query, queries, key, keys;  // its place in the batch, where its queries and keys begin
    int64_t dropped;                           // the scores before it, a bit of the mask each
  };

  static bool has(const OptionalInts& list) { return list.has_value() && !list->empty(); }

  static void check_ends(const char* name, Ints ends, int64_t tokens) {
    for (size_t i = 0; i < ends.size(); ++i) {
      TORCH_CHECK(ends[i] >= begin_of(ends, i) && ends[i] <= tokens, name, "[", i, "] is ", ends[i], "; expected ",
                  begin_of(ends, i), " to ", tokens, ", since it is the end of a sequence");
    }
  }

  at::Tensor viewed(In tensor, int64_t heads) const { return by_head(tensor, given_.layout, heads); }

  void set_sequences() {
    const size_t count = follow_ ? given_.query_ends->size() : static_cast<size_t>(query_.size(0));
    int64_t dropped = 0;
    for (size_t i = 0; i < count; ++i) {
      Sequence s{static_cast<int64_t>(i), 0, query_.size(2), 0, key_.size(2), dropped};
      if (follow_) {
        const auto &queries = *given_.query_ends, &keys = *given_.key_ends;
        s = {0,
             begin_of(queries, i),
             queries[i] - begin_of(queries, i),
             begin_of(keys, i),
             keys[i] - begin_of(keys, i),
             dropped};
      }
      dropped += given_.heads * s.queries * s.keys;
      sequences_.push_back(s);
    }
    TORCH_CHECK(given_.sparse_mode >= 0 && given_.sparse_mode <= kCompressedPrefix, "sparse_mode is ",
                given_.sparse_mode, "; expected 0 to 6");
    TORCH_CHECK(!has(given_.prefix) || given_.sparse_mode >= kPrefix, "prefix takes sparse_mode 5 or 6, not ",
                given_.sparse_mode);
    TORCH_CHECK(given_.sparse_mode < kPrefix || (has(given_.prefix) && given_.prefix->size() == count), "prefix has ",
                has(given_.prefix) ? given_.prefix->size() : 0, " elements; expected ", count, " with sparse_mode ",
                given_.sparse_mode);
  }

  void check_shift() const {
    TORCH_CHECK(given_.pse_type >= 0 && given_.pse_type <= kRootOfDistance, "pse_type is ", given_.pse_type,
                "; expected 0 to 3");
    if (!given_.real_shift.has_value()) return;
    const auto& shift = *given_.real_shift;
    if (!has_shift_tensor()) {
      TORCH_CHECK((shift.dim() == 1 || shift.dim() == 2) && shift.size(-1) == given_.heads, "real_shift has shape ",
                  shift.sizes(), "; expected [", given_.heads, "] or [batch, ", given_.heads, "] with pse_type ",
                  given_.pse_type);
      return;
    }
    int64_t queries = 0, keys = 0;
    for (const auto& s : sequences_) {
      queries = std::max(queries, s.queries);
      keys = std::max(keys, s.keys);
    }
    TORCH_CHECK(shift.dim() == 4 && (shift.size(0) == 1 || shift.size(0) == static_cast<int64_t>(count())) &&
                    shift.size(1) == given_.heads && (shift.size(2) == 1 || shift.size(2) >= queries) &&
                    shift.size(3) >= keys,
                "real_shift has shape ", shift.sizes(), "; expected [", count(), " or 1, ", given_.heads, ", ", queries,
                " or 1, ", keys, "]");
  }

  Visibility visible(size_t i, int64_t first, int64_t count) const {
    const auto& s = sequences_[i];
    if (given_.sparse_mode == kPrefix || given_.sparse_mode == kCompressedPrefix) {
      return {.high = s.keys - s.queries, .prefix = (*given_.prefix)[i]};
    }
    MaybeTensor mask;
    if (given_.atten_mask.has_value() && given_.sparse_mode < 2) {
      const auto& given = *given_.atten_mask;
      TORCH_CHECK(given.dim() == 2 || given.dim() == 4, "atten_mask has shape ", given.sizes(),
                  "; expected 2 or 4 dimensions");
      const auto all = given.dim() == 2 ? given.unsqueeze(0) : given[given.size(0) == 1 ? 0 : static_cast<int64_t>(i)];
      TORCH_CHECK(
          all.size(1) >= s.queries && all.size(2) >= s.keys && (all.size(0) == 1 || all.size(0) == given_.heads),
          "atten_mask has shape ", given.sizes(), "; expected ", s.queries, " queries and ", s.keys, " keys");
      mask = (all.size(0) == 1 ? all : all.narrow(0, first, count)).narrow(1, 0, s.queries).narrow(2, 0, s.keys);
    }
    return visibility(given_.sparse_mode, given_.previous_tokens, given_.next_tokens, s.queries, s.keys, mask);
  }

  std::function<at::Tensor(const Block&)> shift(size_t i, int64_t first, int64_t count) const {
    if (has_shift_tensor()) {
      const auto part = of_shift(*given_.real_shift, i).narrow(0, first, count);
      const double factor = shift_scale();
      return [part, factor](const Block& block) { return part_of(part, block).to(at::kFloat) * at::Scalar(factor); };
    }
    const auto& given = *given_.real_shift;
    const auto slopes = (given.dim() == 1 ? given : given[static_cast<int64_t>(i)]).narrow(0, first, count);
    const auto start = [&](const OptionalInts& list) { return has(list) ? list->front() : 0; };
    const int64_t offset = start(given_.key_start) - start(given_.query_start);
    const bool root = given_.pse_type == kRootOfDistance;
    return [slopes = slopes.to(at::kFloat).view({-1, 1, 1}), offset, root](const Block& block) {
      auto distance = (at::arange(block.column, block.last_column).unsqueeze(0) -
                       at::arange(block.row, block.last_row).unsqueeze(1) + at::Scalar(offset))
                          .abs()
                          .to(at::kFloat);
      if (root) distance = distance.sqrt();
      return distance.neg().unsqueeze(0) * queries_of(slopes, block);
    };
  }

 public:
  double shift_scale() const { return given_.pse_type == kAddThenScale ? given_.scale : 1; }

 private:
  // What the probabilities of a block are multiplied by: bit i % 8 of byte i / 8 says whether score i is kept.
  static at::Tensor dropout_of(const at::Tensor& mask, const Sequence& s, int64_t first, float factor,
                               const Block& block) {
    const at::Tensor result = at::empty({block.heads(), block.rows(), block.columns()}, at::kFloat);
    const auto* bits = mask.const_data_ptr<uint8_t>();
    float* kept = result.mutable_data_ptr<float>();
    for (int64_t head = first + block.head; head < first + block.last_head; ++head) {
      for (int64_t row = block.row; row < block.last_row; ++row) {
        int64_t bit = s.dropped + (head * s.queries + row) * s.keys + block.column;
        for (int64_t column = 0; column < block.columns(); ++column, ++bit) {
          *kept++ = (bits[bit / 8] >> (bit % 8) & 1) != 0 ? factor : 0.0F;
        }
      }
    }
    return result;
  }

  const Training& given_;
  bool follow_;
  int64_t size_ = 0, key_heads_ = 0;
  at::Tensor query_, key_, value_;
  std::vector<Sequence> sequences_;
};

void score(const Training& given, OptionalOut maximum, OptionalOut sum, Out out) {
  const Sequences sequences(given);
  for (size_t i = 0; i < sequences.count(); ++i) {
    const auto statistics = [&](OptionalOut all) {
      return all.has_value() && all->numel() > 0 ? MaybeTensor(sequences.of_statistics(*all, i)) : std::nullopt;
    };
    auto results = written_to(sequences.of_queries(out, i));
    results.maximum = statistics(maximum);
    results.sum = statistics(sum);
    attend(sequences.attention(i, 0, sequences.key_heads()), results);
  }
}

struct Gradients {
  at::Tensor query, key, value;
  MaybeTensor query_rope = {}, key_rope = {}, shift = {}, sink = {};
};

constexpr int64_t kGradientElements = int64_t{1} << 22;  // of keys and values, that are summed up in float

void score_backward(const Training& given, In grad, In maximum, In sum, In result, const Gradients& gradients) {
  const Sequences sequences(given);
  MaybeTensor shift, sink;
  const bool takes_shift = gradients.shift.has_value() && gradients.shift->numel() > 0;
  if (takes_shift && sequences.has_shift_tensor()) shift = at::zeros(gradients.shift->sizes(), at::kFloat);
  if (gradients.sink.has_value() && gradients.sink->numel() > 0) sink = at::zeros(gradients.sink->sizes(), at::kFloat);
  const int64_t key_heads = sequences.key_heads(), shared = given.heads / key_heads;
  for (size_t i = 0; i < sequences.count(); ++i) {
    const auto dy = sequences.of_queries(grad, i), out = sequences.of_queries(result, i);
    const auto highest = first_of(sequences.of_statistics(maximum, i)),
               total = first_of(sequences.of_statistics(sum, i));
    const auto dq = sequences.of_queries(gradients.query, i), dk = sequences.of_keys(gradients.key, i);
    const auto dv = sequences.of_keys(gradients.value, i);
    const int64_t each = dk.size(1) * (dk.size(2) + dv.size(2));
    const int64_t most = std::clamp<int64_t>(kGradientElements / std::max<int64_t>(each, 1), 1, key_heads);
    for (int64_t head = 0; head < key_heads; head += most) {
      const int64_t heads = std::min(most, key_heads - head);
      const auto of_query = [&](const at::Tensor& tensor) { return tensor.narrow(0, head * shared, heads * shared); };
      const auto of_key = [&](const at::Tensor& tensor) { return tensor.narrow(0, head, heads); };
      AttentionGradients parts{
          .query = of_query(dq), .key = of_key(dk), .value = of_key(dv), .shift_scale = sequences.shift_scale()};
      if (shift.has_value()) parts.shift = of_query(sequences.of_shift(*shift, i));
      if (sink.has_value()) parts.sinks = of_query(*sink);
      const auto attention = sequences.attention(i, head, heads);
      if (given.query_rope.has_value()) {
        const int64_t size = dq.size(2), rope = given.query_rope->size(-1);
        parts.query = at::empty({dq.size(0) / key_heads * heads, dq.size(1), size + rope}, at::kFloat);
        parts.key = at::empty({heads, dk.size(1), size + rope}, at::kFloat);
        attend_backward(attention, of_query(dy), of_query(out), of_query(highest), of_query(total), parts);
        of_query(dq).copy_(parts.query.narrow(2, 0, size));
        of_key(dk).copy_(parts.key.narrow(2, 0, size));
        of_query(sequences.of_queries(*gradients.query_rope, i)).copy_(parts.query.narrow(2, size, rope));
        of_key(sequences.of_keys(*gradients.key_rope, i)).copy_(parts.key.narrow(2, size, rope));
      } else {
        attend_backward(attention, of_query(dy), of_query(out), of_query(highest), of_query(total), parts);
      }
    }
  }
  // Slopes are constants.
  if (takes_shift && !shift.has_value()) gradients.shift->zero_();
  if (shift.has_value()) gradients.shift->copy_(*shift);
  if (sink.has_value()) gradients.sink->copy_(*sink);
}

// What the functions do not implement, and what makes no difference.
using PaddingMask = Absent<"paddingMask", OptionalIn>;
using SoftmaxOut = Ignored<OptionalOut>;  // reserved
using SoftmaxIn = Absent<"softmaxIn", OptionalIn>;
using QueryScale = Absent<"dScaleQ", OptionalIn>;
using KeyScale = Absent<"dScaleK", OptionalIn>;
using ValueScale = Absent<"dScaleV", OptionalIn>;
using GradScale = Absent<"dScaleDy", OptionalIn>;
using OutScale = Absent<"dScaleO", OptionalIn>;
using ScoreInnerPrecise = Ignored<int64_t>;  // how precisely to compute; all is float here
using ResultDtype = Ignored<int64_t>;        // that of the result of 8-bit floats, which the output says as well
using Seed = Ignored<int64_t>;               // of a mask that the function would make; it is given here

// The parameters that the versions have in common, and how they are passed on.
#define SCORE_MASKS OptionalIn real_shift, OptionalIn drop_mask, PaddingMask, OptionalIn atten_mask
#define SCORE_ENDS Ints actual_seq_q_len, Ints actual_seq_kv_len
#define SCORE_OPTIONAL_ENDS OptionalInts actual_seq_q_len, OptionalInts actual_seq_kv_len
#define SCORE_STARTS OptionalInts q_start_idx, OptionalInts kv_start_idx
#define SCORE_ATTRIBUTES \
  double scale_value, double keep_prob, int64_t pre_tokens, int64_t next_tokens, int64_t head_num, Text input_layout
#define SCORE_MODE ScoreInnerPrecise, int64_t sparse_mode
#define SCORE_RESULTS OptionalOut softmax_max, OptionalOut softmax_sum, SoftmaxOut, Out attention_out
#define SCORE_KEPT In softmax_max, In softmax_sum, SoftmaxIn, In attention_in
#define SCORE_GIVEN .query = query, .key = key, .value = value
#define SCORE_ROPES_GIVEN .query_rope = query_rope, .key_rope = key_rope
#define SCORE_MASKS_GIVEN .real_shift = real_shift, .drop_mask = drop_mask, .atten_mask = atten_mask
#define SCORE_ENDS_GIVEN .query_ends = actual_seq_q_len, .key_ends = actual_seq_kv_len
#define SCORE_STARTS_GIVEN .query_start = q_start_idx, .key_start = kv_start_idx
#define SCORE_ATTRIBUTES_GIVEN                                                                                    \
  .scale = scale_value, .keep_probability = keep_prob, .previous_tokens = pre_tokens, .next_tokens = next_tokens, \
  .heads = head_num, .layout = input_layout, .sparse_mode = sparse_mode

#define SCORE_DTYPES                                                                                               \
  "query: float16 bfloat16 float32; key, value: as query; real_shift: float16 bfloat16 float32; drop_mask: uint8;" \
  "atten_mask: bool uint8 int8; softmax_max, softmax_sum: float32;"
#define SCORE_ROPE_DTYPES "query_rope, key_rope: as query;"

#define SCORE(Op, dtypes, parameters, given) \
  ACLNN_TYPED(Op, SCORE_DTYPES dtypes "attention_out: as query", [] parameters { score given; })
#define SCORE_BACKWARD(Op, dtypes, parameters, given) \
  ACLNN_TYPED(Op, SCORE_DTYPES dtypes "dy, attention_in, dq, dk, dv: as query", [] parameters { score_backward given; })
#define MAX_SCORE_WORKSPACE(Op)                                                      \
  extern "C" CANN_EXPORT decltype(Op##PhaseOne::call) aclnn##Op##GetMaxWorkspaceSize \
      [[gnu::ifunc("aclnn" #Op "Resolve")]]

}  // namespace

SCORE(FlashAttentionScore, "",
      (In query, In key, In value, SCORE_MASKS, OptionalInts prefix, SCORE_ATTRIBUTES, SCORE_MODE, SCORE_RESULTS),
      (Training{SCORE_GIVEN, SCORE_MASKS_GIVEN, .prefix = prefix, SCORE_ATTRIBUTES_GIVEN}, softmax_max, softmax_sum,
       attention_out));
SCORE(FlashAttentionScoreV2, "",
      (In query, In key, In value, SCORE_MASKS, OptionalInts prefix, SCORE_STARTS, SCORE_ATTRIBUTES, SCORE_MODE,
       int64_t pse_type, SCORE_RESULTS),
      (Training{SCORE_GIVEN, SCORE_MASKS_GIVEN, .prefix = prefix, SCORE_STARTS_GIVEN, SCORE_ATTRIBUTES_GIVEN,
                .pse_type = pse_type},
       softmax_max, softmax_sum, attention_out));
SCORE(FlashAttentionScoreV3, "sink: float32;",
      (In query, In key, In value, SCORE_MASKS, OptionalIn sink, OptionalInts prefix, SCORE_STARTS, SCORE_ATTRIBUTES,
       SCORE_MODE, int64_t pse_type, SCORE_RESULTS),
      (Training{SCORE_GIVEN, SCORE_MASKS_GIVEN, .sink = sink, .prefix = prefix, SCORE_STARTS_GIVEN,
                SCORE_ATTRIBUTES_GIVEN, .pse_type = pse_type},
       softmax_max, softmax_sum, attention_out));
SCORE(FlashAttentionScoreV4, "sink: float32;" SCORE_ROPE_DTYPES,
      (In query, In key, In value, SCORE_MASKS, OptionalIn query_rope, OptionalIn key_rope, QueryScale, KeyScale,
       ValueScale, OptionalIn sink, OptionalInts prefix, SCORE_OPTIONAL_ENDS, SCORE_STARTS, SCORE_ATTRIBUTES,
       SCORE_MODE, ResultDtype, int64_t pse_type, Text softmax_layout, Seed, Seed, SCORE_RESULTS),
      (Training{SCORE_GIVEN, SCORE_ROPES_GIVEN, SCORE_MASKS_GIVEN, .sink = sink, .prefix = prefix, SCORE_ENDS_GIVEN,
                SCORE_STARTS_GIVEN, SCORE_ATTRIBUTES_GIVEN, .pse_type = pse_type,
                .order = statistics_order(softmax_layout)},
       softmax_max, softmax_sum, attention_out));

SCORE(FlashAttentionVarLenScore, "",
      (In query, In key, In value, SCORE_MASKS, OptionalInts prefix, SCORE_ENDS, SCORE_ATTRIBUTES, SCORE_MODE,
       SCORE_RESULTS),
      (Training{SCORE_GIVEN, SCORE_MASKS_GIVEN, .prefix = prefix, SCORE_ENDS_GIVEN, SCORE_ATTRIBUTES_GIVEN},
       softmax_max, softmax_sum, attention_out));
SCORE(FlashAttentionVarLenScoreV2, "",
      (In query, In key, In value, SCORE_MASKS, OptionalInts prefix, SCORE_ENDS, SCORE_STARTS, SCORE_ATTRIBUTES,
       SCORE_MODE, int64_t pse_type, SCORE_RESULTS),
      (Training{SCORE_GIVEN, SCORE_MASKS_GIVEN, .prefix = prefix, SCORE_ENDS_GIVEN, SCORE_STARTS_GIVEN,
                SCORE_ATTRIBUTES_GIVEN, .pse_type = pse_type},
       softmax_max, softmax_sum, attention_out));
SCORE(FlashAttentionVarLenScoreV3, SCORE_ROPE_DTYPES,
      (In query, OptionalIn query_rope, In key, OptionalIn key_rope, In value, SCORE_MASKS, OptionalInts prefix,
       SCORE_ENDS, SCORE_STARTS, SCORE_ATTRIBUTES, SCORE_MODE, int64_t pse_type, SCORE_RESULTS),
      (Training{SCORE_GIVEN, SCORE_ROPES_GIVEN, SCORE_MASKS_GIVEN, .prefix = prefix, SCORE_ENDS_GIVEN,
                SCORE_STARTS_GIVEN, SCORE_ATTRIBUTES_GIVEN, .pse_type = pse_type},
       softmax_max, softmax_sum, attention_out));
SCORE(FlashAttentionVarLenScoreV4, "",
      (In query, In key, In value, SCORE_MASKS, OptionalInts prefix, SCORE_ENDS, SCORE_ATTRIBUTES, SCORE_MODE,
       Text softmax_layout, SCORE_RESULTS),
      (Training{SCORE_GIVEN, SCORE_MASKS_GIVEN, .prefix = prefix, SCORE_ENDS_GIVEN, SCORE_ATTRIBUTES_GIVEN,
                .order = statistics_order(softmax_layout)},
       softmax_max, softmax_sum, attention_out));
SCORE(FlashAttentionVarLenScoreV5, "sink: float32;" SCORE_ROPE_DTYPES,
      (In query, OptionalIn query_rope, In key, OptionalIn key_rope, In value, SCORE_MASKS, OptionalIn sink,
       OptionalInts prefix, SCORE_ENDS, SCORE_STARTS, SCORE_ATTRIBUTES, SCORE_MODE, int64_t pse_type,
       Text softmax_layout, SCORE_RESULTS),
      (Training{SCORE_GIVEN, SCORE_ROPES_GIVEN, SCORE_MASKS_GIVEN, .sink = sink, .prefix = prefix, SCORE_ENDS_GIVEN,
                SCORE_STARTS_GIVEN, SCORE_ATTRIBUTES_GIVEN, .pse_type = pse_type,
                .order = statistics_order(softmax_layout)},
       softmax_max, softmax_sum, attention_out));
MAX_SCORE_WORKSPACE(FlashAttentionVarLenScoreV5);

SCORE_BACKWARD(FlashAttentionScoreGrad, "",
               (In query, In key, In value, In dy, SCORE_MASKS, SCORE_KEPT, OptionalInts prefix, SCORE_ATTRIBUTES,
                SCORE_MODE, Out dq, Out dk, Out dv, OptionalOut dpse),
               (Training{SCORE_GIVEN, SCORE_MASKS_GIVEN, .prefix = prefix, SCORE_ATTRIBUTES_GIVEN}, dy, softmax_max,
                softmax_sum, attention_in, Gradients{.query = dq, .key = dk, .value = dv, .shift = dpse}));
SCORE_BACKWARD(FlashAttentionScoreGradV2, "",
               (In query, In key, In value, In dy, SCORE_MASKS, SCORE_KEPT, OptionalInts prefix, SCORE_STARTS,
                SCORE_ATTRIBUTES, SCORE_MODE, int64_t pse_type, Out dq, Out dk, Out dv, OptionalOut dpse),
               (Training{SCORE_GIVEN, SCORE_MASKS_GIVEN, .prefix = prefix, SCORE_STARTS_GIVEN, SCORE_ATTRIBUTES_GIVEN,
                         .pse_type = pse_type},
                dy, softmax_max, softmax_sum, attention_in,
                Gradients{.query = dq, .key = dk, .value = dv, .shift = dpse}));
SCORE_BACKWARD(FlashAttentionScoreGradV3, "sink, dsink: float32;",
               (In query, In key, In value, In dy, SCORE_MASKS, SCORE_KEPT, OptionalIn sink, OptionalInts prefix,
                SCORE_STARTS, SCORE_ATTRIBUTES, SCORE_MODE, int64_t pse_type, Out dq, Out dk, Out dv, OptionalOut dpse,
                OptionalOut dsink),
               (Training{SCORE_GIVEN, SCORE_MASKS_GIVEN, .sink = sink, .prefix = prefix, SCORE_STARTS_GIVEN,
                         SCORE_ATTRIBUTES_GIVEN, .pse_type = pse_type},
                dy, softmax_max, softmax_sum, attention_in,
                Gradients{.query = dq, .key = dk, .value = dv, .shift = dpse, .sink = dsink}));
SCORE_BACKWARD(FlashAttentionScoreGradV4, "sink, dsink: float32;" SCORE_ROPE_DTYPES,
               (In query, In key, In value, In dy, SCORE_MASKS, SCORE_KEPT, OptionalIn sink, OptionalIn query_rope,
                OptionalIn key_rope, QueryScale, KeyScale, ValueScale, GradScale, OutScale, OptionalInts prefix,
                SCORE_OPTIONAL_ENDS, SCORE_STARTS, SCORE_ATTRIBUTES, Text softmax_layout, SCORE_MODE, int64_t pse_type,
                Seed, Seed, ResultDtype, Out dq, Out dk, Out dv, OptionalOut dq_rope, OptionalOut dk_rope,
                OptionalOut dpse, OptionalOut dsink),
               (Training{SCORE_GIVEN, SCORE_ROPES_GIVEN, SCORE_MASKS_GIVEN, .sink = sink, .prefix = prefix,
                         SCORE_ENDS_GIVEN, SCORE_STARTS_GIVEN, SCORE_ATTRIBUTES_GIVEN, .pse_type = pse_type,
                         .order = statistics_order(softmax_layout)},
                dy, softmax_max, softmax_sum, attention_in, Gradients{dq, dk, dv, dq_rope, dk_rope, dpse, dsink}));

SCORE_BACKWARD(FlashAttentionUnpaddingScoreGrad, "",
               (In query, In key, In value, In dy, SCORE_MASKS, SCORE_KEPT, OptionalInts prefix, SCORE_ENDS,
                SCORE_ATTRIBUTES, SCORE_MODE, Out dq, Out dk, Out dv, OptionalOut dpse),
               (Training{SCORE_GIVEN, SCORE_MASKS_GIVEN, .prefix = prefix, SCORE_ENDS_GIVEN, SCORE_ATTRIBUTES_GIVEN},
                dy, softmax_max, softmax_sum, attention_in,
                Gradients{.query = dq, .key = dk, .value = dv, .shift = dpse}));
SCORE_BACKWARD(FlashAttentionUnpaddingScoreGradV2, "",
               (In query, In key, In value, In dy, SCORE_MASKS, SCORE_KEPT, OptionalInts prefix, SCORE_ENDS,
                SCORE_STARTS, SCORE_ATTRIBUTES, SCORE_MODE, int64_t pse_type, Out dq, Out dk, Out dv, OptionalOut dpse),
               (Training{SCORE_GIVEN, SCORE_MASKS_GIVEN, .prefix = prefix, SCORE_ENDS_GIVEN, SCORE_STARTS_GIVEN,
                         SCORE_ATTRIBUTES_GIVEN, .pse_type = pse_type},
                dy, softmax_max, softmax_sum, attention_in,
                Gradients{.query = dq, .key = dk, .value = dv, .shift = dpse}));
SCORE_BACKWARD(FlashAttentionUnpaddingScoreGradV3, SCORE_ROPE_DTYPES,
               (In query, OptionalIn query_rope, In key, OptionalIn key_rope, In value, In dy, SCORE_MASKS, SCORE_KEPT,
                OptionalInts prefix, SCORE_ENDS, SCORE_STARTS, SCORE_ATTRIBUTES, SCORE_MODE, int64_t pse_type, Out dq,
                OptionalOut dq_rope, Out dk, OptionalOut dk_rope, Out dv, OptionalOut dpse),
               (Training{SCORE_GIVEN, SCORE_ROPES_GIVEN, SCORE_MASKS_GIVEN, .prefix = prefix, SCORE_ENDS_GIVEN,
                         SCORE_STARTS_GIVEN, SCORE_ATTRIBUTES_GIVEN, .pse_type = pse_type},
                dy, softmax_max, softmax_sum, attention_in, Gradients{dq, dk, dv, dq_rope, dk_rope, dpse}));
SCORE_BACKWARD(FlashAttentionUnpaddingScoreGradV4, "",
               (In query, In key, In value, In dy, SCORE_MASKS, SCORE_KEPT, OptionalInts prefix, SCORE_ENDS,
                SCORE_ATTRIBUTES, SCORE_MODE, Out dq, Out dk, Out dv, OptionalOut dpse, Text softmax_layout),
               (Training{SCORE_GIVEN, SCORE_MASKS_GIVEN, .prefix = prefix, SCORE_ENDS_GIVEN, SCORE_ATTRIBUTES_GIVEN,
                         .order = statistics_order(softmax_layout)},
                dy, softmax_max, softmax_sum, attention_in,
                Gradients{.query = dq, .key = dk, .value = dv, .shift = dpse}));
SCORE_BACKWARD(FlashAttentionUnpaddingScoreGradV5, "sink, dsink: float32;" SCORE_ROPE_DTYPES,
               (In query, OptionalIn query_rope, In key, OptionalIn key_rope, In value, In dy, SCORE_MASKS, SCORE_KEPT,
                OptionalIn sink, OptionalInts prefix, SCORE_ENDS, SCORE_STARTS, SCORE_ATTRIBUTES, SCORE_MODE,
                int64_t pse_type, Text softmax_layout, Out dq, OptionalOut dq_rope, Out dk, OptionalOut dk_rope, Out dv,
                OptionalOut dpse, OptionalOut dsink),
               (Training{SCORE_GIVEN, SCORE_ROPES_GIVEN, SCORE_MASKS_GIVEN, .sink = sink, .prefix = prefix,
                         SCORE_ENDS_GIVEN, SCORE_STARTS_GIVEN, SCORE_ATTRIBUTES_GIVEN, .pse_type = pse_type,
                         .order = statistics_order(softmax_layout)},
                dy, softmax_max, softmax_sum, attention_in, Gradients{dq, dk, dv, dq_rope, dk_rope, dpse, dsink}));
MAX_SCORE_WORKSPACE(FlashAttentionUnpaddingScoreGradV5);

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
    sequence_of(factors, all, i).copy_(statistics_of(shares, all, i, StatisticsOrder::kByHead));
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

namespace {

// ---- hifloat8, where the tokens of a block share a scale

// A tensor (batch, tokens, heads, size) in hifloat8, and the scales (batch, heads, blocks of tokens, 1) of its numbers.
struct Scaled {
  const char *name, *scale_name;
  In values, scale;
  int64_t block;

  int64_t batch() const { return values.size(0); }
  int64_t tokens() const { return values.size(1); }
  int64_t heads() const { return values.size(2); }

  void check() const {
    check_rank(name, values, 4);
    check_shape(scale_name, scale, {batch(), heads(), (tokens() + block - 1) / block, 1});
  }
  at::Tensor numbers(int64_t i) const { return values[i].transpose(0, 1); }  // (heads, tokens, size)
  at::Tensor scales(int64_t i) const {                                       // (heads, tokens, 1)
    return scale[i].repeat_interleave(block, 1).narrow(1, 0, tokens());
  }
  Rows rows(int64_t i) const {
    return {heads(), tokens(), values.size(3),
            [numbers = numbers(i), scales = scales(i)](int64_t head, int64_t begin, const at::Tensor& rows) {
              const auto part = [&](const at::Tensor& all) {
                return all.narrow(0, head, rows.size(0)).narrow(1, begin, rows.size(1));
              };
              rows.copy_(in_wide_float(part(numbers)) * part(scales));
            }};
  }
};

// Rounds numbers, multiplied by a scale, to hifloat8, and divides them by it.
std::function<at::Tensor(const at::Tensor&)> rounding(OptionalIn scale) {
  const auto factor = scale.has_value() ? scale->item<float>() : 1.0F;
  return [factor](const at::Tensor& numbers) { return in_wide_float(in_hifloat8(numbers * factor)).div_(factor); };
}

struct HiFloat8Attention {
  Scaled query, key, value;
  OptionalIn probability_scale;
  double scale;
  int64_t heads;
  Text layout;
  int64_t sparse_mode;

  void check() const {
    TORCH_CHECK(layout == "BSND", "input_layout is \"", layout, "\"; expected BSND");
    check_range("sparse_mode", sparse_mode, 0, 0);
    for (const Scaled& each : {query, key, value}) each.check();
    TORCH_CHECK(query.heads() == heads, "head_num is ", heads, ", query has shape ", query.values.sizes());
    const int64_t key_heads = key.heads(), size = query.values.size(3);
    TORCH_CHECK(key_heads > 0 && heads % key_heads == 0, "query has ", heads, " heads, which do not divide among the ",
                key_heads, " of the keys");
    check_shape("key", key.values, {query.batch(), key.tokens(), key_heads, size});
    check_range("the last dimension of value", value.values.size(3), 1, size);
    check_shape("value", value.values, {query.batch(), key.tokens(), key_heads, value.values.size(3)});
    check_scale("p_scale", probability_scale);
  }
  static void check_scale(const char* name, OptionalIn scale) {
    if (scale.has_value()) check_shape(name, *scale, {1});
  }
  void check_statistics(const char* name, In statistics) const {
    check_shape(name, statistics, {query.batch(), heads, query.tokens(), 1});
  }

  // The shape of the result.
  std::vector<int64_t> shape() const { return {query.batch(), query.tokens(), heads, value.values.size(3)}; }

  Attention attention(int64_t i) const {
    return {.query = query.numbers(i),
            .key = key.rows(i),
            .value = value.rows(i),
            .scale = scale,
            .visible = {},
            .query_scale = query.scales(i),
            .rounded = rounding(probability_scale)};
  }
};

at::Tensor heads_first(In tensor, int64_t i) { return tensor[i].transpose(0, 1); }

using Mask = Absent<"attenMask", OptionalIn>;
using Window = Ignored<int64_t>;       // reserved
using ResultDtype = Ignored<int64_t>;  // the outputs say it as well

#define HIFLOAT8_ATTENTION(query_block, key_block)                                                        \
  {"query", "d_scale_q", query, d_scale_q, query_block}, {"key", "d_scale_k", key, d_scale_k, key_block}, \
      {"value", "d_scale_v", value, d_scale_v, 512}, p_scale, scale_value, head_num, input_layout, sparse_mode
#define HIFLOAT8_DTYPES \
  "query, key, value: hifloat8; d_scale_q, d_scale_k, d_scale_v, p_scale, softmax_max, softmax_sum: float32; "

}  // namespace

ACLNN_TYPED_CHECKED(QuantFlashAttentionScore, HIFLOAT8_DTYPES "attention_out: bfloat16",
                    [](Phase phase, In query, In key, In value, Mask, In d_scale_q, In d_scale_k, In d_scale_v,
                       OptionalIn p_scale, double scale_value, Window, Window, int64_t head_num, Text input_layout,
                       int64_t sparse_mode, Out softmax_max, Out softmax_sum, SoftmaxOut, Out attention_out) {
                      const HiFloat8Attention given{HIFLOAT8_ATTENTION(128, 256)};
                      if (phase == Phase::Check) {
                        given.check();
                        given.check_statistics("softmax_max", softmax_max);
                        given.check_statistics("softmax_sum", softmax_sum);
                        check_shape("attention_out", attention_out, given.shape());
                        return;
                      }
                      for (int64_t i = 0; i < query.size(0); ++i) {
                        auto results = written_to(heads_first(attention_out, i));
                        results.maximum = softmax_max[i];
                        results.sum = softmax_sum[i];
                        attend(given.attention(i), results);
                      }
                    });

ACLNN_TYPED_CHECKED(
    QuantFlashAttentionScoreGrad,
    HIFLOAT8_DTYPES
    "dy: hifloat8; attention_in: bfloat16; d_scale_dy, ds_scale: float32; dq: float16 bfloat16; dk, dv: as dq",
    [](Phase phase, In query, In key, In value, In dy, Mask, In softmax_max, In softmax_sum, In attention_in,
       In d_scale_q, In d_scale_k, In d_scale_v, In d_scale_dy, OptionalIn ds_scale, OptionalIn p_scale,
       double scale_value, Window, Window, int64_t head_num, Text input_layout, int64_t sparse_mode, ResultDtype,
       Out dq, Out dk, Out dv) {
      const HiFloat8Attention given{HIFLOAT8_ATTENTION(512, 512)};
      const Scaled grad{"dy", "d_scale_dy", dy, d_scale_dy, 512};
      if (phase == Phase::Check) {
        given.check();
        grad.check();
        check_shape("dy", dy, given.shape());
        check_shape("attention_in", attention_in, given.shape());
        given.check_statistics("softmax_max", softmax_max);
        given.check_statistics("softmax_sum", softmax_sum);
        given.check_scale("ds_scale", ds_scale);
        check_shape("dq", dq, query.sizes());
        check_shape("dk", dk, key.sizes());
        check_shape("dv", dv, value.sizes());
        return;
      }
      for (int64_t i = 0; i < query.size(0); ++i) {
        attend_backward(given.attention(i), grad.numbers(i), heads_first(attention_in, i), softmax_max[i],
                        softmax_sum[i],
                        {.query = heads_first(dq, i),
                         .key = heads_first(dk, i),
                         .value = heads_first(dv, i),
                         .grad_scale = grad.scales(i),
                         .rounded = rounding(ds_scale)});
      }
    });
