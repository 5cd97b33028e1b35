// SPDX-License-Identifier: Apache-2.0
// Events: recording, waiting across streams and devices, times.
#include "event.h"

#include "cann_cpu/gil.h"
#include "timeouts.h"

namespace cann_cpu {

void Recording::complete(State state) {
  nanoseconds_ = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
  std::lock_guard lock(waits_mutex());
  state_ = state;
  waits_condition().notify_all();
}

Registry<Event>& events() {
  static auto* registry = new Registry<Event>("event", "events");
  return *registry;
}

namespace {

// In events of aclrtCreateEvent, which nothing resets: a wait is for the latest record, which there has to be.
constexpr uint32_t kRecordedAnew = 0x4;
constexpr uint32_t kCombined = ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | kRecordedAnew | ACL_EVENT_TIME_LINE;

// Completes a recording when its task runs, and drops it when the task goes without having run.
struct RecordTask {
  RecordTask(std::shared_ptr<Recording> recording, std::shared_ptr<Event> flag)
      : recording(std::move(recording)), flag(std::move(flag)) {}
  ~RecordTask() {
    if (!recording->is_over()) complete(Recording::State::kDropped);
  }
  void complete(Recording::State state) {
    if (flag != nullptr) {
      std::lock_guard lock(flag->mutex);
      flag->set_by = recording;
    }
    recording->complete(state);
  }
  const std::shared_ptr<Recording> recording;
  const std::shared_ptr<Event> flag;  // that it sets, or null
};

void create_event(aclrtEvent* handle, uint32_t flags, bool reusable) {
  require_pointer(handle, "event");
  // torch_npu asks for these two to learn whether they exist, and knows this code as the answer no.
  if (flags & ACL_EVENT_IPC) fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "events across processes are not supported");
  if ((flags & ACL_EVENT_EXTERNAL) && reusable) {
    fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "external events are made by aclrtCreateEventWithFlag");
  }
  if ((flags & ACL_EVENT_EXTERNAL) && flags != ACL_EVENT_EXTERNAL) {
    fail(ACL_ERROR_RT_PARAM_INVALID, "flag is %#x; ACL_EVENT_EXTERNAL is not combined with others", flags);
  }
  if (flags & ACL_EVENT_DEVICE_USE_ONLY) {
    fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "events for the device alone (ACL_EVENT_DEVICE_USE_ONLY) are not supported");
  }
  if (flags != ACL_EVENT_EXTERNAL && (flags == 0 || (flags & ~kCombined) != 0)) {
    fail(ACL_ERROR_RT_PARAM_INVALID,
         "flag is %#x; ACL_EVENT_SYNC, ACL_EVENT_TIME_LINE and ACL_EVENT_CAPTURE_STREAM_PROGRESS may be combined",
         flags);
  }
  *handle = events().add(std::make_shared<Event>(flags, reusable, current_context()->device));
}

// A replay runs the task again, so that the recording is made there.
void record_external(const std::shared_ptr<Event>& event, const std::shared_ptr<Stream>& stream) {
  append(stream->handle, "aclrtRecordEvent", [event] {
    const auto recording = std::make_shared<Recording>();
    recording->failure = running_stream()->failure();
    {
      std::lock_guard lock(event->mutex);
      event->set_by = recording;
    }
    recording->complete(Recording::State::kComplete);
    return ACL_SUCCESS;
  });
}

void record_event(aclrtEvent handle, aclrtStream stream_handle) {
  require_pointer(handle, "event");
  std::shared_ptr<Event> event = events().find(handle);
  std::shared_ptr<Stream> stream = find_own_stream(stream_handle);
  if (stream->context->device != event->device) {
    fail(ACL_ERROR_RT_STREAM_CONTEXT, "the event was created on device %d, and stream %d is of device %d",
         event->device, stream->id, stream->context->device);
  }
  if (event->is_external()) return record_external(event, stream);
  if (stream->is_recorded() && task_recorder->mark(*stream, *event)) return;

  auto recording = std::make_shared<Recording>();
  recording->stream = stream;
  notify(&Observer::on_event_recorded, *stream, *recording);
  auto record = std::make_shared<RecordTask>(recording, event->is_flag() ? event : nullptr);
  // The event's lock is not held, as others take it after the lock of captures. A capture that began just now comes
  // after this.
  const auto task = [record, stream = stream.get()] {
    record->recording->failure = stream->failure();
    record->complete(Recording::State::kComplete);
    return ACL_SUCCESS;
  };
  recording->number = append_uncaptured(*stream, "aclrtRecordEvent", task, {}, IfStopped::kRun);
  std::lock_guard lock(event->mutex);
  event->latest = recording;
  event->graph.reset();
}

