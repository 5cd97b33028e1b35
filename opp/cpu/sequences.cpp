// SPDX-License-Identifier: Apache-2.0
// Checks and reads what says where the tokens of a call's sequences are.
#include "cpu/sequences.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace opp {
namespace {

int64_t value(const at::Tensor& tensor, int64_t i) { return tensor.const_data_ptr<int>()[i * tensor.stride(0)]; }

// The number of tokens of entry i: given as counts, or as running totals when the tokens are packed (TND).
struct Lengths {
  const char* name;
  const std::optional<at::Tensor>& tensor;
  bool packed;
  int64_t limit;  // of a count or of the total
  const char* limit_name;

  int64_t start(int64_t i) const { return packed && i > 0 ? value(*tensor, i - 1) : 0; }

  int64_t count(int64_t i) const {
    if (!tensor) return limit;
    const int64_t first = start(i);
    const int64_t length = value(*tensor, i);
    TORCH_CHECK(first <= length && length <= limit, name, "[", i, "] is ", length, ", but must lie between ", first,
                packed ? " (the running total before it) and " : " and ", limit, " (", limit_name, ")");
    return length - first;
  }
};

void check_block_table(const SequenceArguments& call, const Sequence& sequence) {
  const at::Tensor& table = *call.block_table;
  const int64_t block_num = call.key.size(0);
  const int64_t block_size = call.key.size(1);
  const int* row = table.const_data_ptr<int>() + sequence.batch * table.stride(0);
  for (int64_t page = 0; page * block_size < sequence.keys; ++page) {
    const int64_t block = row[page * table.stride(1)];
    TORCH_CHECK(-1 <= block && block < block_num, "block_table[", sequence.batch, "][", page, "] is ", block,
                ", but must lie between 0 and ", block_num - 1, " (the blocks of ", call.key_name,
                "), or be -1 for no block");
  }
}

}  // namespace

int64_t Sequence::visible(int64_t query) const {
  if (query >= queries) return 0;
  return causal ? std::max<int64_t>(0, keys - queries + query + 1) : keys;
}

std::vector<Sequence> read_sequences(const SequenceArguments& call) {
  const bool packed = call.packed();
  const bool paged = call.paged();
  const Lengths queries{"actual_seq_lengths_query", call.actual_seq_lengths_query, packed,
                        call.query.size(packed ? 0 : 1), packed ? "the tokens of query" : "S1 of query"};
  const Lengths keys{call.key_lengths_name, call.actual_seq_lengths_key, packed && !paged,
                     paged    ? call.block_table->size(1) * call.key.size(1)
                     : packed ? call.key.size(0)
                              : call.key.size(1),
                     paged    ? "the tokens that a row of block_table holds"
                     : packed ? "the tokens of key"
                              : "S2 of key"};

  const int64_t batch = packed ? call.actual_seq_lengths_query->size(0) : call.query.size(0);
  std::vector<Sequence> sequences;
  sequences.reserve(batch + 1);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t count = queries.count(b);
    sequences.push_back({b, queries.start(b), keys.start(b), count, packed ? count : call.query.size(1), keys.count(b),
                         call.sparse_mode == 3});
    if (paged) check_block_table(call, sequences.back());
  }
  if (packed) {  // the tokens past the last sequence
    const int64_t total = queries.start(batch);
    sequences.push_back({batch, total, 0, 0, call.query.size(0) - total, 0, false});
  }
  return sequences;
}

}  // namespace opp
