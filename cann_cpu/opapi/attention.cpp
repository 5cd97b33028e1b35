// SPDX-License-Identifier: Apache-2.0
#include "attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "hifloat8.h"
#include "parallel.h"
#include "product.h"

namespace cann_cpu {
namespace {

constexpr int64_t kColumns = 512;  // keys of a block, at most

int64_t shared_heads(const Attention& attention) {
  const int64_t heads = attention.heads(), key_heads = attention.key.heads;
  TORCH_CHECK(key_heads > 0 && heads % key_heads == 0, "query has ", heads, " heads, which do not divide among the ",
              key_heads, " of the keys");
  return heads / key_heads;
}

// How heads, queries and keys are divided into blocks.
struct Division {
  const Attention& attention;
  int64_t key_heads, rows, columns;

  int64_t groups() const { return (attention.key.heads + key_heads - 1) / key_heads; }
  int64_t row_blocks() const { return (attention.queries() + rows - 1) / rows; }

  // A block of queries with the keys that one of them sees.
  Block queries(int64_t i) const {
    const int64_t shared = shared_heads(attention), head = i / row_blocks() * key_heads * shared;
    const int64_t row = i % row_blocks() * rows, last_row = std::min(row + rows, attention.queries());
    const auto [column, last_column] = attention.visible.range(row, last_row, attention.key.length);
    return {head, std::min(head + key_heads * shared, attention.heads()), row, last_row, column, last_column};
  }

  template <class Body>
  void for_each_keys(const Block& queries, Body body) const {
    for (int64_t column = queries.column; column < queries.last_column; column += columns) {
      Block block = queries;
      block.column = column;
      block.last_column = std::min(column + columns, queries.last_column);
      body(block);
    }
  }
};

int64_t columns_of(const Attention& attention, int64_t key_heads, int64_t elements) {
  const int64_t each = key_heads * std::max(attention.key.size, attention.value.size);
  return std::clamp<int64_t>(elements / std::max<int64_t>(each, 1), 1, kColumns);
}

int64_t rows_of(const Attention& attention, int64_t key_heads, int64_t columns, int64_t scores) {
  const int64_t each = key_heads * shared_heads(attention) * columns;
  return std::clamp<int64_t>(scores / std::max<int64_t>(each, 1), 1, std::max<int64_t>(attention.queries(), 1));
}

// A thread's blocks of scores and keys, which stay in its second-level cache: one key head, or more where there are few
// queries.
Division for_one_thread(const Attention& attention) {
  constexpr int64_t kScores = 1 << 17, kKeys = 1 << 20;
  const int64_t columns = columns_of(attention, 1, kKeys), rows = rows_of(attention, 1, columns, kScores);
  const int64_t each = columns * std::max({attention.key.size, attention.value.size, int64_t{1}});
  const int64_t key_heads = std::clamp<int64_t>(
      std::min(kScores / (shared_heads(attention) * rows * columns), kKeys / each), 1, attention.key.heads);
  return {attention, key_heads, rows, columns};
}

Division for_all_threads(const Attention& attention) {
  const int64_t key_heads = attention.key.heads, columns = columns_of(attention, key_heads, 1 << 21);
  return {attention, key_heads, rows_of(attention, key_heads, columns, 1 << 20), columns};
}

// The block's queries of (heads, queries, size) in float, those of the heads that share a key's after each other.
at::Tensor by_key_head(const at::Tensor& tensor, const Block& block, int64_t shared) {
  const auto rows = in_wide_float(queries_of(tensor, block)).contiguous();
  return rows.view({block.heads() / shared, shared * block.rows(), rows.size(2)});
}

at::Tensor by_query_head(const at::Tensor& tensor, const Block& block) {
  return tensor.view({block.heads(), block.rows(), tensor.size(2)});
}

// Memory for any block: to allocate it for each costs as much as a tenth of the products.
class Scratch {
 public:
  explicit Scratch(const Division& division)
      : attention_(division.attention),
        shared_(shared_heads(attention_)),
        scores_(at::empty({division.key_heads * shared_ * division.rows * division.columns}, at::kFloat)),
        key_(rows(division, attention_.key)),
        value_(attention_.values_are_keys ? key_.narrow(2, 0, attention_.value.size)
                                          : rows(division, attention_.value)) {}

