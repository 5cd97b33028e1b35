// SPDX-License-Identifier: Apache-2.0
// The C interface of aclnn's arguments and executors: tensors, scalars, arrays, lists.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "acl/acl_base.h"
#include "cann_cpu/export.h"

typedef int32_t aclnnStatus;

// aclnn's own status codes; the runtime's are in acl/acl_base.h.
enum : aclnnStatus {
  ACLNN_SUCCESS = 0,
  ACLNN_ERR_PARAM_NULLPTR = 161001,
  ACLNN_ERR_PARAM_INVALID = 161002,
  ACLNN_ERR_RUNTIME_ERROR = 361001,
  ACLNN_ERR_INNER = 561000,
};

extern "C" {
typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclFloatArray aclFloatArray;
typedef struct aclBoolArray aclBoolArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclScalarList aclScalarList;
typedef struct aclOpExecutor aclOpExecutor;

// Strides and offset count elements; data is the start of the storage, the offset not yet added.
CANN_EXPORT aclTensor* aclCreateTensor(const int64_t* view_dims, uint64_t view_dims_num, aclDataType data_type,
                                       const int64_t* strides, int64_t offset, aclFormat format,
                                       const int64_t* storage_dims, uint64_t storage_dims_num, void* data);
CANN_EXPORT aclScalar* aclCreateScalar(void* value, aclDataType data_type);
CANN_EXPORT aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size);
CANN_EXPORT aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size);
CANN_EXPORT aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size);
// A list takes the tensors or scalars over and destroys them with itself.
CANN_EXPORT aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size);
CANN_EXPORT aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size);

CANN_EXPORT aclnnStatus aclDestroyTensor(const aclTensor* tensor);
CANN_EXPORT aclnnStatus aclDestroyScalar(const aclScalar* scalar);
CANN_EXPORT aclnnStatus aclDestroyIntArray(const aclIntArray* array);
CANN_EXPORT aclnnStatus aclDestroyFloatArray(const aclFloatArray* array);
CANN_EXPORT aclnnStatus aclDestroyBoolArray(const aclBoolArray* array);
CANN_EXPORT aclnnStatus aclDestroyTensorList(const aclTensorList* list);
CANN_EXPORT aclnnStatus aclDestroyScalarList(const aclScalarList* list);

// The caller frees *view_dims with delete[].
CANN_EXPORT aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** view_dims, uint64_t* view_dims_num);

// A repeatable executor outlives its calls until it is destroyed; any other ends with its one call.
CANN_EXPORT aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor);
CANN_EXPORT aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor);
}
