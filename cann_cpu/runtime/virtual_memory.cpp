// SPDX-License-Identifier: Apache-2.0
// Reserves addresses and maps physical memory into them, which torch_npu's expandable segments are built on.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "memory.h"
#include "stream.h"

namespace cann_cpu {
namespace {

constexpr size_t kGranularity = 2 << 20;  // of an Ascend910B's huge pages

// Memory without an address: an anonymous file, charged to its device for as long as it lives.
struct Physical : HasHandle {
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

// Reserved addresses, which are given back when no task may use what was mapped there.
struct Addresses {
  Addresses(void* begin, size_t size) : begin(begin), size(size) {}
  ~Addresses() { munmap(begin, size); }
  Addresses(const Addresses&) = delete;

  void* const begin;
  const size_t size;
  std::optional<int32_t> device{};  // whose memory was mapped first
};

struct Reservations {
  std::mutex mutex;
  std::map<uintptr_t, std::shared_ptr<Addresses>> reserved;
  std::map<uintptr_t, Mapping> mapped;
  std::map<uintptr_t, Mapping> left;  // by aclrtUnmapMem to the tasks that may use them, without physical memory
};

Reservations& reservations() {
  static auto* all = new Reservations;
  return *all;
}

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

// The reservation that holds these addresses; null if there is none.
std::shared_ptr<Addresses> find_reservation(uintptr_t begin, size_t size) {
  auto& reserved = reservations().reserved;
  auto next = reserved.upper_bound(begin);
  if (next == reserved.begin()) return nullptr;
  const auto& [first, addresses] = *std::prev(next);
  return begin + size <= first + addresses->size ? addresses : nullptr;
}

void check_flags(uint64_t flags, uint64_t most) {
  if (flags > most) fail(ACL_ERROR_INVALID_PARAM, "flags is %lu; it must be %s", flags, most == 0 ? "0" : "0 or 1");
}

// Fails for what no memory of a device has.
void check_property(const aclrtPhysicalMemProp& prop) {
  if (prop.location.type != ACL_MEM_LOCATION_TYPE_DEVICE) {
    fail(ACL_ERROR_FEATURE_UNSUPPORTED, "physical memory of location type %d is not supported", prop.location.type);
  }
  if (prop.handleType != ACL_MEM_HANDLE_TYPE_NONE) {
    fail(ACL_ERROR_INVALID_PARAM, "handleType is %d; only ACL_MEM_HANDLE_TYPE_NONE (0) is supported", prop.handleType);
  }
  if (prop.allocationType != ACL_MEM_ALLOCATION_TYPE_PINNED) {
    fail(ACL_ERROR_INVALID_PARAM, "allocationType is %d; only ACL_MEM_ALLOCATION_TYPE_PINNED (0) is supported",
         prop.allocationType);
  }
  switch (prop.memAttr) {
    case ACL_HBM_MEM_HUGE:
    case ACL_HBM_MEM_NORMAL:
    case ACL_HBM_MEM_HUGE1G:
    case ACL_HBM_MEM_P2P_HUGE:
    case ACL_HBM_MEM_P2P_NORMAL:
    case ACL_HBM_MEM_P2P_HUGE1G:
      return;
    default:
      fail(ACL_ERROR_INVALID_PARAM, "memAttr is %d; expected one of the ACL_HBM_MEM_... with a size of pages",
           prop.memAttr);
  }
}

size_t granularity_of(const aclrtPhysicalMemProp& prop) {
  const bool is_gigabyte = prop.memAttr == ACL_HBM_MEM_HUGE1G || prop.memAttr == ACL_HBM_MEM_P2P_HUGE1G;
  return is_gigabyte ? size_t{1} << 30 : kGranularity;
}

bool overlaps(const std::map<uintptr_t, Mapping>& mapped, uintptr_t begin, size_t size) {
  auto next = mapped.lower_bound(begin + size);
  return next != mapped.begin() && std::prev(next)->first + std::prev(next)->second.size > begin;
}

// Waits for the tasks that may use what aclrtUnmapMem took from these addresses.
void wait_for_users(uintptr_t begin, size_t size) {
  {
    const std::lock_guard lock(reservations().mutex);
    if (!overlaps(reservations().left, begin, size)) return;
  }
  if (!is_worker() && drain()) return;
  fail(ACL_ERROR_RT_STREAM_CONTEXT,
       "what aclrtUnmapMem took from %#lx may be in use: a task calls this, or one that does not end uses it", begin);
}

void map_memory(void* address, size_t size, size_t offset, aclrtDrvMemHandle handle) {
  require_pointer(address, "virPtr");
  require_pointer(handle, "handle");
  std::shared_ptr<Physical> physical = physicals().find(handle);
  check_granularity("size", size);
  check_granularity("virPtr", to_integer(address));
  if (offset != 0) fail(ACL_ERROR_INVALID_PARAM, "offset is %zu; it is reserved and must be 0", offset);
  if (size != physical->size) {
    fail(ACL_ERROR_INVALID_PARAM, "size is %zu; the physical memory has %zu bytes", size, physical->size);
  }
  uintptr_t begin = to_integer(address);
  wait_for_users(begin, size);
  Reservations& all = reservations();
  std::lock_guard lock(all.mutex);
  const std::shared_ptr<Addresses> reservation = find_reservation(begin, size);
  if (reservation == nullptr) fail(ACL_ERROR_INVALID_PARAM, "%p and %zu bytes on are not reserved", address, size);
  if (reservation->device.value_or(physical->device.id) != physical->device.id) {
    fail(ACL_ERROR_INVALID_PARAM, "the memory is of device %d, and these addresses were given memory of device %d",
         physical->device.id, *reservation->device);
  }
  if (overlaps(all.mapped, begin, size)) {
    fail(ACL_ERROR_INVALID_PARAM, "%p and %zu bytes on hold mapped memory already", address, size);
  }
  if (mmap(address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, physical->file, 0) == MAP_FAILED) {
    fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "cannot map %zu bytes: %s", size, std::strerror(errno));
  }
  reservation->device = physical->device.id;
  add_mapping(address, size, physical->device.id);
  all.mapped[begin] = {size, physical};
}

// Tasks that were launched before may still use it: the addresses are free when they have ended.
void unmap_memory(void* address) {
  require_pointer(address, "virPtr");
  Reservations& all = reservations();
  std::unique_lock lock(all.mutex);
  auto found = all.mapped.find(to_integer(address));
  if (found == all.mapped.end()) fail(ACL_ERROR_INVALID_PARAM, "nothing is mapped at virPtr %p", address);
  remove_mapping(address);
  const size_t size = found->second.size;
  all.left[found->first] = {size, nullptr};
  const auto unmap = [size, within = find_reservation(found->first, size)](void* unused) {
    mmap(unused, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    const std::lock_guard lock(reservations().mutex);
    reservations().left.erase(to_integer(unused));
  };
  const Mapping mapping = std::move(found->second);
  all.mapped.erase(found);
  lock.unlock();
  retain_until_done(std::shared_ptr<void>(address, unmap));
}

void release_addresses(void* address) {
  require_pointer(address, "virPtr");
  Reservations& all = reservations();
  std::lock_guard lock(all.mutex);
  auto found = all.reserved.find(to_integer(address));
  if (found == all.reserved.end()) fail(ACL_ERROR_INVALID_PARAM, "virPtr %p was not reserved", address);
  if (overlaps(all.mapped, found->first, found->second->size)) {
    fail(ACL_ERROR_INVALID_PARAM, "virPtr %p still holds mapped memory", address);
  }
  all.reserved.erase(found);
}

}  // namespace
}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclrtReserveMemAddress(void** virPtr, size_t size, size_t alignment, void* expectPtr, uint64_t flags) {
  return call(__func__, [&] {
    require_pointer(virPtr, "virPtr");
    if (size == 0) fail(ACL_ERROR_INVALID_PARAM, "size is 0");
    if (alignment != 0) fail(ACL_ERROR_INVALID_PARAM, "alignment is %zu; it is reserved and must be 0", alignment);
    check_flags(flags, 1);
    if (expectPtr != nullptr) fail(ACL_ERROR_FEATURE_UNSUPPORTED, "a wished address is not supported");
    if (size > SIZE_MAX - 2 * kGranularity)
      fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "Failed to allocate that many addresses");
    size_t rounded = (size + kGranularity - 1) / kGranularity * kGranularity;
    void* address = reserve(rounded);
    Reservations& all = reservations();
    std::lock_guard lock(all.mutex);
    all.reserved[to_integer(address)] = std::make_shared<Addresses>(address, rounded);
    *virPtr = address;
  });
}