  at::Tensor scores(const Block& block) const {
    const int64_t key_heads = block.heads() / shared_, rows = shared_ * block.rows();
    return scores_.narrow(0, 0, key_heads * rows * block.columns()).view({key_heads, rows, block.columns()});
  }

  // The keys of a block, then its values.
  at::Tensor key(const Block& block) const { return read(attention_.key, key_, block); }
  at::Tensor value(const Block& block) const {
    return attention_.values_are_keys ? part(value_, block) : read(attention_.value, value_, block);
  }

 private:
  static at::Tensor rows(const Division& division, const Rows& all) {
    return at::empty({division.key_heads, std::min(division.columns, all.length), all.size}, at::kFloat);
  }

  at::Tensor part(const at::Tensor& memory, const Block& block) const {
    return memory.narrow(0, 0, block.heads() / shared_).narrow(1, 0, block.columns());
  }

  at::Tensor read(const Rows& all, const at::Tensor& memory, const Block& block) const {
    const at::Tensor rows = part(memory, block);
    all.read(block.head / shared_, block.column, rows);
    return rows;
  }

  const Attention& attention_;
  const int64_t shared_;
  at::Tensor scores_, key_, value_;
};

// out = a @ b, or out += a @ b, for each head. A batch of one product is not divided among threads; a product is.
void multiply(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool adds) {
  at::Tensor first = out;
  if (out.size(0) == 1) {
    first = out[0];
    adds ? at::addmm_out(first, first, a[0], b[0]) : at::mm_out(first, a[0], b[0]);
  } else {
    adds ? at::baddbmm_out(first, first, a, b) : at::bmm_out(first, a, b);
  }
}

// Scores (heads, queries, keys) of queries that are multiplied by the scale.
at::Tensor scores(const Attention& attention, const at::Tensor& query, const at::Tensor& key, const Block& block,
                  const Scratch& scratch) {
  const at::Tensor products = scratch.scores(block);
  multiply(products, query, key.mT(), /*adds=*/false);
  auto scores = by_query_head(products, block);
  if (attention.quantized) scores.mul_(attention.scale * attention.quantized->score_scale);
  if (attention.shift) scores.add_(attention.shift(block));
  if (const auto hidden = attention.visible.hidden(block)) scores.masked_fill_(*hidden, kMinusInfinity);
  return scores;
}

// The same, multiplied by the scale of each query, if there is one.
at::Tensor by_key_head(const at::Tensor& tensor, const std::optional<at::Tensor>& scale, const Block& block,
                       int64_t shared) {
  const auto rows = by_key_head(tensor, block, shared);
  return scale.has_value() ? rows * by_key_head(*scale, block, shared) : rows;
}

at::Tensor scaled_query(const Attention& attention, const Block& block) {
  const auto query = by_key_head(attention.query, attention.query_scale, block, shared_heads(attention));
  return attention.quantized ? query : query * at::Scalar(attention.scale);
}

at::Tensor zero_if_infinite(const at::Tensor& maximum) { return maximum.masked_fill(maximum.isinf(), 0); }

at::Tensor of_each_query(const at::Tensor& sinks, const Block& block) {
  return sinks.narrow(0, block.head, block.heads()).to(at::kFloat).reshape({-1, 1, 1}).expand({-1, block.rows(), 1});
}

// Sums over the dimensions in which the gradient was broadcast.
void add_reduced(const at::Tensor& sum, const at::Tensor& gradient) {
  auto reduced = gradient;
  for (int64_t dim = 0; dim < sum.dim(); ++dim) {
    if (sum.size(dim) == 1 && reduced.size(dim) != 1) reduced = reduced.sum({dim}, /*keepdim=*/true);
  }
  sum.add_(reduced);
}

void attend(const Division& division, const AttentionResults& results, const Block& rows) {
  const Attention& attention = division.attention;
  const int64_t shared = shared_heads(attention), key_heads = rows.heads() / shared;
  const Scratch scratch(division);
  const auto query = scaled_query(attention, rows);
  at::Tensor maximum = at::full({rows.heads(), rows.rows(), 1}, kMinusInfinity, at::kFloat);
  at::Tensor sum = at::zeros_like(maximum);
  if (attention.sinks.has_value()) {
    maximum.copy_(of_each_query(*attention.sinks, rows));
    sum.fill_(1);
  }
  // Makes powers of scores, adds them to the statistics, and returns what earlier sums have to be multiplied by.
  const auto accumulate = [&](const at::Tensor& block_scores) {
    const auto highest = at::maximum(maximum, block_scores.amax({-1}, /*keepdim=*/true));
    const auto finite = zero_if_infinite(highest);
    block_scores.sub_(finite).exp_();
    const auto factor = maximum.sub_(finite).exp_();
    sum.mul_(factor).add_(block_scores.sum({-1}, /*keepdim=*/true));
    maximum = highest;
    return factor;
  };
  // What is rounded depends on the statistics, so that they have to be known.
  const bool is_rounded = attention.quantized || attention.rounded;
  if (is_rounded) {
    division.for_each_keys(
        rows, [&](const Block& block) { accumulate(scores(attention, query, scratch.key(block), block, scratch)); });
  }
  at::Tensor values;
  division.for_each_keys(rows, [&](const Block& block) {
    auto weights = scores(attention, query, scratch.key(block), block, scratch);
    at::Tensor factor;
    if (is_rounded) {
      weights.sub_(zero_if_infinite(maximum)).exp_();
    } else {
      factor = accumulate(weights);
    }
    if (attention.dropout) weights.mul_(attention.dropout(block));
    if (attention.quantized) weights.mul_(attention.quantized->probability_scale).round_().clamp_(-128, 127);
    if (attention.rounded) weights = attention.rounded(weights.div_(sum));
    const auto by_key = weights.view({key_heads, shared * block.rows(), block.columns()});
    const auto value = scratch.value(block);
    if (!values.defined()) {
      values = at::empty({by_key.size(0), by_key.size(1), value.size(2)}, at::kFloat);
      multiply(values, by_key, value, /*adds=*/false);
    } else {
      if (factor.defined()) values.mul_(factor.view({key_heads, shared * block.rows(), 1}));
      multiply(values, by_key, value, /*adds=*/true);
    }
  });
  if (!values.defined()) {
    values = at::zeros({key_heads, shared * rows.rows(), attention.value.size}, at::kFloat);
  }
  values = by_query_head(values, rows);
  if (!attention.rounded) values.div_(sum);
  const auto sees_nothing = sum.eq(0);
  values.masked_fill_(sees_nothing, 0);
  if (attention.quantized) values.mul_(attention.quantized->value_scale);
  results.write(rows, values);
  const auto keep = [&](const std::optional<at::Tensor>& statistics, const at::Tensor& value) {
    if (statistics.has_value()) queries_of(*statistics, rows).copy_(value);
  };
  keep(results.maximum, zero_if_infinite(maximum));
  keep(results.sum, sum);
  if (results.log_sum.has_value()) {
    keep(results.log_sum, (maximum + sum.log()).masked_fill_(sees_nothing, -kMinusInfinity));
  }
}

constexpr int64_t kDenseRows = 128;  // from which on ATen's attention is faster, by products of a half type

// Whether ATen's attention computes the same, but for which keys are seen and where they lie.
bool is_plain(const Attention& attention, const AttentionResults& results) {
  return !attention.shift && !attention.dropout && !attention.rounded && !attention.sinks.has_value() &&
         !attention.query_scale.has_value() && !attention.quantized.has_value() && !results.maximum.has_value() &&
         !results.sum.has_value() && results.out.has_value() && multiplies_halves(attention.query.scalar_type());
}

// Many queries. Each sees all keys, or those before it.
bool is_dense(const Attention& attention, const AttentionResults& results) {
  const Rows &key = attention.key, &value = attention.value;
  if (!key.tensor.has_value() || !value.tensor.has_value()) return false;
  const auto is_same = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == attention.query.scalar_type() && tensor.size(2) == attention.query.size(2) &&
           tensor.stride(2) == 1;
  };
  const Visibility& visible = attention.visible;
  const bool sees_all_before = !visible.mask.has_value() && visible.low <= -attention.queries();
  const bool is_causal = visible.high == 0 && visible.prefix == 0;
  return is_plain(attention, results) && is_same(attention.query) && is_same(*key.tensor) && is_same(*value.tensor) &&
         attention.queries() >= kDenseRows && key.length > 0 && sees_all_before &&
         (is_causal || visible.high >= key.length);
}

// One query with many heads to a key, as in multi-head latent attention.
bool is_shared(const Attention& attention, const AttentionResults& results) {
  const Rows &key = attention.key, &value = attention.value;
  const Visibility& visible = attention.visible;
  const auto [first, last] = visible.range(0, 1, key.length);
  const auto dtype = attention.query.scalar_type();
  return is_plain(attention, results) && attention.queries() == 1 && shared_heads(attention) >= kDenseRows &&
         key.dtype == dtype && value.dtype == dtype && value.size <= key.size && !visible.mask.has_value() &&
         visible.prefix == 0 && first < last;
}

// Gives ATen the heads of a key as queries. ATen copies all keys and values that it gets, so it gets some at a time,
// and their results are merged. It takes only values as wide as keys, so narrower ones are filled up with 0.
void attend_by_heads(const Attention& attention, const AttentionResults& results) {
  constexpr int64_t kKeys = 2048;
  const int64_t shared = shared_heads(attention), size = attention.key.size;
  const auto [begin, end] = attention.visible.range(0, 1, attention.key.length);
  const int64_t first = begin, all = end - begin;
  const at::Tensor keys = at::empty({1, 1, std::min(kKeys, all), size}, attention.query.options());
  const at::Tensor values = attention.values_are_keys ? keys : at::zeros_like(keys);
  for (int64_t head = 0; head < attention.key.heads; ++head) {
    const auto of_head = [&](const at::Tensor& tensor) { return tensor.narrow(0, head * shared, shared); };
    const auto query = of_head(attention.query).reshape({1, 1, shared, size});
    at::Tensor sum, log_sum;
    by_steps(all, kKeys, [&](int64_t from, int64_t count) {
      const auto key = keys.narrow(2, 0, count), value = values.narrow(2, 0, count);
      attention.key.read(head, first + from, key[0]);
      if (!attention.values_are_keys) {
        attention.value.read(head, first + from, value[0].narrow(2, 0, attention.value.size));
      }
      const auto [products, log_step] = at::_scaled_dot_product_flash_attention_for_cpu(
          query, key, value, /*dropout_p=*/0, /*is_causal=*/false, /*attn_mask=*/std::nullopt, attention.scale);
      const auto step = products.reshape({shared, 1, size}).narrow(2, 0, attention.value.size);
      const auto log = log_step.reshape({shared, 1, 1});
      if (!sum.defined()) {
        sum = count == all ? step : step.to(at::kFloat);
        log_sum = log;
        return;
      }
      const auto both = at::logaddexp(log_sum, log);
      sum.mul_((log_sum - both).exp_()).add_(step * (log - both).exp_());
      log_sum = both;
    });
    of_head(*results.out).copy_(sum);
    if (results.log_sum.has_value()) of_head(*results.log_sum).copy_(log_sum);
  }
}

// Some heads of the keys at a time, since ATen packs them.
void attend_densely(const Attention& attention, const AttentionResults& results) {
  constexpr int64_t kElements = 1 << 22;
  const int64_t shared = shared_heads(attention), size = attention.query.size(2);
  const int64_t each = shared * size * (attention.queries() + 2 * attention.key.length);
  by_steps(attention.key.heads, std::max<int64_t>(kElements / each, 1), [&](int64_t head, int64_t count) {
    const auto of_queries = [&](const at::Tensor& tensor) {
      return tensor.narrow(0, head * shared, count * shared).unflatten(0, {count, shared});
    };
    const auto of_keys = [&](const at::Tensor& tensor) {
      return tensor.narrow(0, head, count).unsqueeze(1).expand({-1, shared, -1, -1});
    };
    const auto [values, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        of_queries(attention.query), of_keys(*attention.key.tensor), of_keys(*attention.value.tensor),
        /*dropout_p=*/0, /*is_causal=*/attention.visible.high == 0, /*attn_mask=*/std::nullopt, attention.scale);
    of_queries(*results.out).copy_(values);
    if (results.log_sum.has_value()) of_queries(*results.log_sum).copy_(log_sum.unsqueeze(-1));
  });
}

}  // namespace

