// SPDX-License-Identifier: Apache-2.0
// Device memory with its account and limit, pinned host memory, and the map of known ranges.
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <shared_mutex>

#include "cann_cpu/device_memory.h"
#include "stream.h"

namespace cann_cpu {
namespace {

constexpr size_t kDeviceAlignment = 512;
constexpr size_t kHostAlignment = 4096;
constexpr size_t kHugePage = 2 << 20;

enum class Kind { kDevice, kHost, kRegisteredHost, kMapping };

struct Allocation {
  Kind kind;
  int32_t device;
  size_t size;
  uint64_t resets = 0;           // of the device, before it was allocated
  const void* mapped = nullptr;  // what aclrtHostRegister has mapped of it
};

// All known ranges by their first address.
struct MemoryMap {
  // The range that holds the address, or the end; under the mutex.
  auto holder(const void* address) {
    const auto next = ranges.upper_bound(reinterpret_cast<uintptr_t>(address));
    if (next == ranges.begin()) return ranges.end();
    const auto range = std::prev(next);
    return reinterpret_cast<uintptr_t>(address) < range->first + range->second.size ? range : ranges.end();
  }

  std::shared_mutex mutex;
  std::map<uintptr_t, Allocation> ranges;
};

MemoryMap& memory_map() {
  static auto* map = [] {
    auto* made = new MemoryMap;
    const auto count = [made](const char* kind, Kind of) {
      count_living(kind, [made, of] {
        const std::shared_lock lock(made->mutex);
        size_t bytes = 0;
        for (const auto& [address, allocation] : made->ranges) bytes += allocation.kind == of ? allocation.size : 0;
        return bytes;
      });
    };
    count("bytes of device memory", Kind::kDevice);
    count("bytes of mapped device memory", Kind::kMapping);
    count("bytes of pinned memory", Kind::kHost);
    return made;
  }();
  return *map;
}

void add_range(void* address, Allocation allocation) {
  MemoryMap& map = memory_map();
  std::unique_lock lock(map.mutex);
  map.ranges[to_integer(address)] = allocation;
}

// Takes the range that starts at the address out of the map; fails unless it is there and of that kind.
Allocation remove_range(const char* name, void* address, Kind kind) {
  require_pointer(address, name);
  MemoryMap& map = memory_map();
  std::unique_lock lock(map.mutex);
  auto found = map.ranges.find(to_integer(address));
  if (found == map.ranges.end() || found->second.kind != kind) {
    fail(ACL_ERROR_INVALID_PARAM, "%s %p is not what the matching call returned, or was given back already", name,
         address);
  }
  Allocation allocation = found->second;
  map.ranges.erase(found);
  lock.unlock();  // observers take this lock after their own
  notify(&Observer::on_range_removed, address, allocation.size);
  return allocation;
}

bool adjoin(const std::pair<const uintptr_t, Allocation>& left, const std::pair<const uintptr_t, Allocation>& right) {
  return left.second.kind == Kind::kMapping && right.second.kind == Kind::kMapping &&
         left.second.device == right.second.device && left.first + left.second.size == right.first;
}

void* allocate(size_t alignment, size_t size) {
  size_t rounded = (size + alignment - 1) / alignment * alignment;
  return rounded < size ? nullptr : std::aligned_alloc(alignment, rounded);
}

// Allocates device memory, in huge pages if it fills one, as CANN does. Otherwise kernels that gather rows from all
// over a cache would wait for the page tables. The allocation has 32 more bytes at its end, as CANN documents, because
// kernels copy whole blocks.
void* allocate_device(size_t size) {
  constexpr size_t kBlock = 32;
  if (size + kBlock < size) return nullptr;
  if (size < kHugePage) return allocate(kDeviceAlignment, size + kBlock);
  void* memory = allocate(kHugePage, size + kBlock);
  if (memory != nullptr) madvise(memory, size, MADV_HUGEPAGE);  // optional: everything also works without huge pages
  return memory;
}

// What allocate_device() gave.
void free_pages(void* address) {
  end_export(address);
  std::free(address);
}

// Tasks that were launched before may still use it: it is reused when they have ended.
void retire(void* address) { retain_until_done(std::shared_ptr<void>(address, free_pages)); }

void free_device(void* address) {
  require_pointer(address, "devPtr");
  if (device_allocator != nullptr) device_allocator->check_free(address);
  notify(&Observer::on_freed, forget_device_memory(address));
  device_allocator != nullptr ? device_allocator->release(address) : retire(address);
}

void malloc_host(void** address, size_t size) {
  require_pointer(address, "hostPtr");
  *address = nullptr;
  current_context();
  if (size == 0) fail(ACL_ERROR_INVALID_PARAM, "size is 0");
  void* memory = allocate(kHostAlignment, size);
  if (memory == nullptr) fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "Failed to allocate %zu bytes of host memory", size);
  add_range(memory, {Kind::kHost, -1, size});
  notify(&Observer::on_allocated, size);
  *address = memory;
}

void free_host(void* address) {
  remove_range("hostPtr", address, Kind::kHost);
  retire(address);
}

// Before a free. What fails leaves the memory where it is.
void synchronize_device() {
  if (const aclError code = aclrtSynchronizeDevice()) throw Failure{code, take_message()};
}

void register_host(void* address, uint64_t size, bool is_mapped) {
  require_pointer(address, "ptr");
  if (size == 0) fail(ACL_ERROR_INVALID_PARAM, "size is 0");
  if (to_integer(address) % kHostAlignment != 0) {
    fail(ACL_ERROR_RT_PARAM_INVALID, "ptr %p is not aligned to %zu bytes", address, kHostAlignment);
  }
  MemoryMap& map = memory_map();
  std::unique_lock lock(map.mutex);
  // What aclrtMallocHost gave is pinned already, and may be mapped.
  const auto known = map.holder(address);
  const bool is_known = known != map.ranges.end();
  if (is_mapped && is_known && known->second.kind == Kind::kHost && known->second.mapped == nullptr) {
    known->second.mapped = address;
    return;
  }
  const auto next = map.ranges.upper_bound(to_integer(address));
  if (is_known || (next != map.ranges.end() && next->first < to_integer(address) + size)) {
    fail(ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "%p and %lu bytes on overlap memory that is known already", address,
         size);
  }
  map.ranges[to_integer(address)] = {Kind::kRegisteredHost, -1, size, 0, is_mapped ? address : nullptr};
}

// Ends the mapping of what aclrtMallocHost gave; false when there is none at the address.
bool unmap_host(const void* address) {
  MemoryMap& map = memory_map();
  std::unique_lock lock(map.mutex);
  const auto known = map.holder(address);
  if (known == map.ranges.end() || known->second.kind != Kind::kHost || known->second.mapped != address) return false;
  known->second.mapped = nullptr;
  return true;
}

bool is_mapped_host(const void* address) {
  MemoryMap& map = memory_map();
  std::shared_lock lock(map.mutex);
  const auto known = map.holder(address);
  return known != map.ranges.end() && known->second.mapped != nullptr;
}

// Pinned memory is every device's, at one address: what the attributes ask for is so.
void check_host_attributes(const aclrtMallocConfig* config) {
  if (config == nullptr || config->numAttrs == 0) return;
  require_pointer(config->attrs, "cfg->attrs");
  for (size_t i = 0; i < config->numAttrs; ++i) {
    const auto& [attribute, value] = config->attrs[i];
    switch (attribute) {
      case ACL_RT_MEM_ATTR_DEVICE_ID:
        find_device(static_cast<int32_t>(value.deviceId));
        continue;
      case ACL_RT_MEM_ATTR_VA_FLAG:
        if (value.vaFlag > 1) fail(ACL_ERROR_INVALID_PARAM, "vaFlag is %u; expected 0 or 1", value.vaFlag);
        continue;
      case ACL_RT_MEM_ATTR_MODULE_ID:
        continue;
      case ACL_RT_MEM_ATTR_RSV:
        break;
    }
    fail(ACL_ERROR_INVALID_PARAM, "attribute %d of cfg is unknown", attribute);
  }
}

bool is_device_memory(aclrtMemAttr attribute) {
  return attribute != ACL_DDR_MEM && attribute != ACL_DDR_MEM_HUGE && attribute != ACL_DDR_MEM_NORMAL &&
         attribute != ACL_DDR_MEM_P2P_HUGE && attribute != ACL_DDR_MEM_P2P_NORMAL;
}

}  // namespace

