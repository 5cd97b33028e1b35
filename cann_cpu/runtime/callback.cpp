// SPDX-License-Identifier: Apache-2.0
// Host functions in a stream: run by the stream's worker, or by a thread that subscribed to the stream's reports.
#include <pthread.h>

#include <algorithm>
#include <deque>

#include "stream.h"

namespace cann_cpu {
namespace {

struct Report {
  std::function<void()> function;
  const Stream* stream;
  std::atomic<bool> finished{false};
  std::atomic<bool> dropped{false};
};

// One thread's reports; guarded by waits_mutex().
struct Subscriber {
  std::vector<const Stream*> streams;
  std::deque<std::shared_ptr<Report>> reports;
};

std::map<uint64_t, Subscriber>& subscribers() {
  static auto* all = new std::map<uint64_t, Subscriber>;
  return *all;
}

uint64_t this_thread() { return static_cast<uint64_t>(pthread_self()); }

using Subscribers = std::map<uint64_t, Subscriber>;

Subscribers::iterator find_subscriber(const Stream* stream) {
  return std::find_if(subscribers().begin(), subscribers().end(), [&](const auto& entry) {
    const auto& list = entry.second.streams;
    return std::find(list.begin(), list.end(), stream) != list.end();
  });
}

bool has_subscriber(const Stream* stream) { return find_subscriber(stream) != subscribers().end(); }

// Under waits_mutex(); false when there is no such subscription.
bool end_subscription(uint64_t thread, const Stream* stream) {
  auto found = subscribers().find(thread);
  if (found == subscribers().end() || std::erase(found->second.streams, stream) == 0) return false;
  std::erase_if(found->second.reports, [&](const std::shared_ptr<Report>& report) {
    if (report->stream != stream) return false;
    report->dropped = true;
    return true;
  });
  if (found->second.streams.empty()) subscribers().erase(found);
  waits_condition().notify_all();
  return true;
}

void subscribe(uint64_t thread, aclrtStream handle) {
  std::shared_ptr<Stream> stream = find_stream(handle);
  std::lock_guard lock(waits_mutex());
  if (has_subscriber(stream.get())) {
    fail(ACL_ERROR_RT_STREAM_SUBSCRIBE, "stream %d has a subscriber already", stream->id);
  }
  if (stream->has_host_functions) {
    fail(ACL_ERROR_RT_STREAM_SUBSCRIBE, "stream %d has had host functions (aclrtLaunchHostFunc), which do not mix",
         stream->id);
  }
  Subscriber& subscriber = subscribers()[thread];
  if (!subscriber.streams.empty() && subscriber.streams[0]->context->device != stream->context->device) {
    fail(ACL_ERROR_RT_THREAD_SUBSCRIBE,
         "thread %lu is subscribed to streams of device %d, and stream %d is of device %d", thread,
         subscriber.streams[0]->context->device, stream->id, stream->context->device);
  }
  subscriber.streams.push_back(stream.get());
  waits_condition().notify_all();
}

void unsubscribe(uint64_t thread, aclrtStream handle) {
  std::shared_ptr<Stream> stream = find_stream(handle);
  std::lock_guard lock(waits_mutex());
  if (!end_subscription(thread, stream.get())) {
    fail(ACL_ERROR_RT_STREAM_SUBSCRIBE, "thread %lu is not subscribed to stream %d", thread, stream->id);
  }
}

// In the stream's worker: hands the function to the subscriber, and waits for it if it blocks the stream.
aclError report(const Stream* stream, const std::function<void()>& function, bool block) {
  auto report = std::make_shared<Report>();
  report->function = function;
  report->stream = stream;
  {
    std::lock_guard lock(waits_mutex());
    auto subscriber = find_subscriber(stream);
    if (subscriber == subscribers().end()) {
      return error(ACL_ERROR_RT_STREAM_NO_CB_REG, "no thread is subscribed to the stream");
    }
    subscriber->second.reports.push_back(report);
    waits_condition().notify_all();
  }
  if (!block) return ACL_SUCCESS;
  running_stream()->block_until([&] { return report->finished || report->dropped; }, /*poll=*/false);
  if (report->finished) return ACL_SUCCESS;
  return error(ACL_ERROR_RT_STREAM_NO_CB_REG, "the subscription ended before the function was called");
}

void launch_callback(aclrtCallback fn, void* userData, aclrtCallbackBlockType blockType, aclrtStream handle) {
  if (fn == nullptr) fail(ACL_ERROR_INVALID_PARAM, "fn is null");
  if (blockType != ACL_CALLBACK_NO_BLOCK && blockType != ACL_CALLBACK_BLOCK) {
    fail(ACL_ERROR_INVALID_PARAM, "blockType is %d; expected 0 or 1", blockType);
  }
  std::shared_ptr<Stream> stream = find_stream(handle);
  {
    std::lock_guard lock(waits_mutex());
    if (!has_subscriber(stream.get())) {
      fail(ACL_ERROR_RT_STREAM_NO_CB_REG, "no thread is subscribed to stream %d; call aclrtSubscribeReport first",
           stream->id);
    }
  }
  append(handle, "aclrtLaunchCallback", [stream = stream.get(), fn, userData, blockType] {
    return report(stream, [=] { fn(userData); }, blockType == ACL_CALLBACK_BLOCK);
  });
}

// False where there was nothing to call, which is an answer and no error: a thread that polls gets it all the time.
bool process_report(int32_t timeout) {
  if (timeout == 0) fail(ACL_ERROR_INVALID_PARAM, "timeout is 0; expected milliseconds, or -1 to wait indefinitely");
  std::optional<Clock::time_point> deadline = deadline_after("timeout", timeout);
  std::shared_ptr<Report> report;
  {
    std::unique_lock lock(waits_mutex());
    auto take = [&] {
      auto found = subscribers().find(this_thread());
      if (found == subscribers().end()) return true;
      if (found->second.reports.empty()) return false;
      report = std::move(found->second.reports.front());
      found->second.reports.pop_front();
      return true;
    };
    if (deadline) {
      waits_condition().wait_until(lock, *deadline, take);
    } else {
      waits_condition().wait(lock, take);
    }
    if (!report && !subscribers().contains(this_thread())) {
      fail(ACL_ERROR_RT_THREAD_SUBSCRIBE, "this thread is subscribed to no stream");
    }
  }
  if (!report) return false;
  report->function();
  std::lock_guard lock(waits_mutex());
  report->finished = true;
  waits_condition().notify_all();
  return true;
}

// Host functions and callbacks do not mix on a stream.
void take_host_function(aclrtStream handle) {
  if (is_running(handle)) return;
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (stream->has_host_functions) return;
  std::lock_guard lock(waits_mutex());
  if (has_subscriber(stream.get())) {
    fail(ACL_ERROR_RT_STREAM_SUBSCRIBE, "stream %d has a subscriber (aclrtSubscribeReport), which does not mix",
         stream->id);
  }
  stream->has_host_functions = true;
}

}  // namespace

void end_subscriptions(const Stream& stream) {
  std::lock_guard lock(waits_mutex());
  if (auto found = find_subscriber(&stream); found != subscribers().end()) end_subscription(found->first, &stream);
}

}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream) {
  return call(__func__, [&] { subscribe(threadId, stream); });
}

aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream) {
  return call(__func__, [&] { unsubscribe(threadId, stream); });
}

aclError aclrtLaunchCallback(aclrtCallback fn, void* userData, aclrtCallbackBlockType blockType, aclrtStream stream) {
  return call(__func__, [&] { launch_callback(fn, userData, blockType, stream); });
}

aclError aclrtProcessReport(int32_t timeout) {
  bool called = true;
  const aclError code = call(__func__, [&] { called = process_report(timeout); });
  return called ? code : ACL_ERROR_RT_REPORT_TIMEOUT;
}

aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void* args) {
  return call(__func__, [&] {
    if (fn == nullptr) fail(ACL_ERROR_INVALID_PARAM, "fn is null");
    take_host_function(stream);
    append(stream, "aclrtLaunchHostFunc", [=] {
      const Scope called = scope_of(&Observer::on_host_function, *running_stream(), /*is_kernel=*/false);
      fn(args);
      return ACL_SUCCESS;
    });
  });
}
