// AddCustomGrad: the gradients of AddCustom by its two inputs, before they are summed to the inputs' shapes.
#pragma once

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

// Phase one: checks the arguments and stores the call.
//   grad                        the gradient of AddCustom's output; any shape and strides, of AddCustom's dtypes.
//   gradSelfOut, gradOtherOut   written: copies of grad, of its shape and dtype; strides are honoured.
//   workspaceSize, executor     set for phase two.
// Returns 0, or 161001 for a null pointer, or 161002 for an argument that does not fit; aclGetRecentErrMsg says which.
__attribute__((visibility("default"))) aclnnStatus aclnnAddCustomGradGetWorkspaceSize(const aclTensor* grad,
                                                                                      const aclTensor* gradSelfOut,
                                                                                      const aclTensor* gradOtherOut,
                                                                                      uint64_t* workspaceSize,
                                                                                      aclOpExecutor** executor);

// Phase two: enqueues the call on the stream.
__attribute__((visibility("default"))) aclnnStatus aclnnAddCustomGrad(void* workspace, uint64_t workspaceSize,
                                                                      aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif
