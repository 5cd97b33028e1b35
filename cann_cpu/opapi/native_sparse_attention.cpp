// SPDX-License-Identifier: Apache-2.0
// Native sparse attention: keys and values are compressed by windows; attention to these says which blocks matter, and
// attention to those blocks follows.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "best_keys.h"
#include "checks.h"

using namespace cann_cpu;

namespace {

constexpr int64_t kWindowNumbers = 2 << 20;  // in float at a time
constexpr double kHidden = -std::numeric_limits<double>::infinity();

void check_multiple(const char* name, int64_t value, int64_t last) {
  TORCH_CHECK(value >= 16 && value <= last && value % 16 == 0, name, " is ", value,
              "; expected a multiple of 16 up to ", last);
}

// Sequences that follow one another, by their ends.
std::vector<std::pair<int64_t, int64_t>> spans(const char* name, at::IntArrayRef ends, int64_t tokens) {
  std::vector<std::pair<int64_t, int64_t>> all;  // begin, length
  int64_t begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    TORCH_CHECK(ends[i] >= begin && ends[i] <= tokens, name, "[", i, "] is ", ends[i], "; expected ", begin, " to ",
                tokens);
    all.emplace_back(begin, ends[i] - begin);
    begin = ends[i];
  }
  TORCH_CHECK(begin == tokens, name, " ends with ", begin, "; expected ", tokens, ", the tokens");
  return all;
}

// Windows of `size` tokens, `stride` apart, each a weighted sum.
struct Windows {
  int64_t size, stride;

  int64_t count(int64_t tokens) const { return tokens < size ? 0 : (tokens - size) / stride + 1; }

  void check(In input, In weight) const {
    check_multiple("compress_block_size", size, 128);
    check_multiple("compress_stride", stride, size);
    const int64_t heads = input.size(-2), depth = input.size(-1);
    check_shape("weight", weight, {size, heads});
    check_range("the number of input's heads", heads, 1, 128);
    check_multiple("the head size of input", depth, 256);
  }

  // Token j of each of some windows, (windows, heads, head size) in float.
  at::Tensor tokens(In sequence, int64_t first, int64_t windows, int64_t j) const {
    return sequence.slice(0, first * stride + j, (first + windows - 1) * stride + j + 1, stride).to(at::kFloat);
  }

  at::Tensor compressed(In sequence, In weight, int64_t first, int64_t windows) const {
    auto sum = tokens(sequence, first, windows, 0) * weight[0].unsqueeze(1);
    for (int64_t j = 1; j < size; ++j) sum.add_(tokens(sequence, first, windows, j) * weight[j].unsqueeze(1));
    return sum;
  }
};

// Calls part(begin of the sequence, its windows' begin in the result, first window, windows).
template <class Part>
void by_windows(const Windows& windows, const std::vector<std::pair<int64_t, int64_t>>& sequences, In input,
                const Part& part) {
  const int64_t step = std::max<int64_t>(kWindowNumbers / std::max<int64_t>(input[0].numel(), 1), 1);
  int64_t done = 0;
  for (const auto& [begin, length] : sequences) {
    const int64_t count = windows.count(length);
    for (int64_t first = 0; first < count; first += step) {
      part(input.narrow(0, begin, length), begin, done + first, first, std::min(step, count - first));
    }
    done += count;
  }
}

std::vector<std::pair<int64_t, int64_t>> check_compression(const Windows& windows, In input, In weight, Ints ends,
                                                           Text layout, int64_t kind, In compressed) {
  check_rank("input", input, 3);
  windows.check(input, weight);
  TORCH_CHECK(layout == "TND", "layout is \"", layout, "\"; expected TND");
  check_range("act_seq_len_type", kind, 0, 0);
  const auto sequences = spans("act_seq_len", ends, input.size(0));
  int64_t count = 0;
  for (const auto& sequence : sequences) count += windows.count(sequence.second);
  check_shape("the compressed tensor", compressed, {count, input.size(1), input.size(2)});
  return sequences;
}

}  // namespace

ACLNN_TYPED(NsaCompress, "input: float16 bfloat16; weight, output: as input",
            [](In input, In weight, Ints act_seq_len, Text layout, int64_t compress_block_size, int64_t compress_stride,
               int64_t act_seq_len_type, Out output) {
              const Windows windows{compress_block_size, compress_stride};
              const auto sequences =
                  check_compression(windows, input, weight, act_seq_len, layout, act_seq_len_type, output);
              const auto wide = weight.to(at::kFloat);
              by_windows(windows, sequences, input,
                         [&](In sequence, int64_t, int64_t to, int64_t first, int64_t count) {
                           output.narrow(0, to, count).copy_(windows.compressed(sequence, wide, first, count));
                         });
            });