void malloc_device(void** address, size_t size, const void* caller) {
  require_pointer(address, "devPtr");
  *address = nullptr;
  if (size == 0) fail(ACL_ERROR_INVALID_PARAM, "size is 0");
  Device& device = find_device(current_context()->device);
  const size_t rounded =
      device_allocator != nullptr ? size : (size + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
  charge(device, std::max(rounded, size));
  void* memory =
      device_allocator != nullptr ? device_allocator->allocate(size, device.id, caller) : allocate_device(rounded);
  if (memory == nullptr) {
    refund(device, rounded);
    fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "Failed to allocate %zu bytes: the machine has no memory left", size);
  }
  add_range(memory, {Kind::kDevice, device.id, rounded, device.resets});
  notify(&Observer::on_allocated, size);
  *address = memory;
}

size_t forget_device_memory(void* address) {
  const Allocation allocation = remove_range("devPtr", address, Kind::kDevice);
  refund(find_device(allocation.device), allocation.size);
  return allocation.size;
}

void charge(Device& device, size_t size) {
  size_t used = device.used;
  do {
    if (size > memory_limit() - used) {
      fail(ACL_ERROR_RT_MEMORY_ALLOCATION,
           "Failed to allocate %zu bytes on device %d: %zu of %zu bytes are in use (CANN_CPU_MEMORY sets the limit)",
           size, device.id, used, memory_limit());
    }
  } while (!device.used.compare_exchange_weak(used, used + size));
  size_t peak = device.peak;
  while (peak < used + size && !device.peak.compare_exchange_weak(peak, used + size)) {
  }
}

