// SPDX-License-Identifier: Apache-2.0
// The server of a launch's collectives, as the AI CPU is on a device: a thread that runs them in the order in which the
// kernel prepared them, each as often as it was committed.
#pragma once

#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "cann_cpu/kernel_communicator.h"
#include "team.h"

namespace AscendC::cpu {

class CollectiveServer {
 public:
  // One call of a Prepare function: its consecutive turns.
  struct Task {
    const char* name;
    Where where;
    std::vector<cann_cpu::KernelCollective> turns = {};
    uint32_t committed = 0;
    uint32_t finished = 0;
    Message said = nullptr;  // by the core that committed it, as far as it was committed
  };

  CollectiveServer(cann_cpu::KernelCommunicator& communicator, Team& team) : communicator_(communicator), team_(team) {}
  CollectiveServer(const CollectiveServer&) = delete;
  ~CollectiveServer() {
    if (thread_.joinable()) thread_.join();
  }

  cann_cpu::KernelCommunicator& communicator() { return communicator_; }

  // The first core that prepares is of the kind of all; false for one of the other kind.
  bool takes_from(const Core& core);
  void prepare(Task task);
  // The turn that commit() would let run, and the bytes of its elements; null: all turns have been committed.
  std::pair<const cann_cpu::KernelCollective*, size_t> next(size_t handle);
  // Lets the next turn of the task run. False: all have been committed.
  bool commit(size_t handle, Message said);
  // How many turns of a task have ended. Throws KernelError if a collective failed.
  uint32_t finished(size_t handle, Where where);
  // Waits until that many turns have ended; returns the committing core's clock.
  Message wait(size_t handle, uint32_t turns, const Core& core, Where where);
  // Describes a task that was committed less often than it was prepared; empty: there is none.
  std::string uncommitted();
  // Waits until every prepared turn has ended.
  void wait_for_all(const Core& core, Where where);
  void finalize();
  // The kernel has returned.
  void end(const char* kernel);

 private:
  void serve();
  bool has_work() const { return reason_.empty() && next_ < tasks_.size() && is_due(tasks_[next_]); }
  static bool is_due(const Task& task) { return task.finished < task.committed; }
  std::string describe(size_t handle) const;
  bool is_done() const { return !reason_.empty() || next_ == tasks_.size(); }

  cann_cpu::KernelCommunicator& communicator_;
  Team& team_;
  std::thread thread_;
  // The team's mutex guards the following.
  std::deque<Task> tasks_;
  size_t next_ = 0;  // the task that runs or will run
  bool is_working_ = false;
  bool is_finalized_ = false;
  bool has_kind_ = false, is_cube_ = false;
  std::string reason_;  // why a collective failed; nothing runs after it
};

}  // namespace AscendC::cpu
