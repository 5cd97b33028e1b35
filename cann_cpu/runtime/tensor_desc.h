// What describes the tensors of an operator on the aclop path.
#pragma once

#include <string>
#include <vector>

#include "acl/acl_base.h"

struct aclDataBuffer {
  void* data;
  size_t size;
};

struct aclTensorDesc {
  aclDataType type;
  aclFormat format;
  std::vector<int64_t> dims;
  std::string name;
  aclFormat storage_format = ACL_FORMAT_UNDEFINED;
  std::vector<int64_t> storage_dims;
  aclMemType placement = ACL_MEMTYPE_DEVICE;
};
