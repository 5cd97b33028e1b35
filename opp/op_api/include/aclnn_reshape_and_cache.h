// ReshapeAndCache: the keys and values of new tokens, written to their slots in paged caches.
#pragma once

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

// Phase one: checks the arguments and stores the call. For each token t whose slot s is not negative,
//
//   keyCache[s / block_size][s % block_size] = key[t], and likewise valueCache of value, if they are given
//
// c0 is the number of elements in 32 bytes.
//
//   key            (T, N, D), (T, hidden), (B, S, N, D) or (B, S, hidden): float16, bfloat16, int8 or float32.
//   valueOptional  null, or the same with sizes and a dtype of its own.
//   keyCacheRef    (block_num, block_size, N, D) or (block_num, block_size, hidden) with cacheLayout ND,
//                  (block_num, hidden / c0, block_size, c0) with NZ, of key's dtype: written at the tokens' slots.
//   valueCacheRefOptional  the same for value; null with it.
//   slotMapping    (T) or (B, S), int64 or int32: each token's slot, negative for a token that is not cached. Of tokens
//                  with the same slot the last is cached.
//   cacheLayoutOptional    "ND" or "NZ".
//   workspaceSize, executor  set for phase two.
// The strides of all tensors are honoured. Returns 0, or 161001 for a null pointer, or 161002 for an argument that does
// not fit; aclGetRecentErrMsg says which.
__attribute__((visibility("default"))) aclnnStatus aclnnReshapeAndCacheGetWorkspaceSize(
    const aclTensor* key, const aclTensor* valueOptional, aclTensor* keyCacheRef, aclTensor* valueCacheRefOptional,
    const aclTensor* slotMapping, char* cacheLayoutOptional, uint64_t* workspaceSize, aclOpExecutor** executor);

// Phase two: enqueues the call on the stream. Slots are checked when it runs: one past the cache becomes an error of
// the stream, and the caches stay as they were.
__attribute__((visibility("default"))) aclnnStatus aclnnReshapeAndCache(void* workspace, uint64_t workspaceSize,
                                                                        aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif
