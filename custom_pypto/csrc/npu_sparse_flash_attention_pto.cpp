// SPDX-License-Identifier: Apache-2.0
// npu_sparse_flash_attention_pto: attention of every query token over the key tokens that its indices name.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <vector>

#include "aclnn_sparse_flash_attention_pto.h"
#include "cann_routes.h"
#include "ops_common.h"
#include "sequences.h"

namespace custom_pypto {
namespace {

using at::Tensor;

struct Arguments : SequenceArguments {
  const Tensor& value;
  const Tensor& sparse_indices;
  const OptionalTensor& query_rope;
  const OptionalTensor& key_rope;
};

void check_devices(const Checks& checks, const Arguments& a) {
  checks.one_device({{"query", a.query},
                     {"key", a.key},
                     {"value", a.value},
                     {"sparse_indices", a.sparse_indices},
                     {"block_table", a.block_table},
                     {"actual_seq_lengths_query", a.actual_seq_lengths_query},
                     {"actual_seq_lengths_kv", a.actual_seq_lengths_key},
                     {"query_rope", a.query_rope},
                     {"key_rope", a.key_rope}});
}

// A tensor of the shape of another but for its last dimension, which is 1 or more.
void check_like(const Checks& checks, const char* name, const Tensor& tensor, const char* other_name,
                const Tensor& other, const char* last) {
  const std::string like = c10::str("as '", other_name, "' has, the last of them ", last);
  checks.rank(name, tensor, other.dim(), like);
  for (int64_t dim = 0; dim < tensor.dim() - 1; ++dim) {
    checks.size(name, tensor, dim, other.sym_size(dim), c10::str("the same as of '", other_name, "'"));
  }
  checks.at_least(name, tensor.sym_size(-1), 1, c10::str("a last dimension (", last, ")"));
}

void check_value(const Checks& checks, const Arguments& a) {
  checks.dtype("value", a.value, {a.query.scalar_type()}, "'query' and 'value' have the same dtype");
  check_like(checks, "value", a.value, "key", a.key, "Dv");
}

void check_sparse_indices(const Checks& checks, const Arguments& a) {
  const Tensor& indices = a.sparse_indices;
  const int64_t rank = a.is_packed() ? 3 : 4;
  checks.dtype("sparse_indices", indices, {at::kInt}, "convert it with .int()");
  checks.rank("sparse_indices", indices, rank, a.is_packed() ? "[T, N2, k]" : "[B, S1, N2, k]");
  for (int64_t dim = 0; dim < rank - 2; ++dim) {
    checks.size("sparse_indices", indices, dim, a.query.sym_size(dim), "the same as of 'query'");
  }
  checks.size("sparse_indices", indices, rank - 2, a.key.sym_size(-2), "N2, the heads of 'key'");
  checks.at_least("sparse_indices", indices.sym_size(-1), 1, "a last dimension (k)");
}

void check_rope(const Checks& checks, const Arguments& a) {
  if (a.query_rope.has_value() != a.key_rope.has_value()) {
    const char* given = a.query_rope.has_value() ? "query_rope" : "key_rope";
    checks.reject(a.query_rope.has_value() ? "key_rope" : "query_rope", c10::str("be given with '", given, "'"),
                  "is None");
  }
  if (!a.query_rope.has_value()) {
    return;
  }
  checks.dtype("query_rope", *a.query_rope, {a.query.scalar_type()}, "'query' and 'query_rope' have the same dtype");
  checks.dtype("key_rope", *a.key_rope, {a.query.scalar_type()}, "'query' and 'key_rope' have the same dtype");
  check_like(checks, "query_rope", *a.query_rope, "query", a.query, "Dr");
  check_like(checks, "key_rope", *a.key_rope, "key", a.key, "Dr");
  checks.size("key_rope", *a.key_rope, a.key.dim() - 1, a.query_rope->sym_size(-1), "Dr, the last of 'query_rope'");
}

// Checks the arguments, under eager and on Meta alike, and allocates the result: [B, S1, N1, Dv] or [T, N1, Dv]. Values
// of lengths, block tables and indices are on the device; the kernel checks them.
Tensor checked_result(const Arguments& a) {
  const Checks checks("custom_pypto::npu_sparse_flash_attention_pto");
  check_layouts(checks, a);
  check_devices(checks, a);
  check_query_and_key(checks, a);
  check_value(checks, a);
  check_sparse_indices(checks, a);
  check_rope(checks, a);
  check_sequences(checks, a);
  std::vector<c10::SymInt> sizes(a.query.sym_sizes().begin(), a.query.sym_sizes().end() - 1);
  sizes.push_back(a.value.sym_size(-1));
  return at::empty_symint(sizes, a.query.options());
}

Tensor attention_meta(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& sparse_indices, double,
                      const OptionalTensor& block_table, const OptionalTensor& actual_seq_lengths_query,
                      const OptionalTensor& actual_seq_lengths_kv, const OptionalTensor& query_rope,
                      const OptionalTensor& key_rope, const std::string& layout_query, const std::string& layout_kv,
                      int64_t sparse_mode) {
  return checked_result({{query, key, actual_seq_lengths_query, actual_seq_lengths_kv, block_table, layout_query,
                          layout_kv, sparse_mode, "actual_seq_lengths_kv", "layout_kv"},
                         value,
                         sparse_indices,
                         query_rope,
                         key_rope});
}

Tensor attention_npu(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& sparse_indices,
                     double scale_value, const OptionalTensor& block_table,
                     const OptionalTensor& actual_seq_lengths_query, const OptionalTensor& actual_seq_lengths_kv,
                     const OptionalTensor& query_rope, const OptionalTensor& key_rope, const std::string& layout_query,
                     const std::string& layout_kv, int64_t sparse_mode) {
  const Tensor attention_out =
      attention_meta(query, key, value, sparse_indices, scale_value, block_table, actual_seq_lengths_query,
                     actual_seq_lengths_kv, query_rope, key_rope, layout_query, layout_kv, sparse_mode);
  if (attention_out.numel() != 0 &&
      !by_cann::sparse_flash_attention(query, key, value, sparse_indices, block_table, actual_seq_lengths_query,
                                       actual_seq_lengths_kv, query_rope, key_rope, scale_value, layout_query,
                                       layout_kv, sparse_mode, attention_out)) {
    EXEC_NPU_CMD(aclnnSparseFlashAttentionPto, query, key, value, sparse_indices, block_table, actual_seq_lengths_query,
                 actual_seq_lengths_kv, query_rope, key_rope, scale_value, layout_query, layout_kv, sparse_mode,
                 attention_out);
  }
  return attention_out;
}

TORCH_LIBRARY_IMPL(custom_pypto, PrivateUse1, m) { m.impl("npu_sparse_flash_attention_pto", &attention_npu); }
TORCH_LIBRARY_IMPL(custom_pypto, Meta, m) { m.impl("npu_sparse_flash_attention_pto", &attention_meta); }

}  // namespace
}  // namespace custom_pypto
