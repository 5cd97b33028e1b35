// SPDX-License-Identifier: Apache-2.0
// Channels that carry tensors between host and device: data sets and items are real, channels are not supported.
#ifndef INC_EXTERNAL_ACL_ACL_TDT_H_  // as in torch_npu's copy: a file may include both
#define INC_EXTERNAL_ACL_ACL_TDT_H_

#include "acl/acl_base.h"

#pragma GCC visibility push(default)
extern "C" {

enum acltdtTensorType {
  ACL_TENSOR_DATA_UNDEFINED = -1,
  ACL_TENSOR_DATA_TENSOR,
  ACL_TENSOR_DATA_END_OF_SEQUENCE,
  ACL_TENSOR_DATA_ABNORMAL,
  ACL_TENSOR_DATA_SLICE_TENSOR,
  ACL_TENSOR_DATA_END_TENSOR,
};

typedef struct acltdtDataItem acltdtDataItem;
typedef struct acltdtDataset acltdtDataset;
typedef struct acltdtChannelHandle acltdtChannelHandle;

acltdtDataItem* acltdtCreateDataItem(acltdtTensorType tdtType, const int64_t* dims, size_t dimNum, aclDataType dataType,
                                     void* data, size_t size);
aclError acltdtDestroyDataItem(acltdtDataItem* dataItem);
acltdtTensorType acltdtGetTensorTypeFromItem(const acltdtDataItem* dataItem);
aclDataType acltdtGetDataTypeFromItem(const acltdtDataItem* dataItem);
void* acltdtGetDataAddrFromItem(const acltdtDataItem* dataItem);
size_t acltdtGetDataSizeFromItem(const acltdtDataItem* dataItem);
size_t acltdtGetDimNumFromItem(const acltdtDataItem* dataItem);
aclError acltdtGetDimsFromItem(const acltdtDataItem* dataItem, int64_t* dims, size_t dimNum);

acltdtDataset* acltdtCreateDataset();
aclError acltdtDestroyDataset(acltdtDataset* dataset);
aclError acltdtAddDataItem(acltdtDataset* dataset, acltdtDataItem* dataItem);
acltdtDataItem* acltdtGetDataItem(const acltdtDataset* dataset, size_t index);
size_t acltdtGetDatasetSize(const acltdtDataset* dataset);

acltdtChannelHandle* acltdtCreateChannelWithCapacity(uint32_t deviceId, const char* name, size_t capacity);
aclError acltdtDestroyChannel(acltdtChannelHandle* handle);
aclError acltdtReceiveTensor(const acltdtChannelHandle* handle, acltdtDataset* dataset, int32_t timeout);

}  // extern "C"
#pragma GCC visibility pop

#endif
