// SPDX-License-Identifier: Apache-2.0
// Devices: how many there are, which one a thread uses, and what they say of themselves.
#include "device.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include "memory.h"
#include "stream.h"

namespace cann_cpu {
namespace {

constexpr int kDefaultDevices = 2;
constexpr int kMaxDevices = 16;

int count_in_environment() {
  const char* text = std::getenv("CANN_CPU_DEVICES");
  if (text == nullptr || *text == '\0') return kDefaultDevices;
  int count = 0;
  const char* end = text + std::strlen(text);
  auto [rest, status] = std::from_chars(text, end, count);
  if (status != std::errc() || rest != end || count < 0 || count > kMaxDevices) {
    fail(ACL_ERROR_INVALID_PARAM, "CANN_CPU_DEVICES is \"%s\"; a number from 0 to %d", text, kMaxDevices);
  }
  return count;
}

// The devices that ASCEND_RT_VISIBLE_DEVICES leaves, in its order; the first that does not exist ends the list.
std::vector<int32_t> visible_devices() {
  int count = count_in_environment();
  std::vector<int32_t> visible;
  const char* text = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int32_t id = 0; id < count; ++id) visible.push_back(id);
    return visible;
  }
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view item = rest.substr(0, rest.find(','));
    int32_t id = -1;
    auto [end, status] = std::from_chars(item.begin(), item.end(), id);
    bool is_new = std::find(visible.begin(), visible.end(), id) == visible.end();
    if (status != std::errc() || end != item.end() || id < 0 || id >= count || !is_new) break;
    visible.push_back(id);
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
  }
  return visible;
}

// The machine's memory, or what its control group grants of it.
size_t machine_memory() {
  size_t bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    size_t limit = 0;
    if (std::ifstream(path) >> limit) bytes = std::min(bytes, limit);
  }
  return bytes;
}

size_t parse_memory(const char* text) {
  size_t bytes = 0;
  const char* end = text + std::strlen(text);
  auto [rest, status] = std::from_chars(text, end, bytes);
  std::string_view suffix(rest, end - rest);
  constexpr std::string_view kSuffixes = "KMGT";
  size_t power = suffix.empty() ? 0 : kSuffixes.find(suffix[0]) + 1;
  if (status != std::errc() || suffix.size() > 1 || (!suffix.empty() && power == 0) || bytes == 0) {
    fail(ACL_ERROR_INVALID_PARAM, "CANN_CPU_MEMORY is \"%s\"; bytes of one device, as in 512M or 8G", text);
  }
  return bytes << (10 * power);
}

size_t memory_in_environment() {
  constexpr size_t kUnit = 2 << 20;
  const char* text = std::getenv("CANN_CPU_MEMORY");
  if (text != nullptr && *text != '\0') return parse_memory(text);
  size_t share = machine_memory() / 4 * 3 / std::max<size_t>(1, visible_devices().size());
  return share / kUnit * kUnit;
}

}  // namespace

uint32_t& CoreLimits::at(aclrtDevResLimitType type) {
  size_t index = static_cast<size_t>(type);
  if (index >= values.size()) fail(ACL_ERROR_INVALID_PARAM, "resource type %d is unknown", type);
  return values[index];
}

std::vector<std::unique_ptr<Device>>& devices() {
  static auto* all = [] {
    auto* made = new std::vector<std::unique_ptr<Device>>;
    for (size_t id = 0; id < visible_devices().size(); ++id) made->push_back(std::make_unique<Device>(id));
    return made;
  }();
  return *all;
}

Device& find_device(int32_t id) {
  if (id < 0 || static_cast<size_t>(id) >= devices().size()) {
    fail(ACL_ERROR_RT_INVALID_DEVICEID, "there is no device %d; there are %zu (CANN_CPU_DEVICES)", id,
         devices().size());
  }
  return *devices()[id];
}

size_t memory_limit() {
  static const size_t limit = memory_in_environment();
  return limit;
}

void release_device(Device& device) {
  std::shared_ptr<Context> context;
  {
    std::lock_guard lock(device.mutex);
    context = std::exchange(device.primary, nullptr);
    device.uses = 0;
  }
  if (context) context->release();
  if (drain()) release_memory(device);  // other contexts and devices may use it, too
}

namespace {

void set_device(int32_t id) {
  Device& device = find_device(id);
  std::shared_ptr<Context> context;
  {
    std::lock_guard lock(device.mutex);
    ++device.uses;
    if (!device.primary) {
      device.primary = std::make_shared<Context>(id, true);
      contexts().add(device.primary);
    }
    context = device.primary;
  }
  set_current_context(context);
}

void reset_device(int32_t id, bool force) {
  Device& device = find_device(id);
  if (is_worker()) fail(ACL_ERROR_RT_STREAM_CONTEXT, "called from inside a task of a stream");
  {
    std::lock_guard lock(device.mutex);
    if (!device.primary) return;
    if (--device.uses > 0 && !force) return;
  }
  release_device(device);
}

int64_t attribute_of(const Device& device, aclrtDevAttr attribute) {
  switch (attribute) {
    case ACL_DEV_ATTR_AICPU_CORE_NUM:
      return sysconf(_SC_NPROCESSORS_ONLN);
    case ACL_DEV_ATTR_AICORE_CORE_NUM:
    case ACL_DEV_ATTR_CUBE_CORE_NUM:
      return soc().cube_cores;
    case ACL_DEV_ATTR_VECTOR_CORE_NUM:
      return soc().vector_cores;
    case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE:
      return memory_limit();
    case ACL_DEV_ATTR_L2_CACHE_SIZE:
      return soc().l2_bytes;
    case ACL_DEV_ATTR_PHY_CHIP_ID:
      return device.id;
    case ACL_DEV_ATTR_IS_VIRTUAL:
      return 0;
  }
  fail(ACL_ERROR_FEATURE_UNSUPPORTED, "attribute %d is not supported", attribute);
}

void check_peers(int32_t device, int32_t peer) {
  find_device(device);
  find_device(peer);
  if (device == peer) fail(ACL_ERROR_INVALID_PARAM, "device %d is no peer of itself", device);
}

}  // namespace
}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclrtGetDeviceCount(uint32_t* count) {
  return host_call(__func__, [&] {
    require_pointer(count, "count");
    *count = 0;
    if (devices().empty()) fail(ACL_ERROR_RT_NO_DEVICE, "there is no device (CANN_CPU_DEVICES is 0)");
    *count = devices().size();
  });
}