ACLNN_TYPED(NsaCompressGrad, "output_grad: float16 bfloat16; input, weight, input_grad, weight_grad: as output_grad",
            [](In output_grad, In input, In weight, Ints act_seq_len, int64_t compress_block_size,
               int64_t compress_stride, int64_t act_seq_len_type, Text layout, Out input_grad, Out weight_grad) {
              const Windows windows{compress_block_size, compress_stride};
              const auto sequences =
                  check_compression(windows, input, weight, act_seq_len, layout, act_seq_len_type, output_grad);
              check_shape("input_grad", input_grad, input.sizes());
              check_shape("weight_grad", weight_grad, weight.sizes());
              const auto wide = weight.to(at::kFloat), of_weight = at::zeros(weight.sizes(), at::kFloat);
              by_windows(
                  windows, sequences, input, [&](In sequence, int64_t, int64_t to, int64_t first, int64_t count) {
                    const auto dy = output_grad.narrow(0, to, count).to(at::kFloat);
                    for (int64_t j = 0; j < windows.size; ++j) {
                      of_weight[j].add_((dy * windows.tokens(sequence, first, count, j)).sum(at::IntArrayRef({0, 2})));
                    }
                  });
              weight_grad.copy_(of_weight);
              const int64_t step = std::max<int64_t>(kWindowNumbers / std::max<int64_t>(input[0].numel(), 1), 1);
              int64_t done = 0;
              for (const auto& [begin, length] : sequences) {
                const int64_t count = windows.count(length);
                for (int64_t first = 0; first < length; first += step) {  // tokens
                  const int64_t part = std::min(step, length - first);
                  const auto dx = at::zeros({part, input.size(1), input.size(2)}, at::kFloat);
                  for (int64_t j = 0; j < windows.size; ++j) {
                    // The windows whose token j is one of these.
                    const int64_t stride = windows.stride;
                    const int64_t low = std::max<int64_t>((first - j + stride - 1) / stride, 0);
                    const int64_t high =
                        first + part - 1 < j ? 0 : std::min((first + part - 1 - j) / stride + 1, count);
                    if (first - j < 0 ? high <= 0 : high <= low) continue;
                    const auto dy = output_grad.narrow(0, done + low, high - low).to(at::kFloat);
                    const int64_t place = low * stride + j - first;
                    dx.slice(0, place, place + (high - low - 1) * stride + 1, stride).add_(dy * wide[j].unsqueeze(1));
                  }
                  input_grad.narrow(0, begin + first, part).copy_(dx);
                }
                done += count;
              }
            });

// Compresses the last window of each sequence whose last token completes one.
ACLNN_TYPED_CHECKED(NsaCompressWithCache,
                    "input: float16 bfloat16; weight, output_cache: as input; slot_mapping, block_table: int32",
                    [](Phase phase, In input, In weight, In slot_mapping, Ints act_seq_len, OptionalIn block_table,
                       Text layout, int64_t compress_block_size, int64_t compress_stride, int64_t act_seq_len_type,
                       int64_t page_block_size, InOut output_cache) {
                      const Windows windows(compress_block_size, compress_stride);
                      const auto batch = static_cast<int64_t>(act_seq_len.size());
                      const bool is_paged = block_table.has_value();
                      check_rank("input", input, is_paged ? 4 : 3);
                      windows.check(input, weight);
                      TORCH_CHECK(compress_stride <= 64, "compress_stride is ", compress_stride,
                                  "; expected 16, 32, 48 or 64");
                      check_range("act_seq_len_type", act_seq_len_type, 1, 1);
                      check_shape("slot_mapping", slot_mapping, {batch});
                      TORCH_CHECK(output_cache.dim() >= 3 && output_cache.is_contiguous(), "output_cache has shape ",
                                  output_cache.sizes(), "; expected at least 3 dimensions, contiguous");
                      TORCH_CHECK(output_cache.size(-2) == input.size(-2) && output_cache.size(-1) == input.size(-1),
                                  "output_cache has shape ", output_cache.sizes(), ", input ", input.sizes());
                      int64_t total = 0;
                      for (const int64_t length : act_seq_len) total += length;
                      if (!is_paged) {
                        TORCH_CHECK(layout == "TND", "layout is \"", layout, "\"; expected TND");
                        TORCH_CHECK(total == input.size(0), "act_seq_len adds up to ", total, "; input has ",
                                    input.size(0), " tokens");
                      } else {
                        TORCH_CHECK(page_block_size == 64 || page_block_size == 128, "page_block_size is ",
                                    page_block_size, "; expected 64 or 128");
                        TORCH_CHECK(input.size(1) == page_block_size, "input has pages of ", input.size(1),
                                    " tokens; page_block_size is ", page_block_size);
                        TORCH_CHECK(block_table->dim() == 2 && block_table->size(0) == batch, "block_table has shape ",
                                    block_table->sizes(), "; expected ", batch, " rows");
                        check_values("act_seq_len", act_seq_len, 0, block_table->size(1) * page_block_size);
                      }
                      if (phase == Phase::Check) return;
                      const auto cache = output_cache.view({-1, output_cache.size(-2), output_cache.size(-1)});
                      const auto slots = slot_mapping.contiguous(), wide = weight.to(at::kFloat);
                      std::vector<at::Tensor> rows(static_cast<size_t>(batch));
                      int64_t begin = 0;
                      for (int64_t i = 0; i < batch; ++i) {
                        const int64_t length = act_seq_len[static_cast<size_t>(i)], first = length - windows.size;
                        if (first >= 0 && first % windows.stride == 0) {
                          const int64_t slot = slots.const_data_ptr<int32_t>()[i];
                          TORCH_CHECK(slot >= 0 && slot < cache.size(0), "slot_mapping[", i, "] is ", slot,
                                      "; expected 0 to ", cache.size(0) - 1);
                          std::vector<at::Tensor> tokens;
                          for (int64_t j = first; j < length;) {
                            if (!is_paged) {
                              tokens.push_back(input.narrow(0, begin + first, windows.size));
                              break;
                            }
                            const int64_t page = (*block_table)[i][j / page_block_size].item<int32_t>();
                            TORCH_CHECK(page >= 0 && page < input.size(0), "block_table[", i, ", ", j / page_block_size,
                                        "] is ", page, "; expected 0 to ", input.size(0) - 1);
                            const int64_t part = std::min(length - j, page_block_size - j % page_block_size);
                            tokens.push_back(input[page].narrow(0, j % page_block_size, part));
                            j += part;
                          }
                          rows[static_cast<size_t>(i)] = windows.compressed(at::cat(tokens), wide, 0, 1)[0];
                        }
                        begin += length;
                      }
                      for (int64_t i = 0; i < batch; ++i) {
                        const auto& row = rows[static_cast<size_t>(i)];
                        if (row.defined()) cache[slots.const_data_ptr<int32_t>()[i]].copy_(row);
                      }
                    });

