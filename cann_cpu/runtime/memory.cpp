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

#include "cann_cpu/tensor_memory.h"
#include "checks/cost.h"
#include "checks/memory.h"
#include "checks/race.h"
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
};

// All known ranges by their first address.
struct MemoryMap {
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

uintptr_t to_integer(const void* address) { return reinterpret_cast<uintptr_t>(address); }

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
  lock.unlock();  // which the check takes behind its own
  race::freed(address, allocation.size);
  return allocation;
}

bool adjoin(const std::pair<const uintptr_t, Allocation>& left, const std::pair<const uintptr_t, Allocation>& right) {
  return left.second.kind == Kind::kMapping && right.second.kind == Kind::kMapping &&
         left.second.device == right.second.device && left.first + left.second.size == right.first;
}

// Waits for the work that was queued, which may use what is given back next, whatever its device. A task that frees
// cannot wait for its own stream. False when memory is to stay where it is: a worker that was abandoned may use it.
bool drain_before_free() { return is_worker() || drain(); }

void* allocate(size_t alignment, size_t size) {
  size_t rounded = (size + alignment - 1) / alignment * alignment;
  return rounded < size ? nullptr : std::aligned_alloc(alignment, rounded);
}

// Device memory, in huge pages if it fills one, as CANN's is: kernels that gather the rows of a cache from everywhere
// in it would else wait for the page tables.
void* allocate_device(size_t size) {
  if (size < kHugePage) return allocate(kDeviceAlignment, size);
  void* memory = allocate(kHugePage, size);
  if (memory != nullptr) madvise(memory, size, MADV_HUGEPAGE);  // a wish: without huge pages all works, too
  return memory;
}

// The caller is who asks for it, an address of code.
void malloc_device(void** address, size_t size, const void* caller) {
  require_pointer(address, "devPtr");
  *address = nullptr;
  if (size == 0) fail(ACL_ERROR_INVALID_PARAM, "size is 0");
  Device& device = find_device(current_context()->device);
  const bool is_checked = is_on(Check::kMemory);
  size_t rounded = is_checked ? size : (size + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
  charge(device, std::max(rounded, size));
  void* memory = is_checked ? memory::allocate(size, device.id, caller) : allocate_device(rounded);
  if (memory == nullptr) {
    refund(device, rounded);
    fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "Failed to allocate %zu bytes: the machine has no memory left", size);
  }
  add_range(memory, {Kind::kDevice, device.id, rounded});
  cost::allocated(size);
  *address = memory;
}

void check_free(const void* address) {
  const Range range = find_range(address);
  if (range.space != Space::kDevice || range.begin != to_integer(address)) {
    memory::reject_free(address);
  } else if (range.device != current_context()->device) {
    memory::reject_device(address, current_context()->device);
  }
}

void free_device(void* address) {
  require_pointer(address, "devPtr");
  if (is_on(Check::kMemory)) check_free(address);
  bool is_unused = drain_before_free();
  Allocation allocation = remove_range("devPtr", address, Kind::kDevice);
  refund(find_device(allocation.device), allocation.size);
  cost::freed(allocation.size);
  if (!is_unused) return;
  is_on(Check::kMemory) ? memory::release(address) : std::free(address);
}

void malloc_host(void** address, size_t size) {
  require_pointer(address, "hostPtr");
  *address = nullptr;
  if (size == 0) fail(ACL_ERROR_INVALID_PARAM, "size is 0");
  void* memory = allocate(kHostAlignment, size);
  if (memory == nullptr) fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "Failed to allocate %zu bytes of host memory", size);
  add_range(memory, {Kind::kHost, -1, size});
  cost::allocated(size);
  *address = memory;
}

void free_host(void* address) {
  bool is_unused = drain_before_free();
  remove_range("hostPtr", address, Kind::kHost);
  if (is_unused) std::free(address);
}

void register_host(void* address, uint64_t size) {
  require_pointer(address, "ptr");
  if (size == 0) fail(ACL_ERROR_INVALID_PARAM, "size is 0");
  MemoryMap& map = memory_map();
  std::unique_lock lock(map.mutex);
  auto next = map.ranges.lower_bound(to_integer(address));
  bool overlaps = next != map.ranges.end() && next->first < to_integer(address) + size;
  if (next != map.ranges.begin()) {
    auto previous = std::prev(next);
    overlaps = overlaps || previous->first + previous->second.size > to_integer(address);
  }
  if (overlaps) {
    fail(ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "%p and %lu bytes on overlap memory that is known already", address,
         size);
  }
  map.ranges[to_integer(address)] = {Kind::kRegisteredHost, -1, size};
}

