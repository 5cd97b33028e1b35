// AdvanceStepFlashattn: the inputs of the next decode step, of the tokens that were sampled in the last one.
#pragma once

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

// Phase one: checks the arguments and stores the call. For each row i below numQueries, with p = seqLens[i],
//
//   inputTokens[i] = sampledTokenIds[i], inputPositions[i] = p, seqLens[i] = p + 1
//   slotMapping[i] = blockTables[i][p / blockSize] * blockSize + p % blockSize
//
// or -1 where the block table gives a negative block or is not that wide; for the rows behind them inputTokens and
// inputPositions become 0, slotMapping -1, and seqLens stays.
//
//   inputTokensRef     (num_seqs), int64, written.
//   sampledTokenIds    (num_queries, 1) or (num_queries), int64.
//   inputPositionsRef  (num_seqs), int64, written.
//   seqLensRef         (num_seqs), int32 or int64, written.
//   slotMappingRef     (num_seqs), int32 or int64, written.
//   blockTables        (num_seqs, max_blocks), int32 or int64.
//   numSeqs            0 or more.
//   numQueries         from 0 to numSeqs.
//   blockSize          1 or more.
//   workspaceSize, executor  set for phase two.
// The strides of all tensors are honoured. Returns 0, or 161001 for a null pointer, or 161002 for an argument that does
// not fit; aclGetRecentErrMsg says which.
__attribute__((visibility("default"))) aclnnStatus aclnnAdvanceStepFlashattnGetWorkspaceSize(
    aclTensor* inputTokensRef, const aclTensor* sampledTokenIds, aclTensor* inputPositionsRef, aclTensor* seqLensRef,
    aclTensor* slotMappingRef, const aclTensor* blockTables, int64_t numSeqs, int64_t numQueries, int64_t blockSize,
    uint64_t* workspaceSize, aclOpExecutor** executor);

// Phase two: enqueues the call on the stream. Lengths are checked when it runs: a negative one becomes an error of the
// stream, and nothing is written.
__attribute__((visibility("default"))) aclnnStatus aclnnAdvanceStepFlashattn(void* workspace, uint64_t workspaceSize,
                                                                             aclOpExecutor* executor,
                                                                             aclrtStream stream);

#ifdef __cplusplus
}
#endif
