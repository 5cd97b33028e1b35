// SPDX-License-Identifier: Apache-2.0
// Devices: how many there are, which one a thread uses, and what they say of themselves.
#include "device.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string_view>

#include "cann_cpu/read_number.h"

namespace cann_cpu {
namespace {

constexpr int kDefaultDevices = 2;
constexpr int kMaxDevices = 16;
constexpr int kDefaultStreams = 1984;  // an Ascend910B's
constexpr int kMaxStreams = 1 << 20;

int count_in_environment(const char* variable, int by_default, int most) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return by_default;
  const std::optional<int> count = read_number<int>(text);
  if (!count || *count < 0 || *count > most) {
    fail(ACL_ERROR_INVALID_PARAM, "%s is \"%s\"; expected a number from 0 to %d", variable, text, most);
  }
  return *count;
}

// The devices that ASCEND_RT_VISIBLE_DEVICES leaves, in its order; the first that does not exist ends the list.
std::vector<int32_t> visible_devices() {
  int count = count_in_environment("CANN_CPU_DEVICES", kDefaultDevices, kMaxDevices);
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

// A number of this machine, among those of a cluster.
uint32_t machine_hash() {
  std::string text;
  for (const char* path : {"/etc/machine-id", "/proc/sys/kernel/random/boot_id"}) {
    if (std::ifstream(path) >> text) break;
  }
  uint32_t hash = 2166136261;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
  return hash;
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
  const bool is_read = status == std::errc() && suffix.size() <= 1 && (suffix.empty() || power > 0);
  if (!is_read || bytes == 0 || bytes > SIZE_MAX >> (10 * power)) {
    fail(ACL_ERROR_INVALID_PARAM, "CANN_CPU_MEMORY is \"%s\"; expected bytes of one device, as in 512M or 8G", text);
  }
  return bytes << (10 * power);
}

size_t memory_in_environment() {
  constexpr size_t kUnit = 2 << 20;
  const char* text = std::getenv("CANN_CPU_MEMORY");
  if (text != nullptr && *text != '\0') return parse_memory(text);
  size_t share = machine_memory() / 4 * 3 / std::max<size_t>(1, devices().size());
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
    for (const int32_t own_id : visible_devices()) made->push_back(std::make_unique<Device>(made->size(), own_id));
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

StreamResource::StreamResource(Device& device) : device_(device) {
  static const uint32_t limit = count_in_environment("CANN_CPU_STREAMS", kDefaultStreams, kMaxStreams);
  if (device.streams++ < limit) return;
  --device.streams;
  fail(ACL_ERROR_RT_NO_STREAM_RESOURCE,
       "Insufficient_Stream_Resources(EL0009): The stream resources are insufficient: device %d has %u streams, those "
       "that captured graphs keep included. Destroy streams or graphs, or set CANN_CPU_STREAMS",
       device.id, limit);
}

namespace {

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
      return device.own_id;
    case ACL_DEV_ATTR_NPU_ARCH:
      return soc().npu_arch;
    // Chips that run threads (SIMT) have these; all others answer 0.
    case ACL_DEV_ATTR_WARP_SIZE:
    case ACL_DEV_ATTR_MAX_THREAD_PER_VECTOR_CORE:
    case ACL_DEV_ATTR_UBUF_PER_VECTOR_CORE:
    case ACL_DEV_ATTR_MAX_GRID_DIM_X:
    case ACL_DEV_ATTR_MAX_GRID_DIM_Y:
    case ACL_DEV_ATTR_MAX_GRID_DIM_Z:
    case ACL_DEV_ATTR_MAX_BLOCK_DIM_X:
    case ACL_DEV_ATTR_MAX_BLOCK_DIM_Y:
    case ACL_DEV_ATTR_MAX_BLOCK_DIM_Z:
    case ACL_DEV_ATTR_MAX_THREADS_PER_BLOCK:
    case ACL_DEV_ATTR_MAX_BLOCK_PER_GRID:
    case ACL_DEV_ATTR_SMP_ID:  // all devices are under one system
    case ACL_DEV_ATTR_IS_VIRTUAL:
    case ACL_DEV_ATTR_CUST_OP_PRIVILEGE:
      return 0;
  }
  fail(ACL_ERROR_FEATURE_UNSUPPORTED, "attribute %d is not supported", attribute);
}

// The pairs of devices for which aclrtDeviceEnablePeerAccess gave the first access to the memory of the second.
std::mutex peers_mutex;
std::set<std::pair<int32_t, int32_t>> peers;

void check_peers(int32_t device, int32_t peer) {
  find_device(device);
  find_device(peer);
  if (device == peer) fail(ACL_ERROR_INVALID_PARAM, "device %d is not a peer of itself", device);
}

void set_peer_access(int32_t device, int32_t peer, bool enabled) {
  check_peers(device, peer);
  const std::lock_guard lock(peers_mutex);
  enabled ? void(peers.emplace(device, peer)) : void(peers.erase({device, peer}));
}

}  // namespace

bool have_peer_access(int32_t device, int32_t other) {
  const std::lock_guard lock(peers_mutex);
  return peers.contains({device, other}) || peers.contains({other, device});
}

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
    const uint32_t machine = machine_hash();
    std::memcpy(uuid->bytes + 8, &machine, 4);
    std::memcpy(uuid->bytes + 12, &device.own_id, 4);
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
    *logicDevId = find_device(userDevid).own_id;
  });
}

aclError aclrtGetUserDevIdByLogicDevId(const int32_t logicDevId, int32_t* const userDevid) {
  return host_call(__func__, [&] {
    require_pointer(userDevid, "userDevid");
    const auto found = std::ranges::find(devices(), logicDevId, [](const auto& device) { return device->own_id; });
    if (found == devices().end()) fail(ACL_ERROR_RT_INVALID_DEVICEID, "device %d is not visible", logicDevId);
    *userDevid = (*found)->id;
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
    if (flags != 0) fail(ACL_ERROR_FEATURE_UNSUPPORTED, "flags is %u; it is reserved and must be 0", flags);
    set_peer_access(current_context()->device, peerDeviceId, true);
  });
}

aclError aclrtDeviceDisablePeerAccess(int32_t peerDeviceId) {
  return call(__func__, [&] { set_peer_access(current_context()->device, peerDeviceId, false); });
}

// A function of libruntime: the name of the chip. Scripts use it to find the chip's description.
extern "C" CANN_EXPORT int32_t rtGetSocVersion(char* version, uint32_t size) {
  const char* name = cann_cpu::soc().name;
  if (version == nullptr || std::strlen(name) >= size) return ACL_ERROR_RT_PARAM_INVALID;
  std::strcpy(version, name);
  return ACL_SUCCESS;
}
