// Checks the arguments of the lightning indexer: dtypes, ranks, sizes and attributes.
#include <c10/util/Exception.h>

#include "op_host/lightning_indexer_pto.h"

namespace opp {
namespace {

void check_layouts(const LightningIndexerPto& call) {
  TORCH_CHECK(call.layout_query == "BSND" || call.layout_query == "TND", "layout_query must be BSND or TND, but is '",
              call.layout_query, "'");
  TORCH_CHECK(call.layout_key == "PA_BSND" || call.layout_key == "BSND" || call.layout_key == "TND",
              "layout_key must be PA_BSND, BSND or TND, but is '", call.layout_key, "'");
  TORCH_CHECK(call.layout_key == "PA_BSND" || call.layout_key == call.layout_query,
              "layout_key must be PA_BSND or that of the query, ", call.layout_query, ", but is ", call.layout_key);
  TORCH_CHECK(call.sparse_count >= 1, "sparse_count must be at least 1, but is ", call.sparse_count);
  TORCH_CHECK(call.sparse_mode == 0 || call.sparse_mode == 3,
              "sparse_mode must be 0 (no mask) or 3 (causal, aligned to the last key), but is ", call.sparse_mode);
}

void check_dtypes(const LightningIndexerPto& call) {
  const auto dtype = call.query.scalar_type();
  TORCH_CHECK(dtype == at::kBFloat16 || dtype == at::kHalf, "query must be bfloat16 or float16, but is ", dtype);
  TORCH_CHECK(call.key.scalar_type() == dtype, "key must have query's dtype, ", dtype, ", but is ",
              call.key.scalar_type());
  const auto weights = call.weights.scalar_type();
  TORCH_CHECK(weights == dtype || weights == at::kFloat, "weights must be float32 or have query's dtype, ", dtype,
              ", but is ", weights);
  TORCH_CHECK(call.sparse_indices.scalar_type() == at::kInt, "sparse_indices must be int32, but is ",
              call.sparse_indices.scalar_type());
}

void check_rank(const char* name, const at::Tensor& tensor, int64_t rank, const char* dimensions) {
  TORCH_CHECK(tensor.dim() == rank, name, " must be ", rank, "-dimensional, ", dimensions, ", but has shape ",
              tensor.sizes());
}

void check_sizes(const char* name, const at::Tensor& tensor, at::IntArrayRef expected, const char* dimensions) {
  TORCH_CHECK(tensor.sizes() == expected, name, " must have shape ", dimensions, " = ", expected, ", but has ",
              tensor.sizes());
}

void check_main_tensors(const LightningIndexerPto& call) {
  const bool packed = call.layout_query == "TND";
  check_rank("query", call.query, packed ? 3 : 4, packed ? "(T, N1, D)" : "(B, S1, N1, D)");
  const bool paged = call.layout_key == "PA_BSND";
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

  auto expected = call.query.sizes().vec();
  expected.pop_back();
  check_sizes("weights", call.weights, expected, packed ? "(T, N1)" : "(B, S1, N1)");
  expected.back() = key_heads;
  expected.push_back(call.sparse_count);
  check_sizes("sparse_indices", call.sparse_indices, expected,
              packed ? "(T, N2, sparse_count)" : "(B, S1, N2, sparse_count)");
}

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

void check_sequences(const LightningIndexerPto& call) {
  const bool packed = call.layout_query == "TND";
  const bool paged = call.layout_key == "PA_BSND";
  check_lengths("actual_seq_lengths_query", call.actual_seq_lengths_query, packed, "TND of the query");
  check_lengths("actual_seq_lengths_key", call.actual_seq_lengths_key, paged || packed,
                paged ? "PA_BSND of the key" : "TND of the key");
  TORCH_CHECK(paged == call.block_table.has_value(), "block_table is ",
              paged ? "required with layout_key PA_BSND" : "taken only with layout_key PA_BSND, which is ",
              paged ? "" : call.layout_key);
  const int64_t batch = packed ? call.actual_seq_lengths_query->size(0) : call.query.size(0);
  if (call.actual_seq_lengths_query) check_batch("actual_seq_lengths_query", *call.actual_seq_lengths_query, batch);
  if (call.actual_seq_lengths_key) check_batch("actual_seq_lengths_key", *call.actual_seq_lengths_key, batch);
  if (!paged) return;
  TORCH_CHECK(call.block_table->scalar_type() == at::kInt, "block_table must be int32, but is ",
              call.block_table->scalar_type());
  check_rank("block_table", *call.block_table, 2, "(B, max_blocks)");
  check_batch("block_table", *call.block_table, batch);
}

}  // namespace

void check(const LightningIndexerPto& call) {
  check_layouts(call);
  check_dtypes(call);
  check_main_tensors(call);
  check_sequences(call);
}

}  // namespace opp
