// SPDX-License-Identifier: Apache-2.0
// Checks and reads what says where the tokens of a call's sequences are.
#include "cpu/sequences.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace opp {
namespace {

void check_lengths(const char* name, const std::optional<at::Tensor>& lengths, bool required, const char* layout) {
  TORCH_CHECK(lengths || !required, name, " is required with layout ", layout);
  if (!lengths) return;
  TORCH_CHECK(lengths->scalar_type() == at::kInt, name, " must be int32, but is ", lengths->scalar_type());
  check_rank(name, *lengths, 1, "(B)");
}

void check_batch(const char* name, const at::Tensor& tensor, int64_t batch) {
  TORCH_CHECK(tensor.size(0) == batch, name, " must have an entry for each of the ", batch,
              " batch entries, but has shape ", tensor.sizes());
}

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

void check_rank(const char* name, const at::Tensor& tensor, int64_t rank, const char* dimensions) {
  TORCH_CHECK(tensor.dim() == rank, name, " must be ", rank, "-dimensional, ", dimensions, ", but has shape ",
              tensor.sizes());
}

void check_sizes(const char* name, const at::Tensor& tensor, at::IntArrayRef expected, const char* dimensions) {
  TORCH_CHECK(tensor.sizes() == expected, name, " must have shape ", dimensions, " = ", expected, ", but has ",
              tensor.sizes());
}

void check_layouts(const SequenceArguments& call) {
  TORCH_CHECK(call.layout_query == "BSND" || call.layout_query == "TND", "layout_query must be BSND or TND, but is '",
              call.layout_query, "'");
  TORCH_CHECK(call.layout_key == "PA_BSND" || call.layout_key == "BSND" || call.layout_key == "TND",
              call.layout_key_name, " must be PA_BSND, BSND or TND, but is '", call.layout_key, "'");
  TORCH_CHECK(call.paged() || call.layout_key == call.layout_query, call.layout_key_name,
              " must be PA_BSND or that of the query, ", call.layout_query, ", but is ", call.layout_key);
  TORCH_CHECK(call.sparse_mode == 0 || call.sparse_mode == 3,
              "sparse_mode must be 0 (no mask) or 3 (causal, aligned to the last key), but is ", call.sparse_mode);
}

void check_query_and_key(const SequenceArguments& call) {
  const auto dtype = call.query.scalar_type();
  TORCH_CHECK(dtype == at::kBFloat16 || dtype == at::kHalf, "query must be bfloat16 or float16, but is ", dtype);
  TORCH_CHECK(call.key.scalar_type() == dtype, "key must have query's dtype, ", dtype, ", but is ",
              call.key.scalar_type());
  const bool packed = call.packed();
  const bool paged = call.paged();
  check_rank("query", call.query, packed ? 3 : 4, packed ? "(T, N1, D)" : "(B, S1, N1, D)");
  const char* dimensions = paged ? "(block_num, block_size, N2, D)" : packed ? "(T, N2, D)" : "(B, S2, N2, D)";
  check_rank("key", call.key, !paged && packed ? 3 : 4, dimensions);

  const int64_t heads = call.query.size(-2);
  const int64_t key_heads = call.key.size(-2);
  TORCH_CHECK(call.key.size(-1) == call.query.size(-1), "key must have query's head size D = ", call.query.size(-1),
              ", but has shape ", call.key.sizes());
  TORCH_CHECK(call.query.size(-1) >= 1, "query must have a head size D of at least 1, but has shape ",
              call.query.sizes());
  TORCH_CHECK(heads >= 1 && key_heads >= 1 && heads % key_heads == 0,
              "the number of query heads N1 must be a multiple of the number of key heads N2, but query has shape ",
              call.query.sizes(), " and key ", call.key.sizes());
  TORCH_CHECK(!paged || call.key.size(1) >= 1, "key must have pages of at least one token, but has shape ",
              call.key.sizes());
  TORCH_CHECK(paged || packed || call.key.size(0) == call.query.size(0), "key must have query's batch size ",
              call.query.size(0), ", but has shape ", call.key.sizes());
}

void check_sequences(const SequenceArguments& call) {
  const bool packed = call.packed();
  const bool paged = call.paged();
  check_lengths("actual_seq_lengths_query", call.actual_seq_lengths_query, packed, "TND of the query");
  check_lengths(call.key_lengths_name, call.actual_seq_lengths_key, paged || packed,
                paged ? "PA_BSND of the key" : "TND of the key");
  TORCH_CHECK(paged == call.block_table.has_value(), "block_table is ", paged ? "required with " : "taken only with ",
              call.layout_key_name, " PA_BSND", paged ? "" : ", which is ", paged ? "" : call.layout_key);
  const int64_t batch = packed ? call.actual_seq_lengths_query->size(0) : call.query.size(0);
  if (call.actual_seq_lengths_query) check_batch("actual_seq_lengths_query", *call.actual_seq_lengths_query, batch);
  if (call.actual_seq_lengths_key) check_batch(call.key_lengths_name, *call.actual_seq_lengths_key, batch);
  if (!paged) return;
  TORCH_CHECK(call.block_table->scalar_type() == at::kInt, "block_table must be int32, but is ",
              call.block_table->scalar_type());
  check_rank("block_table", *call.block_table, 2, "(B, max_blocks)");
  check_batch("block_table", *call.block_table, batch);
}

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