// Appends a task that waits until `reached` gives a recording.
template <class Reached>
void append_wait(aclrtStream stream, std::shared_ptr<Event> event, Reached reached) {
  ++event->open_waits;
  std::shared_ptr<void> open(nullptr, [event](void*) { --event->open_waits; });
  append(stream, "aclrtStreamWaitEvent",
         [open, reached, is_external = event->is_external(), seconds = event_wait_timeout_s.load()] {
           std::optional<Clock::time_point> deadline;
           if (seconds != 0) deadline = Clock::now() + std::chrono::seconds(seconds);
           std::shared_ptr<Recording> recording;
           std::optional<Failure> stop;  // the record may be among the tasks that do not run any more
           Stream& stream = *running_stream();
           const auto is_over = [&] {
             return (recording = reached()) != nullptr || (is_external && (stop = stream.context->stopped_by()));
           };
           stream.block_until(is_over, /*poll=*/is_external, deadline);
           if (stop) throw Failure{stop->code, "it waits no longer (ACL_STOP_ON_FAILURE): " + stop->message};
           if (!recording && deadline && Clock::now() >= *deadline) {
             fail(ACL_ERROR_RT_TASK_TIMEOUT, "the event was not reached within %u s (aclrtSetOpWaitTimeout)", seconds);
           }
           if (!recording || !recording->failure || *recording->failure->taken) return ACL_SUCCESS;
           // The tasks after the wait would use results that do not exist.
           throw Failure{recording->failure->code,
                         "the stream waited for work that failed: " + recording->failure->message,
                         recording->failure->taken};
         });
}

void wait_event(aclrtStream stream_handle, aclrtEvent handle) {
  require_pointer(handle, "event");
  std::shared_ptr<Event> event = events().find(handle);
  if ((event->flags & (ACL_EVENT_SYNC | kRecordedAnew | ACL_EVENT_EXTERNAL)) == 0) {
    fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "the event was created without ACL_EVENT_SYNC");
  }
  std::shared_ptr<Stream> stream = find_own_stream(stream_handle);
  if (event->is_external()) {
    append_wait(stream->handle, event, [event] {
      std::lock_guard lock(event->mutex);
      return event->set_by;
    });
    return;
  }
  if (task_recorder->join(*stream, *event)) return;

  std::shared_ptr<Recording> recording;
  bool was_captured = false;
  {
    std::lock_guard lock(event->mutex);
    recording = event->latest;
    was_captured = event->graph != nullptr;
  }
  if (was_captured) {
    append(stream->handle, "aclrtStreamWaitEvent",
           [] { return error(ACL_ERROR_RT_EVENT_CAPTURED, "the event was recorded in a capture that has ended"); });
    return;
  }
  if (recording) notify(&Observer::on_event_waited, stream.get(), *recording);
  if (event->is_flag()) {
    append_wait(stream->handle, event, [event, recording]() -> std::shared_ptr<Recording> {
      if (recording && !recording->is_over()) return nullptr;
      std::lock_guard lock(event->mutex);
      return event->set_by;
    });
    return;
  }
  if (!recording && !event->reusable) fail(ACL_ERROR_RT_PARAM_INVALID, "the event was never recorded");
  if (!recording || (recording->is_over() && !recording->failure)) return;
  append_wait(stream->handle, event, [recording] { return recording->is_over() ? recording : nullptr; });
}

void reset_event(aclrtEvent handle, aclrtStream stream) {
  require_pointer(handle, "event");
  std::shared_ptr<Event> event = events().find(handle);
  if (!event->is_flag() && !event->is_external()) {
    fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
         "only an event of aclrtCreateEventWithFlag with ACL_EVENT_SYNC or ACL_EVENT_EXTERNAL is reset; others are "
         "recorded again without");
  }
  std::shared_ptr<Recording> recording;
  {
    std::lock_guard lock(event->mutex);
    recording = event->latest;
  }
  append(stream, "aclrtResetEvent", [event, recording] {
    std::lock_guard lock(event->mutex);
    event->set_by.reset();
    if (event->latest == recording) event->latest.reset();
    return ACL_SUCCESS;
  });
}

void require_state(const Event& event) {
  if (!event.is_external()) return;
  fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "an external event has neither a state nor a time; streams alone wait for it");
}

// The latest recording, null when there is none.
std::shared_ptr<Recording> latest_of(aclrtEvent handle) {
  require_pointer(handle, "event");
  std::shared_ptr<Event> event = events().find(handle);
  require_state(*event);
  std::lock_guard lock(event->mutex);
  if (event->graph) {
    fail(ACL_ERROR_RT_EVENT_CAPTURED, "the event was recorded in a capture; it has a state in replays only");
  }
  return event->latest;
}

