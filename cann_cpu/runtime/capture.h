// SPDX-License-Identifier: Apache-2.0
// Captured graphs: streams whose tasks are recorded instead of run, to be replayed as one task later.
#pragma once

#include "event.h"
#include "runtime/checks/race.h"

namespace cann_cpu {

// An error in the work of a captured stream invalidates the capture, and the end of the capture reports the cause. The
// calls themselves succeed: torch_npu makes them in the thread of its task queue, which silently drops all later work
// after an error.

// Records a task of a captured stream; false when the stream is not captured (any more).
bool record_task(Stream& stream, const Task& task, const race::Recorded& recorded,
                 std::shared_ptr<const TaskTensors> operands);
// Marks in the event how far the captured stream has come; false when the stream is not captured (any more).
bool record_event_mark(Stream& stream, Event& event);
// If the event was recorded in a capture that is underway, makes the stream's next tasks part of that capture, after
// the event. Returns false when neither the event nor the stream is part of a capture.
bool join_capture(Stream& stream, Event& event);
// Invalidates a capture of the stream: a replay could not rely on the host memory that it copies. False when the stream
// is not captured.
bool reject_pageable(aclrtStream stream);
// Takes a stream that is going away out of its capture, which becomes invalid.
void stop_capture(Stream& stream);

// Both functions fail, and invalidate the capture, if the call is illegal during a capture. This one is for calls that
// query the state of a captured stream.
void forbid_during_capture(Stream& stream);
// This one is for calls that work on the device outside of streams (a synchronous copy, a device synchronisation), or
// wait for a stream that is not captured (an asynchronous copy with pageable memory:
// ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC).
void forbid_unsafe_during_capture(aclError code = ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT);

}  // namespace cann_cpu
