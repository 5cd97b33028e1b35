// SparseAttentionPto: a whole attention layer of DeepSeek-V3.2 up to its output projection: multi-head latent attention
// over the keys that an indexer selects.
#pragma once

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

// Phase one: checks the arguments and stores the call. With round() for rounding to x's dtype, all sums in float32, and
// a row for each token t = (b, s) that holds
//
//   cq = rmsNorm(round(x wDq), gammaCq)                     [q, qr] = round(cq wUqQr)       of each of N heads
//   [ckv, kr] = round(x wDkvKr)                             queryIndex = round(cq wIdxQb)   of each of Ni heads
//   keyIndex = layerNorm(x wIdxK, inGammaK, inBetaK)        weight = round(x wIdxProj)      of each of Ni heads
//
// first the new keys of all tokens are written to the slots that cacheIndex names,
//
//   kvCache[slot] = rmsNorm(ckv, gammaCkv)     krCache[slot] = rope(kr)     indexKCache[slot] = rope(keyIndex)
//
// and then each token attends, with head h, to those sparseCount keys that its indexer scores highest of the tokens of
// its sequence up to itself (as LightningIndexerPto selects them, and SparseFlashAttentionPto attends to them)
//
//   score(j) = sum over the heads of weight * relu(rope(queryIndex) . indexKCache[j])
//   attnOut[t, h] = softmax over j of softmaxScale * (round(q wUk[h]) . kvCache[j] + rope(qr) . krCache[j]) .
//   kvCache[j]
//
// rmsNorm(a, g) = round(a / sqrt(mean(a^2) + rmsNormEps) * g), layerNorm(a, g, b) = round((a - mean(a)) /
// sqrt(variance(a) + layerNormEps) * g + b), and rope(a) = round(a' cos[t] + rotateHalf(a') sin[t]) for the first R
// elements, rotateHalf([u, v]) = [-v, u], where a' is a with mode "half", and [a0, a2, ..., a1, a3, ...] with
// "interleave".
//
// S1 is the number of new tokens of a sequence, R the width of the rotary embedding, even and at most D.
//
//   x          (B, S1, hidden), bfloat16 or float16; all tensors but the integers have its dtype.
//   wDq        (hidden, q_lora).
//   wUqQr      (q_lora, N * (Dn + R)): Dn columns of q and R of qr for each head.
//   wUk        (N, Dn, Dkv).
//   wDkvKr     (hidden, Dkv + R).
//   gammaCq, gammaCkv  (q_lora), (Dkv).
//   sin, cos   (B, S1, R).
//   cacheIndex (B, S1), int32 or int64: where each token is written, counted over the blocks of the caches; a token
//   with
//              -1 is not. Of tokens with the same slot the last is.
//   kvCacheRef, krCacheRef  (block_num, block_size, 1, Dkv) and (.., R), read and written.
//   blockTable (B, max_blocks), int32: row b names the blocks of sequence b, in order. A -1 among those its length
//   needs
//              is a block without keys; past them nothing is read.
//   actSeqs    (B), int32: how many keys a sequence has, its S1 new tokens included: token s sees all but the last
//              S1 - 1 - s. One that sees none gets zeros.
//   wIdxQb     (q_lora, Ni * D).
//   wIdxK, wIdxProj  (hidden, D), (hidden, Ni).
//   inGammaK, inBetaK  (D).
//   indexKCacheRef  (block_num, block_size, 1, D), read and written.
//   sparseCount     at least 1.
//   softmaxScale    positive, or 0 for 1 / sqrt(Dkv + R). It and both epsilons, at least 0, are taken as float32.
//   ropeMode, indexerRopeMode  "interleave" or "half": of qr and kr, and of queryIndex and keyIndex.
//   attnOut    written: (B, S1, N, Dkv).
//   workspaceSize, executor  set for phase two.
// The weights wDq, wUqQr, wDkvKr, wIdxQb, wIdxK and wIdxProj may be in FRACTAL_NZ, with the same results to the bit.
// The strides of all others are honoured. Returns 0, or 161001 for a null pointer, or 161002 for an argument that does
// not fit; aclGetRecentErrMsg says which.
__attribute__((visibility("default"))) aclnnStatus aclnnSparseAttentionPtoGetWorkspaceSize(
    const aclTensor* x, const aclTensor* wDq, const aclTensor* wUqQr, const aclTensor* wUk, const aclTensor* wDkvKr,
    const aclTensor* gammaCq, const aclTensor* gammaCkv, const aclTensor* sin, const aclTensor* cos,
    const aclTensor* cacheIndex, aclTensor* kvCacheRef, aclTensor* krCacheRef, const aclTensor* blockTable,
    const aclTensor* actSeqs, const aclTensor* wIdxQb, const aclTensor* wIdxK, const aclTensor* wIdxProj,
    const aclTensor* inGammaK, const aclTensor* inBetaK, aclTensor* indexKCacheRef, int64_t sparseCount,
    double softmaxScale, double rmsNormEps, double layerNormEps, char* ropeMode, char* indexerRopeMode,
    const aclTensor* attnOut, uint64_t* workspaceSize, aclOpExecutor** executor);

// Phase two: enqueues the call on the stream. Slots, lengths and block numbers are checked when it runs: one out of
// range becomes an error of the stream, and caches and attnOut stay as they were.
__attribute__((visibility("default"))) aclnnStatus aclnnSparseAttentionPto(void* workspace, uint64_t workspaceSize,
                                                                           aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif
