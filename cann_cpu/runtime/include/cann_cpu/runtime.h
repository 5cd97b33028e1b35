// SPDX-License-Identifier: Apache-2.0
// The C++ face of the runtime for the other libraries of cann_cpu: append work to a stream, report an error.
#pragma once

#include <functional>

#include "acl/acl_base.h"
#include "cann_cpu/accesses.h"
#include "cann_cpu/export.h"

namespace cann_cpu {

// Work for a stream. Re-runnable: a captured graph replays it.
using Task = std::function<aclError()>;

// Appends a task to the stream (nullptr: the current context's default stream). Tasks run in order on the stream's own
// worker thread, never in the caller; the exception: a call from inside a running task of the same stream runs the task
// at once, in place. While the stream captures, the task is recorded instead of run.
//
// A task that returns non-zero or throws makes its code, and the message it left in the worker thread, the stream's
// error. Tasks that were queued after it still run. The next synchronisation of the stream, of its device or of an
// event recorded after the task returns that code once, with the task's name in the message.
//
// What the task does to memory matters only while accesses_are_checked().
CANN_EXPORT aclError launch(aclrtStream stream, const char* name, Task task, const Accesses& accesses = {});

// True inside a task of the stream, in the thread that runs it.
CANN_EXPORT bool is_running(const void* stream);

// Sets the text that aclGetRecentErrMsg gives next in this thread, and returns the code:
//   return error(ACL_ERROR_INVALID_PARAM, "aclrtMalloc: size is 0");
CANN_EXPORT aclError error(aclError code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Reads a file as aclInit does, and rejects what it asks for in vain; a path that is null or empty names none.
CANN_EXPORT aclError check_configuration(const char* function, const char* path);

// error() with CANN's feature-unsupported code and a text that names the function.
CANN_EXPORT aclError unsupported(const char* function);

}  // namespace cann_cpu