namespace {

// How the compressed keys that belong to a block of the selection share in its importance.
struct Importance {
  int64_t compress_size, compress_stride, select_size;

  void check() const {
    check_multiple("compress_block_size", compress_size, 128);
    check_multiple("compress_stride", compress_stride, 64);
    check_multiple("select_block_size", select_size, 128);
    TORCH_CHECK(compress_size >= compress_stride && select_size >= compress_size && select_size % compress_stride == 0,
                "compress_block_size is ", compress_size, ", compress_stride ", compress_stride, ", select_block_size ",
                select_size, "; expected stride <= compressed block <= selected block, a multiple of the stride");
  }

  // (..., blocks) from the probabilities (..., compressed keys): each block sums those of the windows that reach it,
  // P[a j - m - n] for m below a = select size / stride and n below compress size / stride.
  at::Tensor of(In probabilities, int64_t blocks) const {
    const int64_t each = select_size / compress_stride, overlap = compress_size / compress_stride;
    const auto sums = at::zeros({probabilities.size(0), blocks}, at::kFloat);
    for (int64_t back = 0; back < each + overlap - 1; ++back) {
      const int64_t times = std::min({back + 1, each, overlap, each + overlap - 1 - back});
      const int64_t first = (back + each - 1) / each;  // the first block that lies so far behind
      const int64_t last = std::min(blocks - 1, (probabilities.size(1) - 1 + back) / each);
      if (last < first) continue;
      const int64_t begin = each * first - back;
      const auto part = probabilities.slice(1, begin, begin + each * (last - first) + 1, each);
      sums.narrow(1, first, last - first + 1).add_(part, times);
    }
    return sums;
  }
};

struct Softmax {
  at::Tensor probabilities, maximum, sum;  // the latter (rows, 1)
};

Softmax softmax_of(at::Tensor scores) {
  auto maximum = scores.amax({-1}, /*keepdim=*/true);
  maximum.masked_fill_(maximum.isinf(), 0);
  auto exponentials = scores.sub_(maximum).exp_();
  const auto sum = exponentials.sum({-1}, /*keepdim=*/true);
  exponentials.div_(sum).masked_fill_(sum.eq(0), 0);
  return {exponentials, maximum, sum};
}

void check_heads(In query, In key, int64_t head_num, int64_t most) {
  TORCH_CHECK(query.size(1) == head_num, "head_num is ", head_num, "; query has ", query.size(1), " heads");
  TORCH_CHECK(key.size(1) > 0 && head_num % key.size(1) == 0 && head_num / key.size(1) <= most, "head_num is ",
              head_num, "; expected a multiple of the ", key.size(1), " heads of key, up to ", most, " times");
  TORCH_CHECK(query.size(2) == key.size(2), "query has a head size of ", query.size(2), ", key ", key.size(2));
}

void check_packed(In query, In key, In value, Text layout) {
  TORCH_CHECK(layout == "TND", "input_layout is \"", layout, "\"; expected TND");
  check_rank("query", query, 3);
  check_rank("key", key, 3);
  check_shape("value", value, {key.size(0), key.size(1), value.size(-1)});
}

// Attention of the heads of queries (queries, heads, size) that share a head of keys to compressed keys (keys, size),
// and the blocks that are best for all of them together. `hidden` is true where a query does not see a key, `always`
// where a block is selected whatever its importance.
struct CompressedAttention {
  double scale;
  Importance importance;
  int64_t block_count;

  Softmax run(In query, In key, In value, OptionalIn hidden, OptionalIn always, int64_t blocks, const at::Tensor& out,
              int32_t* indices, int64_t indices_stride) const {
    const int64_t queries = query.size(0), heads = query.size(1);
    auto scores = at::matmul(query.flatten(0, 1).to(at::kFloat), key.to(at::kFloat).t()).mul_(scale);
    if (hidden.has_value()) scores.view({queries, heads, -1}).masked_fill_(hidden->unsqueeze(1), kHidden);
    const auto softmax = softmax_of(scores);
    out.copy_(at::matmul(softmax.probabilities, value.to(at::kFloat)).view(out.sizes()));
    const auto of_query = softmax.probabilities.view({queries, heads, -1}).sum(1);
    const auto sums = importance.of(of_query, blocks);
    if (always.has_value()) sums.masked_fill_(*always, std::numeric_limits<float>::max());
    for (int64_t i = 0; i < queries; ++i) {
      write_best(sums.const_data_ptr<float>() + i * blocks, blocks, block_count, indices + i * indices_stride, nullptr);
    }
    return softmax;
  }
};

}  // namespace

