// SPDX-License-Identifier: Apache-2.0
#include "team.h"

#include <algorithm>
#include <string_view>

#include "ascendc/block_sync.h"
#include "ascendc/cores.h"
#include "ascendc/cube_group.h"
#include "checker.h"
#include "fiber.h"
#include "hccl_server.h"
#include "running_block.h"

namespace AscendC::cpu {

std::string name_of(const Core& core, const KernelType& type) {
  const CoresOf cores = cores_of(type.name);
  std::string name = "block " + std::to_string(core.block);
  if (cores.cube == 0 || cores.vectors == 0) return name;
  return name + (core.cube ? ", AIC" : ", AIV " + std::to_string(core.sub));
}

Team::~Team() = default;

Team::Team(const KernelType& type, uint32_t blocks)
    : type_(type), job_(blocks, cores_of(type.name).cube + cores_of(type.name).vectors) {
  const CoresOf of_block = cores_of(type.name);
  for (uint32_t block = 0; block < blocks; ++block) {
    for (uint8_t i = 0; i < of_block.cube + of_block.vectors; ++i) {
      const bool cube = i < of_block.cube;
      const auto sub = static_cast<uint8_t>(cube ? 0 : i - of_block.cube);
      cores_.push_back({cores(), block, cube, sub, cube ? uint8_t{1} : of_block.vectors});
    }
  }
  running_ = cores();
  ended_.resize(cores());
}

std::string Team::who_waits() const {
  std::map<std::string, std::vector<std::string>> by_place;
  for (const Waiter& waiter : waiters_) {
    by_place[waiter.name() + " in line " + std::to_string(waiter.where.line())].push_back(name_of(waiter.core, type_));
  }
  std::string all;
  for (const auto& [place, names] : by_place) {
    constexpr size_t kNamed = 6;
    std::string some;
    for (size_t i = 0; i < std::min(names.size(), kNamed); ++i) some += (i == 0 ? "" : "; ") + names[i];
    if (names.size() > kNamed) some += "; and " + std::to_string(names.size() - kNamed) + " more";
    all += "\n  " + place + ": " + some;
  }
  return all;
}

void Team::find_deadlock() {
  if (running_ != 0 || waiters_.empty() || !deadlock_.empty()) return;
  if (std::ranges::any_of(waiters_, [](const Waiter& waiter) { return waiter.may_go_on(); })) return;
  deadlock_ = who_waits();
}

void Team::yield() {
  if (Fiber::current() == nullptr) return;
  Block* const block = std::exchange(current_block, nullptr);
  job_.yield();
  current_block = block;
}

void Team::wait(std::unique_lock<std::mutex>& lock, const Core& core, Where where, const Name& name,
                std::function<bool()> may_go_on) {
  if (given_up_) throw Abandoned();
  if (may_go_on()) return;
  const auto waiter = waiters_.emplace(waiters_.end(), core, name, where, std::move(may_go_on));
  --running_;
  find_deadlock();
  if (!deadlock_.empty()) job_.notify();
  Block* const block = std::exchange(current_block, nullptr);
  job_.wait(lock, [&] { return given_up_ || !deadlock_.empty() || waiter->may_go_on(); });
  current_block = block;
  waiters_.erase(waiter);
  ++running_;
  if (deadlock_.empty()) {
    if (given_up_) throw Abandoned();
    return;
  }
  const auto gone = static_cast<size_t>(std::ranges::find(ended_, true) - ended_.begin());
  const std::string all = deadlock_, what = name();
  lock.unlock();
  const bool met = what == "SyncAll" || what == "IBWait";
  const std::string reason = gone >= ended_.size() ? "all others also wait"
                             : met                 ? name_of(cores_[gone], type_) + " has ended without coming here"
                                                   : "all others also wait or have ended";
  fail(where, "%s: the block waits indefinitely: %s%s", what.c_str(), reason.c_str(), all.c_str());
}

Message Team::sync_all(const Core& core, Who who, uint32_t used, Message said, Where where) {
  std::unique_lock lock(mutex_);
  const CoresOf of_block = cores_of(type_.name);
  const uint32_t blocks = cores() / (of_block.cube + of_block.vectors);
  const uint32_t all = who == Who::All         ? cores()
                       : who == Who::CubeCores ? blocks * of_block.cube
                                               : blocks * of_block.vectors;
  const uint32_t count = used != 0 ? used : all;
  Barrier& barrier = barriers_[{who, count}];
  barrier.gathering = merged(barrier.gathering, said);
  const uint64_t round = barrier.round;
  if (++barrier.arrived == count) {
    barrier.arrived = 0;
    ++barrier.round;
    barrier.gathered = std::exchange(barrier.gathering, nullptr);
    job_.notify();
  }
  wait(lock, core, where, [] { return "SyncAll"; }, [&barrier, round] { return barrier.round != round; });
  return barrier.gathered;
}

Message Team::set_flag(const char* name, const Core& core, const void* flag, Message said, Where where) {
  std::unique_lock lock(mutex_);
  wait(lock, core, where, [name] { return name; }, [this, flag] { return !flags_.contains(flag); });
  flags_[flag] = std::move(said);
  job_.notify();
  return nullptr;
}

Message Team::wait_flag(const char* name, const Core& core, const void* flag, Where where) {
  std::unique_lock lock(mutex_);
  wait(lock, core, where, [name] { return name; }, [this, flag] { return flags_.contains(flag); });
  const auto set = flags_.extract(flag);
  job_.notify();
  return set.mapped();
}

void Team::change(const std::function<void()>& change) {
  const std::lock_guard lock(mutex_);
  change();
  find_deadlock();
  job_.notify();
}

void Team::wait_until(const Name& name, const Core& core, Where where, std::function<bool()> may_go_on) {
  std::unique_lock lock(mutex_);
  wait(lock, core, where, name, std::move(may_go_on));
}

CollectiveServer& Team::server(cann_cpu::KernelCommunicator& communicator, uint32_t turn) {
  const std::lock_guard lock(mutex_);
  auto& server = servers_[{&communicator, turn}];
  if (server == nullptr) server = std::make_unique<CollectiveServer>(communicator, *this);
  return *server;
}

void Team::end_servers(const char* kernel) {
  for (const auto& [key, server] : servers_) server->end(kernel);
}

void Team::give_up_servers(const Contexts& contexts, const char* reason) {
  for (const void* context : contexts) {
    if (context != nullptr) static_cast<const cann_cpu::KernelContext*>(context)->communicator->give_up(reason);
  }
  for (const auto& [key, server] : servers_) key.first->give_up(reason);
}

// Mode 0: all cores of a kind; 1: the vector cores of a block; 2: from the cube core to the vector cores of its block,
// or from all of these to it.
Team::Channel& Team::channel(const Core& core, uint8_t mode, uint32_t id) {
  Channel& channel = channels_[{mode, mode == 0 ? 0 : core.block, core.cube, id}];
  if (!channel.from.empty()) return channel;
  for (const Core& other : cores_) {
    if (mode != 0 && other.block != core.block) continue;
    if (other.cube == core.cube) channel.from.push_back(other.number);
    if ((other.cube == core.cube) == (mode != 2)) channel.to.push_back(other.number);
  }
  return channel;
}

void Team::cross_set(const Core& core, uint8_t mode, uint32_t id, Message said, Where where) {
  const std::lock_guard lock(mutex_);
  Channel& channel = this->channel(core, mode, id);
  if (channel.to.empty()) {
    fail(where,
         "CrossCoreSetFlag: the kernel has no %s cores that could wait for it; KERNEL_TASK_TYPE says which it has",
         core.cube ? "vector" : "cube");
  }
  channel.said[core.number].push_back({core.number, std::move(said), where, mode});
  if (channel.said.size() != channel.from.size()) return;
  if (std::ranges::any_of(channel.said, [](const auto& of_core) { return of_core.second.empty(); })) return;
  Said all{core.number, nullptr, where, mode};
  for (auto& [number, said_by] : channel.said) {
    all.message = merged(all.message, said_by.front().message);
    said_by.pop_front();
  }
  constexpr size_t kCounted = 15;
  for (const uint32_t number : channel.to) {
    auto& arrived = arrived_[{number, id}];
    if (!arrived.empty() && arrived.front().mode != mode) {
      fail(where,
           "CrossCoreSetFlag: flag %u is set by mode %u for %s, which has not waited for mode %u, set in line %u; both "
           "count in one counter, so take another flag",
           id, mode, name(number).c_str(), arrived.front().mode, arrived.front().where.line());
    }
    arrived.push_back(all);
    if (arrived.size() > kCounted) {
      fail(where,
           "CrossCoreSetFlag: flag %u was set %zu times for %s, which has not waited for it; its counter ends at 15",
           id, arrived.size(), name(number).c_str());
    }
  }
  job_.notify();
}

Message Team::cross_wait(const Core& core, uint32_t id, Where where) {
  std::unique_lock lock(mutex_);
  std::deque<Said>& arrived = arrived_[{core.number, id}];
  wait(lock, core, where, [] { return "CrossCoreWaitFlag"; }, [&arrived] { return !arrived.empty(); });
  Message message = std::move(arrived.front().message);
  arrived.pop_front();
  return message;
}

void Team::check_all_waited(const char* kernel) const {
  const auto reject = [&](uint32_t id, uint32_t core, const Said& said, const std::string& reason) {
    throw KernelError(std::string(said.where.file_name()) + ":" + std::to_string(said.where.line()) + ": " + kernel +
                      ", " + name(core) + ": CrossCoreSetFlag: flag " + std::to_string(id) + " " + reason);
  };
  for (const auto& [of, said] : arrived_) {
    if (said.empty()) continue;
    reject(
        of.second, said.front().core, said.front(),
        "is set when the kernel ends, and " + name(of.first) + " has not waited for it; call CrossCoreWaitFlag there");
  }
  for (const auto& [key, channel] : channels_) {
    for (const auto& [number, said] : channel.said) {
      if (said.empty()) continue;
      std::string silent;
      for (const uint32_t other : channel.from) {
        const auto of_other = channel.said.find(other);
        if (of_other == channel.said.end() || of_other->second.empty()) silent = name(other);
      }
      reject(std::get<3>(key), number, said.front(), "is complete when all have set it, and " + silent + " has not");
    }
  }
}

void Team::end(const Core& core) {
  const std::lock_guard lock(mutex_);
  ended_[core.number] = true;
  --running_;
  find_deadlock();
  job_.notify();
}

void Team::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  job_.notify();
}

