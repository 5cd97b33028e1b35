// SPDX-License-Identifier: Apache-2.0
#include "race.h"

#include "call_site.h"
#include "observers.h"
#include "report.h"
#include "runtime/event.h"
#include "shadow.h"

namespace cann_cpu::race {
namespace {

struct State {
  std::mutex mutex;
  std::map<size_t, VectorClock> clocks;  // the work that happened before each agent's next, its own included
  Shadow memory;
};

State& state() {
  static auto* const only = new State;
  return *only;
}

std::string name_of(size_t agent) { return agent == kHost ? "the host" : "stream " + std::to_string(agent - 1); }

std::string describe(const Use& use) {
  const User& user = *use.user;
  std::string text = user.task + (user.agent == kHost ? "" : " on " + name_of(user.agent));
  text += use.is_write ? " writes" : " reads";
  if (use.argument > 0) text += " its argument " + std::to_string(use.argument);
  return text + (user.where.empty() ? "" : ", launched at " + user.where);
}

void report_conflict(const Conflict& conflict, const char* where) {
  const Range range = find_range(reinterpret_cast<const void*>(conflict.begin));
  const std::string memory = range.space == Space::kDevice ? "npu:" + std::to_string(range.device) : "pinned memory";
  const std::string first = describe(conflict.first), second = describe(conflict.second);
  char bytes[160];
  std::snprintf(bytes, sizeof(bytes), "%zu bytes at 0x%zx (byte %zu of an allocation of %zu, %s)",
                static_cast<size_t>(conflict.end - conflict.begin), static_cast<size_t>(conflict.begin),
                static_cast<size_t>(conflict.begin - range.begin), static_cast<size_t>(range.end - range.begin),
                memory.c_str());
  const char* cure = conflict.second.user->agent == kHost
                         ? "Let the host wait for the first: stream.synchronize(), or event.synchronize()"
                         : "Let the second wait for the first: stream.wait_stream(other), or stream.wait_event(event)";
  report(Check::kRace, first + "\n" + second,
         std::string("nothing orders two uses of ") + bytes + where + "\n  first:  " + first + "\n  second: " + second +
             "\n  " + cure + ". If it was another tensor's memory then: tensor.record_stream(stream) before that goes.",
         {{"bytes", bytes}, {"first", first}, {"second", second}});
}

// The accesses' addresses in memory that the runtime knows.
std::vector<Conflict> use(Shadow& memory, const VectorClock& clock, const std::shared_ptr<const User>& user,
                          const Accesses& accesses) {
  std::vector<Conflict> conflicts;
  for (const Access& access : accesses) {
    if (find_range(reinterpret_cast<const void*>(access.begin)).space == Space::kPageable) continue;
    for (Conflict& each : memory.use(access.begin, access.end, {user, access.is_write, access.argument}, clock)) {
      conflicts.push_back(std::move(each));
    }
  }
  return conflicts;
}

void act(size_t agent, const std::string& task, const std::string& where, const Accesses& accesses) {
  std::vector<Conflict> conflicts;
  {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    VectorClock& clock = all.clocks[agent];
    if (agent != kHost) clock.merge(all.clocks[kHost]);
    clock.reach(agent, clock.of(agent) + 1);
    if (!is_on(Check::kRace)) return;
    const auto user = std::make_shared<const User>(agent, clock.of(agent), task, where);
    conflicts = use(all.memory, clock, user, accesses);
  }
  for (const Conflict& each : conflicts) report_conflict(each, "");
}

// Where the caller is, for the reports: `memory` alone needs only the order of the agents' work.
std::string where() { return is_on(Check::kRace) ? call_site() : ""; }

VectorClock clock_of(const Recording& recording) {
  return recording.notes == nullptr ? VectorClock() : *static_cast<const VectorClock*>(recording.notes.get());
}

struct RaceObserver final : Observer {
  void on_queue(const Stream& stream, const char* name, const Accesses& accesses, Task&) override {
    if (!accesses.empty()) act(agent_of(stream), name, where(), accesses);
  }

  void on_replay(const Stream& stream, std::span<const CapturedTask> tasks, TaskEnds&) override {
    if (is_running(stream.handle)) return;
    const std::string from = where();
    for (const CapturedTask& task : tasks) {
      if (!task.accesses.empty()) act(agent_of(stream), "captured graph: " + task.name, from, task.accesses);
    }
  }

  void on_capture(const Stream& stream, const CapturedTask& task, const std::map<int32_t, size_t>& known,
                  Notes& graph) override {
    if (!is_on(Check::kRace)) return;
    VectorClock clock;
    for (const auto& [earlier, nodes] : known) clock.reach(agent_of(earlier), nodes);
    const size_t agent = agent_of(stream);
    const auto user = std::make_shared<const User>(agent, clock.of(agent), task.name, where());
    std::vector<Conflict> conflicts;
    {
      const std::lock_guard lock(state().mutex);
      if (graph == nullptr) graph = std::make_shared<Shadow>();  // of the memory that its nodes use
      conflicts = use(*static_cast<Shadow*>(graph.get()), clock, user, task.accesses);
    }
    for (const Conflict& each : conflicts) report_conflict(each, ", in every replay of a graph");
  }

  void on_host_access(const char* function, const Accesses& accesses, Scope&) override {
    act(kHost, function, where(), accesses);
  }

  void on_event_recorded(const Stream& stream, Recording& recording) override {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    VectorClock clock = all.clocks[agent_of(stream)];
    clock.merge(all.clocks[kHost]);
    recording.notes = std::make_shared<VectorClock>(std::move(clock));
  }

  void on_event_waited(const Stream* stream, const Recording& recording) override {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    all.clocks[stream == nullptr ? kHost : agent_of(*stream)].merge(clock_of(recording));
  }

  void on_stream_waited(const Stream& stream) override {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    all.clocks[kHost].merge(all.clocks[agent_of(stream)]);
  }

  // The next use of these addresses is unrelated to their earlier ones.
  void on_range_removed(const void* address, size_t size) override {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    const auto begin = reinterpret_cast<uintptr_t>(address);
    all.memory.forget(begin, begin + size);
  }
} race_observer;

}  // namespace

uint64_t time_of(size_t agent) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  return all.clocks[agent].of(agent);
}

bool knows(size_t agent, size_t other, uint64_t time) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  return std::max(all.clocks[agent].of(other), all.clocks[kHost].of(other)) >= time;
}

}  // namespace cann_cpu::race

cann_cpu::Observer& cann_cpu::races = race::race_observer;
