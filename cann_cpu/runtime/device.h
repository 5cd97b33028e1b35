// SPDX-License-Identifier: Apache-2.0
// Devices, contexts, and what the calling thread has chosen of them.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "acl/acl_rt.h"
#include "cann_cpu/soc.h"
#include "device_call.h"
#include "registry.h"

namespace cann_cpu {

class Stream;

// The limits on cores that tiling functions see, for a device, a stream or a thread.
struct CoreLimits {
  std::array<uint32_t, 2> values{soc().cube_cores, soc().vector_cores};
  uint32_t& at(aclrtDevResLimitType type);
};

struct Context : HasHandle, std::enable_shared_from_this<Context> {
  Context(int32_t device, bool primary) : device(device), primary(primary) { ++live; }
  ~Context() { --live; }
  // Created at its first use.
  std::shared_ptr<Stream> default_stream();
  bool is_default(const Stream& stream);
  // Ends every stream of the context, after the tasks that it was given or (discard) the tasks that run now. Returns
  // false when the given tasks made no more progress and were dropped.
  bool release(bool discard);
  // With ACL_STOP_ON_FAILURE, no task of any stream runs after this failure until a synchronisation has returned it.
  std::optional<Failure> stopped_by();
  void stop_behind(const Failure& failure);

  const int32_t device;
  const bool primary;
  std::mutex mutex;
  std::map<aclSysParamOpt, int64_t> sys_params;
  std::atomic<bool> stops_on_failure{false};
  static inline std::atomic<int> live{0};

 private:
  std::shared_ptr<Stream> default_stream_;
  std::atomic<bool> is_stopped_{false};
  std::optional<Failure> stopped_by_;
};

struct Device {
  Device(int32_t id, int32_t own_id) : id(id), own_id(own_id) {}

  const int32_t id;
  const int32_t own_id;  // whatever ASCEND_RT_VISIBLE_DEVICES says
  std::mutex mutex;
  int uses = 0;  // aclrtSetDevice less aclrtResetDevice
  std::shared_ptr<Context> primary;
  std::atomic<uint64_t> resets{0};  // who sets the device after one keeps what it allocates
  CoreLimits core_limits;

  // Bytes of device memory handed out, now and at most.
  std::atomic<size_t> used{0};
  std::atomic<size_t> peak{0};
  // How many streams it has, with those that captured graphs keep for their replays.
  std::atomic<uint32_t> streams{0};
};

// One of the streams that a device has; its constructor fails when there is none left (CANN_CPU_STREAMS).
class StreamResource {
 public:
  explicit StreamResource(Device& device);
  ~StreamResource() { --device_.streams; }
  StreamResource(const StreamResource&) = delete;

 private:
  Device& device_;
};

// Made at first use, and never destroyed: threads may outlive static destructors.
CANN_EXPORT std::vector<std::unique_ptr<Device>>& devices();
Device& find_device(int32_t id);
Registry<Context>& contexts();

// Whether one of the devices may copy to the other: aclrtDeviceEnablePeerAccess.
bool have_peer_access(int32_t device, int32_t other);

// Bytes that each device has (CANN_CPU_MEMORY).
size_t memory_limit();

// The context of the calling thread: the one it set, else the default device's of aclInit's configuration.
std::shared_ptr<Context> current_context();
void set_current_context(std::shared_ptr<Context> context);
// Its device; asking for that of a thread without a context does not give it one.
int32_t current_device();
// Makes a device that threads without a context fall back to; -1 for none.
void set_default_device(int32_t id);

// Ends the device's primary context as Context::release() does, and frees the device's memory when the tasks have ended
// that all streams were given by then.
bool release_device(Device& device, bool discard);
// Fails for false, which the two above return.
void require_finished(bool is_finished);
// Has the streams end before the static objects that their tasks use are destroyed.
void end_streams_at_exit();

}  // namespace cann_cpu
