// SPDX-License-Identifier: Apache-2.0
// Reserved addresses and physical memory mapped into them, which torch_npu's expandable segments are made of.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "checks/cost.h"
#include "memory.h"
#include "stream.h"

namespace cann_cpu {
namespace {

constexpr size_t kGranularity = 2 << 20;  // of an Ascend910B's huge pages

// Memory without an address: an anonymous file, charged to its device for as long as it lives.
struct Physical {
  Physical(Device& device, size_t size) : device(device), size(size) {
    charge(device, size);
    file = memfd_create("npu-memory", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, static_cast<off_t>(size)) == 0) return;
    int reason = errno;
    if (file >= 0) close(file);
    refund(device, size);
    fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "Failed to allocate %zu bytes: %s", size, std::strerror(reason));
  }
  ~Physical() {
    close(file);
    refund(device, size);
  }
  Physical(const Physical&) = delete;

  Device& device;
  const size_t size;
  int file = -1;
};

Registry<Physical>& physicals() {
  static auto* registry = new Registry<Physical>("physical memory");
  return *registry;
}

struct Mapping {
  size_t size;
  std::shared_ptr<Physical> physical;
};

struct Reservations {
  std::mutex mutex;
  std::map<uintptr_t, size_t> reserved;
  std::map<uintptr_t, Mapping> mapped;
};

Reservations& reservations() {
  static auto* all = new Reservations;
  return *all;
}

uintptr_t to_integer(const void* address) { return reinterpret_cast<uintptr_t>(address); }

void check_granularity(const char* name, size_t value) {
  if (value % kGranularity != 0) {
    fail(ACL_ERROR_INVALID_PARAM, "%s is %zu, no multiple of %zu bytes", name, value, kGranularity);
  }
}

// Reserves a whole number of granules at an aligned address.
void* reserve(size_t size) {
  size_t padded = size + kGranularity;
  void* raw = mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "Failed to allocate %zu bytes of addresses: %s", size, std::strerror(errno));
  }
  uintptr_t begin = to_integer(raw);
  uintptr_t aligned = (begin + kGranularity - 1) / kGranularity * kGranularity;
  if (aligned > begin) munmap(raw, aligned - begin);
  if (begin + padded > aligned + size) munmap(reinterpret_cast<void*>(aligned + size), begin + padded - aligned - size);
  return reinterpret_cast<void*>(aligned);
}

bool is_reserved(const std::map<uintptr_t, size_t>& reserved, uintptr_t begin, size_t size) {
  auto next = reserved.upper_bound(begin);
  return next != reserved.begin() && begin + size <= std::prev(next)->first + std::prev(next)->second;
}

bool overlaps(const std::map<uintptr_t, Mapping>& mapped, uintptr_t begin, size_t size) {
  auto next = mapped.lower_bound(begin + size);
  return next != mapped.begin() && std::prev(next)->first + std::prev(next)->second.size > begin;
}

void map_memory(void* address, size_t size, size_t offset, aclrtDrvMemHandle handle) {
  require_pointer(address, "virPtr");
  require_pointer(handle, "handle");
  std::shared_ptr<Physical> physical = physicals().find(handle);
  check_granularity("size", size);
  check_granularity("virPtr", to_integer(address));
  if (offset != 0) fail(ACL_ERROR_INVALID_PARAM, "offset is %zu; it is reserved and must be 0", offset);
  if (size == 0 || size > physical->size) {
    fail(ACL_ERROR_INVALID_PARAM, "size is %zu; the physical memory has %zu bytes", size, physical->size);
  }
  Reservations& all = reservations();
  std::lock_guard lock(all.mutex);
  uintptr_t begin = to_integer(address);
  if (!is_reserved(all.reserved, begin, size)) {
    fail(ACL_ERROR_INVALID_PARAM, "%p and %zu bytes on are not reserved", address, size);
  }
  if (overlaps(all.mapped, begin, size)) {
    fail(ACL_ERROR_INVALID_PARAM, "%p and %zu bytes on hold mapped memory already", address, size);
  }
  if (mmap(address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, physical->file, 0) == MAP_FAILED) {
    fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "cannot map %zu bytes: %s", size, std::strerror(errno));
  }
  add_mapping(address, size, physical->device.id);
  all.mapped[begin] = {size, physical};
}

