// SPDX-License-Identifier: Apache-2.0
// The cores of a launch, which wait for each other by SyncAll, by flags in memory, and by CrossCoreSetFlag.
//
// A deadlock is found by the state of the cores, not by time: no core runs any more, and no waiting core may continue.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "ascendc/block.h"
#include "knowledge.h"
#include "pool.h"

namespace cann_cpu {
class KernelCommunicator;
}

namespace AscendC::cpu {

class CollectiveServer;

// Ends a core because another one has failed, which is what is reported.
struct Abandoned {};

// As messages name it: "block 3", "block 3, AIV 1".
std::string name_of(const Core& core, const KernelType& type);

// Each call that waits takes what the core has to say to others, and gives what it has learned.
class Team {
 public:
  Team(const KernelType& type, uint32_t blocks);
  ~Team();

  const Core& core(uint32_t number) const { return cores_[number]; }
  uint32_t cores() const { return static_cast<uint32_t>(cores_.size()); }
  std::string name(uint32_t number) const { return name_of(cores_[number], type_); }

  // Calls task(number) for each core, in the pool's threads; a core that waits leaves its thread to others.
  void run(const std::function<void(uint32_t)>& task) {
    job_.run(task, [this] { give_up(); });
  }
  // Lets other cores run before this one, which polls, continues.
  void yield();

  enum class Who : uint8_t { VectorCores, CubeCores, All };
  // Until all of them have come here; of the vector cores perhaps the first `used` only.
  Message sync_all(const Core& core, Who who, uint32_t used, Message said, Where where);
  // A flag by its place in memory. Setting it waits until no core still has to wait for it. `name` is the caller's.
  Message set_flag(const char* name, const Core& core, const void* flag, Message said, Where where);
  Message wait_flag(const char* name, const Core& core, const void* flag, Where where);
  // CrossCoreSetFlag and CrossCoreWaitFlag, by their modes.
  void cross_set(const Core& core, uint8_t mode, uint32_t id, Message said, Where where);
  Message cross_wait(const Core& core, uint32_t id, Where where);

  // Only this reads and changes the state that others wait for. Whether a server works for the cores, who may wait for
  // it then, is a part of it.
  void change(const std::function<void()>& change);
  void works(bool begins) { running_ += begins ? 1 : -1; }
  using Name = std::function<std::string()>;
  // Waits until the condition holds, which is evaluated as change() does.
  // A message calls `name` under the mutex.
  void wait_until(const Name& name, const Core& core, Where where, std::function<bool()> may_go_on);

  // The server of the core's turn, from 0, to use a communicator.
  CollectiveServer& server(cann_cpu::KernelCommunicator& communicator, uint32_t turn);
  // Waits for what the servers still do; KernelError if it failed, or was not ended by the kernel.
  void end_servers(const char* kernel);
  // The kernel has failed: lets the other ranks of all communicators know, and nobody waits for them.
  void give_up_servers(const Contexts& contexts, const char* reason);

  void end(const Core& core);
  void give_up();  // wakes all who wait: they throw Abandoned

  // Fails if a flag that was set by CrossCoreSetFlag has no wait.
  void check_all_waited(const char* kernel) const;

 private:
  struct Waiter {
    const Core& core;
    Name name;
    Where where;
    std::function<bool()> may_go_on;
  };
  struct Barrier {
    uint32_t arrived = 0;
    uint64_t round = 0;
    Message gathering, gathered;
  };
  // What was set and is complete only when all who take part have set it as often.
  struct Said {
    uint32_t core;
    Message message;
    Where where;
    uint8_t mode;
  };
  struct Channel {
    std::vector<uint32_t> from, to;  // numbers of cores
    std::map<uint32_t, std::deque<Said>> said;
  };
  using Key = std::tuple<uint8_t, uint32_t, bool, uint32_t>;  // mode, block if it matters, set by cube cores, id

  // Until the condition holds; KernelError if it never will.
  void wait(std::unique_lock<std::mutex>& lock, const Core& core, Where where, const Name& name,
            std::function<bool()> may_go_on);
  void find_deadlock();
  std::string who_waits() const;
  Channel& channel(const Core& core, uint8_t mode, uint32_t id);

  const KernelType type_;
  std::vector<Core> cores_;
  Job job_;
  std::mutex mutex_;
  uint32_t running_;  // cores that have not ended and do not wait
  bool given_up_ = false;
  std::string deadlock_;  // who waits where
  std::list<Waiter> waiters_;
  std::vector<bool> ended_;
  std::map<std::pair<Who, uint32_t>, Barrier> barriers_;
  std::map<const void*, Message> flags_;  // those that are set
  std::map<Key, Channel> channels_;
  std::map<std::pair<uint32_t, uint32_t>, std::deque<Said>> arrived_;  // by the core that may wait, and the id
  std::map<std::pair<cann_cpu::KernelCommunicator*, uint32_t>, std::unique_ptr<CollectiveServer>> servers_;
};

}  // namespace AscendC::cpu