ACLNN_TYPED(NsaCompressAttention,
            "query: float16 bfloat16; key, value, attention_out: as query; atten_mask, topk_mask: bool; softmax_max, "
            "softmax_sum: float32; topk_indices: int32",
            [](In query, In key, In value, OptionalIn atten_mask, OptionalIn topk_mask, Ints actual_seq_q_len,
               Ints actual_cmp_seq_kv_len, Ints actual_sel_seq_kv_len, double scale_value, int64_t head_num,
               Text input_layout, int64_t sparse_mode, int64_t compress_block_size, int64_t compress_stride,
               int64_t select_block_size, int64_t select_block_count, Out softmax_max, Out softmax_sum,
               Out attention_out, Out topk_indices) {
              check_packed(query, key, value, input_layout);
              check_heads(query, key, head_num, 128);
              check_range("sparse_mode", sparse_mode, 0, 1);
              check_range("select_block_count", select_block_count, 1, 32);
              const Importance importance{compress_block_size, compress_stride, select_block_size};
              importance.check();
              const int64_t tokens = query.size(0), heads = key.size(1), group = head_num / heads;
              check_shape("attention_out", attention_out, {tokens, head_num, value.size(2)});
              check_shape("topk_indices", topk_indices, {tokens, heads, select_block_count});
              check_shape("softmax_max", softmax_max, {tokens, head_num, 8});
              check_shape("softmax_sum", softmax_sum, {tokens, head_num, 8});
              const auto queries = spans("actual_seq_q_len", actual_seq_q_len, tokens);
              const auto keys = spans("actual_cmp_seq_kv_len", actual_cmp_seq_kv_len, key.size(0));
              TORCH_CHECK(keys.size() == queries.size() && actual_sel_seq_kv_len.size() == queries.size(),
                          "actual_seq_q_len has ", queries.size(), " sequences, actual_cmp_seq_kv_len ", keys.size(),
                          ", actual_sel_seq_kv_len ", actual_sel_seq_kv_len.size());
              const auto selected = spans("actual_sel_seq_kv_len", actual_sel_seq_kv_len,
                                          actual_sel_seq_kv_len.empty() ? 0 : actual_sel_seq_kv_len.back());
              int64_t longest[3] = {};
              for (size_t i = 0; i < queries.size(); ++i) {
                longest[0] = std::max(longest[0], queries[i].second);
                longest[1] = std::max(longest[1], keys[i].second);
                longest[2] = std::max(longest[2], selected[i].second);
                TORCH_CHECK(select_block_count <= selected[i].second, "select_block_count is ", select_block_count,
                            "; sequence ", i, " has ", selected[i].second, " blocks by actual_sel_seq_kv_len");
              }
              const auto check_mask = [&](const char* name, OptionalIn mask, int64_t columns) {
                if (!mask.has_value()) return;
                TORCH_CHECK(mask->dim() == 2 && mask->size(0) >= longest[0] && mask->size(1) >= columns, name,
                            " has shape ", mask->sizes(), "; expected [", longest[0], ", ", columns, "]");
              };
              check_mask("atten_mask", atten_mask, longest[1]);
              check_mask("topk_mask", topk_mask, longest[2]);
              const CompressedAttention attention{scale_value, importance, select_block_count};
              for (size_t i = 0; i < queries.size(); ++i) {
                const auto [first_query, count] = queries[i];
                const auto [first_key, length] = keys[i];
                if (length == 0) continue;
                const int64_t blocks = selected[i].second;
                const int64_t step = std::max<int64_t>(kWindowNumbers / (group * length), 1);
                for (int64_t begin = 0; begin < count; begin += step) {
                  const int64_t part = std::min(step, count - begin), token = first_query + begin;
                  const auto of_part = [&](OptionalIn mask, int64_t columns) {
                    return mask.has_value() ? std::optional(mask->narrow(0, begin, part).narrow(1, 0, columns))
                                            : std::nullopt;
                  };
                  const auto hidden = of_part(atten_mask, length), always = of_part(topk_mask, blocks);
                  for (int64_t head = 0; head < heads; ++head) {
                    const auto of_heads = [&](In tensor) {
                      return tensor.narrow(0, token, part).narrow(1, head * group, group);
                    };
                    const auto found = at::empty({part, select_block_count}, at::kInt);
                    const auto softmax =
                        attention.run(of_heads(query), key.select(1, head).narrow(0, first_key, length),
                                      value.select(1, head).narrow(0, first_key, length), hidden, always, blocks,
                                      of_heads(attention_out), found.mutable_data_ptr<int32_t>(), select_block_count);
                    topk_indices.select(1, head).narrow(0, token, part).copy_(found);
                    of_heads(softmax_max).copy_(softmax.maximum.view({part, group, 1}));
                    of_heads(softmax_sum).copy_(softmax.sum.view({part, group, 1}));
                  }
                }
              }
            });

namespace {

// Selected blocks of keys, of one query and one head of keys.
struct SelectedBlocks {
  int64_t block_size, block_count;

  void check(In indices, std::vector<int64_t> expected, int64_t largest) const {
    check_multiple("select_block_size", block_size, 128);
    check_range("select_block_count", block_count, 1, largest);
    expected.push_back(block_count);
    check_shape("topk_indices", indices, expected);
  }

