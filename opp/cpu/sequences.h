// SPDX-License-Identifier: Apache-2.0
// The sequences of a call whose query and key tokens lie padded (BSND), packed (TND) or in pages (PA_BSND): what the
// operators that take them have in common.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace opp {

// The arguments that say where the tokens are. Operators call those of the key differently.
struct SequenceArguments {
  const at::Tensor& query;
  const at::Tensor& key;
  const std::optional<at::Tensor>& actual_seq_lengths_query;
  const std::optional<at::Tensor>& actual_seq_lengths_key;
  const std::optional<at::Tensor>& block_table;
  const std::string& layout_query;
  const std::string& layout_key;
  int64_t sparse_mode;
  const char* key_lengths_name = "actual_seq_lengths_key";
  const char* key_name = "key";

  bool packed() const { return layout_query == "TND"; }
  bool paged() const { return layout_key == "PA_BSND"; }
};

// One batch entry: `queries` query tokens and `keys` key tokens. Rows of the output past the queries stay without keys.
struct Sequence {
  int64_t batch;
  int64_t first_query;  // token in its batch entry (BSND) or in the whole tensor (TND)
  int64_t first_key;
  int64_t queries;
  int64_t rows;
  int64_t keys;
  bool causal;

  // How many keys query token `query` sees.
  int64_t visible(int64_t query) const;
};

// Reads the lengths, and checks them and the block table. Throws c10::Error for a length or a block number out of
// range.
std::vector<Sequence> read_sequences(const SequenceArguments& call);

// Where a key token lies: in a page and from its start on; without pages, in a batch entry (BSND) or in the tensor
// (TND).
struct KeyPlace {
  int64_t page;  // -1: the block table names none
  int64_t token;
};

// Where the key tokens of a sequence lie, by their positions in it, which int32 holds.
class KeyPlaces {
 public:
  KeyPlaces(const SequenceArguments& call, const Sequence& sequence)
      : batch_(sequence.batch), first_(sequence.first_key) {
    if (!call.block_table) return;
    pages_ = call.block_table->const_data_ptr<int>() + sequence.batch * call.block_table->stride(0);
    stride_ = call.block_table->stride(1);
    page_size_ = static_cast<uint32_t>(std::min<int64_t>(call.key.size(1), uint32_t{1} << 31));
  }

  KeyPlace operator()(int64_t key) const {
    if (pages_ == nullptr) return {batch_, first_ + key};
    const auto position = static_cast<uint32_t>(key);  // 64 bits take longer to divide
    return {pages_[position / page_size_ * stride_], position % page_size_};
  }

 private:
  int64_t batch_;
  int64_t first_;
  const int* pages_ = nullptr;
  int64_t stride_ = 0;
  uint32_t page_size_ = 0;
};

}  // namespace opp
