// SPDX-License-Identifier: Apache-2.0
// Windows: device memory that a rank registers for other ranks of its communicator. They write to it while it takes no
// part, so that it has to be memory of one host.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cann_cpu/collectives.h"

namespace cann_cpu {

class Windows {
 public:
  // Sends these bytes to each of the ranks, and returns as many that came from each.
  using Exchange = std::function<std::map<uint32_t, std::string>(const std::string& mine)>;

  // Returns the handle of a window of this rank.
  void* add(void* address, uint64_t size);
  void remove(const void* handle);
  // Exchanges a window of this rank for those of other ranks, and maps these.
  void exchange(uint32_t rank, const void* handle, const Exchange& with_peers);
  // The window of a rank that was exchanged last. Throws CollectiveFailure if there is none.
  Window of(uint32_t rank);

 private:
  struct Own {
    Window window;
    std::string key;  // of its allocation
    uint64_t offset;  // in the allocation
  };
  struct Exchanged {
    Window window;
    std::shared_ptr<void> mapping;  // null for this rank's own; its end waits for tasks, which may wait for the mutex
    const void* handle;             // of this rank's window
  };
  const Own& own(const void* handle);

  std::mutex mutex_;
  std::map<const void*, Own> own_;           // by handle
  std::map<uint32_t, Exchanged> exchanged_;  // by rank
};

}  // namespace cann_cpu