Rows rows_of(In tensor) {
  return {tensor.size(0),
          tensor.size(1),
          tensor.size(2),
          [tensor](int64_t head, int64_t begin, const at::Tensor& rows) {
            rows.copy_(tensor.narrow(0, head, rows.size(0)).narrow(1, begin, rows.size(1)));
          },
          tensor.scalar_type(),
          tensor};
}

Rows side_by_side(Rows a, Rows b) {
  return {a.heads, a.length, a.size + b.size,
          [=](int64_t head, int64_t begin, const at::Tensor& rows) {
            a.read(head, begin, rows.narrow(2, 0, a.size));
            b.read(head, begin, rows.narrow(2, a.size, b.size));
          },
          a.dtype == b.dtype ? a.dtype : std::nullopt};
}

Rows one_after_other(Rows a, Rows b) {
  return {a.heads, a.length + b.length, a.size, [=](int64_t head, int64_t begin, const at::Tensor& rows) {
            const int64_t first = std::clamp<int64_t>(a.length - begin, 0, rows.size(1)), second = rows.size(1) - first;
            if (first > 0) a.read(head, begin, rows.narrow(1, 0, first));
            if (second > 0) b.read(head, begin + first - a.length, rows.narrow(1, first, second));
          }};
}

at::Tensor queries_of(In tensor, const Block& block) {
  const auto heads = tensor.size(0) == 1 ? tensor : tensor.narrow(0, block.head, block.heads());
  return heads.size(1) == 1 ? heads : heads.narrow(1, block.row, block.rows());
}