namespace {

// A core reaches a point where cores wait: its work before that point is ordered before its work after it.
template <class Wait>
void meet(Where where, const Wait& wait) {
  RunningBlock& block = running_block(where);
  if (block.type.tried) return block.type.asked ? is_mixed() : void();
  pipe_barrier(PIPE_ALL, where);
  finish_stores();
  Checker* checker = block.checker;
  Message learned = wait(block, checker != nullptr ? checker->said(PIPE_S) : nullptr);
  if (checker != nullptr) checker->learn(learned);
}

}  // namespace

void sync_all(Where where, int32_t used, bool vector_only) {
  meet(where, [&](RunningBlock& block, Message said) -> Message {
    const Core& core = block.core;
    if (used <= 0 || !vector_only) {
      const auto who = !vector_only ? Team::Who::All : core.cube ? Team::Who::CubeCores : Team::Who::VectorCores;
      return block.team->sync_all(core, who, 0, std::move(said), where);
    }
    const auto wanted = static_cast<uint32_t>(used), there = block.count * core.sub_blocks;
    if (wanted > there) fail(where, "SyncAll: %u blocks; there are %u", wanted, there);
    if (core.block * core.sub_blocks + core.sub >= wanted) return nullptr;
    return block.team->sync_all(core, Team::Who::VectorCores, wanted, std::move(said), where);
  });
}

