// SPDX-License-Identifier: Apache-2.0
// The core of all attention: of the queries of one sequence to its keys, and the gradient. Scores exist for a block of
// heads, queries and keys at a time, in float.
#pragma once

#include <functional>
#include <limits>

#include "table.h"

namespace cann_cpu {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// The keys or values of a sequence. `read` writes those of the heads from `head` on and the tokens from `begin` on to
// `rows`, (heads, tokens, size) in float, or in `dtype`, which they are stored in, if nothing scales them.
struct Rows {
  int64_t heads, length, size;
  std::function<void(int64_t head, int64_t begin, const at::Tensor& rows)> read;
  std::optional<at::ScalarType> dtype = std::nullopt;
  std::optional<at::Tensor> tensor = std::nullopt;  // all of them, (heads, length, size), where they are in one
};

CANN_EXPORT Rows rows_of(In tensor);            // (heads, length, size)
CANN_EXPORT Rows side_by_side(Rows a, Rows b);  // sizes add up, for a rotary part
Rows one_after_other(Rows a, Rows b);           // lengths add up, for a shared prefix

// Heads of the queries from `head` to `last_head`, queries from `row` to `last_row`, keys from `column` to
// `last_column`.
struct Block {
  int64_t head, last_head, row, last_row, column, last_column;

  int64_t heads() const { return last_head - head; }
  int64_t rows() const { return last_row - row; }
  int64_t columns() const { return last_column - column; }
};

// The part of a tensor (heads or 1, queries or 1, any) that belongs to the queries of a block, and of one (heads or 1,
// queries or 1, keys or 1) that belongs to its keys as well.
CANN_EXPORT at::Tensor queries_of(In tensor, const Block& block);
CANN_EXPORT at::Tensor part_of(In tensor, const Block& block);

// Which keys a query sees: from `low` to `high`, counted from the key with the query's own number, and those before
// `prefix`; of these, not those that `mask`, (heads or 1, queries or 1, keys), hides.
struct Visibility {
  static constexpr int64_t kAll = int64_t{1} << 40;

  int64_t low = -kAll, high = kAll, prefix = 0;
  std::optional<at::Tensor> mask = std::nullopt;

  // True where a key is hidden; nullopt where all of the block are seen.
  std::optional<at::Tensor> hidden(const Block& block) const;
  // The first and the last key that any query of the block may see.
  std::pair<int64_t, int64_t> range(int64_t row, int64_t last_row, int64_t keys) const;
};

// CANN's sparse modes 0 to 4 for a sequence; mode 0 without a mask hides nothing.
Visibility visibility(int64_t sparse_mode, int64_t previous_tokens, int64_t next_tokens, int64_t queries, int64_t keys,
                      std::optional<at::Tensor> mask);

struct Attention {
  at::Tensor query;  // (heads, queries, size); as many of its heads after each other share a head of the keys
  Rows key, value;
  double scale = 1;
  Visibility visible;
  bool values_are_keys = false;  // whether each value is the beginning of its key, as in latent attention

  std::function<at::Tensor(const Block&)> shift = nullptr;    // added to the block's scores, after the scale
  std::function<at::Tensor(const Block&)> dropout = nullptr;  // what the block's probabilities are multiplied by
  std::optional<at::Tensor> sinks = std::nullopt;             // (heads): the score of one more key, without a value
  std::optional<at::Tensor> query_scale = std::nullopt;       // (heads, queries, 1), that the queries are multiplied by
  std::function<at::Tensor(const at::Tensor&)> rounded = nullptr;  // of probabilities, before those of the values

  // For int8: scores times score_scale; probabilities, at most 1, to int8 times probability_scale; their sum of values
  // times value_scale.
  struct Quantized {
    double score_scale, probability_scale, value_scale;
  };
  std::optional<Quantized> quantized = std::nullopt;

  int64_t heads() const { return query.size(0); }
  int64_t queries() const { return query.size(1); }
};

// What attend() writes: (heads, queries, size) and, for each query, statistics of its scores, (heads, queries, any).
// Several threads write, each different heads or queries.
struct AttentionResults {
  std::function<void(const Block& queries, const at::Tensor& values)> write;
  std::optional<at::Tensor> out = std::nullopt;  // where `write` copies the values, if it does nothing else
  std::optional<at::Tensor> maximum = std::nullopt, sum = std::nullopt;
  std::optional<at::Tensor> log_sum = std::nullopt;  // infinite where a query sees nothing
};

CANN_EXPORT void attend(const Attention& attention, const AttentionResults& results);

// Results without statistics, copied to a tensor (heads, queries, size).
CANN_EXPORT AttentionResults written_to(In out);

// The gradients, with what attend() has kept: maximum and sum, (heads, queries, 1), and out.
struct AttentionGradients {
  at::Tensor query, key, value;                               // as the inputs
  std::optional<at::Tensor> shift = {};                       // (heads or 1, queries or 1, keys), added to
  std::optional<at::Tensor> sinks = {};                       // (heads), added to
  double shift_scale = 1;                                     // what the shift was multiplied by
  std::optional<at::Tensor> grad_scale = {};                  // (heads, queries, 1), that the gradient is multiplied by
  std::function<at::Tensor(const at::Tensor&)> rounded = {};  // of the scores' gradients, before their products
};

void attend_backward(const Attention& attention, In grad, In out, In maximum, In sum,
                     const AttentionGradients& gradients);

// A tensor of a layout as BSND, BNSD, SBH or TND as (batch, heads, tokens, size), or, where sequences follow each other
// (T), as (1, heads, tokens, size).
at::Tensor by_head(In tensor, std::string_view layout, int64_t heads);

}  // namespace cann_cpu
