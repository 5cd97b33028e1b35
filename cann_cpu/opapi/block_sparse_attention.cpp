// SPDX-License-Identifier: Apache-2.0
// Attention in which a mask says, for each head, which blocks of queries see which blocks of keys; and its gradient.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include "attention.h"
#include "checks.h"

using namespace cann_cpu;

namespace {

constexpr int64_t kAllTokens = 2147483647;
constexpr int64_t kDefaultBlock = 128, kKeyBlock = 128;  // a block of keys is a multiple of it

using AttenMask = Absent<"atten_mask", OptionalIn>;
using BlockTable = Absent<"block_table", OptionalIn>;

// The arguments of both functions.
struct BlockSparse {
  In query, key, value;
  OptionalIn mask;
  OptionalInts block_shape, query_lengths, key_lengths;
  Text layout, key_layout;
  int64_t key_heads, mask_type;
  double scale;
  int64_t previous_tokens, next_tokens;

  bool is_packed() const { return layout == "TND"; }
  int64_t heads() const { return query.size(layout == "BSND" ? 2 : 1); }
  int64_t batch() const { return is_packed() ? static_cast<int64_t>(query_lengths->size()) : query.size(0); }
  int64_t tokens(In tensor) const { return tensor.size(is_packed() ? 0 : layout == "BNSD" ? 2 : 1); }
  int64_t rows() const { return block(0); }
  int64_t columns() const { return block(1); }

  void check() const;

 private:
  static bool has(OptionalInts list) { return list.has_value() && !list->empty(); }
  int64_t block(size_t dim) const { return has(block_shape) ? (*block_shape)[dim] : kDefaultBlock; }
  int64_t longest(In tensor, OptionalInts lengths) const {
    if (!is_packed()) return tokens(tensor);
    return lengths->empty() ? 0 : *std::max_element(lengths->begin(), lengths->end());
  }
  void check_lengths(const char* name, OptionalInts lengths, In tensor) const;
};

void BlockSparse::check_lengths(const char* name, OptionalInts lengths, In tensor) const {
  if (!has(lengths)) return;
  check_values(name, *lengths, 0, tokens(tensor));
  const auto count = static_cast<int64_t>(lengths->size());
  TORCH_CHECK(count == batch(), name, " has ", count, " elements; expected ", batch());
  if (!is_packed()) return;
  int64_t sum = 0;
  for (const int64_t length : *lengths) sum += length;
  TORCH_CHECK(sum == tokens(tensor), name, " adds up to ", sum, "; expected ", tokens(tensor),
              ", the tokens of all sequences");
}

void BlockSparse::check() const {
  TORCH_CHECK(layout == "TND" || layout == "BNSD" || layout == "BSND", "q_input_layout is \"", layout,
              "\"; expected TND, BNSD or BSND");
  TORCH_CHECK(key_layout == layout, "kv_input_layout is \"", key_layout, "\"; expected ", layout,
              ", as q_input_layout");
  check_rank("query", query, is_packed() ? 3 : 4);
  check_rank("key", key, query.dim());
  check_shape("value", value, key.sizes());
  TORCH_CHECK(has(query_lengths) == has(key_lengths), "actual_seq_lengths is ", has(query_lengths) ? "given" : "null",
              ", actual_seq_lengths_kv is ", has(key_lengths) ? "given" : "null", "; expected both or none");
  TORCH_CHECK(!is_packed() || has(query_lengths), "actual_seq_lengths is null; q_input_layout TND needs it");
  check_lengths("actual_seq_lengths", query_lengths, query);
  check_lengths("actual_seq_lengths_kv", key_lengths, key);

  auto expected = query.sizes().vec();
  const size_t of_tokens = is_packed() ? 0 : layout == "BNSD" ? 2 : 1, of_heads = layout == "BSND" ? 2 : 1;
  expected[of_tokens] = tokens(key);
  expected[of_heads] = key_heads;
  TORCH_CHECK(key_heads > 0 && heads() % key_heads == 0, "num_key_value_heads is ", key_heads,
              "; expected a divisor of ", heads(), ", the heads of query");
  check_shape("key", key, expected);

  TORCH_CHECK(!has(block_shape) || block_shape->size() >= 2, "block_shape has ", block_shape->size(),
              " elements; expected 2");
  TORCH_CHECK(rows() > 0 && columns() > 0, "block_shape is ", *block_shape, "; expected positive numbers");
  TORCH_CHECK(mask.has_value(), "block_sparse_mask is null; expected a mask");
  const auto blocks = [](int64_t length, int64_t block) { return (length + block - 1) / block; };
  check_shape(
      "block_sparse_mask", *mask,
      {batch(), heads(), blocks(longest(query, query_lengths), rows()), blocks(longest(key, key_lengths), columns())});
  TORCH_CHECK(mask_type == 0, "mask_type is ", mask_type, "; expected 0");
  TORCH_CHECK(previous_tokens == kAllTokens, "pre_tokens is ", previous_tokens, "; expected ", kAllTokens);
  TORCH_CHECK(next_tokens == kAllTokens, "next_tokens is ", next_tokens, "; expected ", kAllTokens);
}

// A sequence of the call, and its part of each tensor, by head.
struct BlockSparseSequence {
  const BlockSparse& given;
  int64_t index, first_query, queries, first_key, keys;

