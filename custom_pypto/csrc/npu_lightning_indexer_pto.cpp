// SPDX-License-Identifier: Apache-2.0
// npu_lightning_indexer_pto: for every query the positions of the keys with the highest index scores.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <vector>

#include "aclnn_lightning_indexer_pto.h"
#include "cann_routes.h"
#include "ops_common.h"
#include "sequences.h"

namespace custom_pypto {
namespace {

using at::Tensor;

struct Arguments : SequenceArguments {
  const Tensor& weights;
  int64_t sparse_count;
};

void check_devices(const Checks& checks, const Arguments& a) {
  checks.one_device({{"query", a.query},
                     {"key", a.key},
                     {"weights", a.weights},
                     {"actual_seq_lengths_query", a.actual_seq_lengths_query},
                     {"actual_seq_lengths_key", a.actual_seq_lengths_key},
                     {"block_table", a.block_table}});
}

void check_weights(const Checks& checks, const Arguments& a) {
  checks.dtype("weights", a.weights, {a.query.scalar_type(), at::kFloat});
  checks.rank("weights", a.weights, a.is_packed() ? 2 : 3, a.is_packed() ? "[T, N1]" : "[B, S1, N1]");
  for (int64_t dim = 0; dim < a.weights.dim(); ++dim) {
    checks.size("weights", a.weights, dim, a.query.sym_size(dim), "the same as of 'query'");
  }
}

// Checks the arguments, under eager and on Meta alike, and allocates the result: [B, S1, N2, sparse_count] or
// [T, N2, sparse_count]. Values of lengths and block tables are on the device; the kernel checks them.
Tensor checked_result(const Arguments& a) {
  const Checks checks("custom_pypto::npu_lightning_indexer_pto");
  check_layouts(checks, a);
  checks.at_least("sparse_count", a.sparse_count, 1);
  check_devices(checks, a);
  check_query_and_key(checks, a);
  check_weights(checks, a);
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
  return checked_result({{query, key, actual_seq_lengths_query, actual_seq_lengths_key, block_table, layout_query,
                          layout_key, sparse_mode},
                         weights,
                         sparse_count});
}

Tensor indexer_npu(const Tensor& query, const Tensor& key, const Tensor& weights,
                   const OptionalTensor& actual_seq_lengths_query, const OptionalTensor& actual_seq_lengths_key,
                   const OptionalTensor& block_table, const std::string& layout_query, const std::string& layout_key,
                   int64_t sparse_count, int64_t sparse_mode) {
  const Tensor sparse_indices = checked_result({{query, key, actual_seq_lengths_query, actual_seq_lengths_key,
                                                 block_table, layout_query, layout_key, sparse_mode},
                                                weights,
                                                sparse_count});
  if (sparse_indices.numel() != 0 &&
      !by_cann::lightning_indexer(query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key, block_table,
                                  layout_query, layout_key, sparse_count, sparse_mode, sparse_indices)) {
    EXEC_NPU_CMD(aclnnLightningIndexerPto, query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key,
                 block_table, layout_query, layout_key, sparse_count, sparse_mode, sparse_indices);
  }
  return sparse_indices;
}

TORCH_LIBRARY_IMPL(custom_pypto, PrivateUse1, m) { m.impl("npu_lightning_indexer_pto", &indexer_npu); }
TORCH_LIBRARY_IMPL(custom_pypto, Meta, m) { m.impl("npu_lightning_indexer_pto", &indexer_meta); }

}  // namespace
}  // namespace custom_pypto
