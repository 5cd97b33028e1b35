// SparseFlashAttentionPto: attention of each query token over the key tokens that its indices name.
#pragma once

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

// Phase one: checks the arguments and stores the call. With g = N1 / N2 heads for each key head n, and for head h of n
//
//   score(query token t, key token j) = scaleValue * (query[t, h] . key[j, n] + queryRope[t, h] . keyRope[j, n])
//   attentionOut[t, h] = sum over j of softmax(score(t, .))[j] * value[j, n]
//
// where j goes over the tokens that sparseIndices[t, n] names, up to its first -1. A token past the length of the
// sequence, or past what sparseMode lets t see, is left out; one that is named twice counts twice. Without any token
// the result is zero. Scores, softmax and sums are in float32; the softmax weights are multiplied with the values in
// 16 significant bits or more, and the result is rounded once.
//
//   query      (B, S1, N1, D) with layout BSND, (T, N1, D) with TND; bfloat16 or float16.
//   key        (block_num, block_size, N2, D) with layout PA_BSND, (B, S2, N2, D) with BSND, (T2, N2, D) with TND;
//              query's dtype; N2 divides N1.
//   value      key's shape with a last dimension Dv of its own; query's dtype; may be key itself (MLA).
//   sparseIndices  (B, S1, N2, k) or (T, N2, k), int32: positions in the sequence, then -1.
//   blockTableOptional  (B, max_blocks), int32, for PA_BSND: row b names the pages of entry b, in order. A -1 among
//              those its length needs is a page without keys; past them nothing is read.
//   actualSeqLengthsQueryOptional  (B), int32. BSND: how many of the S1 query tokens an entry has; all if null.
//              TND: running totals, required. The result of tokens past them is zero, their indices are not read.
//   actualSeqLengthsKvOptional     (B), int32. PA_BSND (required) and BSND: how many keys an entry has; BSND: all if
//              null. TND: running totals, required.
//   queryRopeOptional, keyRopeOptional  query's and key's shape with a last dimension Dr of their own; both or none.
//   scaleValue   what the products are multiplied by, as float32.
//   layoutQueryOptional, layoutKvOptional  "BSND" or "TND"; "PA_BSND", or the layout of the query.
//   sparseMode   0: a query token sees all keys of its sequence. 3: query token i of n sees all but the last n - 1 - i.
//   attentionOut  written: (B, S1, N1, Dv) or (T, N1, Dv), query's dtype.
//   workspaceSize, executor  set for phase two.
// The strides of all tensors are honoured. Returns 0, or 161001 for a null pointer, or 161002 for an argument that does
// not fit; aclGetRecentErrMsg says which.
__attribute__((visibility("default"))) aclnnStatus aclnnSparseFlashAttentionPtoGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* blockTableOptional, const aclTensor* actualSeqLengthsQueryOptional,
    const aclTensor* actualSeqLengthsKvOptional, const aclTensor* queryRopeOptional, const aclTensor* keyRopeOptional,
    double scaleValue, char* layoutQueryOptional, char* layoutKvOptional, int64_t sparseMode,
    const aclTensor* attentionOut, uint64_t* workspaceSize, aclOpExecutor** executor);

// Phase two: enqueues the call on the stream. Lengths, block numbers and indices are checked when it runs: one out of
// range (an index below -1) becomes an error of the stream, and attentionOut stays as it was.
__attribute__((visibility("default"))) aclnnStatus aclnnSparseFlashAttentionPto(void* workspace, uint64_t workspaceSize,
                                                                                aclOpExecutor* executor,
                                                                                aclrtStream stream);

#ifdef __cplusplus
}
#endif
