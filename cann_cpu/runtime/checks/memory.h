// SPDX-License-Identifier: Apache-2.0
// The check `memory`: finds uses of device memory that is out of bounds, freed or uninitialized.
//
// A task's declared accesses are checked when it runs. Its other accesses are found by inaccessible pages and by poison
// (memory/guarded.h). Only the guards may be called while the check is off.
#pragma once

#include "cann_cpu/accesses.h"
#include "report.h"
#include "runtime/memory.h"
#include "runtime/stream.h"

namespace cann_cpu::memory {

// Device memory of that many bytes, or null. The caller is an address of code, null for a tensor's, which take the GIL:
// not to be called with a lock held. What the program's own code leaves at the end is listed.
void* allocate(size_t size, int32_t device, const void* caller);
void release(void* address);
// What is left when its device ends.
void release_left(const std::vector<void*>& addresses);
// Reports why an address cannot be freed.
void reject_free(const void* address);
// The same of memory that is another device's.
void reject_device(const void* address, int32_t device);

// The memory belongs to a tensor that was allocated on that stream. Memory that a tensor of a captured graph leaves
// belongs to the graph.
void belongs_to_tensor(void* address, const Stream& stream);
// tensor.record_stream(): its memory stays until what the stream has been given by then is done.
void record_stream(void* address, aclrtStream stream);
// A tensor's memory is given back, while tasks may still use it.
void release_tensor(void* address);
void graph_ended(const void* graph);

// Returns the task with the checks that run before and after it. It was launched at `where`.
Task checked(const Stream& stream, const char* name, const std::string& where, const Accesses& accesses, Task task);
// The stream has been given a task that does this.
void used(const Stream& stream, const Accesses& accesses);

// The thread may touch device memory: the runtime's own copies do.
class HostAccess {
 public:
  HostAccess(const char* function, const Accesses& accesses);
  ~HostAccess();
  HostAccess(const HostAccess&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Calls a function of the host's in a stream's thread, which may not touch device memory meanwhile.
void call_host_function(const std::function<void()>& function);

// A copy or a fill asked for bytes that its buffer does not have.
void reject_range(const char* name, uintptr_t address, size_t size);

// No task runs, and the host looks at results: makes device memory inaccessible until the next task.
void close();

}  // namespace cann_cpu::memory
