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
  ACLNN_ERR_INNER_NULLPTR = 561103,
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

// Gives a tensor everything anew, as aclCreateTensor does.
CANN_EXPORT aclnnStatus aclInitTensor(aclTensor* tensor, const int64_t* view_dims, uint64_t view_dims_num,
                                      aclDataType data_type, const int64_t* strides, int64_t offset, aclFormat format,
                                      const int64_t* storage_dims, uint64_t storage_dims_num, void* data);
CANN_EXPORT aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* address);
CANN_EXPORT aclnnStatus aclGetRawTensorAddr(const aclTensor* tensor, void** address);

// The caller frees what the first three give with delete[].
CANN_EXPORT aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** view_dims, uint64_t* view_dims_num);
CANN_EXPORT aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** strides, uint64_t* strides_num);
CANN_EXPORT aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storage_dims, uint64_t* storage_dims_num);
CANN_EXPORT aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset);
CANN_EXPORT aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format);
CANN_EXPORT aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* data_type);
CANN_EXPORT aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size);
CANN_EXPORT aclnnStatus aclGetFloatArraySize(const aclFloatArray* array, uint64_t* size);
CANN_EXPORT aclnnStatus aclGetBoolArraySize(const aclBoolArray* array, uint64_t* size);
CANN_EXPORT aclnnStatus aclGetTensorListSize(const aclTensorList* list, uint64_t* size);
CANN_EXPORT aclnnStatus aclGetScalarListSize(const aclScalarList* list, uint64_t* size);

// A repeatable executor outlives its calls until it is destroyed; any other ends with its one call.
CANN_EXPORT aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor);
CANN_EXPORT aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor);

// Give the tensor another address, and the executor the same for its next call. The index counts the tensors of the
// function, or its inputs or outputs alone: those of a list one by one, and one that is null as well. A built-in
// function knows the tensor that phase one was given, and takes the index for no more than one that it does not know.
CANN_EXPORT aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address);
CANN_EXPORT aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address);
CANN_EXPORT aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address);
// The same for a tensor of a list: ir_index counts the parameters that are tensors or lists.
CANN_EXPORT aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor* executor, size_t ir_index, size_t relative_index,
                                                aclTensorList* tensors, void* address);
CANN_EXPORT aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor* executor, size_t ir_index, size_t relative_index,
                                                     aclTensorList* tensors, void* address);
CANN_EXPORT aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor* executor, size_t ir_index, size_t relative_index,
                                                      aclTensorList* tensors, void* address);
// Their names of old.
CANN_EXPORT aclnnStatus AclSetTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address);
CANN_EXPORT aclnnStatus AclSetInputTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address);
CANN_EXPORT aclnnStatus AclSetOutputTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address);
CANN_EXPORT aclnnStatus AclSetDynamicTensorAddr(aclOpExecutor* executor, size_t ir_index, size_t relative_index,
                                                aclTensorList* tensors, void* address);
CANN_EXPORT aclnnStatus AclSetDynamicInputTensorAddr(aclOpExecutor* executor, size_t ir_index, size_t relative_index,
                                                     aclTensorList* tensors, void* address);
CANN_EXPORT aclnnStatus AclSetDynamicOutputTensorAddr(aclOpExecutor* executor, size_t ir_index, size_t relative_index,
                                                      aclTensorList* tensors, void* address);

// Writes the tensors to files where dumps are on; aclInit rejects them, so they are off.
CANN_EXPORT aclnnStatus aclDumpOpTensors(const char* op_type, const char* op_name, aclTensor** tensors,
                                         size_t input_tensor_num, size_t output_tensor_num, aclrtStream stream);
}
