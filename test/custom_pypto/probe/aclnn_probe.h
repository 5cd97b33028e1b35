// SPDX-License-Identifier: Apache-2.0
// The functions of opapi.cpp, and one that it has not.
#pragma once

#include "aclnn/acl_meta.h"

extern "C" {
#define PROBE(name) \
  aclnnStatus name##GetWorkspaceSize(const aclTensor* self, const aclTensor* out, uint64_t*, aclOpExecutor**)

PROBE(aclnnProbeNothing);
PROBE(aclnnProbeIncrement);
PROBE(aclnnProbeScribble);
PROBE(aclnnProbeOverrun);
PROBE(aclnnProbeFormat);
PROBE(aclnnProbeMissing);
PROBE(aclnnProbePhaseOneFails);
PROBE(aclnnProbePhaseTwoFails);
PROBE(aclnnProbeKernelFails);
PROBE(aclnnProbeWorkspace);

#undef PROBE

aclnnStatus aclnnAddGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclScalar* alpha,
                                     const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);

aclnnStatus aclnnProbeArgumentsGetWorkspaceSize(const aclTensor* tensor, const aclTensor* optionalOptional,
                                                const aclTensorList* list, const aclScalar* scalar,
                                                const aclIntArray* ints, const aclFloatArray* reals,
                                                const aclBoolArray* flags, aclDataType dtype, char* text,
                                                int64_t integer, double real, bool flag, const aclTensor* out,
                                                uint64_t* workspaceSize, aclOpExecutor** executor);
}
