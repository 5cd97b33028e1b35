// SPDX-License-Identifier: Apache-2.0
// Memory of torch_npu's tensors while the check `memory` is on: it replaces the caching allocator.
#pragma once

#include "acl/acl_base.h"
#include "cann_cpu/export.h"

namespace cann_cpu {

// Allocates on the calling thread's device. The tensor belongs to the stream. These functions return error().
CANN_EXPORT aclError allocate_tensor(void** address, size_t size, aclrtStream stream);
// Tasks may still use the memory.
CANN_EXPORT aclError free_tensor(void* address);
// tensor.record_stream(): the memory may be freed before what the stream has been given is done.
CANN_EXPORT aclError record_tensor(void* address, aclrtStream stream);

}  // namespace cann_cpu
