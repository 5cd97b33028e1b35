// npu_lightning_indexer_pto: for every query the positions of the keys with the highest index scores.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "checks.h"
#include "ops_common.h"

namespace custom_pypto {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

struct Arguments {
  const Tensor& query;
  const Tensor& key;
  const Tensor& weights;
  const OptionalTensor& actual_seq_lengths_query;
  const OptionalTensor& actual_seq_lengths_key;
  const OptionalTensor& block_table;
  const std::string& layout_query;
  const std::string& layout_key;
  int64_t sparse_count;
  int64_t sparse_mode;

  bool is_packed() const { return layout_query == "TND"; }
  bool is_paged() const { return layout_key == "PA_BSND"; }
};

const Tensor* pointer(const OptionalTensor& tensor) { return tensor.has_value() ? &*tensor : nullptr; }

void check_options(const Checks& checks, const Arguments& a) {
  checks.one_of("layout_query", a.layout_query, {"BSND", "TND"});
  checks.one_of("layout_key", a.layout_key, {"PA_BSND", "BSND", "TND"});
  if (!a.is_paged() && a.layout_key != a.layout_query) {
    checks.refuse("layout_key", c10::str("be 'PA_BSND' or the same as layout_query ('", a.layout_query, "')"),
                  c10::str("is '", a.layout_key, "'"));
  }
  if (a.sparse_mode != 0 && a.sparse_mode != 3) {
    checks.refuse("sparse_mode", "be 0 (no mask) or 3 (causal, aligned to the last key)",
                  c10::str("is ", a.sparse_mode));
  }
  checks.at_least("sparse_count", a.sparse_count, 1);
}

void check_tensors(const Checks& checks, const Arguments& a) {
  checks.one_device({{"query", &a.query},
                     {"key", &a.key},
                     {"weights", &a.weights},
                     {"actual_seq_lengths_query", pointer(a.actual_seq_lengths_query)},
                     {"actual_seq_lengths_key", pointer(a.actual_seq_lengths_key)},
                     {"block_table", pointer(a.block_table)}});
  checks.dtype("query", a.query, {at::kHalf, at::kBFloat16});
  checks.dtype("key", a.key, {a.query.scalar_type()}, "'query' and 'key' have the same dtype");
  checks.dtype("weights", a.weights, {a.query.scalar_type(), at::kFloat});
  checks.rank("query", a.query, a.is_packed() ? 3 : 4, a.is_packed() ? "[T, N1, D]" : "[B, S1, N1, D]");
  if (a.layout_key == "TND") {
    checks.rank("key", a.key, 3, "[T2, N2, D]");
  } else {
    checks.rank("key", a.key, 4, a.is_paged() ? "[blocks, block_size, N2, D]" : "[B, S2, N2, D]");
  }
  checks.rank("weights", a.weights, a.is_packed() ? 2 : 3, a.is_packed() ? "[T, N1]" : "[B, S1, N1]");
}

void check_sizes(const Checks& checks, const Arguments& a) {
  const c10::SymInt heads = a.query.sym_size(-2);
  const c10::SymInt key_heads = a.key.sym_size(-2);
  checks.at_least("query", a.query.sym_size(-1), 1, "a last dimension (D)");
  checks.at_least("key", key_heads, 1, "a number of heads (N2)");
  checks.size("key", a.key, a.key.dim() - 1, a.query.sym_size(-1), "D, the last of 'query'");
  if (!(heads % key_heads).sym_eq(0).expect_true(__FILE__, __LINE__)) {
    checks.refuse("key", c10::str("have a number of heads (N2) that divides the ", heads, " heads of 'query' (N1)"),
                  c10::str("has ", key_heads));
  }
  if (a.is_paged()) {
    checks.at_least("key", a.key.sym_size(1), 1, "a block size");
  } else if (a.layout_key == "BSND") {
    checks.size("key", a.key, 0, a.query.sym_size(0), "B, the first of 'query'");
  }
  for (int64_t dim = 0; dim < a.weights.dim(); ++dim) {
    checks.size("weights", a.weights, dim, a.query.sym_size(dim), "the same as of 'query'");
  }
}

// A tensor of int32 sequence lengths, one a sequence.
void check_lengths(const Checks& checks, const char* name, const OptionalTensor& lengths, const char* required_by,
                   const c10::SymInt& batch, const char* batch_of) {
  if (!lengths.has_value()) {
    if (required_by != nullptr) {
      checks.refuse(name, c10::str("be given with ", required_by), "is None");
    }
    return;
  }
  checks.dtype(name, *lengths, {at::kInt}, "convert it with .int()");
  checks.rank(name, *lengths, 1, "[B]");
  checks.size(name, *lengths, 0, batch, batch_of);
}

void check_sequences(const Checks& checks, const Arguments& a) {
  const char* packed = a.is_packed() ? "layout_query 'TND'" : nullptr;
  if (packed != nullptr && !a.actual_seq_lengths_query.has_value()) {
    checks.refuse("actual_seq_lengths_query", c10::str("be given with ", packed), "is None");
  }
  if (packed != nullptr) {
    checks.rank("actual_seq_lengths_query", *a.actual_seq_lengths_query, 1, "[B]");
  }
  const c10::SymInt batch = packed ? a.actual_seq_lengths_query->sym_size(0) : a.query.sym_size(0);
  const char* batch_of = packed ? "B, as 'actual_seq_lengths_query' has" : "B, the first of 'query'";
  const char* key_lengths_required_by = a.is_paged() ? "layout_key 'PA_BSND'" : (packed ? "layout_key 'TND'" : nullptr);
  check_lengths(checks, "actual_seq_lengths_query", a.actual_seq_lengths_query, packed, batch, batch_of);
  check_lengths(checks, "actual_seq_lengths_key", a.actual_seq_lengths_key, key_lengths_required_by, batch, batch_of);

  if (a.is_paged() != a.block_table.has_value()) {
    checks.refuse("block_table",
                  a.is_paged() ? "be given with layout_key 'PA_BSND'"
                               : c10::str("be None with layout_key '", a.layout_key, "', whose keys are not paged"),
                  a.is_paged() ? "is None" : "is a tensor");
  }
  if (a.is_paged()) {
    checks.dtype("block_table", *a.block_table, {at::kInt}, "convert it with .int()");
    checks.rank("block_table", *a.block_table, 2, "[B, blocks a sequence]");
    checks.size("block_table", *a.block_table, 0, batch, batch_of);
  }
}

// Checks the arguments, under eager and on Meta alike, and allocates the result: [B, S1, N2, sparse_count] or
// [T, N2, sparse_count]. Values of lengths and block tables are on the device; the kernel checks them.
Tensor checked_result(const Arguments& a) {
  const Checks checks("npu_lightning_indexer_pto");
  check_options(checks, a);
  check_tensors(checks, a);
  check_sizes(checks, a);
  check_sequences(checks, a);
  std::vector<c10::SymInt> sizes(a.query.sym_sizes().begin(), a.query.sym_sizes().end() - 2);
  sizes.push_back(a.key.sym_size(-2));
  sizes.emplace_back(a.sparse_count);
  return at::empty_symint(sizes, a.query.options().dtype(at::kInt));
}

Tensor indexer_meta(const Tensor& query, const Tensor& key, const Tensor& weights,
                    const OptionalTensor& actual_seq_lengths_query, const OptionalTensor& actual_seq_lengths_key,
                    const OptionalTensor& block_table, const std::string& layout_query, const std::string& layout_key,
                    int64_t sparse_count, int64_t sparse_mode) {
  return checked_result({query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key, block_table,
                         layout_query, layout_key, sparse_count, sparse_mode});
}

Tensor indexer_npu(const Tensor& query, const Tensor& key, const Tensor& weights,
                   const OptionalTensor& actual_seq_lengths_query, const OptionalTensor& actual_seq_lengths_key,
                   const OptionalTensor& block_table, const std::string& layout_query, const std::string& layout_key,
                   int64_t sparse_count, int64_t sparse_mode) {
  const Tensor sparse_indices = checked_result({query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key,
                                                block_table, layout_query, layout_key, sparse_count, sparse_mode});
  if (sparse_indices.numel() != 0) {
    EXEC_NPU_CMD(aclnnLightningIndexerPto, query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key,
                 block_table, layout_query, layout_key, sparse_count, sparse_mode, sparse_indices);
  }
  return sparse_indices;
}

TORCH_LIBRARY_IMPL(custom_pypto, PrivateUse1, m) { m.impl("npu_lightning_indexer_pto", &indexer_npu); }
TORCH_LIBRARY_IMPL(custom_pypto, Meta, m) { m.impl("npu_lightning_indexer_pto", &indexer_meta); }

}  // namespace
}  // namespace custom_pypto