bool is_device_memory(aclrtMemAttr attribute) {
  return attribute != ACL_DDR_MEM && attribute != ACL_DDR_MEM_HUGE && attribute != ACL_DDR_MEM_NORMAL &&
         attribute != ACL_DDR_MEM_P2P_HUGE && attribute != ACL_DDR_MEM_P2P_NORMAL;
}

}  // namespace

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
  auto next = map.ranges.upper_bound(to_integer(address));
  if (next == map.ranges.begin()) return {};
  auto first = std::prev(next);
  if (to_integer(address) >= first->first + first->second.size) return {};
  auto last = first;
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
    if (is_on(Check::kMemory) && on_device) memory::reject_range(name, to_integer(address), size);
    fail(ACL_ERROR_INVALID_PARAM, "%s %p should be %s memory and is %s memory", name, address,
         on_device ? "device" : "host", on_device ? "host" : "device");
  }
  if (range.space != Space::kPageable && size > range.end - to_integer(address)) {
    if (is_on(Check::kMemory)) memory::reject_range(name, to_integer(address), size);
    fail(ACL_ERROR_INVALID_PARAM, "%s %p has %zu bytes left in its allocation, %zu are needed", name, address,
         range.end - to_integer(address), size);
  }
  return range;
}

void add_mapping(void* address, size_t size, int32_t device) { add_range(address, {Kind::kMapping, device, size}); }

void remove_mapping(void* address) { remove_range("virPtr", address, Kind::kMapping); }

void release_memory(Device& device) {
  std::vector<void*> left;
  {
    MemoryMap& map = memory_map();
    std::unique_lock lock(map.mutex);
    std::erase_if(map.ranges, [&](const auto& range) {
      if (range.second.kind != Kind::kDevice || range.second.device != device.id) return false;
      refund(device, range.second.size);
      left.push_back(reinterpret_cast<void*>(range.first));
      return true;
    });
  }
  if (is_on(Check::kMemory)) return memory::release_left(left);
  for (void* const address : left) std::free(address);
}

aclError allocate_tensor(void** address, size_t size, aclrtStream stream) {
  return call("allocate_tensor", [&] {
    const std::shared_ptr<Stream> on = find_stream(stream);
    malloc_device(address, size, nullptr);
    memory::belongs_to_tensor(*address, *on);
  });
}

aclError free_tensor(void* address) {
  return call("free_tensor", [&] {
    if (find_range(address).space == Space::kPageable) return;  // it went with its device
    const Allocation allocation = remove_range("devPtr", address, Kind::kDevice);
    refund(find_device(allocation.device), allocation.size);
    memory::release_tensor(address);
  });
}

aclError record_tensor(void* address, aclrtStream stream) {
  return call("record_tensor", [&] { memory::record_stream(address, stream); });
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

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  return call(__func__, [&] { malloc_host(hostPtr, size); });
}

aclError aclrtMallocHostWithCfg(void** ptr, uint64_t size, aclrtMallocConfig* cfg) {
  return call(__func__, [&] {
    if (cfg != nullptr && cfg->numAttrs > 0) require_pointer(cfg->attrs, "cfg->attrs");
    malloc_host(ptr, size);
  });
}

aclError aclrtFreeHost(void* hostPtr) {
  return call(__func__, [&] { free_host(hostPtr); });
}

aclError aclrtHostRegister(void* ptr, uint64_t size, aclrtHostRegisterType type, void** devPtr) {
  return call(__func__, [&] {
    require_pointer(devPtr, "devPtr");
    if (type != ACL_HOST_REGISTER_MAPPED) fail(ACL_ERROR_FEATURE_UNSUPPORTED, "type %d is not supported", type);
    register_host(ptr, size);
    *devPtr = ptr;
  });
}

aclError aclrtHostRegisterV2(void* ptr, uint64_t size, uint32_t flag) {
  return call(__func__, [&] {
    if (flag & ~(ACL_HOST_REG_MAPPED | ACL_HOST_REG_PINNED)) {
      fail(ACL_ERROR_FEATURE_UNSUPPORTED, "flag %#x is not supported", flag);
    }
    register_host(ptr, size);
  });
}

aclError aclrtHostUnregister(void* ptr) {
  return call(__func__, [&] {
    require_pointer(ptr, "ptr");
    drain_before_free();
    remove_range("ptr", ptr, Kind::kRegisteredHost);
  });
}

aclError aclrtHostGetDevicePointer(void* pHost, void** pDevice, uint32_t flag) {
  return call(__func__, [&] {
    require_pointer(pDevice, "pDevice");
    if (flag != 0) fail(ACL_ERROR_INVALID_PARAM, "flag is %u; it is reserved and must be 0", flag);
    if (check_range("pHost", pHost, 0, /*on_device=*/false).space != Space::kPinned) {
      fail(ACL_ERROR_HOST_MEMORY_NOT_REGISTERED, "pHost %p is not registered", pHost);
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
    attributes->pageSize = sysconf(_SC_PAGE_SIZE);
    attributes->location.id = range.space == Space::kDevice ? range.device : 0;
    attributes->location.type = range.space == Space::kDevice   ? ACL_MEM_LOCATION_TYPE_DEVICE
                                : range.space == Space::kPinned ? ACL_MEM_LOCATION_TYPE_HOST
                                                                : ACL_MEM_LOCATION_TYPE_UNREGISTERED;
  });
}
