// SPDX-License-Identifier: Apache-2.0
// The routes to CANN's functions: which there are, what they can do, and their calls.
#include "cann_routes.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "arguments/table.h"
#include "ops_common.h"

// CANN's functions with the parameters that op-plugin gives them.
extern "C" {
int aclnnAddGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclScalar* alpha,
                             const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnLightningIndexerGetWorkspaceSize(const aclTensor* query, const aclTensor* key, const aclTensor* weights,
                                          const aclTensor* actualSeqLengthsQuery, const aclTensor* actualSeqLengthsKey,
                                          const aclTensor* blockTable, char* layoutQuery, char* layoutKey,
                                          int64_t sparseCount, int64_t sparseMode, int64_t preTokens,
                                          int64_t nextTokens, bool returnValues, const aclTensor* sparseIndices,
                                          const aclTensor* sparseValues, uint64_t* workspaceSize,
                                          aclOpExecutor** executor);
int aclnnSparseFlashAttentionGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* blockTable, const aclTensor* actualSeqLengthsQuery, const aclTensor* actualSeqLengthsKv,
    const aclTensor* queryRope, const aclTensor* keyRope, double scaleValue, int64_t sparseBlockSize, char* layoutQuery,
    char* layoutKv, int64_t sparseMode, int64_t preTokens, int64_t nextTokens, int64_t attentionMode,
    bool returnSoftmaxLse, const aclTensor* attentionOut, const aclTensor* softmaxMax, const aclTensor* softmaxSum,
    uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnScatterPaKvCacheGetWorkspaceSize(const aclTensor* key, const aclTensor* keyCache, const aclTensor* slotMapping,
                                          const aclTensor* value, const aclTensor* valueCache,
                                          const aclTensor* compressLens, const aclTensor* compressSeqOffsets,
                                          const aclTensor* seqLens, char* cacheMode, char* scatterMode,
                                          const aclIntArray* strides, const aclIntArray* offsets,
                                          uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnAdvanceStepGetWorkspaceSize(const aclTensor* inputTokens, const aclTensor* sampledTokenIds,
                                     const aclTensor* inputPositions, const aclTensor* seqLens,
                                     const aclTensor* slotMapping, const aclTensor* blockTables, int64_t numSeqs,
                                     int64_t numQueries, int64_t blockSize, uint64_t* workspaceSize,
                                     aclOpExecutor** executor);
}

namespace custom_pypto {
namespace {

using at::Tensor;

constexpr Route kRoutes[] = {
    {"add_custom", "aclnnAddCustom", "aclnnAdd"},
    {"add_custom_backward", "aclnnAddCustomGrad", "aclnnInplaceCopy"},  // torch_npu's Tensor.copy_
    {"npu_lightning_indexer_pto", "aclnnLightningIndexerPto", "aclnnLightningIndexer"},
    {"npu_sparse_flash_attention_pto", "aclnnSparseFlashAttentionPto", "aclnnSparseFlashAttention"},
    {"reshape_and_cache", "aclnnReshapeAndCache", "aclnnScatterPaKvCache"},
};

// What CANN's function wants of an argument, and whether it is so.
struct Requirement {
  const char* argument;
  bool holds;
  const char* expected;
  const Tensor* tensor = nullptr;
  int64_t number = 0;
};

// The route of one operator, as long as the process lives.
class FallbackRoute {
 public:
  explicit FallbackRoute(const char* op)
      : route_(*std::find_if(std::begin(kRoutes), std::end(kRoutes),
                             [op](const Route& route) { return std::strcmp(route.op, op) == 0; })),
        name_(c10::str("custom_pypto::", op)),
        there_(library_of(route_.cann, "").has_value()),
        taken_(there_ && !library_of(route_.ours, "custom_pypto").has_value()) {
    if (taken_) {
      TORCH_WARN(name_, ": calls CANN's ", route_.cann, ", and rejects what that does not do: ", missing());
    }
  }

  explicit operator bool() const { return taken_; }
  // Whether CANN's function could be called, ours being deployed or not.
  bool is_there() const { return there_; }

  // Rejects a call for the first requirement that does not hold.
  void check(std::initializer_list<Requirement> requirements) const {
    for (const Requirement& requirement : requirements) {
      if (!requirement.holds) {
        reject(requirement.argument, requirement.expected,
               requirement.tensor == nullptr
                   ? c10::str("is ", requirement.number)
                   : c10::str("is ", requirement.tensor->scalar_type(), " of shape ", requirement.tensor->sizes()));
      }
    }
  }

  void check_contiguous(std::initializer_list<std::pair<const char*, Tensors>> arguments) const {
    for (const auto& [name, tensors] : arguments) {
      for (const Tensor& tensor : tensors) {
        if (!tensor.is_contiguous()) {
          reject(name, "be contiguous", c10::str("its strides are ", tensor.strides()));
        }
      }
    }
  }

 private:
  std::string missing() const { return not_deployed(c10::str(route_.ours, "GetWorkspaceSize")); }

  [[noreturn]] void reject(const char* argument, const char* expected, const std::string& found) const {
    Checks(name_.c_str()).reject(argument, c10::str(expected, " for CANN's ", route_.cann), found, missing());
  }

  const Route& route_;
  const std::string name_;
  const bool there_;
  const bool taken_;
};

// Whether the vector unit adds it, and so our kernel.
bool is_for_vector_unit(const Tensor& tensor) {
  constexpr at::ScalarType kAdded[] = {at::kFloat, at::kHalf, at::kBFloat16, at::kInt, at::kShort};
  return std::ranges::find(kAdded, tensor.scalar_type()) != std::end(kAdded);
}

constexpr int64_t kAllTokens = std::numeric_limits<int64_t>::max();
constexpr const char* kBlockSize = "have blocks of a multiple of 16 tokens, at most 1024,";

// Whether an operator's keys, where they are in pages, are in pages that CANN reads.
bool fits_block_size(const Tensor& key, const std::string& layout) {
  return layout != "PA_BSND" || (key.size(1) % 16 == 0 && key.size(1) <= 1024);
}

bool is_same_memory(const Tensor& left, const Tensor& right) {
  return left.is_alias_of(right) && left.storage_offset() == right.storage_offset() && left.sizes() == right.sizes() &&
         left.strides() == right.strides();
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

namespace cann_fallback {

bool add_custom(const Tensor& self, const Tensor& other, const Tensor& out) {
  static const FallbackRoute route("add_custom");
  if (!route && (!route.is_there() || is_for_vector_unit(out))) {
    return false;
  }
  EXEC_NPU_CMD(aclnnAdd, self, other, at::Scalar(1), out);
  return true;
}

bool add_custom_backward(const Tensor& grad, const Tensor& grad_self, const Tensor& grad_other) {
  static const FallbackRoute route("add_custom_backward");
  if (!route) {
    return false;
  }
  grad_self.copy_(grad);
  grad_other.copy_(grad);
  return true;
}

bool lightning_indexer(const Tensor& query, const Tensor& key, const Tensor& weights,
                       const OptionalTensor& actual_seq_lengths_query, const OptionalTensor& actual_seq_lengths_key,
                       const OptionalTensor& block_table, const std::string& layout_query,
                       const std::string& layout_key, int64_t sparse_count, int64_t sparse_mode, bool return_value,
                       const Tensor& sparse_indices, const Tensor& sparse_values) {
  static const FallbackRoute route("npu_lightning_indexer_pto");
  if (!route) {
    return false;
  }
  route.check({
      {"query", query.size(-2) <= 64, "have at most 64 heads (N1)", &query},
      {"query", query.size(-1) == 128, "have a last dimension (D) of 128", &query},
      {"key", key.size(-2) == 1, "have one head (N2)", &key},
      {"key", key.numel() != 0, "have elements", &key},
      {"key", fits_block_size(key, layout_key), kBlockSize, &key},
      {"sparse_count", sparse_count <= 2048 || (sparse_count <= 8192 && sparse_count % 1024 == 0),
       "be at most 2048, or a multiple of 1024 up to 8192,", nullptr, sparse_count},
      {"weights", !return_value || weights.scalar_type() == query.scalar_type(),
       "have the dtype of query with return_value", &weights},
      {"return_value", !return_value || layout_key != "PA_BSND", "be False with layout_key 'PA_BSND'", nullptr,
       return_value},
  });
  route.check_contiguous({{"query", query},
                          {"key", key},
                          {"weights", weights},
                          {"actual_seq_lengths_query", actual_seq_lengths_query},
                          {"actual_seq_lengths_key", actual_seq_lengths_key},
                          {"block_table", block_table}});
  EXEC_NPU_CMD(aclnnLightningIndexer, query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key,
               block_table, layout_query, layout_key, sparse_count, sparse_mode, kAllTokens, kAllTokens, return_value,
               sparse_indices, sparse_values);
  return true;
}

bool sparse_flash_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& sparse_indices,
                            const OptionalTensor& block_table, const OptionalTensor& actual_seq_lengths_query,
                            const OptionalTensor& actual_seq_lengths_kv, const OptionalTensor& query_rope,
                            const OptionalTensor& key_rope, const OptionalTensor& attention_sinks, double scale_value,
                            const std::string& layout_query, const std::string& layout_kv, int64_t sparse_mode,
                            bool return_softmax_lse, const Tensor& attention_out, const Tensor& /*softmax_lse*/) {
  static const FallbackRoute route("npu_sparse_flash_attention_pto");
  if (!route) {
    return false;
  }
  const auto heads = static_cast<uint64_t>(query.size(-2));
  route.check({
      {"query", std::has_single_bit(heads) && heads <= 128, "have 1, 2, 4, ... or 128 heads (N1)", &query},
      {"query", query.size(-1) == 512, "have a last dimension (D) of 512", &query},
      {"key", key.size(-2) == 1, "have one head (N2)", &key},
      {"key", key.numel() != 0, "have elements", &key},
      {"key", fits_block_size(key, layout_kv), kBlockSize, &key},
      {"value", is_same_memory(value, key), "be the same tensor as 'key'", &value},
      {"return_softmax_lse", !return_softmax_lse, "be False", nullptr, return_softmax_lse},
  });
  if (attention_sinks.has_value()) {
    route.check({{"attention_sinks", false, "be None", &*attention_sinks}});
  }
  if (!query_rope.has_value()) {
    route.check({{"query_rope", false, "be given", &query}});
  }
  route.check({{"query_rope", query_rope->size(-1) == 64, "have a last dimension (Dr) of 64", &*query_rope}});
  route.check_contiguous({{"query", query},
                          {"key", key},
                          {"sparse_indices", sparse_indices},
                          {"block_table", block_table},
                          {"actual_seq_lengths_query", actual_seq_lengths_query},
                          {"actual_seq_lengths_kv", actual_seq_lengths_kv},
                          {"query_rope", query_rope},
                          {"key_rope", key_rope}});
  const Tensor none = at::empty({0}, query.options().dtype(at::kFloat));
  constexpr int64_t kTokenByToken = 1, kMlaAbsorb = 2;
  EXEC_NPU_CMD(aclnnSparseFlashAttention, query, key, value, sparse_indices, block_table, actual_seq_lengths_query,
               actual_seq_lengths_kv, query_rope, key_rope, scale_value, kTokenByToken, layout_query, layout_kv,
               sparse_mode, kAllTokens, kAllTokens, kMlaAbsorb, false, attention_out, none, none);
  return true;
}

namespace {

// Keys or values of the first tokens as [T, N, D], and their cache: [blocks, block_size, N, D], or in NZ of any heads.
struct PackedRows {
  PackedRows(const Tensor& rows, const Tensor& cache, int64_t tokens, bool nz)
      : cache(cache.dim() == 3 ? cache.unsqueeze(2) : cache) {
    const int64_t width = this->cache.size(nz ? 1 : 2) * this->cache.size(3);
    const int64_t depth = nz ? rows.size(-1) : this->cache.size(3);
    this->rows = rows.view({rows.numel() / width, width / depth, depth}).narrow(0, 0, tokens);
  }

  Tensor cache;
  Tensor rows;
};

}  // namespace

bool reshape_and_cache(const Tensor& key, const OptionalTensor& value, const Tensor& key_cache,
                       const OptionalTensor& value_cache, const Tensor& slot_mapping, const std::string& cache_layout) {
  static const FallbackRoute route("reshape_and_cache");
  if (!route) {
    return false;
  }
  if (!value.has_value()) {
    route.check({{"value", false, "be given", &key}});
  }
  route.check_contiguous({{"key", key},
                          {"value", value},
                          {"key_cache", key_cache},
                          {"value_cache", value_cache},
                          {"slot_mapping", slot_mapping}});
  const bool nz = cache_layout == "NZ";
  const Tensor slots = slot_mapping.flatten();
  const PackedRows keys(key, key_cache, slots.numel(), nz), values(*value, *value_cache, slots.numel(), nz);
  route.check({
      {"value", keys.rows.size(1) == values.rows.size(1), "have the heads (N) of 'key'", &*value},
      {"value", key.scalar_type() == value->scalar_type(), "have the dtype of 'key'", &*value},
  });
  const std::string mode = nz ? "PA_NZ" : "Norm", scatter_mode = "None";
  constexpr int64_t kStrides[] = {1, 1}, kOffsets[] = {0, 0};
  const OptionalTensor none;
  EXEC_NPU_CMD(aclnnScatterPaKvCache, keys.rows, keys.cache, slots, values.rows, values.cache, none, none, none, mode,
               scatter_mode, at::IntArrayRef(kStrides), at::IntArrayRef(kOffsets));
  return true;
}

}  // namespace cann_fallback
}  // namespace custom_pypto
