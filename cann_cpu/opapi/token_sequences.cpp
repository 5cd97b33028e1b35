// SPDX-License-Identifier: Apache-2.0
#include "token_sequences.h"

#include <limits>

namespace cann_cpu {

namespace {

void check_layout(const char* name, Text layout, std::initializer_list<const char*> served) {
  std::string list;
  for (const char* each : served) {
    if (layout == each) return;
    list += (list.empty() ? "" : ", ") + std::string(each);
  }
  TORCH_CHECK(false, name, " is \"", layout, "\"; expected ", list);
}

std::vector<int64_t> numbers(In tensor) {
  const auto all = tensor.to(at::kLong).contiguous();
  const int64_t* values = all.const_data_ptr<int64_t>();
  return {values, values + all.numel()};
}

// Each sequence's begin and length, from the lengths or, of packed sequences, the ends.
struct Extents {
  std::vector<int64_t> begins, lengths;

  Extents(const char* name, OptionalIn given, bool is_packed, int64_t batch, int64_t longest) {
    int64_t end = 0;
    const auto values = given.has_value() ? numbers(*given) : std::vector<int64_t>(static_cast<size_t>(batch), longest);
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t least = is_packed ? end : 0;
      TORCH_CHECK(values[i] >= least && values[i] <= longest, name, "[", i, "] is ", values[i], "; expected ", least,
                  " to ", longest);
      begins.push_back(is_packed ? end : static_cast<int64_t>(i) * longest);
      lengths.push_back(values[i] - least);
      end = values[i];
    }
  }
};

}  // namespace

void TokenArguments::check() const {
  check_layout("layout_query", query_layout, {"BSND", "TND"});
  check_layout(key_layout_name, key_layout, {"BSND", "TND", "PA_BSND"});
  TORCH_CHECK(is_paged() || key_layout == query_layout, key_layout_name, " is ", key_layout, ", layout_query ",
              query_layout, "; expected the same, or PA_BSND");
  check_rank("query", query, query_layout == "TND" ? 3 : 4);
  check_rank("key", key, key_layout == "TND" ? 3 : 4);
  TORCH_CHECK(key.size(-2) == 1, "key has ", key.size(-2), " heads, shape ", key.sizes(), "; expected 1");
  TORCH_CHECK(query_layout != "TND" || query_lengths.has_value(),
              "actual_seq_lengths_query is null; layout_query TND needs it");
  TORCH_CHECK(key_layout == "BSND" || key_lengths.has_value(), key_lengths_name, " is null; ", key_layout_name, " ",
              key_layout, " needs it");
  if (query_lengths.has_value()) check_shape("actual_seq_lengths_query", *query_lengths, {batch()});
  if (key_lengths.has_value()) check_shape(key_lengths_name, *key_lengths, {batch()});
  TORCH_CHECK(key_layout != "BSND" || key.size(0) == batch(), "key has ", key.size(0), " sequences, query ", batch());
  TORCH_CHECK(block_table.has_value() == is_paged(), "block_table is ", is_paged() ? "null; " : "given; ",
              key_layout_name, " is ", key_layout);
  if (!is_paged()) return;
  check_rank("block_table", *block_table, 2);
  TORCH_CHECK(block_table->size(0) == batch(), "block_table has ", block_table->size(0), " rows; expected ", batch());
  TORCH_CHECK(key.size(1) % 16 == 0 && key.size(1) >= 16 && key.size(1) <= 1024, "key has blocks of ", key.size(1),
              " tokens; expected a multiple of 16 up to 1024");
}

TokenSequences::TokenSequences(const TokenArguments& arguments)
    : is_paged_(arguments.is_paged()),
      is_packed_(arguments.key_layout == "TND"),
      page_size_(is_packed_ ? 0 : arguments.key.size(1)) {
  if (is_paged_) {
    pages_of_each_ = arguments.block_table->size(1);
    pages_ = numbers(*arguments.block_table);
  }
  const bool packed_queries = arguments.query_layout == "TND";
  const int64_t batch = arguments.batch();
  const Extents queries("actual_seq_lengths_query", arguments.query_lengths, packed_queries, batch,
                        arguments.query.size(packed_queries ? 0 : 1));
  const int64_t longest = is_paged_ ? pages_of_each_ * page_size_ : arguments.key.size(is_packed_ ? 0 : 1);
  const Extents keys(arguments.key_lengths_name, arguments.key_lengths, is_packed_, batch, longest);
  for (int64_t i = 0; i < batch; ++i) {
    const auto at = static_cast<size_t>(i);
    sequences_.push_back(
        {i, queries.begins[at], queries.lengths[at], is_packed_ ? keys.begins[at] : 0, keys.lengths[at]});
    if (!is_paged_) continue;
    for (int64_t j = 0; j * page_size_ < keys.lengths[at]; ++j) {
      const int64_t value = page(sequences_.back(), j);
      TORCH_CHECK(value >= 0 && value < arguments.key.size(0), "block_table[", i, ", ", j, "] is ", value,
                  "; expected 0 to ", arguments.key.size(0) - 1);
    }
  }
}

int64_t TokenSequences::place(const TokenSequence& sequence, int64_t key) const {
  if (is_packed_) return sequence.first_key + key;
  if (is_paged_) return page(sequence, key / page_size_) * page_size_ + key % page_size_;
  return sequence.index * page_size_ + key;
}

void TokenSequences::copy_keys(const at::Tensor& to, In from, const TokenSequence& sequence, int64_t first) const {
  const int64_t count = to.size(0);
  if (is_packed_) {
    to.copy_(from.narrow(0, sequence.first_key + first, count));
    return;
  }
  for (int64_t done = 0; done < count;) {
    const int64_t key = first + done;
    const int64_t number = is_paged_ ? page(sequence, key / page_size_) : sequence.index;
    const int64_t begin = is_paged_ ? key % page_size_ : key;
    const int64_t part = std::min(count - done, page_size_ - begin);
    to.narrow(0, done, part).copy_(from.select(0, number).narrow(0, begin, part));
    done += part;
  }
}

void check_mask(int64_t sparse_mode, int64_t pre_tokens, int64_t next_tokens) {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  TORCH_CHECK(sparse_mode == 0 || sparse_mode == 3, "sparse_mode is ", sparse_mode, "; expected 0 or 3");
  TORCH_CHECK(pre_tokens == kAll, "pre_tokens is ", pre_tokens, "; expected ", kAll);
  TORCH_CHECK(next_tokens == kAll, "next_tokens is ", next_tokens, "; expected ", kAll);
}

}  // namespace cann_cpu