void refund(Device& device, size_t size) { device.used -= size; }

Range find_range(const void* address) {
  MemoryMap& map = memory_map();
  std::shared_lock lock(map.mutex);
  auto first = map.holder(address);
  if (first == map.ranges.end()) return {};
  auto last = first, next = std::next(first);
  while (first != map.ranges.begin() && adjoin(*std::prev(first), *first)) --first;
  while (next != map.ranges.end() && adjoin(*last, *next)) last = next++;
  bool is_host = first->second.kind == Kind::kHost || first->second.kind == Kind::kRegisteredHost;
  return {is_host ? Space::kPinned : Space::kDevice, first->second.device, first->first,
          last->first + last->second.size};
}

std::vector<Range> device_ranges() {
  MemoryMap& map = memory_map();
  std::shared_lock lock(map.mutex);
  std::vector<Range> ranges;
  for (auto it = map.ranges.begin(); it != map.ranges.end(); ++it) {
    const auto& [begin, allocation] = *it;
    if (allocation.kind != Kind::kDevice && allocation.kind != Kind::kMapping) continue;
    if (it != map.ranges.begin() && adjoin(*std::prev(it), *it)) {
      ranges.back().end += allocation.size;
    } else {
      ranges.push_back({Space::kDevice, allocation.device, begin, begin + allocation.size});
    }
  }
  return ranges;
}

Range check_range(const char* name, const void* address, size_t size, bool on_device) {
  require_pointer(address, name);
  Range range = find_range(address);
  if ((range.space == Space::kDevice) != on_device) {
    if (device_allocator != nullptr && on_device) device_allocator->reject_range(name, to_integer(address), size);
    fail(ACL_ERROR_INVALID_PARAM, "%s %p should be %s memory and is %s memory", name, address,
         on_device ? "device" : "host", on_device ? "host" : "device");
  }
  if (range.space != Space::kPageable && size > range.end - to_integer(address)) {
    if (device_allocator != nullptr) device_allocator->reject_range(name, to_integer(address), size);
    fail(ACL_ERROR_INVALID_PARAM, "%s %p has %zu bytes left in its allocation, %zu are needed", name, address,
         range.end - to_integer(address), size);
  }
  return range;
}

void add_mapping(void* address, size_t size, int32_t device) { add_range(address, {Kind::kMapping, device, size}); }

void remove_mapping(void* address) { remove_range("virPtr", address, Kind::kMapping); }

void release_memory(Device& device, uint64_t resets) {
  std::vector<void*> left;
  {
    MemoryMap& map = memory_map();
    std::unique_lock lock(map.mutex);
    std::erase_if(map.ranges, [&](const auto& range) {
      if (range.second.kind != Kind::kDevice || range.second.device != device.id) return false;
      if (range.second.resets > resets) return false;  // of who has set the device since
      refund(device, range.second.size);
      left.push_back(reinterpret_cast<void*>(range.first));
      return true;
    });
  }
  if (device_allocator != nullptr) return device_allocator->release_left(left);
  for (void* const address : left) retire(address);
}

aclError require_device_memory(const char* name, const void* address, size_t size) {
  DeviceMemory allocation{};
  return find_device_memory(name, address, size, allocation);
}

aclError find_device_memory(const char* name, const void* address, size_t size, DeviceMemory& allocation) {
  return code_of(name, [&] {
    const Range range = check_range("the address", address, size, /*on_device=*/true);
    allocation = {reinterpret_cast<void*>(range.begin), range.end - range.begin};
  });
}

}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy) {
  return call(__func__, [&, caller = __builtin_return_address(0)] { malloc_device(devPtr, size, caller); });
}

aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy) {
  return call(__func__, [&, caller = __builtin_return_address(0)] { malloc_device(devPtr, size, caller); });
}

aclError aclrtFree(void* devPtr) {
  return call(__func__, [&] { free_device(devPtr); });
}

