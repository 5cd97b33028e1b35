// SPDX-License-Identifier: Apache-2.0
// Routes: where the aclnn function of an operator is not deployed, one of CANN's own that computes the same.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>

#include "arguments/checks.h"

namespace custom_pypto {

struct Route {
  const char* op;
  const char* ours;
  const char* cann;
};

// The operators that CANN has a function for.
std::span<const Route> routes();

// Each takes the arguments of our aclnn function and calls CANN's with them. It does nothing and returns false where
// ours is deployed, or CANN's is not either; add_custom calls CANN's also where ours does not do this call. What CANN's
// function does not do, by the documents of op-plugin and of CANN, is rejected by the argument's name. The first call
// warns.
namespace cann_fallback {

bool add_custom(const at::Tensor& self, const at::Tensor& other, const at::Tensor& out);

bool add_custom_backward(const at::Tensor& grad, const at::Tensor& grad_self, const at::Tensor& grad_other);

bool lightning_indexer(const at::Tensor& query, const at::Tensor& key, const at::Tensor& weights,
                       const OptionalTensor& actual_seq_lengths_query, const OptionalTensor& actual_seq_lengths_key,
                       const OptionalTensor& block_table, const std::string& layout_query,
                       const std::string& layout_key, int64_t sparse_count, int64_t sparse_mode, bool return_value,
                       const at::Tensor& sparse_indices, const at::Tensor& sparse_values);

bool sparse_flash_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const at::Tensor& sparse_indices, const OptionalTensor& block_table,
                            const OptionalTensor& actual_seq_lengths_query, const OptionalTensor& actual_seq_lengths_kv,
                            const OptionalTensor& query_rope, const OptionalTensor& key_rope,
                            const OptionalTensor& attention_sinks, double scale_value, const std::string& layout_query,
                            const std::string& layout_kv, int64_t sparse_mode, bool return_softmax_lse,
                            const at::Tensor& attention_out, const at::Tensor& softmax_lse);

bool reshape_and_cache(const at::Tensor& key, const OptionalTensor& value, const at::Tensor& key_cache,
                       const OptionalTensor& value_cache, const at::Tensor& slot_mapping,
                       const std::string& cache_layout);

}  // namespace cann_fallback
}  // namespace custom_pypto
