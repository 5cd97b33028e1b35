// SPDX-License-Identifier: Apache-2.0
// Data buffers and tensor descriptions, the arguments of operators on the aclop path.
#include <algorithm>
#include <memory>

#include "cann_cpu/aclop.h"
#include "cann_cpu/call.h"

using namespace cann_cpu;

namespace {

constexpr size_t kUnknownRank = 0xFFFFFFFFFFFFFFFE;  // ACL_UNKNOWN_RANK of CANN's headers

}  // namespace

aclDataBuffer* aclCreateDataBuffer(void* data, size_t size) { return new (std::nothrow) aclDataBuffer{data, size}; }

aclError aclDestroyDataBuffer(const aclDataBuffer* dataBuffer) {
  return host_call(__func__, [&] {
    require_pointer(dataBuffer, "dataBuffer");
    delete dataBuffer;
  });
}

aclError aclUpdateDataBuffer(aclDataBuffer* dataBuffer, void* data, size_t size) {
  return host_call(__func__, [&] {
    require_pointer(dataBuffer, "dataBuffer");
    *dataBuffer = {data, size};
  });
}

void* aclGetDataBufferAddr(const aclDataBuffer* dataBuffer) {
  return dataBuffer == nullptr ? nullptr : dataBuffer->data;
}

uint32_t aclGetDataBufferSize(const aclDataBuffer* dataBuffer) { return aclGetDataBufferSizeV2(dataBuffer); }

size_t aclGetDataBufferSizeV2(const aclDataBuffer* dataBuffer) { return dataBuffer == nullptr ? 0 : dataBuffer->size; }

aclTensorDesc* aclCreateTensorDesc(aclDataType dataType, int numDims, const int64_t* dims, aclFormat format) {
  std::unique_ptr<aclTensorDesc> desc;
  host_call(__func__, [&] {
    if (numDims < 0) fail(ACL_ERROR_INVALID_PARAM, "numDims is %d", numDims);
    if (numDims > 0) require_pointer(dims, "dims");
    desc = std::make_unique<aclTensorDesc>();
    desc->type = dataType;
    desc->format = format;
    desc->dims.assign(dims, dims + numDims);
  });
  return desc.release();
}

void aclDestroyTensorDesc(const aclTensorDesc* desc) { delete desc; }

aclDataType aclGetTensorDescType(const aclTensorDesc* desc) { return desc == nullptr ? ACL_DT_UNDEFINED : desc->type; }

aclFormat aclGetTensorDescFormat(const aclTensorDesc* desc) {
  return desc == nullptr ? ACL_FORMAT_UNDEFINED : desc->format;
}

size_t aclGetTensorDescNumDims(const aclTensorDesc* desc) {
  if (desc == nullptr) return 0;
  const bool is_of_unknown_rank = desc->dims.size() == 1 && desc->dims[0] == -2;
  return is_of_unknown_rank ? kUnknownRank : desc->dims.size();
}

// 0 when a dimension is unknown (negative).
size_t aclGetTensorDescElementCount(const aclTensorDesc* desc) {
  if (desc == nullptr) return 0;
  size_t count = 1;
  for (int64_t dim : desc->dims) count *= std::max<int64_t>(dim, 0);
  return count;
}

size_t aclGetTensorDescSize(const aclTensorDesc* desc) {
  return desc == nullptr ? 0 : aclGetTensorDescElementCount(desc) * aclDataTypeSize(desc->type);
}

int64_t aclGetTensorDescDim(const aclTensorDesc* desc, size_t index) {
  return desc == nullptr || index >= desc->dims.size() ? -1 : desc->dims[index];
}

aclError aclGetTensorDescDimV2(const aclTensorDesc* desc, size_t index, int64_t* dimSize) {
  return host_call(__func__, [&] {
    require_pointer(desc, "desc");
    require_pointer(dimSize, "dimSize");
    if (index >= desc->dims.size()) {
      fail(ACL_ERROR_INVALID_PARAM, "index is %zu; the tensor has %zu dimensions", index, desc->dims.size());
    }
    *dimSize = desc->dims[index];
  });
}

void aclSetTensorDescName(aclTensorDesc* desc, const char* name) {
  host_call(__func__, [&] {
    require_pointer(desc, "desc");
    desc->name = name == nullptr ? "" : name;
  });
}

const char* aclGetTensorDescName(aclTensorDesc* desc) { return desc == nullptr ? "" : desc->name.c_str(); }

aclError aclSetTensorFormat(aclTensorDesc* desc, aclFormat format) {
  return host_call(__func__, [&] {
    require_pointer(desc, "desc");
    desc->storage_format = format;
  });
}

aclError aclSetTensorShape(aclTensorDesc* desc, int numDims, const int64_t* dims) {
  return host_call(__func__, [&] {
    require_pointer(desc, "desc");
    if (numDims < 0) fail(ACL_ERROR_INVALID_PARAM, "numDims is %d", numDims);
    if (numDims > 0) require_pointer(dims, "dims");
    desc->storage_dims.assign(dims, dims + numDims);
  });
}

aclError aclSetTensorPlaceMent(aclTensorDesc* desc, aclMemType memType) {
  return host_call(__func__, [&] {
    require_pointer(desc, "desc");
    desc->placement = memType;
  });
}

aclError aclSetTensorConst(aclTensorDesc* desc, void* dataBuffer, size_t length) {
  return host_call(__func__, [&] {
    require_pointer(desc, "desc");
    require_pointer(dataBuffer, "dataBuffer");
    const size_t needed = aclGetTensorDescSize(desc);
    if (length < needed) fail(ACL_ERROR_INVALID_PARAM, "length is %zu; the tensor has %zu bytes", length, needed);
    desc->constant.assign(static_cast<const char*>(dataBuffer), length);
  });
}
