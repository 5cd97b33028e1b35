// SPDX-License-Identifier: Apache-2.0
// Events: recording, waiting across streams and devices, times.
#include "event.h"

#include "capture.h"
#include "checks/cost.h"
#include "checks/race.h"

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

// Completes a recording when its task runs, and drops it when the task goes without having run.
struct RecordTask {
  explicit RecordTask(std::shared_ptr<Recording> recording) : recording(std::move(recording)) {}
  ~RecordTask() {
    if (!recording->is_over()) recording->complete(Recording::State::kDropped);
  }
  const std::shared_ptr<Recording> recording;
};

void create_event(aclrtEvent* handle, uint32_t flags, bool resettable) {
  require_pointer(handle, "event");
  // torch_npu asks for these two to learn whether they exist, and knows this code as the answer no.
  if (flags & ACL_EVENT_IPC) fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "events across processes are not supported");
  if (flags & ACL_EVENT_EXTERNAL) fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "external events are not supported");
  current_context();
  *handle = events().add(std::make_shared<Event>(flags, resettable));
}

void record_event(aclrtEvent handle, aclrtStream stream_handle) {
  require_pointer(handle, "event");
  std::shared_ptr<Event> event = events().find(handle);
  std::shared_ptr<Stream> stream = find_stream(stream_handle);
  if (stream->graph != nullptr && record_event_mark(*stream, *event)) return;

  auto recording = std::make_shared<Recording>();
  recording->stream = stream;
  race::recorded(*stream, *recording);
  auto record = std::make_shared<RecordTask>(recording);
  // Not with the event's lock, which others take behind that of captures; a capture that began just now comes after.
  recording->number = append_uncaptured(*stream, "aclrtRecordEvent", [record, stream = stream.get()] {
    record->recording->failure = stream->failure();
    record->recording->complete(Recording::State::kComplete);
    return ACL_SUCCESS;
  });
  std::lock_guard lock(event->mutex);
  event->latest = recording;
  event->graph.reset();
}

void wait_event(aclrtStream stream_handle, aclrtEvent handle) {
  require_pointer(handle, "event");
  std::shared_ptr<Event> event = events().find(handle);
  std::shared_ptr<Stream> stream = find_stream(stream_handle);
  if (join_capture(*stream, *event)) return;

  std::shared_ptr<Recording> recording;
  bool was_captured = false;
  {
    std::lock_guard lock(event->mutex);
    recording = event->latest;
    was_captured = event->graph != nullptr;
  }
  if (was_captured) {
    append(stream.get(), "aclrtStreamWaitEvent",
           [] { return error(ACL_ERROR_RT_EVENT_CAPTURED, "the event was recorded in a capture that has ended"); });
    return;
  }
  if (recording) race::stream_waits(*stream, *recording);
  if (!recording || (recording->is_over() && !recording->failure)) return;
  ++event->open_waits;
  std::shared_ptr<void> open(nullptr, [event](void*) { --event->open_waits; });
  append(stream.get(), "aclrtStreamWaitEvent", [open, recording] {
    running_stream()->block_until([&] { return recording->is_over(); }, /*poll=*/false);
    if (!recording->is_over() || !recording->failure || *recording->failure->taken) return ACL_SUCCESS;
    // What comes behind the wait would work on results that are not there.
    throw Failure{recording->failure->code, "the stream waited for work that failed: " + recording->failure->message,
                  recording->failure->taken};
  });
}

// The latest recording, null when there is none.
std::shared_ptr<Recording> latest_of(aclrtEvent handle) {
  require_pointer(handle, "event");
  std::shared_ptr<Event> event = events().find(handle);
  std::lock_guard lock(event->mutex);
  if (event->graph) {
    fail(ACL_ERROR_RT_EVENT_CAPTURED, "the event was recorded in a capture; it has a state in replays only");
  }
  return event->latest;
}

bool wait_for(const Recording& recording, const std::optional<Clock::time_point>& deadline) {
  const auto is_over = [&] { return recording.is_over(); };
  if (schedule::is_on()) return schedule::wait(is_over, deadline);
  std::unique_lock lock(waits_mutex());
  if (deadline) return waits_condition().wait_until(lock, *deadline, is_over);
  waits_condition().wait(lock, is_over);
  return true;
}

void synchronize_event(aclrtEvent handle, int32_t timeout) {
  std::optional<Clock::time_point> deadline = deadline_after("timeout", timeout);
  std::shared_ptr<Recording> recording = latest_of(handle);
  if (!recording) return;
  const cost::Wait wait;
  if (!wait_for(*recording, deadline)) {
    fail(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "the event was not reached within %d ms", timeout);
  }
  race::host_waited(*recording);
  std::shared_ptr<Stream> stream = recording->stream.lock();
  if (!stream) return;
  if (std::optional<Failure> failure = stream->take_failure(recording->number)) throw *failure;
}

uint64_t nanoseconds_of(aclrtEvent handle, const char* which) {
  require_pointer(handle, which);
  if (!(events().find(handle)->flags & ACL_EVENT_TIME_LINE)) {
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
  return call(__func__, [&] { create_event(event, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE, true); });
}

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  return call(__func__, [&] { create_event(event, flag, true); });
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  return call(__func__, [&] { create_event(event, flag, false); });
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
  return call(__func__, [&] {
    require_pointer(handle, "event");
    find_stream(stream);
    std::shared_ptr<Event> event = events().find(handle);
    if (!event->resettable) {
      fail(ACL_ERROR_FEATURE_UNSUPPORTED, "an event of aclrtCreateEventExWithFlag is recorded again without a reset");
    }
    std::lock_guard lock(event->mutex);
    event->latest.reset();
    event->graph.reset();
  });
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
    if (schedule::is_on()) schedule::asked();
    bool is_over = !recording || recording->is_over();
    if (recording && is_over) race::host_waited(*recording);
    *status = is_over ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
  });
}

aclError aclrtQueryEventWaitStatus(aclrtEvent handle, aclrtEventWaitStatus* status) {
  return call(__func__, [&] {
    require_pointer(status, "status");
    require_pointer(handle, "event");
    bool open = events().find(handle)->open_waits > 0;
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
    *timestamp = nanoseconds_of(event, "event");
  });
}