  // The keys of the blocks up to the first -1; the last block may be cut by the sequence's end.
  std::vector<int64_t> keys(const int32_t* indices, int64_t length) const {
    std::vector<int64_t> found;
    for (int64_t i = 0; i < block_count && indices[i] >= 0; ++i) {
      const int64_t begin = indices[i] * block_size;
      for (int64_t key = begin; key < std::min(begin + block_size, length); ++key) found.push_back(key);
    }
    return found;
  }

  void check_values(In indices, int64_t token, int64_t head, const int32_t* values, int64_t length) const {
    const int64_t blocks = (length + block_size - 1) / block_size;
    for (int64_t i = 0; i < block_count; ++i) {
      TORCH_CHECK(values[i] >= -1 && values[i] < blocks, "topk_indices[", token, ", ", head, ", ", i, "] is ",
                  values[i], "; expected 0 to ", blocks - 1, ", or -1, as topk_indices has shape ", indices.sizes());
    }
  }
};

at::Tensor as_tensor(std::vector<int64_t>& numbers) {
  return at::from_blob(numbers.data(), {static_cast<int64_t>(numbers.size())}, at::kLong);
}

// Attention to selected blocks in TND, and its gradient.
struct BlockAttention {
  In query, key, value, indices;
  OptionalIn mask;
  Ints query_ends, key_ends;
  double scale;
  int64_t head_num;
  Text layout;
  int64_t sparse_mode;
  SelectedBlocks blocks;

  int64_t heads() const { return key.size(1); }
  int64_t group() const { return head_num / heads(); }

  void check() const {
    check_packed(query, key, value, layout);
    check_heads(query, key, head_num, 32);
    TORCH_CHECK(value.size(2) <= key.size(2), "value has a head size of ", value.size(2), ", key ", key.size(2));
    TORCH_CHECK(sparse_mode == 0 || sparse_mode == 2, "sparse_mode is ", sparse_mode, "; expected 0 or 2");
    blocks.check(indices, {query.size(0), heads()}, 128);
    const auto queries = spans("actual_seq_q_len", query_ends, query.size(0));
    const auto keys = spans("actual_seq_kv_len", key_ends, key.size(0));
    TORCH_CHECK(queries.size() == keys.size(), "actual_seq_q_len has ", queries.size(),
                " sequences, actual_seq_kv_len ", keys.size());
    if (mask.has_value()) check_rank("atten_mask", *mask, 2);
    for (size_t i = 0; i < queries.size() && mask.has_value() && sparse_mode == 0; ++i) {
      TORCH_CHECK(mask->size(0) >= queries[i].second && mask->size(1) >= keys[i].second, "atten_mask has shape ",
                  mask->sizes(), "; expected at least [", queries[i].second, ", ", keys[i].second, "]");
    }
  }

  // Calls each(token, head of keys, the selected keys among all tokens, which of them are hidden) for what sees a key.
  template <class Each>
  void by_query(const Each& each) const {
    const auto all = indices.contiguous();
    const auto queries = spans("actual_seq_q_len", query_ends, query.size(0));
    const auto keys = spans("actual_seq_kv_len", key_ends, key.size(0));
    const auto values_of = [&](int64_t token, int64_t head) {
      return all.const_data_ptr<int32_t>() + (token * heads() + head) * blocks.block_count;
    };
    const auto by_head = [&](const auto& run) {
      for (size_t i = 0; i < queries.size(); ++i) {
        for (int64_t t = 0; t < queries[i].second; ++t) {
          for (int64_t head = 0; head < heads(); ++head) run(i, t, head);
        }
      }
    };
    by_head([&](size_t i, int64_t t, int64_t head) {
      const int64_t token = queries[i].first + t;
      blocks.check_values(indices, token, head, values_of(token, head), keys[i].second);
    });
    by_head([&](size_t i, int64_t t, int64_t head) {
      const int64_t token = queries[i].first + t;
      auto selected = blocks.keys(values_of(token, head), keys[i].second);
      if (mask.has_value() && sparse_mode == 2) std::erase_if(selected, [&](int64_t each) { return each > t; });
      auto places = as_tensor(selected).clone();
      std::optional<at::Tensor> hidden;
      if (mask.has_value() && sparse_mode == 0) hidden = (*mask)[t].to(at::kBool).index_select(0, places);
      each(token, head, places + at::Scalar(keys[i].first), hidden);
    });
  }

  static at::Tensor fetched_rows(In tensor, int64_t head, In places) {
    return tensor.select(1, head).index_select(0, places).to(at::kFloat);
  }
  at::Tensor of_heads(In tensor, int64_t token, int64_t head) const {
    return tensor[token].narrow(0, head * group(), group());
  }

  at::Tensor scores(int64_t token, int64_t head, In keys, OptionalIn hidden) const {
    auto result = at::matmul(of_heads(query, token, head).to(at::kFloat), keys.t()).mul_(scale);
    if (hidden.has_value()) result.masked_fill_(*hidden, kHidden);
    return result;
  }

