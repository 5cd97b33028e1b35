// SPDX-License-Identifier: Apache-2.0
// Captured graphs: streams whose tasks are recorded instead of run, to be replayed as one task later.
#pragma once

#include "checks/race.h"
#include "event.h"

namespace cann_cpu {

// What goes wrong with the work of a captured stream invalidates the capture, and its end reports the cause. The calls
// themselves succeed: torch_npu makes them in the thread of its task queue, which after an error drops all later work
// in silence.

// Records a task of a captured stream; false when the stream is not captured (any more).
bool record_task(Stream& stream, const Task& task, const race::Recorded& recorded,
                 std::shared_ptr<const TaskTensors> operands);
// Marks in the event how far the captured stream has come; false when the stream is not captured (any more).
bool record_event_mark(Stream& stream, Event& event);
// If the event was recorded in a capture that is underway, makes the stream's next tasks part of it, behind the event.
// False when neither the event nor the stream is part of one.
bool join_capture(Stream& stream, Event& event);
// Invalidates a capture of the stream: a replay could not rely on the host memory that it copies. False when the stream
// is not captured.
bool reject_pageable(aclrtStream stream);
// Takes a stream that is going away out of its capture, which becomes invalid.
void stop_capture(Stream& stream);

// These fail, and invalidate the capture, if the call is illegal now: asking for the state of a stream that is
// captured,
void forbid_during_capture(Stream& stream);
// and working on the device beside all streams (a synchronous copy, a device synchronisation).
void forbid_unsafe_during_capture();

}  // namespace cann_cpu