void set_block_flag(Where where, const std::byte* flag) {
  meet(where, [&](RunningBlock& block, Message said) {
    return block.team->set_flag("IBSet", block.core, flag, std::move(said), where);
  });
}

void wait_block_flag(Where where, const std::byte* flag) {
  meet(where,
       [&](RunningBlock& block, const Message&) { return block.team->wait_flag("IBWait", block.core, flag, where); });
}

void cross_core_set(Where where, uint8_t mode, pipe_t pipe, uint32_t id) {
  RunningBlock& block = running_block(where);
  if (!block.type.known) is_mixed();
  if (block.type.name == KERNEL_TYPE_AIV_ONLY || block.type.name == KERNEL_TYPE_AIC_ONLY) {
    fail(where,
         "CrossCoreSetFlag: cores of a kernel of this type do not wait for each other; its type is "
         "KERNEL_TYPE_MIX_AIV_1_0 or KERNEL_TYPE_MIX_AIC_1_0 where it has one kind of core");
  }
  finish_stores();
  block.team->cross_set(block.core, mode, id, block.checker != nullptr ? block.checker->said(pipe) : nullptr, where);
}

void cross_core_wait(Where where, uint32_t id) {
  RunningBlock& block = running_block(where);
  if (!block.type.known) is_mixed();
  const Message learned = block.team->cross_wait(block.core, id, where);
  if (block.checker != nullptr) block.checker->learn(learned);
}

void post(const char* name, Where where, pipe_t pipe, const void* flag) {
  RunningBlock& block = running_block(where);
  finish_stores();
  Message said = block.checker != nullptr ? block.checker->said(pipe) : nullptr;
  block.team->set_flag(name, block.core, flag, std::move(said), where);
}

void take(const char* name, Where where, const void* flag) {
  RunningBlock& block = running_block(where);
  const Message learned = block.team->wait_flag(name, block.core, flag, where);
  if (block.checker != nullptr) block.checker->learn(learned);
}

void clean_cache(Where where, const std::byte* address, bool all) {
  if (Checker* checker = block(where).checker) checker->clean_cache(address, all);
  running_block(where).team->yield();  // it may wait for what another core writes
}

}  // namespace AscendC::cpu