at::Tensor part_of(In tensor, const Block& block) {
  const auto rows = queries_of(tensor, block);
  return rows.size(2) == 1 ? rows : rows.narrow(2, block.column, block.columns());
}

std::pair<int64_t, int64_t> Visibility::range(int64_t row, int64_t last_row, int64_t keys) const {
  const int64_t last = std::clamp<int64_t>(std::max(last_row + high, prefix), 0, keys);
  const int64_t first = prefix > 0 ? 0 : std::clamp<int64_t>(row + low, 0, last);
  return {first, last};
}

std::optional<at::Tensor> Visibility::hidden(const Block& block) const {
  std::optional<at::Tensor> hidden;
  const bool after = block.last_column - 1 - block.row > high;
  const bool before = block.column - (block.last_row - 1) < low;
  if (after || before) {
    const auto distance =
        at::arange(block.column, block.last_column).unsqueeze(0) - at::arange(block.row, block.last_row).unsqueeze(1);
    hidden = distance.gt(high).logical_or_(distance.lt(low));
    if (prefix > block.column) hidden->narrow(1, 0, std::min(prefix - block.column, block.columns())).fill_(false);
  }
  if (!mask.has_value()) return hidden;
  const auto given = part_of(*mask, block).to(at::kBool);
  return hidden.has_value() ? given.logical_or(*hidden) : given;
}