bool wait_for(const Recording& recording, const std::optional<Clock::time_point>& deadline) {
  const WithoutGil others_run;
  const auto is_over = [&] { return recording.is_over(); };
  if (scheduler != nullptr) return scheduler().wait(is_over, deadline);
  std::unique_lock lock(waits_mutex());
  if (deadline) return waits_condition().wait_until(lock, *deadline, is_over);
  waits_condition().wait(lock, is_over);
  return true;
}

void synchronize_event(aclrtEvent handle, int32_t timeout) {
  std::optional<Clock::time_point> deadline = deadline_after("timeout", timeout);
  std::shared_ptr<Recording> recording = latest_of(handle);
  if (!recording) return;
  const Scope wait = scope_of(&Observer::on_wait, /*is_for_copy=*/false);
  if (!wait_for(*recording, deadline)) {
    fail(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "the event was not reached within %d ms", timeout);
  }
  notify(&Observer::on_event_waited, nullptr, *recording);
  std::shared_ptr<Stream> stream = recording->stream.lock();
  if (!stream) return;
  if (std::optional<Failure> failure = stream->take_failure(recording->number)) throw reported_late(*failure);
}

uint64_t nanoseconds_of(aclrtEvent handle, const char* which) {
  require_pointer(handle, which);
  const std::shared_ptr<Event> event = events().find(handle);
  require_state(*event);
  if (!(event->flags & ACL_EVENT_TIME_LINE)) {
    fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "%s was created without ACL_EVENT_TIME_LINE", which);
  }
  std::shared_ptr<Recording> recording = latest_of(handle);
  if (!recording) fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "%s was never recorded", which);
  if (recording->state() == Recording::State::kPending) {
    fail(ACL_ERROR_RT_EVENT_NOT_COMPLETE, "%s is recorded but not reached yet", which);
  }
  if (recording->state() == Recording::State::kDropped) {
    fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "the stream of %s was destroyed before it was reached", which);
  }
  return recording->nanoseconds();
}

}  // namespace
}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclrtCreateEvent(aclrtEvent* event) {
  return call(__func__, [&] {
    create_event(event, ACL_EVENT_CAPTURE_STREAM_PROGRESS | kRecordedAnew | ACL_EVENT_TIME_LINE, false);
  });
}

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  return call(__func__, [&] { create_event(event, flag, false); });
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  return call(__func__, [&] { create_event(event, flag, true); });
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  return call(__func__, [&] {
    require_pointer(event, "event");
    events().remove(event);
  });
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  return call(__func__, [&] { record_event(event, stream); });
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  return call(__func__, [&] { wait_event(stream, event); });
}

aclError aclrtResetEvent(aclrtEvent handle, aclrtStream stream) {
  return call(__func__, [&] { reset_event(handle, stream); });
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  return call(__func__, [&] { synchronize_event(event, -1); });
}

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
  return call(__func__, [&] { synchronize_event(event, timeout); });
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  return call(__func__, [&] {
    require_pointer(status, "status");
    std::shared_ptr<Recording> recording = latest_of(event);
    if (scheduler != nullptr) scheduler().asked();
    bool is_over = recording ? recording->is_over() : events().find(event)->reusable;
    if (recording && is_over) notify(&Observer::on_event_waited, nullptr, *recording);
    *status = is_over ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
  });
}

aclError aclrtQueryEventWaitStatus(aclrtEvent handle, aclrtEventWaitStatus* status) {
  return call(__func__, [&] {
    require_pointer(status, "status");
    require_pointer(handle, "event");
    const std::shared_ptr<Event> event = events().find(handle);
    require_state(*event);
    if (event->reusable) {
      fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "events of aclrtCreateEventExWithFlag do not count their waits");
    }
    bool open = event->open_waits > 0;
    *status = open ? ACL_EVENT_WAIT_STATUS_NOT_READY : ACL_EVENT_WAIT_STATUS_COMPLETE;
  });
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent) {
  return call(__func__, [&] {
    require_pointer(ms, "ms");
    uint64_t start = nanoseconds_of(startEvent, "startEvent");
    uint64_t end = nanoseconds_of(endEvent, "endEvent");
    *ms = static_cast<float>((static_cast<double>(end) - static_cast<double>(start)) * 1e-6);
  });
}

aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t* timestamp) {
  return call(__func__, [&] {
    require_pointer(timestamp, "timestamp");
    *timestamp = nanoseconds_of(event, "event") / 1000;
  });
}