aclError aclrtSetDevice(int32_t deviceId) {
  return call(__func__, [&] { set_device(deviceId); });
}

aclError aclrtGetDevice(int32_t* deviceId) {
  return call(__func__, [&] {
    require_pointer(deviceId, "deviceId");
    *deviceId = current_device();
  });
}

aclError aclrtResetDevice(int32_t deviceId) {
  return call(__func__, [&] { reset_device(deviceId, false); });
}

aclError aclrtResetDeviceForce(int32_t deviceId) {
  return call(__func__, [&] { reset_device(deviceId, true); });
}

aclError aclrtGetRunMode(aclrtRunMode* runMode) {
  return host_call(__func__, [&] {
    require_pointer(runMode, "runMode");
    *runMode = ACL_HOST;
  });
}

const char* aclrtGetSocName() { return soc().name; }

aclError aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t* value) {
  return call(__func__, [&] {
    require_pointer(value, "value");
    *value = attribute_of(find_device(deviceId), attr);
  });
}

aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t* value) {
  return call(__func__, [&] {
    require_pointer(value, "value");
    const Device& device = find_device(deviceId);
    switch (deviceInfo) {
      case ACL_DEVICE_INFO_AI_CORE_NUM:
        *value = attribute_of(device, ACL_DEV_ATTR_AICORE_CORE_NUM);
        return;
      case ACL_DEVICE_INFO_VECTOR_CORE_NUM:
        *value = attribute_of(device, ACL_DEV_ATTR_VECTOR_CORE_NUM);
        return;
      case ACL_DEVICE_INFO_L2_SIZE:
        *value = attribute_of(device, ACL_DEV_ATTR_L2_CACHE_SIZE);
        return;
      case ACL_DEVICE_INFO_UNDEFINED:
        break;
    }
    fail(ACL_ERROR_INVALID_PARAM, "deviceInfo %d is unknown", deviceInfo);
  });
}

aclError aclrtQueryDeviceStatus(int32_t deviceId, aclrtDeviceStatus* deviceStatus) {
  return call(__func__, [&] {
    require_pointer(deviceStatus, "deviceStatus");
    find_device(deviceId);
    *deviceStatus = ACL_RT_DEVICE_STATUS_NORMAL;
  });
}

aclError aclrtDeviceGetUuid(int32_t deviceId, aclrtUuid* uuid) {
  return call(__func__, [&] {
    require_pointer(uuid, "uuid");
    const Device& device = find_device(deviceId);
    std::memset(uuid->bytes, 0, sizeof(uuid->bytes));
    std::memcpy(uuid->bytes, "cann_cpu", 8);
    int64_t host = gethostid();
    std::memcpy(uuid->bytes + 8, &host, 4);
    std::memcpy(uuid->bytes + 12, &device.id, 4);
  });
}

aclError aclrtDeviceGetBareTgid(int32_t* pid) {
  return host_call(__func__, [&] {
    require_pointer(pid, "pid");
    *pid = getpid();
  });
}

aclError aclrtGetLogicDevIdByUserDevId(const int32_t userDevid, int32_t* const logicDevId) {
  return host_call(__func__, [&] {
    require_pointer(logicDevId, "logicDevId");
    find_device(userDevid);
    *logicDevId = visible_devices()[userDevid];
  });
}

aclError aclrtGetUserDevIdByLogicDevId(const int32_t logicDevId, int32_t* const userDevid) {
  return host_call(__func__, [&] {
    require_pointer(userDevid, "userDevid");
    std::vector<int32_t> visible = visible_devices();
    auto found = std::find(visible.begin(), visible.end(), logicDevId);
    if (found == visible.end()) fail(ACL_ERROR_RT_INVALID_DEVICEID, "device %d is not visible", logicDevId);
    *userDevid = found - visible.begin();
  });
}

aclError aclrtDeviceCanAccessPeer(int32_t* canAccessPeer, int32_t deviceId, int32_t peerDeviceId) {
  return call(__func__, [&] {
    require_pointer(canAccessPeer, "canAccessPeer");
    check_peers(deviceId, peerDeviceId);
    *canAccessPeer = 1;
  });
}

aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags) {
  return call(__func__, [&] {
    if (flags != 0) fail(ACL_ERROR_INVALID_PARAM, "flags is %u; it is reserved and must be 0", flags);
    check_peers(current_context()->device, peerDeviceId);
  });
}

aclError aclrtDeviceDisablePeerAccess(int32_t peerDeviceId) {
  return call(__func__, [&] { check_peers(current_context()->device, peerDeviceId); });
}

// Of libruntime: the name of the chip. Scripts ask for it to find what is known of it.
extern "C" CANN_EXPORT int32_t rtGetSocVersion(char* version, uint32_t size) {
  const char* name = cann_cpu::soc().name;
  if (version == nullptr || std::strlen(name) >= size) return ACL_ERROR_RT_PARAM_INVALID;
  std::strcpy(version, name);
  return ACL_SUCCESS;
}
