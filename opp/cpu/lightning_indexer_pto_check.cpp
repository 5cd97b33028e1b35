// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of the lightning indexer: dtypes, ranks, sizes and attributes.
#include <c10/util/Exception.h>

#include "cpu/lightning_indexer_pto.h"

namespace opp {
namespace {

void check_dtypes(const LightningIndexerPto& call) {
  const auto dtype = call.query.scalar_type();
  const auto weights = call.weights.scalar_type();
  TORCH_CHECK(weights == dtype || weights == at::kFloat, "weights must be float32 or have query's dtype, ", dtype,
              ", but is ", weights);
  TORCH_CHECK(call.sparse_indices.scalar_type() == at::kInt, "sparse_indices must be int32, but is ",
              call.sparse_indices.scalar_type());
}

void check_weights_and_indices(const LightningIndexerPto& call) {
  const bool packed = call.packed();
  auto expected = call.query.sizes().vec();
  expected.pop_back();
  check_sizes("weights", call.weights, expected, packed ? "(T, N1)" : "(B, S1, N1)");
  expected.back() = call.key.size(-2);
  expected.push_back(call.sparse_count);
  check_sizes("sparse_indices", call.sparse_indices, expected,
              packed ? "(T, N2, sparse_count)" : "(B, S1, N2, sparse_count)");
}

}  // namespace

void check(const LightningIndexerPto& call) {
  check_layouts(call);
  TORCH_CHECK(call.sparse_count >= 1, "sparse_count must be at least 1, but is ", call.sparse_count);
  check_query_and_key(call);
  check_dtypes(call);
  check_weights_and_indices(call);
  check_sequences(call);
}

}  // namespace opp
