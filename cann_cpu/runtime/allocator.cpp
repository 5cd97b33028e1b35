// SPDX-License-Identifier: Apache-2.0
// Descriptions of programs' allocators, and the allocators of streams.
#include "acl/acl_rt_allocator.h"

#include <map>
#include <mutex>

#include "stream.h"

using namespace cann_cpu;

namespace {

struct AllocatorFunctions {
  aclrtAllocator allocator = nullptr;
  aclrtAllocatorAllocFunc alloc = nullptr;
  aclrtAllocatorFreeFunc free = nullptr;
  aclrtAllocatorAllocAdviseFunc alloc_advise = nullptr;
  aclrtAllocatorGetAddrFromBlockFunc address_of = nullptr;
};

struct AllocatorDescription : HasHandle, AllocatorFunctions {};

Registry<AllocatorDescription>& allocator_descriptions() {
  static auto* registry = new Registry<AllocatorDescription>("allocator description", "allocator descriptions");
  return *registry;
}

struct RegisteredAllocator {
  aclrtAllocatorDesc description;
  AllocatorFunctions functions;
};

struct StreamAllocators {
  std::mutex mutex;
  std::map<void*, RegisteredAllocator> of_stream;
};

StreamAllocators& stream_allocators() {
  static auto* allocators = new StreamAllocators;
  return *allocators;
}

template <class T>
aclError set_in_description(const char* function, aclrtAllocatorDesc description, T AllocatorFunctions::* field,
                            T value) {
  return host_call(function, [&] { (*allocator_descriptions().find(description)).*field = value; });
}

}  // namespace

aclrtAllocatorDesc aclrtAllocatorCreateDesc() {
  aclrtAllocatorDesc description = nullptr;
  host_call(__func__, [&] { description = allocator_descriptions().add(std::make_shared<AllocatorDescription>()); });
  return description;
}

aclError aclrtAllocatorDestroyDesc(aclrtAllocatorDesc allocatorDesc) {
  return host_call(__func__, [&] { allocator_descriptions().remove(allocatorDesc); });
}

aclError aclrtAllocatorSetObjToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocator allocator) {
  return set_in_description(__func__, allocatorDesc, &AllocatorFunctions::allocator, allocator);
}
aclError aclrtAllocatorSetAllocFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorAllocFunc func) {
  return set_in_description(__func__, allocatorDesc, &AllocatorFunctions::alloc, func);
}
aclError aclrtAllocatorSetFreeFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorFreeFunc func) {
  return set_in_description(__func__, allocatorDesc, &AllocatorFunctions::free, func);
}
aclError aclrtAllocatorSetAllocAdviseFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorAllocAdviseFunc func) {
  return set_in_description(__func__, allocatorDesc, &AllocatorFunctions::alloc_advise, func);
}
aclError aclrtAllocatorSetGetAddrFromBlockFuncToDesc(aclrtAllocatorDesc allocatorDesc,
                                                     aclrtAllocatorGetAddrFromBlockFunc func) {
  return set_in_description(__func__, allocatorDesc, &AllocatorFunctions::address_of, func);
}

aclError aclrtAllocatorRegister(aclrtStream stream, aclrtAllocatorDesc allocatorDesc) {
  return host_call(__func__, [&] {
    const AllocatorFunctions functions = *allocator_descriptions().find(allocatorDesc);
    require_pointer(functions.allocator, "the description's allocator");
    const bool has_all = functions.alloc != nullptr && functions.free != nullptr && functions.address_of != nullptr;
    if (!has_all) fail(ACL_ERROR_INVALID_PARAM, "the description has no Alloc, Free or GetAddrFromBlock");
    void* const handle = find_stream(stream)->handle;
    StreamAllocators& allocators = stream_allocators();
    const std::lock_guard lock(allocators.mutex);
    allocators.of_stream[handle] = {allocatorDesc, functions};
  });
}

aclError aclrtAllocatorUnregister(aclrtStream stream) {
  return host_call(__func__, [&] {
    // MindSpore destroys the stream before.
    void* const handle = stream == nullptr ? find_stream(stream)->handle : stream;
    StreamAllocators& allocators = stream_allocators();
    const std::lock_guard lock(allocators.mutex);
    if (allocators.of_stream.erase(handle) == 0) fail(ACL_ERROR_INVALID_PARAM, "the stream has no allocator");
  });
}

aclError aclrtAllocatorGetByStream(aclrtStream stream, aclrtAllocatorDesc* allocatorDesc, aclrtAllocator* allocator,
                                   aclrtAllocatorAllocFunc* allocFunc, aclrtAllocatorFreeFunc* freeFunc,
                                   aclrtAllocatorAllocAdviseFunc* allocAdviseFunc,
                                   aclrtAllocatorGetAddrFromBlockFunc* getAddrFromBlockFunc) {
  return host_call(__func__, [&] {
    require_pointer(allocatorDesc, "allocatorDesc");
    require_pointer(allocator, "allocator");
    require_pointer(allocFunc, "allocFunc");
    require_pointer(freeFunc, "freeFunc");
    require_pointer(allocAdviseFunc, "allocAdviseFunc");
    require_pointer(getAddrFromBlockFunc, "getAddrFromBlockFunc");
    void* const handle = find_stream(stream)->handle;
    StreamAllocators& allocators = stream_allocators();
    const std::lock_guard lock(allocators.mutex);
    const auto found = allocators.of_stream.find(handle);
    if (found == allocators.of_stream.end()) fail(ACL_ERROR_INVALID_PARAM, "the stream has no allocator");
    const AllocatorFunctions& functions = found->second.functions;
    *allocatorDesc = found->second.description;
    *allocator = functions.allocator;
    *allocFunc = functions.alloc;
    *freeFunc = functions.free;
    *allocAdviseFunc = functions.alloc_advise;
    *getAddrFromBlockFunc = functions.address_of;
  });
}
