// SPDX-License-Identifier: Apache-2.0
// libacl_tdt_channel.so: data sets and items of tensors are real, the channels that carry them are not supported.
#include "acl/acl_tdt.h"

#include <algorithm>
#include <vector>

#include "cann_cpu/call.h"

struct acltdtDataItem {
  acltdtTensorType type;
  std::vector<int64_t> dims;
  aclDataType data_type;
  void* data;
  size_t size;
};

struct acltdtDataset {
  std::vector<acltdtDataItem*> items;  // the caller's
};

using namespace cann_cpu;

acltdtDataItem* acltdtCreateDataItem(acltdtTensorType tdtType, const int64_t* dims, size_t dimNum, aclDataType dataType,
                                     void* data, size_t size) {
  acltdtDataItem* item = nullptr;
  host_call(__func__, [&] {
    if (dimNum > 0) require_pointer(dims, "dims");
    item = new acltdtDataItem{tdtType, {dims, dims + dimNum}, dataType, data, size};
  });
  return item;
}

aclError acltdtDestroyDataItem(acltdtDataItem* dataItem) {
  return host_call(__func__, [&] {
    require_pointer(dataItem, "dataItem");
    delete dataItem;
  });
}

acltdtTensorType acltdtGetTensorTypeFromItem(const acltdtDataItem* dataItem) {
  return dataItem == nullptr ? ACL_TENSOR_DATA_UNDEFINED : dataItem->type;
}

aclDataType acltdtGetDataTypeFromItem(const acltdtDataItem* dataItem) {
  return dataItem == nullptr ? ACL_DT_UNDEFINED : dataItem->data_type;
}

void* acltdtGetDataAddrFromItem(const acltdtDataItem* dataItem) {
  return dataItem == nullptr ? nullptr : dataItem->data;
}

size_t acltdtGetDataSizeFromItem(const acltdtDataItem* dataItem) { return dataItem == nullptr ? 0 : dataItem->size; }

size_t acltdtGetDimNumFromItem(const acltdtDataItem* dataItem) {
  return dataItem == nullptr ? 0 : dataItem->dims.size();
}

aclError acltdtGetDimsFromItem(const acltdtDataItem* dataItem, int64_t* dims, size_t dimNum) {
  return host_call(__func__, [&] {
    require_pointer(dataItem, "dataItem");
    if (dimNum < dataItem->dims.size()) {
      fail(ACL_ERROR_INVALID_PARAM, "dimNum is %zu; the item has %zu dimensions", dimNum, dataItem->dims.size());
    }
    if (!dataItem->dims.empty()) require_pointer(dims, "dims");
    std::copy(dataItem->dims.begin(), dataItem->dims.end(), dims);
  });
}

acltdtDataset* acltdtCreateDataset() { return new (std::nothrow) acltdtDataset; }

aclError acltdtDestroyDataset(acltdtDataset* dataset) {
  return host_call(__func__, [&] {
    require_pointer(dataset, "dataset");
    delete dataset;
  });
}

aclError acltdtAddDataItem(acltdtDataset* dataset, acltdtDataItem* dataItem) {
  return host_call(__func__, [&] {
    require_pointer(dataset, "dataset");
    require_pointer(dataItem, "dataItem");
    dataset->items.push_back(dataItem);
  });
}

acltdtDataItem* acltdtGetDataItem(const acltdtDataset* dataset, size_t index) {
  return dataset == nullptr || index >= dataset->items.size() ? nullptr : dataset->items[index];
}

size_t acltdtGetDatasetSize(const acltdtDataset* dataset) { return dataset == nullptr ? 0 : dataset->items.size(); }

acltdtChannelHandle* acltdtCreateChannelWithCapacity(uint32_t, const char*, size_t) {
  unsupported(__func__);
  return nullptr;
}

aclError acltdtDestroyChannel(acltdtChannelHandle*) { return unsupported(__func__); }

aclError acltdtReceiveTensor(const acltdtChannelHandle*, acltdtDataset*, int32_t) { return unsupported(__func__); }