aclError aclrtFreeWithDevSync(void* devPtr) {
  return call(__func__, [&] {
    require_pointer(devPtr, "devPtr");
    synchronize_device();
    free_device(devPtr);
  });
}

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  return call(__func__, [&] { malloc_host(hostPtr, size); });
}

aclError aclrtMallocHostWithCfg(void** ptr, uint64_t size, aclrtMallocConfig* cfg) {
  return call(__func__, [&] {
    check_host_attributes(cfg);
    malloc_host(ptr, size);
  });
}

aclError aclrtFreeHost(void* hostPtr) {
  return call(__func__, [&] { free_host(hostPtr); });
}

aclError aclrtFreeHostWithDevSync(void* hostPtr) {
  return call(__func__, [&] {
    require_pointer(hostPtr, "hostPtr");
    synchronize_device();
    free_host(hostPtr);
  });
}

aclError aclrtHostRegister(void* ptr, uint64_t size, aclrtHostRegisterType type, void** devPtr) {
  return call(__func__, [&] {
    require_pointer(devPtr, "devPtr");
    if (type != ACL_HOST_REGISTER_MAPPED) fail(ACL_ERROR_FEATURE_UNSUPPORTED, "type %d is not supported", type);
    register_host(ptr, size, /*is_mapped=*/true);
    *devPtr = ptr;
  });
}

aclError aclrtHostRegisterV2(void* ptr, uint64_t size, uint32_t flag) {
  return call(__func__, [&] {
    if (flag & ~(ACL_HOST_REG_MAPPED | ACL_HOST_REG_PINNED)) {
      fail(ACL_ERROR_FEATURE_UNSUPPORTED, "flag %#x is not supported", flag);
    }
    if (flag == 0) fail(ACL_ERROR_RT_PARAM_INVALID, "flag is 0; ACL_HOST_REG_MAPPED or ACL_HOST_REG_PINNED, or both");
    register_host(ptr, size, (flag & ACL_HOST_REG_MAPPED) != 0);
  });
}

aclError aclrtHostUnregister(void* ptr) {
  return call(__func__, [&] {
    require_pointer(ptr, "ptr");
    if (!unmap_host(ptr)) remove_range("ptr", ptr, Kind::kRegisteredHost);
  });
}

aclError aclrtHostGetDevicePointer(void* pHost, void** pDevice, uint32_t flag) {
  return call(__func__, [&] {
    require_pointer(pDevice, "pDevice");
    if (flag != 0) fail(ACL_ERROR_INVALID_PARAM, "flag is %u; it is reserved and must be 0", flag);
    require_pointer(pHost, "pHost");
    if (!is_mapped_host(pHost)) {
      fail(ACL_ERROR_RT_PARAM_INVALID, "pHost %p is not of host memory that aclrtHostRegister has mapped", pHost);
    }
    *pDevice = pHost;
  });
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total) {
  return call(__func__, [&] {
    require_pointer(free, "free");
    require_pointer(total, "total");
    const Device& device = find_device(current_context()->device);
    *total = is_device_memory(attr) ? memory_limit() : 0;
    *free = is_device_memory(attr) ? memory_limit() - device.used : 0;
  });
}

aclError aclrtGetMemUsageInfo(int32_t deviceId, aclrtMemUsageInfo* memUsageInfo, size_t inputNum, size_t* outputNum) {
  return call(__func__, [&] {
    require_pointer(memUsageInfo, "memUsageInfo");
    require_pointer(outputNum, "outputNum");
    if (inputNum == 0) fail(ACL_ERROR_INVALID_PARAM, "inputNum is 0");
    const Device& device = find_device(deviceId);
    *memUsageInfo = {};
    std::strcpy(memUsageInfo->name, "APP");
    memUsageInfo->curMemSize = device.used;
    memUsageInfo->memPeakSize = device.peak;
    *outputNum = 1;
  });
}

aclError aclrtPointerGetAttributes(const void* ptr, aclrtPtrAttributes* attributes) {
  return call(__func__, [&] {
    require_pointer(ptr, "ptr");
    require_pointer(attributes, "attributes");
    Range range = find_range(ptr);
    *attributes = {};
    // As CANN's device memory, what fills a huge page is of these; so are mappings.
    const bool is_huge = range.space == Space::kDevice && range.end - range.begin >= kHugePage;
    attributes->pageSize = is_huge ? kHugePage : sysconf(_SC_PAGE_SIZE);
    attributes->location.id = range.space == Space::kDevice ? range.device : 0;
    attributes->location.type = range.space == Space::kDevice   ? ACL_MEM_LOCATION_TYPE_DEVICE
                                : range.space == Space::kPinned ? ACL_MEM_LOCATION_TYPE_HOST
                                                                : ACL_MEM_LOCATION_TYPE_UNREGISTERED;
  });
}
