// LightningIndexerPrologPto: int8 queries and keys, and the weights of the heads, for a quantised lightning indexer.
#pragma once

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

// Phase one: checks the arguments and stores the call. For each token, with N heads of size D,
//
//   q = qNorm wqB * qNormScale * wqBScale, exact sums, then float32 -> x, for each head
//   k = LayerNorm(tokenX wk) with lnGammaK, lnBetaK and layernormEpsilonK, float32 -> x
//   query, queryScale = quantise(rope(q) hadamardQ -> x)
//   idxKCache[slot], idxKScaleCache[slot] = quantise(rope(k) hadamardK -> x)
//   weights = (tokenX weightsProj -> x) / sqrt(N) / sqrt(D), float32 -> float16
//
// where -> x rounds to tokenX's dtype, products are summed in float32, rope rotates the first R elements in float32 and
// rounds them to tokenX's dtype,
//
//   rope(z) = z' * cos + rotate_half(z') * sin      rotate_half([a, b]) = [-b, a]
//
// with z' = [z0, z2, ..., z1, z3, ...] (and left in this order) or z' = z as ropeMode says, and quantise gives, with
// amax = max |z|, the integers nearest to z * 127 / amax, ties to even, and the scale amax / 127 in float16; for amax 0
// zeros and 0.
//
// Tokens are (T, ...) with layoutQuery TND, (B, S1, ...) with BSND; x is bfloat16 or float16.
//
//   tokenX        (T, h), x.
//   qNorm         (T, q_lora), int8.
//   qNormScale    (T, 1), float32.
//   wqB           (q_lora, N * D), int8, ND or FRACTAL_NZ; q_lora is at most 131071.
//   wqBScale      (N * D, 1), float32.
//   wk            (h, D), x, ND or FRACTAL_NZ.
//   weightsProj   (h, N), x, ND or FRACTAL_NZ.
//   lnGammaK, lnBetaK            (D), x.
//   cosIdxRope, sinIdxRope       (T, R), x; R is even and at most D.
//   hadamardQ, hadamardK         (D, D), x, multiplied from the right.
//   idxKCacheRef       (block_num, block_size, 1, D) with layoutKey PA_BSND, (B, S2, 1, D) with BSND, (T2, 1, D) with
//                      TND, int8: written at the tokens' slots, which count over the dimensions before the 1.
//   idxKScaleCacheRef  the same without D, float16.
//   idxKCacheIndex     (T), int64 or int32: each token's slot, -1 for a token that is not cached. Of tokens with the
//                      same slot the last is cached.
//   layernormEpsilonK  at least 0, taken as float32.
//   layoutQuery   "TND" or "BSND".
//   layoutKey     "PA_BSND", "BSND" or "TND".
//   ropeMode      "interleave" or "half".
//   queryOut      written: (T, N, D), int8.
//   queryScaleOut written: (T, N, 1), float16.
//   weightsOut    written: (T, N), float16.
//   workspaceSize, executor  set for phase two.
// The strides of all tensors are honoured. Returns 0, or 161001 for a null pointer, or 161002 for an argument that does
// not fit; aclGetRecentErrMsg says which.
__attribute__((visibility("default"))) aclnnStatus aclnnLightningIndexerPrologPtoGetWorkspaceSize(
    const aclTensor* tokenX, const aclTensor* qNorm, const aclTensor* qNormScale, const aclTensor* wqB,
    const aclTensor* wqBScale, const aclTensor* wk, const aclTensor* weightsProj, const aclTensor* lnGammaK,
    const aclTensor* lnBetaK, const aclTensor* cosIdxRope, const aclTensor* sinIdxRope, const aclTensor* hadamardQ,
    const aclTensor* hadamardK, aclTensor* idxKCacheRef, aclTensor* idxKScaleCacheRef, const aclTensor* idxKCacheIndex,
    double layernormEpsilonK, char* layoutQuery, char* layoutKey, char* ropeMode, const aclTensor* queryOut,
    const aclTensor* queryScaleOut, const aclTensor* weightsOut, uint64_t* workspaceSize, aclOpExecutor** executor);

// Phase two: enqueues the call on the stream. Slots are checked when it runs: one out of range becomes an error of the
// stream, and outputs and caches stay as they were.
__attribute__((visibility("default"))) aclnnStatus aclnnLightningIndexerPrologPto(void* workspace,
                                                                                  uint64_t workspaceSize,
                                                                                  aclOpExecutor* executor,
                                                                                  aclrtStream stream);

#ifdef __cplusplus
}
#endif