  void run(Out softmax_max, Out softmax_sum, Out attention_out) const {
    by_query([&](int64_t token, int64_t head, In places, OptionalIn hidden) {
      const auto rows = [&](In tensor) { return of_heads(tensor, token, head); };
      if (places.numel() == 0) {
        for (const auto& tensor : {softmax_max, softmax_sum, attention_out}) rows(tensor).zero_();
        return;
      }
      const auto softmax = softmax_of(scores(token, head, fetched_rows(key, head, places), hidden));
      rows(softmax_max).copy_(softmax.maximum);
      rows(softmax_sum).copy_(softmax.sum);
      rows(attention_out).copy_(at::matmul(softmax.probabilities, fetched_rows(value, head, places)));
    });
  }

  void run_backward(In out, In grad, In softmax_max, In softmax_sum, Out dq, Out dk, Out dv) const {
    dq.zero_();
    auto of_keys = at::zeros(key.sizes(), at::kFloat), of_values = at::zeros(value.sizes(), at::kFloat);
    by_query([&](int64_t token, int64_t head, In places, OptionalIn hidden) {
      if (places.numel() == 0) return;
      const auto rows = [&](In tensor) { return of_heads(tensor, token, head).to(at::kFloat); };
      const auto first = [&](In tensor) { return rows(tensor).narrow(1, 0, 1); };
      const auto keys = fetched_rows(key, head, places), values = fetched_rows(value, head, places);
      const auto dy = rows(grad), sum = first(softmax_sum);
      auto p = scores(token, head, keys, hidden).sub_(first(softmax_max)).exp_().div_(sum);
      p.masked_fill_(sum.eq(0), 0);
      const auto total = (dy * rows(out)).sum({-1}, /*keepdim=*/true);
      const auto ds = (at::matmul(dy, values.t()) - total).mul_(p).mul_(scale);
      of_heads(dq, token, head).copy_(at::matmul(ds, keys));
      of_keys.select(1, head).index_add_(0, places, at::matmul(ds.t(), rows(query)));
      of_values.select(1, head).index_add_(0, places, at::matmul(p.t(), dy));
    });
    dk.copy_(of_keys);
    dv.copy_(of_values);
  }
};

}  // namespace

ACLNN_TYPED_CHECKED(
    NsaSelectedAttention,
    "query: float16 bfloat16; key, value, attention_out: as query; topk_indices: int32; atten_mask: bool "
    "uint8; softmax_max, softmax_sum: float32",
    [](Phase phase, In query, In key, In value, In topk_indices, OptionalIn atten_mask, Ints actual_seq_q_len,
       Ints actual_seq_kv_len, double scale_value, int64_t head_num, Text input_layout, int64_t sparse_mode,
       int64_t selected_block_size, int64_t selected_block_count, Out softmax_max, Out softmax_sum, Out attention_out) {
      const SelectedBlocks blocks(selected_block_size, selected_block_count);
      const BlockAttention attention(query, key, value, topk_indices, atten_mask, actual_seq_q_len, actual_seq_kv_len,
                                     scale_value, head_num, input_layout, sparse_mode, blocks);
      attention.check();
      check_shape("attention_out", attention_out, {query.size(0), head_num, value.size(2)});
      check_shape("softmax_max", softmax_max, {query.size(0), head_num, 8});
      check_shape("softmax_sum", softmax_sum, {query.size(0), head_num, 8});
      if (phase == Phase::Check) return;
      attention.run(softmax_max, softmax_sum, attention_out);
    });

ACLNN_TYPED_CHECKED(NsaSelectedAttentionGrad,
                    "query: float16 bfloat16; key, value, attention_out, attention_out_grad, dq, dk, dv: as query; "
                    "topk_indices: int32; "
                    "atten_mask: bool uint8; softmax_max, softmax_sum: float32",
                    [](Phase phase, In query, In key, In value, In attention_out, In attention_out_grad, In softmax_max,
                       In softmax_sum, In topk_indices, Ints actual_seq_q_len, Ints actual_seq_kv_len,
                       OptionalIn atten_mask, double scale_value, int64_t selected_block_size,
                       int64_t selected_block_count, int64_t head_num, Text input_layout, int64_t sparse_mode, Out dq,
                       Out dk, Out dv) {
                      const SelectedBlocks blocks(selected_block_size, selected_block_count);
                      const BlockAttention attention(query, key, value, topk_indices, atten_mask, actual_seq_q_len,
                                                     actual_seq_kv_len, scale_value, head_num, input_layout,
                                                     sparse_mode, blocks);
                      attention.check();
                      check_shape("attention_out", attention_out, {query.size(0), head_num, value.size(2)});
                      check_shape("attention_out_grad", attention_out_grad, attention_out.sizes());
                      check_shape("softmax_max", softmax_max, {query.size(0), head_num, 8});
                      check_shape("softmax_sum", softmax_sum, {query.size(0), head_num, 8});
                      check_shape("dq", dq, query.sizes());
                      check_shape("dk", dk, key.sizes());
                      check_shape("dv", dv, value.sizes());
                      if (phase == Phase::Check) return;
                      attention.run_backward(attention_out, attention_out_grad, softmax_max, softmax_sum, dq, dk, dv);
                    });

namespace {

// One token of each sequence against keys and values in pages, (pages, tokens, heads * size) or (.., heads, size).
struct PagedDecode {
  In query, key, value;
  OptionalIn block_table;
  at::OptionalIntArrayRef query_lengths;
  Ints key_lengths;
  Text layout;
  int64_t head_num, key_heads, page_size;