  at::Tensor of_queries(In tensor) const { return part(tensor, given.heads(), first_query, queries); }
  at::Tensor of_keys(In tensor) const { return part(tensor, given.key_heads, first_key, keys); }
  // (heads, queries, 1)
  at::Tensor of_statistics(In tensor, const std::string& layout) const {
    return by_head(tensor, layout, given.heads())[given.is_packed() ? 0 : index].narrow(1, first_query, queries);
  }

  // Of the heads of the keys from `head` on.
  Attention attention(int64_t head, int64_t heads) const {
    const int64_t shared = given.heads() / given.key_heads;
    const auto seen = (*given.mask)[index].narrow(0, head * shared, heads * shared).eq(0);
    const auto shift = at::zeros(seen.sizes(), at::kFloat).masked_fill_(seen, kMinusInfinity);
    return {.query = of_queries(given.query).narrow(0, head * shared, heads * shared),
            .key = rows_of(of_keys(given.key).narrow(0, head, heads)),
            .value = rows_of(of_keys(given.value).narrow(0, head, heads)),
            .scale = given.scale,
            .visible = {},
            .shift = [shift, rows = given.rows(), columns = given.columns()](const Block& block) {
              const auto of_row = at::arange(block.row, block.last_row).floor_divide_(at::Scalar(rows));
              const auto of_column = at::arange(block.column, block.last_column).floor_divide_(at::Scalar(columns));
              const auto heads = shift.narrow(0, block.head, block.heads());
              return heads.index_select(1, of_row).index_select(2, of_column);
            }};
  }

 private:
  at::Tensor part(In tensor, int64_t heads, int64_t first, int64_t count) const {
    return by_head(tensor, given.layout, heads)[given.is_packed() ? 0 : index].narrow(1, first, count);
  }
};

// Calls body(sequence) for each.
template <class Body>
void by_sequence(const BlockSparse& given, Body body) {
  const auto length = [&](OptionalInts lengths, In tensor, int64_t i) {
    return lengths.has_value() && !lengths->empty() ? (*lengths)[static_cast<size_t>(i)] : given.tokens(tensor);
  };
  int64_t query = 0, key = 0;
  for (int64_t i = 0; i < given.batch(); ++i) {
    const int64_t queries = length(given.query_lengths, given.query, i), keys = length(given.key_lengths, given.key, i);
    body(BlockSparseSequence{given, i, query, queries, key, keys});
    if (!given.is_packed()) continue;
    query += queries;
    key += keys;
  }
}

void check_size(In query, std::initializer_list<int64_t> sizes, const char* expected) {
  TORCH_CHECK(std::find(sizes.begin(), sizes.end(), query.size(-1)) != sizes.end(), "query has heads of ",
              query.size(-1), " numbers; expected ", expected);
}

void check_block_sparse(const BlockSparse& given, int64_t inner_precise, int64_t block_size, int64_t softmax_lse_flag,
                        In out, OptionalIn softmax_lse) {
  given.check();
  check_size(given.query, {64, 128}, "64 or 128");
  TORCH_CHECK(given.columns() % kKeyBlock == 0, "block_shape[1] is ", given.columns(), "; expected a multiple of ",
              kKeyBlock);
  check_range("inner_precise", inner_precise, 0, 1);
  TORCH_CHECK(inner_precise == 0 || given.query.scalar_type() == at::kHalf,
              "inner_precise is 1; expected 0, since query is not float16");
  TORCH_CHECK(block_size == 0, "block_size is ", block_size, "; expected 0");
  check_range("softmax_lse_flag", softmax_lse_flag, 0, 1);
  check_shape("attention_out", out, given.query.sizes());
  if (softmax_lse_flag == 0) return;
  TORCH_CHECK(softmax_lse.has_value(), "softmax_lse is null; softmax_lse_flag is 1");
  auto expected = given.query.sizes().vec();
  expected.back() = 1;
  check_shape("softmax_lse", *softmax_lse, expected);
}

// What belongs to no query, in the padding of a batch, is as where a query sees nothing.
void attend_blocks(const BlockSparse& given, Out out, OptionalOut log_sum) {
  if (given.query_lengths.has_value()) {
    out.zero_();
    if (log_sum.has_value()) log_sum->fill_(-kMinusInfinity);
  }
  by_sequence(given, [&](const BlockSparseSequence& sequence) {
    AttentionResults results = written_to(sequence.of_queries(out));
    if (log_sum.has_value()) results.log_sum = sequence.of_statistics(*log_sum, given.layout);
    attend(sequence.attention(0, given.key_heads), results);
  });
}

// The logarithms of BSND lie by head, as those of BNSD.
std::string layout_of_log_sums(const BlockSparse& given) { return given.is_packed() ? "TND" : "BNSD"; }

void check_block_sparse_grad(const BlockSparse& given, In dout, In attention_out, In softmax_lse, In dq, In dk, In dv) {
  given.check();
  check_size(given.query, {128}, "128");
  check_shape("dout", dout, given.query.sizes());
  check_shape("attention_out", attention_out, given.query.sizes());
  std::vector<int64_t> expected{given.tokens(given.query), given.heads(), 1};
  if (!given.is_packed()) expected = {given.batch(), given.heads(), given.tokens(given.query), 1};
  check_shape("softmax_lse", softmax_lse, expected);
  check_shape("dq", dq, given.query.sizes());
  check_shape("dk", dk, given.key.sizes());
  check_shape("dv", dv, given.value.sizes());
}

constexpr int64_t kGradientNumbers = int64_t{1} << 22;  // of keys and values, that are summed up in float

void attend_blocks_backward(const BlockSparse& given, In dout, In attention_out, In softmax_lse, Out dq, Out dk,
                            Out dv) {
  if (given.query_lengths.has_value()) {
    for (const auto& each : {dq, dk, dv}) each.zero_();
  }
  const int64_t shared = given.heads() / given.key_heads;
  by_sequence(given, [&](const BlockSparseSequence& sequence) {
    const auto log_sum = sequence.of_statistics(softmax_lse, layout_of_log_sums(given));
    const int64_t each = std::max<int64_t>(sequence.keys * given.key.size(-1) * 2, 1);
    const int64_t most = std::clamp<int64_t>(kGradientNumbers / each, 1, given.key_heads);
    for (int64_t head = 0; head < given.key_heads; head += most) {
      const int64_t heads = std::min(most, given.key_heads - head);
      const auto of_queries = [&](In tensor) { return tensor.narrow(0, head * shared, heads * shared); };
      const auto of_keys = [&](In tensor) { return sequence.of_keys(tensor).narrow(0, head, heads); };
      const auto maximum = of_queries(log_sum);
      attend_backward(sequence.attention(head, heads), of_queries(sequence.of_queries(dout)),
                      of_queries(sequence.of_queries(attention_out)), maximum, at::ones_like(maximum),
                      {.query = of_queries(sequence.of_queries(dq)), .key = of_keys(dk), .value = of_keys(dv)});
    }
  });
}

#define BLOCK_SPARSE_GIVEN                                                                                        \
  BlockSparse {                                                                                                   \
    query, key, value, block_sparse_mask, block_shape, actual_seq_lengths, actual_seq_lengths_kv, q_input_layout, \
        kv_input_layout, num_key_value_heads, mask_type, scale_value, pre_tokens, next_tokens                     \
  }
#define BLOCK_SPARSE_DTYPES \
  "query: float16 bfloat16; key, value: as query; block_sparse_mask: int8 uint8 bool; attention_out: as query; "

}  // namespace

