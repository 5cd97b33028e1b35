// SPDX-License-Identifier: Apache-2.0
// Sequences of queries and of keys, each kind in one tensor: BSND (batch, tokens, heads, size), TND (tokens of all
// sequences, heads, size), and for keys PA_BSND (pages, tokens of a page, heads, size), whose pages a block table
// lists.
#pragma once

#include "checks.h"

namespace cann_cpu {

// The arguments that say where the tokens lie. In TND the lengths are the ends of the sequences.
struct TokenArguments {
  In query, key;
  OptionalIn query_lengths, key_lengths, block_table;
  Text query_layout, key_layout;
  const char* key_lengths_name;  // actual_seq_lengths_key or actual_seq_lengths_kv
  const char* key_layout_name;   // layout_key or layout_kv

  bool is_paged() const { return key_layout == "PA_BSND"; }
  int64_t batch() const { return query_layout == "TND" ? query_lengths->numel() : query.size(0); }
  int64_t tokens() const { return query_layout == "TND" ? query.size(0) : query.size(0) * query.size(1); }
  // (all tokens, heads, size)
  at::Tensor queries() const { return query_layout == "TND" ? query : query.flatten(0, 1); }

  // Of shapes and layouts, for phase one; keys have one head.
  void check() const;
};

struct TokenSequence {
  int64_t index;
  int64_t first_query;  // among the tokens of all sequences
  int64_t queries;
  int64_t first_key;  // in TND
  int64_t keys;

  // How many keys a query sees, by its place in the sequence; with a causal mask the last query sees all.
  int64_t visible(int64_t query, bool is_causal) const {
    return is_causal ? std::clamp<int64_t>(keys - queries + query + 1, 0, keys) : keys;
  }
};

// The sequences of a call whose lengths and block table have been found right, for phase two.
class TokenSequences {
 public:
  explicit TokenSequences(const TokenArguments& arguments);

  auto begin() const { return sequences_.begin(); }
  auto end() const { return sequences_.end(); }

  // The places of a sequence's keys among all tokens of the tensor, where its first two dimensions are one (in TND the
  // first).
  int64_t place(const TokenSequence& sequence, int64_t key) const;

  // Copies the keys of a sequence from `first` on, from a tensor in the layout of the keys.
  void copy_keys(const at::Tensor& to, In from, const TokenSequence& sequence, int64_t first) const;

 private:
  int64_t page(const TokenSequence& sequence, int64_t number) const {
    return pages_[static_cast<size_t>(sequence.index * pages_of_each_ + number)];
  }

  bool is_paged_, is_packed_;
  int64_t page_size_;  // of BSND: the tokens of a sequence
  int64_t pages_of_each_ = 0;
  std::vector<int64_t> pages_;
  std::vector<TokenSequence> sequences_;
};

// The attributes of functions that take a mask only as sparse_mode 0, none, or 3, causal to the last key.
void check_mask(int64_t sparse_mode, int64_t pre_tokens, int64_t next_tokens);

}  // namespace cann_cpu
