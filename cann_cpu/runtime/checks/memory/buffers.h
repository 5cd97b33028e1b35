// SPDX-License-Identifier: Apache-2.0
// The buffers of device memory, those that are gone included, and which of them are accessible.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "guarded.h"
#include "intervals.h"
#include "runtime/stream.h"

namespace cann_cpu::memory {

struct Buffer {
  guarded::Block block{};
  size_t size = 0;
  int32_t device = 0;
  std::string where;
  bool is_programs = false;  // its own code has it, and is to give it back

  size_t agent = 0;                  // the stream of a tensor
  const void* graph = nullptr;       // whose capture the tensor is of
  bool is_left_to_graph = false;     // the tensor is gone
  std::map<size_t, uint64_t> users;  // streams, and their own times at the last use
  std::set<size_t> recorded;

  bool is_open = true;
  Intervals written;
  uint64_t freed_at = 0;  // in launches; 0: it lives
  std::string freed_where;
  bool is_released = false;

  uintptr_t begin() const { return block.begin; }
  uintptr_t end() const { return block.begin + size; }
};

struct Buffers {
  std::mutex mutex;  // never held while device memory is touched, nor while the GIL is taken
  std::map<uintptr_t, Buffer> by_pages;
  std::atomic<int> touching{0};  // tasks and calls of the host that may touch device memory now
  std::atomic<uint64_t> launches{1};

  // What follows is called with the lock.

  // A buffer whose pages are accessible.
  void add(Buffer buffer);
  // The buffer whose pages hold the address, or null.
  Buffer* find(uintptr_t address);
  // The buffer that lies nearest, and whether the address is in front of it.
  std::pair<Buffer*, bool> find_nearest(uintptr_t address);
  // Its pages are accessible until close_all().
  void open(Buffer& buffer);
  void close_all();
  void give_back(Buffer& buffer);

 private:
  std::deque<uintptr_t> freed_;  // the oldest first
  std::vector<uintptr_t> open_;
};

Buffers& buffers();

// When the tasks that may use them have ended. Not to be called with the buffers' lock.
void give_back_when_done(const std::vector<uintptr_t>& all_pages);

// No task runs, and the host looks at results: makes device memory inaccessible until the next task.
void close();

// The stream has been given a task that does this.
void used(const Stream& stream, const Accesses& accesses);
// Memory that tensors of the captured graph have left goes with it.
void graph_destroyed(const void* graph);

// The first and the last byte around a buffer that was written, or nothing.
std::optional<std::pair<uintptr_t, uintptr_t>> written_around(const Buffer& buffer);

}  // namespace cann_cpu::memory
