// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of sparse flash attention: dtypes, ranks, sizes and attributes.
#include <c10/util/Exception.h>

#include "cpu/sparse_flash_attention_pto.h"

namespace opp {
namespace {

void check_dtype(const char* name, const at::Tensor& tensor, at::ScalarType dtype) {
  TORCH_CHECK(tensor.scalar_type() == dtype, name, " must have query's dtype, ", dtype, ", but is ",
              tensor.scalar_type());
}

// A tensor that has the sizes of another, but for the last.
void check_like(const char* name, const at::Tensor& tensor, at::IntArrayRef sizes, const char* dimensions) {
  check_rank(name, tensor, static_cast<int64_t>(sizes.size()), dimensions);
  auto expected = sizes.vec();
  expected.back() = tensor.size(-1);
  check_sizes(name, tensor, expected, dimensions);
  TORCH_CHECK(tensor.size(-1) >= 1, name, " must have a last dimension of at least 1, but has shape ", tensor.sizes());
}

const char* dimensions_of_key(const SparseFlashAttentionPto& call) {
  if (call.paged()) return "(block_num, block_size, N2, ...)";
  return call.packed() ? "(T, N2, ...)" : "(B, S2, N2, ...)";
}

void check_value_and_indices(const SparseFlashAttentionPto& call) {
  check_dtype("value", call.value, call.query.scalar_type());
  check_like("value", call.value, call.key.sizes(), dimensions_of_key(call));
  TORCH_CHECK(call.sparse_indices.scalar_type() == at::kInt, "sparse_indices must be int32, but is ",
              call.sparse_indices.scalar_type());
  auto rows = call.query.sizes().vec();
  rows.end()[-2] = call.key.size(-2);
  check_like("sparse_indices", call.sparse_indices, rows, call.packed() ? "(T, N2, k)" : "(B, S1, N2, k)");
}

void check_rope(const SparseFlashAttentionPto& call) {
  TORCH_CHECK(call.query_rope.has_value() == call.key_rope.has_value(),
              "query_rope and key_rope must be given together, but only ", call.query_rope ? "query_rope" : "key_rope",
              " is");
  if (!call.query_rope) return;
  check_dtype("query_rope", *call.query_rope, call.query.scalar_type());
  check_dtype("key_rope", *call.key_rope, call.query.scalar_type());
  check_like("query_rope", *call.query_rope, call.query.sizes(), call.packed() ? "(T, N1, Dr)" : "(B, S1, N1, Dr)");
  check_like("key_rope", *call.key_rope, call.key.sizes(), dimensions_of_key(call));
  TORCH_CHECK(call.key_rope->size(-1) == call.query_rope->size(-1),
              "key_rope must have query_rope's last size Dr = ", call.query_rope->size(-1), ", but has shape ",
              call.key_rope->sizes());
}

void check_out(const SparseFlashAttentionPto& call) {
  check_dtype("attention_out", call.attention_out, call.query.scalar_type());
  auto expected = call.query.sizes().vec();
  expected.back() = call.value.size(-1);
  check_sizes("attention_out", call.attention_out, expected, call.packed() ? "(T, N1, Dv)" : "(B, S1, N1, Dv)");
}

}  // namespace

void check(const SparseFlashAttentionPto& call) {
  check_layouts(call);
  check_query_and_key(call);
  check_value_and_indices(call);
  check_rope(call);
  check_out(call);
  check_sequences(call);
}

}  // namespace opp
