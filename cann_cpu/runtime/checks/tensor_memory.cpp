// SPDX-License-Identifier: Apache-2.0
// The functions of a pluggable allocator for torch_npu, which the check `memory` makes it use: each tensor has its own
// memory of exactly its size. torchair requests memory by other functions, which are also here.
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <memory>

#include "acl/acl_rt.h"
#include "tensor_memory.h"

namespace {

using c10::CachingDeviceAllocator::DeviceStats;

// torch_npu's, as it is laid out: passed by reference, for its destructor.
struct NPUStream {
  ~NPUStream() {}
  c10::Stream stream;
};

// The runtime's handle of a stream of torch_npu's, which torch_npu knows.
aclrtStream handle_of(const NPUStream& stream) {
  using Function = aclrtStream (*)(const NPUStream*, bool);
  static const auto function = [] {
    void* const library = dlopen("libtorch_npu.so", RTLD_LAZY | RTLD_NOLOAD);
    void* const found = library == nullptr ? nullptr : dlsym(library, "_ZNK7c10_npu9NPUStream6streamEb");
    TORCH_CHECK(found != nullptr, "cann_cpu memory: torch_npu has no c10_npu::NPUStream::stream(bool)");
    return reinterpret_cast<Function>(found);
  }();
  return function(&stream, false);
}

void* allocate(size_t size, aclrtStream stream) {
  void* address = nullptr;
  const aclError code = cann_cpu::allocate_tensor(&address, size, stream);
  TORCH_CHECK_WITH(OutOfMemoryError, code == ACL_SUCCESS, "NPU out of memory. Tried to allocate ", size,
                   " bytes: ", aclGetRecentErrMsg());
  return address;
}

// What PyTorch itself, and torchair, take for the device's allocator.
class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    const c10::impl::VirtualGuardImpl device(c10::DeviceType::PrivateUse1);
    const NPUStream stream{device.getStream(device.getDevice())};
    void* const address = size == 0 ? nullptr : ::allocate(size, handle_of(stream));
    return {address, address, raw_deleter(), device.getDevice()};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return [](void* address) {
      if (address != nullptr) cann_cpu::free_tensor(address);
    };
  }

  void copy_data(void* to, const void* from, size_t size) const override {
    const aclError code = aclrtMemcpy(to, size, from, size, ACL_MEMCPY_DEVICE_TO_DEVICE);
    TORCH_CHECK(code == ACL_SUCCESS, aclGetRecentErrMsg());
  }
};

struct Block {
  void* address;
  size_t size;
};

}  // namespace

// torchair's calls come here where this library is loaded before libtorch_npu.so, for all to see.
namespace c10_npu::NPUCachingAllocator {

CANN_EXPORT void* MallocBlock(size_t size, void* stream, int) { return new Block{allocate(size, stream), size}; }

CANN_EXPORT void FreeBlock(void* handle) {
  const std::unique_ptr<Block> block(static_cast<Block*>(handle));
  cann_cpu::free_tensor(block->address);
}

CANN_EXPORT void* GetBlockPtr(const void* handle) { return static_cast<const Block*>(handle)->address; }

CANN_EXPORT size_t GetBlockSize(const void* handle) { return static_cast<const Block*>(handle)->size; }

}  // namespace c10_npu::NPUCachingAllocator

extern "C" {

CANN_EXPORT void cann_cpu_set_allocator() {
  static Allocator allocator;
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator);
}

CANN_EXPORT void* cann_cpu_allocate_tensor(ssize_t size, int, aclrtStream stream) {
  return size == 0 ? nullptr : allocate(static_cast<size_t>(size), stream);
}

CANN_EXPORT void cann_cpu_free_tensor(void* address, size_t, int, aclrtStream) {
  if (address != nullptr) cann_cpu::free_tensor(address);
}

CANN_EXPORT void cann_cpu_record_tensor(void* address, const NPUStream& stream) {
  if (address != nullptr) cann_cpu::record_tensor(address, handle_of(stream));
}

CANN_EXPORT DeviceStats cann_cpu_tensor_statistics(c10::DeviceIndex device) {
  aclrtMemUsageInfo usage{};
  size_t count = 0;
  TORCH_CHECK(aclrtGetMemUsageInfo(device, &usage, 1, &count) == ACL_SUCCESS, aclGetRecentErrMsg());
  DeviceStats statistics;
  for (auto* const sum : {&statistics.allocated_bytes, &statistics.reserved_bytes, &statistics.active_bytes,
                          &statistics.requested_bytes}) {
    auto& all = (*sum)[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
    all.current = static_cast<int64_t>(usage.curMemSize);
    all.peak = static_cast<int64_t>(usage.memPeakSize);
  }
  return statistics;
}
}