ACLNN_TYPED_CHECKED(BlockSparseAttention, BLOCK_SPARSE_DTYPES "softmax_lse: float32",
                    [](Phase phase, In query, In key, In value, OptionalIn block_sparse_mask, AttenMask,
                       OptionalInts block_shape, OptionalInts actual_seq_lengths, OptionalInts actual_seq_lengths_kv,
                       BlockTable, Text q_input_layout, Text kv_input_layout, int64_t num_key_value_heads,
                       int64_t mask_type, double scale_value, int64_t inner_precise, int64_t block_size,
                       int64_t pre_tokens, int64_t next_tokens, int64_t softmax_lse_flag, Out attention_out,
                       OptionalOut softmax_lse) {
                      check_block_sparse(BLOCK_SPARSE_GIVEN, inner_precise, block_size, softmax_lse_flag, attention_out,
                                         softmax_lse);
                      if (phase == Phase::Check) return;
                      std::optional<at::Tensor> none;
                      attend_blocks(BLOCK_SPARSE_GIVEN, attention_out, softmax_lse_flag == 1 ? softmax_lse : none);
                    });

ACLNN_TYPED_CHECKED(BlockSparseAttentionGrad, BLOCK_SPARSE_DTYPES "dout, dq, dk, dv: as query; softmax_lse: float32",
                    [](Phase phase, In dout, In query, In key, In value, In attention_out, In softmax_lse,
                       OptionalIn block_sparse_mask, AttenMask, OptionalInts block_shape,
                       OptionalInts actual_seq_lengths, OptionalInts actual_seq_lengths_kv, Text q_input_layout,
                       Text kv_input_layout, int64_t num_key_value_heads, int64_t mask_type, double scale_value,
                       int64_t pre_tokens, int64_t next_tokens, Out dq, Out dk, Out dv) {
                      check_block_sparse_grad(BLOCK_SPARSE_GIVEN, dout, attention_out, softmax_lse, dq, dk, dv);
                      if (phase == Phase::Check) return;
                      attend_blocks_backward(BLOCK_SPARSE_GIVEN, dout, attention_out, softmax_lse, dq, dk, dv);
                    });
