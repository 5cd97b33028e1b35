// The Graph Engine prototypes of custom_pypto's operators: the one place that says what a node of each type takes and
// gives. The comment above a prototype is the docstring of its function in the generated Python API. The operator's
// aclnn function takes the inputs, the attributes and the outputs in the order written here.
#pragma once

#include "graph/operator_reg.h"

namespace ge {

// out = self + other, broadcast. The sum of two bools is their logical or, as in torch.add.
REG_OP(AddCustom)
    .INPUT(self, "T")
    .INPUT(other, "T")
    .OUTPUT(out, "T")
    .DATATYPE(T, TensorType({DT_FLOAT16, DT_BF16, DT_FLOAT, DT_DOUBLE, DT_INT8, DT_UINT8, DT_INT16, DT_INT32, DT_INT64,
                             DT_BOOL}))
    .OP_END_FACTORY_REG(AddCustom);

// The gradients of AddCustom by its inputs, not yet summed to their sizes: two copies of grad.
REG_OP(AddCustomGrad)
    .INPUT(grad, "T")
    .OUTPUT(grad_self, "T")
    .OUTPUT(grad_other, "T")
    .DATATYPE(T, TensorType({DT_FLOAT16, DT_BF16, DT_FLOAT, DT_DOUBLE, DT_INT8, DT_UINT8, DT_INT16, DT_INT32, DT_INT64,
                             DT_BOOL}))
    .OP_END_FACTORY_REG(AddCustomGrad);

// DeepSeek's lightning indexer: for each query the positions of the sparse_count keys with the highest scores, best
// first, and -1 where there are fewer keys. The score is the sum, over the N1 / N2 query heads that share a key head,
// of relu(query . key) * weights.
//
// query is [B, S1, N1, D] (BSND) or [T, N1, D] (TND), weights the same without D and maybe in float32, sparse_indices
// [B, S1, N2, sparse_count] or [T, N2, sparse_count]. key is [blocks, block_size, N2, D] (PA_BSND: the pages that
// block_table [B, max_blocks] names), [B, S2, N2, D] (BSND) or [T2, N2, D] (TND). The lengths are [B]: counts, or
// running sums in TND. With sparse_mode 0 a query sees every key of its sequence, with 3 those up to its own position,
// the last query standing at the last key.
REG_OP(LightningIndexerPto)
    .INPUT(query, "T")
    .INPUT(key, "T")
    .INPUT(weights, TensorType({DT_FLOAT16, DT_BF16, DT_FLOAT}))
    .OPTIONAL_INPUT(actual_seq_lengths_query, TensorType({DT_INT32}))
    .OPTIONAL_INPUT(actual_seq_lengths_key, TensorType({DT_INT32}))
    .OPTIONAL_INPUT(block_table, TensorType({DT_INT32}))
    .OUTPUT(sparse_indices, TensorType({DT_INT32}))
    .ATTR(layout_query, String, "BSND")
    .ATTR(layout_key, String, "PA_BSND")
    .ATTR(sparse_count, Int, 2048)
    .ATTR(sparse_mode, Int, 3)
    .DATATYPE(T, TensorType({DT_FLOAT16, DT_BF16}))
    .OP_END_FACTORY_REG(LightningIndexerPto);

// Sparse flash attention: each query attends to the key tokens whose positions sparse_indices names up to its first
// -1, with scores of scale_value * (query . key + query_rope . key_rope). Without a token the result is zero.
//
// query is [B, S1, N1, D] (BSND) or [T, N1, D] (TND), query_rope and attention_out the same with a last dimension of
// their own, sparse_indices [B, S1, N2, k] or [T, N2, k]. key, value and key_rope are [blocks, block_size, N2, .]
// (PA_BSND), [B, S2, N2, .] (BSND) or [T2, N2, .] (TND); value may be key. Lengths, block_table and sparse_mode are
// those of LightningIndexerPto: positions that a query does not see are left out.
REG_OP(SparseFlashAttentionPto)
    .INPUT(query, "T")
    .INPUT(key, "T")
    .INPUT(value, "T")
    .INPUT(sparse_indices, TensorType({DT_INT32}))
    .OPTIONAL_INPUT(block_table, TensorType({DT_INT32}))
    .OPTIONAL_INPUT(actual_seq_lengths_query, TensorType({DT_INT32}))
    .OPTIONAL_INPUT(actual_seq_lengths_kv, TensorType({DT_INT32}))
    .OPTIONAL_INPUT(query_rope, "T")
    .OPTIONAL_INPUT(key_rope, "T")
    .OUTPUT(attention_out, "T")
    .REQUIRED_ATTR(scale_value, Float)
    .ATTR(layout_query, String, "BSND")
    .ATTR(layout_kv, String, "PA_BSND")
    .ATTR(sparse_mode, Int, 3)
    .DATATYPE(T, TensorType({DT_FLOAT16, DT_BF16}))
    .OP_END_FACTORY_REG(SparseFlashAttentionPto);

}  // namespace ge
