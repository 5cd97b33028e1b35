// Captured graphs: streams whose tasks are recorded instead of run, to be replayed as one task later.
#pragma once

#include "event.h"

namespace cann_cpu {

// Records a task of a captured stream; false when the stream is not captured (any more).
bool record_task(Stream& stream, const char* name, const Task& task);
// Marks in the event how far the captured stream has come; false when the stream is not captured (any more).
bool record_event_mark(Stream& stream, Event& event);
// If the event was recorded in a capture, makes the stream's next tasks part of it, behind the event. False when
// neither the event nor the stream has to do with a capture.
bool join_capture(Stream& stream, Event& event);
// Takes a stream that is going away out of its capture, which becomes invalid.
void stop_capture(Stream& stream);

// These fail, and invalidate the capture, if the call is illegal now:
// asking for the state of a stream that is captured,
void forbid_during_capture(Stream& stream);
// working on the device beside all streams (a synchronous copy, a device synchronisation),
void forbid_unsafe_during_capture();
// recording a copy whose host memory may be gone at the replay.
void forbid_pageable_during_capture(aclrtStream stream);

}  // namespace cann_cpu