  int64_t batch() const { return query.size(0); }
  int64_t group() const { return head_num / key_heads; }
  at::Tensor queries() const { return query.reshape({batch(), head_num, -1}); }
  at::Tensor paged(In tensor) const { return tensor.view({tensor.size(0) * tensor.size(1), key_heads, -1}); }
  int64_t pages_of_each() const { return block_table->size(1); }

  void check(In out) const {
    TORCH_CHECK(layout == "TND" || layout == "BSND" || (layout == "BSH" && query.dim() == 3), "layout is \"", layout,
                "\"; expected TND or BSND");
    check_contiguous("query", query);
    check_contiguous("key", key);
    check_contiguous("value", value);
    TORCH_CHECK(layout == "TND" || query.size(1) == 1, "query has ", query.size(1), " tokens of each sequence, shape ",
                query.sizes(), "; only 1 is implemented");
    if (query_lengths.has_value()) check_values("actual_q_seq_len", *query_lengths, 1, 1);
    TORCH_CHECK(key_heads > 0 && head_num % key_heads == 0, "num_heads is ", head_num, ", num_key_value_heads ",
                key_heads);
    TORCH_CHECK(query.numel() % (batch() * head_num) == 0, "query has shape ", query.sizes(), "; num_heads is ",
                head_num);
    TORCH_CHECK(key.dim() >= 3 && key.size(1) == page_size && value.dim() >= 3 && value.size(1) == page_size &&
                    value.size(0) == key.size(0),
                "key has shape ", key.sizes(), ", value ", value.sizes(), "; page_block_size is ", page_size);
    check_multiple("page_block_size", page_size, 128);
    const int64_t size = query.numel() / (batch() * head_num);
    TORCH_CHECK(key.numel() == key.size(0) * page_size * key_heads * size, "key has shape ", key.sizes(),
                "; query has a head size of ", size);
    TORCH_CHECK(block_table.has_value(), "block_table is null; keys lie in pages");
    TORCH_CHECK(block_table->dim() == 2 && block_table->size(0) == batch(), "block_table has shape ",
                block_table->sizes(), "; expected ", batch(), " rows");
    TORCH_CHECK(static_cast<int64_t>(key_lengths.size()) == batch(), "the lengths of keys have ", key_lengths.size(),
                " elements; expected ", batch());
    check_values("the lengths of keys", key_lengths, 0, pages_of_each() * page_size);
    const int64_t value_size = value.numel() / (value.size(0) * page_size * key_heads);
    TORCH_CHECK(out.numel() == batch() * head_num * value_size && out.size(0) == batch(), "output has shape ",
                out.sizes(), "; expected ", batch(), " x ", head_num, " x ", value_size, " numbers");
  }

  static void check_values(const char* name, at::IntArrayRef list, int64_t first, int64_t last) {
    cann_cpu::check_values(name, list, first, last);
  }

  // Keys of a sequence as places among all tokens.
  at::Tensor places(In table, int64_t sequence, const std::vector<int64_t>& keys) const {
    const auto result = at::empty({static_cast<int64_t>(keys.size())}, at::kLong);
    const int32_t* row = table.const_data_ptr<int32_t>() + sequence * pages_of_each();
    int64_t* to = result.mutable_data_ptr<int64_t>();
    for (const int64_t each : keys) *to++ = row[each / page_size] * page_size + each % page_size;
    return result;
  }

  // The block table, whose pages are checked as far as the sequences reach.
  at::Tensor table() const {
    const auto all = block_table->contiguous();
    for (int64_t i = 0; i < batch(); ++i) {
      for (int64_t j = 0; j * page_size < key_lengths[static_cast<size_t>(i)]; ++j) {
        const int64_t page = all.const_data_ptr<int32_t>()[i * pages_of_each() + j];
        TORCH_CHECK(page >= 0 && page < key.size(0), "block_table[", i, ", ", j, "] is ", page, "; expected 0 to ",
                    key.size(0) - 1);
      }
    }
    return all;
  }
};

std::vector<int64_t> counted(int64_t count) {
  std::vector<int64_t> all(static_cast<size_t>(count));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  return all;
}

using DecodeMask = Ignored<OptionalIn>;    // CANN reads it only for several tokens of a sequence
using ReservedMask = Ignored<OptionalIn>;  // CANN documents it as without effect
using SparseModeOfMask = Ignored<int64_t>;
using LengthsBefore = Ignored<OptionalInts>;  // of keys before they were compressed; CANN uses them for several tokens

}  // namespace