Visibility visibility(int64_t sparse_mode, int64_t previous_tokens, int64_t next_tokens, int64_t queries, int64_t keys,
                      std::optional<at::Tensor> mask) {
  switch (sparse_mode) {
    case 0:
      if (!mask.has_value()) return {};
      return {.low = -previous_tokens, .high = next_tokens, .mask = std::move(mask)};
    case 1:
      return {.mask = std::move(mask)};
    case 2:
      return {.high = 0};
    case 3:
      return {.high = keys - queries};
    case 4:
      return {.low = keys - queries - previous_tokens, .high = keys - queries + next_tokens};
    default:
      TORCH_CHECK(false, "sparse_mode is ", sparse_mode, "; expected 0 to 4");
  }
}

void attend(const Attention& attention, const AttentionResults& results) {
  if (is_dense(attention, results)) return attend_densely(attention, results);
  if (is_shared(attention, results)) return attend_by_heads(attention, results);
  const Division division = for_one_thread(attention);
  for_each_in_parallel(division.groups() * division.row_blocks(),
                       [&](int64_t i) { attend(division, results, division.queries(i)); });
}

AttentionResults written_to(In out) {
  return {.write = [out](const Block& queries, const at::Tensor& values) { queries_of(out, queries).copy_(values); },
          .out = out};
}