aclError aclrtReleaseMemAddress(void* virPtr) {
  return call(__func__, [&] { release_addresses(virPtr); });
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size, const aclrtPhysicalMemProp* prop, uint64_t flags) {
  return call(__func__, [&] {
    require_pointer(handle, "handle");
    require_pointer(prop, "prop");
    check_property(*prop);
    check_flags(flags, 0);
    const size_t granularity = granularity_of(*prop);
    if (size == 0) fail(ACL_ERROR_INVALID_PARAM, "size is 0");
    if (size > SIZE_MAX - granularity) fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "Failed to allocate %zu bytes", size);
    const size_t rounded = (size + granularity - 1) / granularity * granularity;
    *handle = physicals().add(std::make_shared<Physical>(find_device(prop->location.id), rounded));
    notify(&Observer::on_allocated, rounded);
  });
}

aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
  return call(__func__, [&] {
    require_pointer(handle, "handle");
    const size_t size = physicals().find(handle)->size;
    physicals().remove(handle);
    notify(&Observer::on_freed, size);
  });
}

aclError aclrtMapMem(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags) {
  return call(__func__, [&] {
    check_flags(flags, 0);
    map_memory(virPtr, size, offset, handle);
  });
}

aclError aclrtUnmapMem(void* virPtr) {
  return call(__func__, [&] { unmap_memory(virPtr); });
}

aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp* prop, aclrtMemGranularityOptions, size_t* granularity) {
  return call(__func__, [&] {
    require_pointer(prop, "prop");
    require_pointer(granularity, "granularity");
    check_property(*prop);
    *granularity = granularity_of(*prop);
  });
}