ACLNN_TYPED_CHECKED(
    NsaCompressAttentionInfer, "query: float16 bfloat16; key, value, output: as query; block_table, topk_output: int32",
    [](Phase phase, In query, In key, In value, DecodeMask, OptionalIn block_table, OptionalInts actual_q_seq_len,
       Ints actual_cmp_kv_seq_len, LengthsBefore, ReservedMask, int64_t num_heads, int64_t num_key_value_heads,
       int64_t select_block_size, int64_t select_block_count, int64_t compress_block_size,
       int64_t compress_block_stride, double scale_value, Text layout, int64_t page_block_size, SparseModeOfMask,
       Out output, Out topk_output) {
      const PagedDecode decode(query, key, value, block_table, actual_q_seq_len, actual_cmp_kv_seq_len, layout,
                               num_heads, num_key_value_heads, page_block_size);
      const Importance importance(compress_block_size, compress_block_stride, select_block_size);
      const auto blocks_of = [&](int64_t keys) {
        const int64_t each = select_block_size / compress_block_stride;
        return (keys + each - 1) / each;
      };
      decode.check(output);
      importance.check();
      TORCH_CHECK(decode.group() <= 128 && 128 % decode.group() == 0, "num_heads is ", num_heads,
                  ", num_key_value_heads ", num_key_value_heads, "; expected a quotient that divides 128");
      TORCH_CHECK(topk_output.numel() == query.size(0) * num_key_value_heads * select_block_count,
                  "topk_output has shape ", topk_output.sizes(), "; select_block_count is ", select_block_count);
      for (size_t i = 0; i < actual_cmp_kv_seq_len.size(); ++i) {
        TORCH_CHECK(select_block_count <= blocks_of(actual_cmp_kv_seq_len[i]), "select_block_count is ",
                    select_block_count, "; sequence ", i, " has ", actual_cmp_kv_seq_len[i], " compressed keys, so ",
                    blocks_of(actual_cmp_kv_seq_len[i]), " blocks");
      }
      if (phase == Phase::Check) return;
      const auto table = decode.table();
      const auto queries = decode.queries();
      const auto keys = decode.paged(key);
      const auto values = decode.paged(value);
      const auto out = output.view({decode.batch(), num_heads, -1});
      const auto found = at::empty({decode.batch() * num_key_value_heads, select_block_count}, at::kInt);
      const CompressedAttention attention{scale_value, importance, select_block_count};
      for (int64_t i = 0; i < decode.batch(); ++i) {
        const int64_t count = actual_cmp_kv_seq_len[static_cast<size_t>(i)];
        const auto places = decode.places(table, i, counted(count));
        for (int64_t head = 0; head < num_key_value_heads; ++head) {
          const auto of_heads = [&](In tensor) {
            return tensor.narrow(0, i, 1).narrow(1, head * decode.group(), decode.group());
          };
          attention.run(of_heads(queries), keys.select(1, head).index_select(0, places),
                        values.select(1, head).index_select(0, places), std::nullopt, std::nullopt, blocks_of(count),
                        of_heads(out), found[i * num_key_value_heads + head].mutable_data_ptr<int32_t>(),
                        select_block_count);
        }
      }
      topk_output.copy_(found.view(topk_output.sizes()));
    });

ACLNN_TYPED_CHECKED(NsaSelectedAttentionInfer,
                    "query: float16 bfloat16; key, value, output: as query; topk_indices, block_table: int32",
                    [](Phase phase, In query, In key, In value, In topk_indices, ReservedMask, OptionalIn block_table,
                       OptionalInts actual_q_seq_len, Ints actual_kv_seq_len, Text layout, int64_t num_heads,
                       int64_t num_key_value_heads, int64_t select_block_size, int64_t select_block_count,
                       int64_t page_block_size, double scale_value, SparseModeOfMask, Out output) {
                      const PagedDecode decode(query, key, value, block_table, actual_q_seq_len, actual_kv_seq_len,
                                               layout, num_heads, num_key_value_heads, page_block_size);
                      const SelectedBlocks blocks(select_block_size, select_block_count);
                      decode.check(output);
                      TORCH_CHECK(decode.group() <= 16, "num_heads is ", num_heads, "; expected at most 16 times the ",
                                  num_key_value_heads, " heads of key");
                      check_multiple("select_block_size", select_block_size, 128);
                      TORCH_CHECK(topk_indices.numel() == query.size(0) * num_key_value_heads * select_block_count,
                                  "topk_indices has shape ", topk_indices.sizes(), "; select_block_count is ",
                                  select_block_count);
                      if (phase == Phase::Check) return;
                      const auto table = decode.table();
                      const auto queries = decode.queries();
                      const auto keys = decode.paged(key);
                      const auto values = decode.paged(value);
                      const auto indices = topk_indices.contiguous();
                      const auto out = output.view({decode.batch(), num_heads, -1});
                      const auto by_head = [&](const auto& run) {
                        for (int64_t i = 0; i < decode.batch(); ++i) {
                          for (int64_t head = 0; head < num_key_value_heads; ++head) {
                            run(i, head, actual_kv_seq_len[static_cast<size_t>(i)],
                                indices.const_data_ptr<int32_t>() +
                                    (i * num_key_value_heads + head) * select_block_count);
                          }
                        }
                      };
                      by_head([&](int64_t i, int64_t head, int64_t length, const int32_t* row) {
                        blocks.check_values(topk_indices, i, head, row, length);
                      });
                      by_head([&](int64_t i, int64_t head, int64_t length, const int32_t* row) {
                        const auto to = out[i].narrow(0, head * decode.group(), decode.group());
                        const auto places = decode.places(table, i, blocks.keys(row, length));
                        if (places.numel() == 0) {
                          to.zero_();
                          return;
                        }
                        const auto fetched_rows = [&](In tensor) {
                          return tensor.select(1, head).index_select(0, places).to(at::kFloat);
                        };
                        const auto q = queries[i].narrow(0, head * decode.group(), decode.group()).to(at::kFloat);
                        const auto softmax = softmax_of(at::matmul(q, fetched_rows(keys).t()).mul_(scale_value));
                        to.copy_(at::matmul(softmax.probabilities, fetched_rows(values)));
                      });
                    });
