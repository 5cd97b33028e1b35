// SPDX-License-Identifier: Apache-2.0
// Contexts: what a thread works in; every device has a primary one, from aclrtSetDevice to aclrtResetDevice.
#include "memory.h"
#include "stream.h"

namespace cann_cpu {
namespace {

thread_local std::weak_ptr<Context> thread_context;
std::atomic<int32_t> default_device{-1};

}  // namespace

Registry<Context>& contexts() {
  static auto* registry = new Registry<Context>("context");
  return *registry;
}

void set_default_device(int32_t id) { default_device = id; }

void set_current_context(std::shared_ptr<Context> context) { thread_context = context; }

std::shared_ptr<Context> current_context() {
  if (std::shared_ptr<Context> context = thread_context.lock()) return context;
  if (int32_t id = default_device; id >= 0) {
    if (aclError code = aclrtSetDevice(id); code != ACL_SUCCESS) throw Failure{code, take_message()};
    return thread_context.lock();
  }
  fail(ACL_ERROR_RT_CONTEXT_NULL, "this thread has no context; call aclrtSetDevice or aclrtSetCurrentContext first");
}

int32_t current_device() {
  const int32_t id = default_device;
  return id >= 0 && thread_context.expired() ? id : current_context()->device;
}

std::shared_ptr<Stream> Context::default_stream() {
  std::shared_ptr<Stream> created;
  {
    std::lock_guard lock(mutex);
    if (default_stream_) return default_stream_;
    auto resource = std::make_shared<const StreamResource>(find_device(device));
    created = default_stream_ = std::make_shared<Stream>(shared_from_this(), 0, std::move(resource));
    streams().add(created);
  }
  report_stream_state(*created, ACL_RT_STREAM_STATE_CREATE_POST);
  return created;
}

std::optional<Failure> Context::stopped_by() {
  if (!is_stopped_) return std::nullopt;
  std::lock_guard lock(mutex);
  if (*stopped_by_->taken) {
    is_stopped_ = false;
    return std::nullopt;
  }
  return stopped_by_;
}

void Context::stop_behind(const Failure& failure) {
  if (!stops_on_failure) return;
  std::lock_guard lock(mutex);
  if (is_stopped_ && !*stopped_by_->taken) return;
  stopped_by_ = failure;
  is_stopped_ = true;
}

bool Context::is_default(const Stream& stream) {
  std::lock_guard lock(mutex);
  return default_stream_.get() == &stream;
}

bool Context::release(bool discard) {
  const auto is_own = [&](const Stream& stream) { return stream.context.get() == this; };
  const bool is_finished = discard || finish(streams().find_if(is_own));
  for (const auto& stream : streams().find_if(is_own)) {
    // A callback for another stream may have destroyed it.
    const bool is_alive = !streams().find_if([&](const Stream& each) { return &each == stream.get(); }).empty();
    if (is_alive) report_stream_state(*stream, ACL_RT_STREAM_STATE_DESTROY_PRE);
  }
  const auto own = streams().remove_if(is_own);
  for (const auto& stream : own) {
    task_recorder->stop(*stream);
    stream->stop(/*discard=*/true);
  }
  for (const auto& stream : own) stream->join();
  {
    std::lock_guard lock(mutex);
    default_stream_.reset();
  }
  contexts().remove_if([&](const Context& context) { return &context == this; });
  return is_finished;
}

void require_finished(bool is_finished) {
  if (is_finished) return;
  fail(ACL_ERROR_RT_CONTEXT_RELEASE_ERROR,
       "the streams waited for events or values that did not come; what they had left to do was dropped");
}

bool release_device(Device& device, bool discard) {
  std::shared_ptr<Context> context;
  uint64_t resets = 0;
  {
    std::lock_guard lock(device.mutex);
    context = std::exchange(device.primary, nullptr);
    device.uses = 0;
    resets = device.resets++;
  }
  const bool is_finished = !context || context->release(discard);
  release_memory(device, resets);
  return is_finished;
}

namespace {

void reset_device(int32_t id, bool force) {
  Device& device = find_device(id);
  if (is_worker()) fail(ACL_ERROR_RT_STREAM_CONTEXT, "called from inside a task of a stream");
  {
    std::lock_guard lock(device.mutex);
    if (!device.primary) {
      fail(ACL_ERROR_RT_CONTEXT_RELEASE_ERROR, "device %d is not set, or was reset already", id);
    }
    if (--device.uses > 0 && !force) return;
  }
  require_finished(release_device(device, /*discard=*/false));
}

}  // namespace
}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclrtSetDevice(int32_t deviceId) {
  return call(__func__, [&] {
    Device& device = find_device(deviceId);
    std::lock_guard lock(device.mutex);
    ++device.uses;
    if (!device.primary) {
      device.primary = std::make_shared<Context>(deviceId, true);
      contexts().add(device.primary);
    }
    set_current_context(device.primary);
    if (device.peak == 0) set_timer_slack();
  });
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

aclError aclrtCreateContext(aclrtContext* handle, int32_t deviceId) {
  return call(__func__, [&] {
    require_pointer(handle, "context");
    find_device(deviceId);
    auto context = std::make_shared<Context>(deviceId, false);
    *handle = contexts().add(context);
    set_current_context(context);
  });
}

aclError aclrtDestroyContext(aclrtContext handle) {
  return call(__func__, [&] {
    require_pointer(handle, "context");
    std::shared_ptr<Context> context = contexts().find(handle);
    if (context->primary) fail(ACL_ERROR_INVALID_PARAM, "a device's primary context goes with aclrtResetDevice");
    if (is_worker()) fail(ACL_ERROR_RT_STREAM_CONTEXT, "called from inside a task of a stream");
    require_finished(context->release(/*discard=*/false));
  });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  return call(__func__, [&] {
    require_pointer(context, "context");
    set_current_context(contexts().find(context));
  });
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  return call(__func__, [&] {
    require_pointer(context, "context");
    *context = current_context()->handle;
  });
}

aclError aclrtCtxGetCurrentDefaultStream(aclrtStream* stream) {
  return call(__func__, [&] {
    require_pointer(stream, "stream");
    *stream = current_context()->default_stream()->handle;
  });
}

aclError aclrtGetPrimaryCtxState(int32_t deviceId, uint32_t* flags, int32_t* active) {
  return call(__func__, [&] {
    require_pointer(active, "active");
    if (flags != nullptr) fail(ACL_ERROR_INVALID_PARAM, "flags is not null; it is reserved");
    Device& device = find_device(deviceId);
    std::lock_guard lock(device.mutex);
    *active = device.primary != nullptr;
  });
}