void unmap_memory(void* address) {
  require_pointer(address, "virPtr");
  if (!is_worker() && !drain()) {
    fail(ACL_ERROR_RT_STREAM_CONTEXT, "virPtr %p may be in use by a task of a destroyed stream that does not end",
         address);
  }
  Reservations& all = reservations();
  std::lock_guard lock(all.mutex);
  auto found = all.mapped.find(to_integer(address));
  if (found == all.mapped.end()) fail(ACL_ERROR_INVALID_PARAM, "nothing is mapped at virPtr %p", address);
  remove_mapping(address);
  mmap(address, found->second.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  all.mapped.erase(found);
}

void release_addresses(void* address) {
  require_pointer(address, "virPtr");
  Reservations& all = reservations();
  std::lock_guard lock(all.mutex);
  auto found = all.reserved.find(to_integer(address));
  if (found == all.reserved.end()) fail(ACL_ERROR_INVALID_PARAM, "virPtr %p was not reserved", address);
  if (overlaps(all.mapped, found->first, found->second)) {
    fail(ACL_ERROR_INVALID_PARAM, "virPtr %p still holds mapped memory", address);
  }
  munmap(address, found->second);
  all.reserved.erase(found);
}

}  // namespace
}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclrtReserveMemAddress(void** virPtr, size_t size, size_t alignment, void* expectPtr, uint64_t) {
  return call(__func__, [&] {
    require_pointer(virPtr, "virPtr");
    if (size == 0) fail(ACL_ERROR_INVALID_PARAM, "size is 0");
    if (alignment != 0) fail(ACL_ERROR_INVALID_PARAM, "alignment is %zu; it is reserved and must be 0", alignment);
    if (expectPtr != nullptr) fail(ACL_ERROR_FEATURE_UNSUPPORTED, "a wished address is not supported");
    if (size > SIZE_MAX - 2 * kGranularity)
      fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "Failed to allocate that many addresses");
    size_t rounded = (size + kGranularity - 1) / kGranularity * kGranularity;
    void* address = reserve(rounded);
    Reservations& all = reservations();
    std::lock_guard lock(all.mutex);
    all.reserved[to_integer(address)] = rounded;
    *virPtr = address;
  });
}

aclError aclrtReleaseMemAddress(void* virPtr) {
  return call(__func__, [&] { release_addresses(virPtr); });
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size, const aclrtPhysicalMemProp* prop, uint64_t) {
  return call(__func__, [&] {
    require_pointer(handle, "handle");
    require_pointer(prop, "prop");
    if (prop->location.type != ACL_MEM_LOCATION_TYPE_DEVICE) {
      fail(ACL_ERROR_FEATURE_UNSUPPORTED, "physical memory of location type %d is not supported", prop->location.type);
    }
    if (size == 0) fail(ACL_ERROR_INVALID_PARAM, "size is 0");
    check_granularity("size", size);
    *handle = physicals().add(std::make_shared<Physical>(find_device(prop->location.id), size));
    cost::allocated(size);
  });
}

aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
  return call(__func__, [&] {
    require_pointer(handle, "handle");
    const size_t size = physicals().find(handle)->size;
    physicals().remove(handle);
    cost::freed(size);
  });
}

aclError aclrtMapMem(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t) {
  return call(__func__, [&] { map_memory(virPtr, size, offset, handle); });
}

aclError aclrtUnmapMem(void* virPtr) {
  return call(__func__, [&] { unmap_memory(virPtr); });
}

aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp* prop, aclrtMemGranularityOptions, size_t* granularity) {
  return call(__func__, [&] {
    require_pointer(prop, "prop");
    require_pointer(granularity, "granularity");
    *granularity = kGranularity;
  });
}
