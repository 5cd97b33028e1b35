// LightningIndexerPto: for each query token the positions of the keys that score highest (DeepSeek sparse attention).
#pragma once

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

// Phase one: checks the arguments and stores the call. With g = N1 / N2 heads for each key head,
//
//   score(query token t, key token j) = sum over the g heads h of weights[t, h] * relu(query[t, h] . key[j])
//
// summed in float32, and each row of the output gets the positions in its sequence of the sparseCount keys that score
// highest, best first, of equal scores the lower position first; then -1. NaN scores highest.
//
//   query    (B, S1, N1, D) with layout BSND, (T, N1, D) with TND; bfloat16 or float16.
//   key      (block_num, block_size, N2, D) with layout PA_BSND, (B, S2, N2, D) with BSND, (T2, N2, D) with TND;
//   query's
//            dtype; N2 divides N1.
//   weights  (B, S1, N1) or (T, N1); query's dtype or float32.
//   actualSeqLengthsQueryOptional  (B), int32. BSND: how many of the S1 query tokens an entry has; all if null.
//            TND: running totals, required. Rows of the output past them are -1.
//   actualSeqLengthsKeyOptional    (B), int32. PA_BSND (required) and BSND: how many keys an entry has; BSND: all if
//            null. TND: running totals, required.
//   blockTableOptional  (B, max_blocks), int32, for PA_BSND: row b names the pages of entry b, in order. A -1 among
//            those its length needs is a page without keys; past them nothing is read.
//   layoutQueryOptional, layoutKeyOptional  "BSND" or "TND"; "PA_BSND", or the layout of the query.
//   sparseCount  at least 1.
//   sparseMode   0: a query token sees all keys of its sequence. 3: query token i of n sees all but the last n - 1 - i.
//   out      written: (B, S1, N2, sparseCount) or (T, N2, sparseCount), int32.
//   workspaceSize, executor  set for phase two.
// The strides of all tensors are honoured. Returns 0, or 161001 for a null pointer, or 161002 for an argument that does
// not fit; aclGetRecentErrMsg says which.
__attribute__((visibility("default"))) aclnnStatus aclnnLightningIndexerPtoGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* weights,
    const aclTensor* actualSeqLengthsQueryOptional, const aclTensor* actualSeqLengthsKeyOptional,
    const aclTensor* blockTableOptional, char* layoutQueryOptional, char* layoutKeyOptional, int64_t sparseCount,
    int64_t sparseMode, const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);

// Phase two: enqueues the call on the stream. Lengths and block numbers are checked when it runs: one out of range
// becomes an error of the stream, and out stays as it was.
__attribute__((visibility("default"))) aclnnStatus aclnnLightningIndexerPto(void* workspace, uint64_t workspaceSize,
                                                                            aclOpExecutor* executor,
                                                                            aclrtStream stream);

#ifdef __cplusplus
}
#endif