void attend_backward(const Attention& attention, In grad, In out, In maximum, In sum,
                     const AttentionGradients& gradients) {
  const int64_t key_heads = attention.key.heads, shared = shared_heads(attention), keys = attention.key.length;
  const at::Tensor grad_key = at::zeros({key_heads, keys, attention.key.size}, at::kFloat);
  const at::Tensor grad_value = at::zeros({key_heads, keys, attention.value.size}, at::kFloat);
  const Division division = for_all_threads(attention);
  const Scratch scratch(division);
  for (int64_t i = 0; i < division.row_blocks(); ++i) {
    const Block rows = division.queries(i);
    const auto of_rows = [&](const at::Tensor& tensor) {
      return tensor.narrow(1, rows.row, rows.rows()).to(at::kFloat);
    };
    const auto query = scaled_query(attention, rows);
    const auto dy = by_key_head(grad, gradients.grad_scale, rows, shared);
    const auto highest = of_rows(maximum), total = of_rows(sum);
    // The sum of each query's probabilities times their gradients.
    const auto expected = (by_query_head(dy, rows) * of_rows(out)).sum({-1}, /*keepdim=*/true);
    const at::Tensor grad_query = at::zeros_like(query);
    division.for_each_keys(rows, [&](const Block& block) {
      const auto by_key = [&](const at::Tensor& tensor) {
        return tensor.view({key_heads, shared * block.rows(), block.columns()});
      };
      const auto key = scratch.key(block);
      const auto value = scratch.value(block);
      const auto p =
          scores(attention, query, key, block, scratch).sub_(highest).exp_().div_(total).masked_fill_(total.eq(0), 0);
      auto ds = by_query_head(at::bmm(dy, value.mT()), block);
      auto dropped = p;
      if (attention.dropout) {
        const auto factor = attention.dropout(block);
        ds.mul_(factor);
        dropped = p * factor;
      }
      if (attention.rounded) dropped = attention.rounded(dropped);
      ds.sub_(expected).mul_(p);
      if (gradients.rounded) ds = gradients.rounded(ds);
      grad_value.narrow(1, block.column, block.columns()).baddbmm_(by_key(dropped).mT(), dy);
      grad_query.baddbmm_(by_key(ds), key);
      grad_key.narrow(1, block.column, block.columns()).baddbmm_(by_key(ds).mT(), query);
      if (gradients.shift.has_value()) {
        add_reduced(part_of(*gradients.shift, block), ds * at::Scalar(gradients.shift_scale));
      }
    });
    gradients.query.narrow(1, rows.row, rows.rows()).copy_(by_query_head(grad_query.mul_(attention.scale), rows));
    if (gradients.sinks.has_value()) {
      const auto p = (of_each_query(*attention.sinks, rows) - highest).exp_().div_(total);
      gradients.sinks->sub_((p * expected).sum({1, 2}));
    }
  }
  gradients.key.copy_(grad_key);  // its queries are multiplied by the scale
  gradients.value.copy_(grad_value);
}

at::Tensor by_head(In tensor, std::string_view layout, int64_t heads) {
  auto letters = std::string(layout);
  auto all = tensor;
  if (const size_t joined = letters.find('H'); joined != letters.npos) {
    letters.replace(joined, 1, "ND");
    all = all.unflatten(static_cast<int64_t>(joined), {heads, heads > 0 ? all.size(joined) / heads : 0});
  }
  std::replace(letters.begin(), letters.end(), 'T', 'S');
  if (letters.find('B') == letters.npos) {
    letters.insert(0, "B");
    all = all.unsqueeze(0);
  }
  std::vector<int64_t> order;
  for (const char letter : std::string_view("BNSD")) {
    order.push_back(static_cast<int64_t>(letters.find(letter)));
    TORCH_CHECK(letters.find(letter) != letters.npos && all.dim() == 4, "a tensor of layout ", layout, " has shape ",
                tensor.sizes());
  }
  return all.permute(order);
}

}  // namespace cann_cpu
