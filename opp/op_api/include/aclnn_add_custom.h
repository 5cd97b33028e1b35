// AddCustom: out = self + other, with broadcasting.
#pragma once

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

// Phase one: checks the arguments and stores the call.
//   self, other  any shapes that broadcast together; strides are honoured. float16, bfloat16, float32, float64, int8,
//                uint8, int16, int32, int64 or bool, both the same. Sums of float16 and bfloat16 are rounded once;
//                integers wrap; the sum of two bools is their logical or.
//   out          written: their common shape and dtype; strides are honoured. It may be self or other themselves, but
//                not overlap them in part.
//   workspaceSize, executor  set for phase two.
// Returns 0, or 161001 for a null pointer, or 161002 for an argument that does not fit; aclGetRecentErrMsg says which.
__attribute__((visibility("default"))) aclnnStatus aclnnAddCustomGetWorkspaceSize(const aclTensor* self,
                                                                                  const aclTensor* other,
                                                                                  const aclTensor* out,
                                                                                  uint64_t* workspaceSize,
                                                                                  aclOpExecutor** executor);

// Phase two: enqueues the call on the stream.
__attribute__((visibility("default"))) aclnnStatus aclnnAddCustom(void* workspace, uint64_t workspaceSize,
                                                                  aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif
