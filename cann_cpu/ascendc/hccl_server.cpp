// SPDX-License-Identifier: Apache-2.0
#include "hccl_server.h"

#include <utility>

namespace AscendC::cpu {
namespace {
std::string of_turns(uint32_t done, size_t all) {
  return std::to_string(done) + " of " + std::to_string(all) + " times";
}
}  // namespace

bool CollectiveServer::takes_from(const Core& core) {
  bool same = true;
  team_.change([&] {
    if (!std::exchange(has_kind_, true)) is_cube_ = core.cube;
    same = is_cube_ == core.cube;
  });
  return same;
}

void CollectiveServer::prepare(Task task) {
  team_.change([&] { tasks_.push_back(std::move(task)); });
}

std::pair<const cann_cpu::KernelCollective*, size_t> CollectiveServer::next(size_t handle) {
  const cann_cpu::KernelCollective* collective = nullptr;
  team_.change([&] {
    const Task& task = tasks_[handle];
    if (task.committed < task.turns.size()) collective = &task.turns[task.committed];
  });
  return {collective, collective != nullptr ? communicator_.bytes_of(collective->type) : 0};
}

bool CollectiveServer::commit(size_t handle, Message said) {
  bool is_next = false, begins = false;
  team_.change([&] {
    Task& task = tasks_[handle];
    is_next = task.committed < task.turns.size();
    if (!is_next) return;
    ++task.committed;
    task.said = merged(task.said, said);
    begins = has_work() && !is_working_;
    if (begins) team_.works(is_working_ = true);
  });
  if (!begins) return is_next;
  if (thread_.joinable()) thread_.join();  // it has done what there was
  thread_ = std::thread([this] { serve(); });
  return is_next;
}

void CollectiveServer::serve() {
  const cann_cpu::KernelCollective* collective = nullptr;
  const auto take = [&] {
    collective = has_work() ? &tasks_[next_].turns[tasks_[next_].finished] : nullptr;
    if (collective == nullptr) team_.works(is_working_ = false);
  };
  for (team_.change(take); collective != nullptr;) {
    std::string reason = communicator_.run(*collective);
    team_.change([&] {
      reason_ = std::move(reason);
      Task& task = tasks_[next_];
      if (reason_.empty() && ++task.finished == task.turns.size()) ++next_;
      take();
    });
  }
}

uint32_t CollectiveServer::finished(size_t handle, Where where) {
  team_.yield();  // a polling core may otherwise poll before the committing core begins
  uint32_t turns = 0;
  std::string reason;
  team_.change([&] {
    reason = reason_;
    if (handle < tasks_.size()) turns = tasks_[handle].finished;
  });
  if (!reason.empty()) fail(where, "Query(%zu): %s", handle, reason.c_str());
  return turns;
}

Message CollectiveServer::wait(size_t handle, uint32_t turns, const Core& core, Where where) {
  const auto name = [&] { return "Wait(" + std::to_string(handle) + ") for " + describe(handle); };
  team_.wait_until(name, core, where,
                   [&] { return !reason_.empty() || (handle < tasks_.size() && tasks_[handle].finished >= turns); });
  std::string reason;
  Message said;
  team_.change([&] {
    if (!reason_.empty()) reason = name() + ": " + reason_;
    said = handle < tasks_.size() ? tasks_[handle].said : nullptr;
  });
  if (!reason.empty()) fail(where, "%s", reason.c_str());
  return said;
}

std::string CollectiveServer::describe(size_t handle) const {
  if (handle >= tasks_.size()) return "a collective that the core that uses the server has not prepared";
  const Task& task = tasks_[handle];
  return std::string(task.name) + ", committed " + of_turns(task.committed, task.turns.size());
}

std::string CollectiveServer::uncommitted() {
  std::string text;
  team_.change([&] {
    for (size_t handle = 0; handle < tasks_.size() && text.empty(); ++handle) {
      const Task& task = tasks_[handle];
      if (task.committed == task.turns.size()) continue;
      text = std::string(task.name) + " in line " + std::to_string(task.where.line()) + " (handle " +
             std::to_string(handle) + ") was committed " + of_turns(task.committed, task.turns.size());
    }
  });
  return text;
}

void CollectiveServer::wait_for_all(const Core& core, Where where) {
  team_.wait_until([] { return "Finalize"; }, core, where, [&] { return is_done(); });
  std::string reason;
  team_.change([&] { reason = reason_; });
  if (!reason.empty()) fail(where, "Finalize: %s", reason.c_str());
}

void CollectiveServer::finalize() {
  team_.change([&] { is_finalized_ = true; });
}

void CollectiveServer::end(const char* kernel) {
  if (thread_.joinable()) thread_.join();
  if (!reason_.empty()) throw KernelError(std::string(kernel) + ": " + reason_);
  if (tasks_.empty() || is_finalized_) return;
  throw KernelError(std::string(kernel) + ": Hccl: the kernel has ended without Finalize after " + tasks_.back().name +
                    " in line " + std::to_string(tasks_.back().where.line()) +
                    "; the server waits for more indefinitely");
}

}  // namespace AscendC::cpu
