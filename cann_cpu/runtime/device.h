// SPDX-License-Identifier: Apache-2.0
// Devices, contexts, and what the calling thread has chosen of them.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "acl/acl_rt.h"
#include "cann_cpu/soc.h"
#include "registry.h"

namespace cann_cpu {

class Stream;

// Limits on the cores that operators may use, of a device, a stream or a thread; kept, not enforced.
struct CoreLimits {
  std::array<uint32_t, 2> values{soc().cube_cores, soc().vector_cores};
  uint32_t& at(aclrtDevResLimitType type);
};

struct Context : std::enable_shared_from_this<Context> {
  Context(int32_t device, bool primary) : device(device), primary(primary) { ++living; }
  ~Context() { --living; }
  // Made at its first use.
  std::shared_ptr<Stream> default_stream();
  // Ends every stream of the context.
  void release();

  const int32_t device;
  const bool primary;
  std::mutex mutex;
  std::map<aclSysParamOpt, int64_t> sys_params;
  static inline std::atomic<int> living{0};

 private:
  std::shared_ptr<Stream> default_stream_;
};

struct Device {
  explicit Device(int32_t id) : id(id) {}

  const int32_t id;
  std::mutex mutex;
  int uses = 0;  // aclrtSetDevice less aclrtResetDevice
  std::shared_ptr<Context> primary;
  CoreLimits core_limits;

  // Bytes of device memory handed out, now and at most.
  std::atomic<size_t> used{0};
  std::atomic<size_t> peak{0};
};

// Made at first use, and never destroyed: threads may outlive static destructors.
std::vector<std::unique_ptr<Device>>& devices();
Device& find_device(int32_t id);
Registry<Context>& contexts();

// Bytes that each device has (CANN_CPU_MEMORY).
size_t memory_limit();

// The context of the calling thread: the one it set, else the default device's of aclInit's configuration.
std::shared_ptr<Context> current_context();
void set_current_context(std::shared_ptr<Context> context);
// Its device; asking for that of a thread without a context does not give it one.
int32_t current_device();
// Makes a device that threads without a context fall back to; -1 for none.
void set_default_device(int32_t id);

// Ends the device's primary context, and frees the device's memory when nothing uses it any more.
void release_device(Device& device);
// Has the streams end before the static objects that their tasks use are destroyed.
void end_streams_at_exit();

}  // namespace cann_cpu
