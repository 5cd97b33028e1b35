// SPDX-License-Identifier: Apache-2.0
#include "timeline.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace AscendC::cpu {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The lines that L2 holds, the one that was used longest ago being given up first.
class Cache {
 public:
  explicit Cache(uint64_t lines) : limit_(std::max<uint64_t>(lines, 1)) {}

  // How many of the lines were not there. They are afterwards.
  uint64_t miss(const DeviceRuns& runs) {
    uint64_t missed = 0;
    for (int64_t run = 0; run < runs.count; ++run) {
      const int64_t begin = runs.offset + run * runs.step, end = begin + runs.bytes;
      for (int64_t line = begin / kL2LineBytes; line * int64_t{kL2LineBytes} < end; ++line) {
        missed += touch(runs.buffer * kMixed + static_cast<uint64_t>(line)) ? 0 : 1;
      }
    }
    return missed;
  }

 private:
  static constexpr uint64_t kMixed = 0x9e3779b97f4a7c15;  // lets the lines of different buffers lie apart
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Line {
    uint64_t key;
    uint32_t older, newer;
  };

  bool touch(uint64_t key) {
    const auto [found, is_new] = places_.try_emplace(key, 0);
    uint32_t place = found->second;
    if (!is_new) {
      if (place == newest_) return true;
      unlink(place);
    } else if (lines_.size() < limit_) {
      place = found->second = static_cast<uint32_t>(lines_.size());
      lines_.push_back({key, kNone, kNone});
    } else {
      place = found->second = oldest_;
      unlink(place);
      places_.erase(lines_[place].key);
      lines_[place].key = key;
    }
    lines_[place].older = newest_;
    lines_[place].newer = kNone;
    (newest_ != kNone ? lines_[newest_].newer : oldest_) = place;
    newest_ = place;
    return !is_new;
  }

  void unlink(uint32_t place) {
    const Line& line = lines_[place];
    (line.older != kNone ? lines_[line.older].newer : oldest_) = line.newer;
    (line.newer != kNone ? lines_[line.newer].older : newest_) = line.older;
  }

  const uint64_t limit_;
  std::unordered_map<uint64_t, uint32_t> places_;
  std::vector<Line> lines_;
  uint32_t oldest_ = kNone, newest_ = kNone;
};

// Copies at work that share a bandwidth. All get the same rate of it, but no more than their path has; so of the
// copies of one path that which has least bytes left ends first.
class Bandwidth {
 public:
  explicit Bandwidth(double bytes_per_cycle) : limit_(bytes_per_cycle) {}

  struct Copy {
    uint32_t core;
    pipe_t pipe;
  };

  void begin(Path path, double bytes, Copy copy) {
    Group& group = groups_[static_cast<size_t>(path)];
    group.copies.push({group.done + bytes, number_++, copy});
    divide();
  }

  // The time until the next one ends.
  double until_next() const {
    double least = kNever;
    for (const Group& group : groups_) {
      if (!group.copies.empty()) least = std::min(least, left(group));
    }
    return least;
  }

  void pass(double cycles) {
    for (Group& group : groups_) {
      if (!group.copies.empty()) group.done += group.rate * cycles;
    }
  }

  // Takes away the one that ends next.
  Copy end_next() {
    Group* next = nullptr;
    for (Group& group : groups_) {
      if (!group.copies.empty() && (next == nullptr || left(group) < left(*next))) next = &group;
    }
    const Copy ended = next->copies.top().copy;
    next->done = next->copies.top().end;
    next->copies.pop();
    divide();
    return ended;
  }

 private:
  struct Waiting {
    double end;  // of what its group has done
    uint64_t number;
    Copy copy;
    bool operator<(const Waiting& other) const { return std::tie(other.end, other.number) < std::tie(end, number); }
  };
  struct Group {
    double rate = 0, done = 0;  // bytes a cycle of each, and that each has copied that was there all the time
    std::priority_queue<Waiting> copies;
  };

  static double left(const Group& group) { return std::max(0.0, group.copies.top().end - group.done) / group.rate; }

  void divide() {
    std::array<size_t, kDevicePaths> order;
    size_t copies = 0;
    for (size_t i = 0; i < kDevicePaths; ++i) order[i] = i, copies += groups_[i].copies.size();
    const auto limit = [](size_t i) { return cost_of(static_cast<Path>(i)).bytes_per_cycle; };
    std::ranges::stable_sort(order, {}, limit);
    double left = limit_;
    for (const size_t i : order) {
      Group& group = groups_[i];
      if (group.copies.empty()) continue;
      group.rate = std::min(limit(i), left / static_cast<double>(copies));
      left -= group.rate * static_cast<double>(group.copies.size());
      copies -= group.copies.size();
    }
  }

  const double limit_;
  uint64_t number_ = 0;
  std::array<Group, kDevicePaths> groups_;
};

class Machine {
 public:
  Machine(const std::vector<Recorder>& programs, const std::vector<Core>& cores, const cann_cpu::Soc& soc)
      : programs_(programs),
        cores_(cores),
        cache_(static_cast<uint64_t>(soc.l2_bytes) / kL2LineBytes),
        bandwidths_{Bandwidth(device_memory_rate(soc) * kReachedOfDeviceMemory), Bandwidth(l2_rate(soc))},
        states_(cores.size()) {
    for (const Recorder& program : programs) timeline_.operations.emplace_back(program.operations().size());
    for (const Core& core : cores) {
      if (core.block >= running_of_block_.size()) running_of_block_.resize(core.block + 1);
      ++running_of_block_[core.block];
    }
    has_cube_ = std::ranges::any_of(cores, &Core::cube);
    free_ = has_cube_ ? soc.cube_cores : soc.vector_cores;
  }

  Timeline run() {
    while (true) {
      while (free_ > 0 && next_block_ < running_of_block_.size()) begin_block();
      while (step()) {
      }
      if (next_block_ == running_of_block_.size()) break;
      ++free_;  // blocks wait for such as do not run: more than there are cores have to run at the same time
    }
    return std::move(timeline_);
  }

 private:
  enum class What : uint8_t { Begin, Go, Bytes, Free, Ended, CoreEnds };
  struct Event {
    double time;
    uint64_t number;
    What what;
    uint32_t core;
    pipe_t pipe;
    uint32_t epoch;
    bool operator<(const Event& other) const { return std::tie(other.time, other.number) < std::tie(time, number); }
  };
  struct Issued {
    uint32_t step;
    double time;
  };
  struct Queue {
    std::vector<Issued> issued;
    size_t next = 0;
    double awake = kNever;  // when it looks at its next instruction
    double done = 0;        // when all that it has done is there for others
    bool is_busy = false, is_waiting = false;
    uint32_t operation = 0;  // that it works on
    double bytes_left = 0;   // which come out of L2
  };
  struct State {
    size_t next = 0;       // step of the scalar unit
    size_t condition = 0;  // of the message that it waits for
    double time = 0;
    bool has_ended = false;
    std::array<Queue, kPipes> queues;
    std::array<uint32_t, kPipes> ended = {};                               // epochs
    std::array<std::vector<std::pair<uint32_t, pipe_t>>, kPipes> waiting;  // cores and pipes, for the end of one
  };

  void schedule(double time, What what, uint32_t core, pipe_t pipe, uint32_t epoch = 0) {
    events_.push({time, number_++, what, core, pipe, epoch});
  }

  void begin_block() {
    const size_t block = next_block_++;
    const double begin = std::max(now_, begins_);
    --free_;
    for (const Core& core : cores_) {
      if (core.block != block) continue;
      schedule(begin, What::Begin, core.number, PIPE_S);
    }
    begins_ = begin + kBeginCycles;
  }

  // What happens next; false if nothing does.
  bool step() {
    const double event = events_.empty() ? kNever : events_.top().time;
    double end = kNever;
    Bandwidth* ends = nullptr;
    for (Bandwidth& bandwidth : bandwidths_) {
      const double time = now_ + bandwidth.until_next();
      if (time < end) end = time, ends = &bandwidth;
    }
    if (event == kNever && end == kNever) return false;
    const double time = std::min(event, end);
    for (Bandwidth& bandwidth : bandwidths_) bandwidth.pass(time - now_);
    now_ = time;
    if (end <= event) {
      const Bandwidth::Copy copy = ends->end_next();
      go_on_copying(copy.core, copy.pipe);
      return true;
    }
    const Event next = events_.top();
    events_.pop();
    handle(next);
    return true;
  }

  void handle(const Event& event) {
    Queue& queue = states_[event.core].queues[event.pipe];
    switch (event.what) {
      case What::Begin:
        return issue(event.core);
      case What::Go:
        if (queue.awake == event.time) queue.awake = kNever;
        return work(event.core, event.pipe);
      case What::Bytes:
        return begin_copy(event.core, event.pipe);
      case What::Free:
        return end_operation(event.core, event.pipe);
      case What::Ended:
        return end_epoch(event.core, event.pipe, event.epoch);
      case What::CoreEnds:
        timeline_.cycles = std::max(timeline_.cycles, now_);
        if (--running_of_block_[cores_[event.core].block] != 0) return;
        ++free_;
        if (next_block_ < running_of_block_.size()) begin_block();
    }
  }

  // The scalar unit goes through the program as far as it does not have to wait.
  void issue(uint32_t core) {
    State& state = states_[core];
    const Recorder& program = programs_[core];
    state.time = std::max(state.time, now_);
    for (; state.next < program.steps().size(); ++state.next) {
      const Recorder::Step& step = program.steps()[state.next];
      if (step.pipe != PIPE_S) {
        state.time += kIssueCycles;
        timeline_.one_by_one += kIssueCycles;
        state.queues[step.pipe].issued.push_back({static_cast<uint32_t>(state.next), state.time});
        work(core, step.pipe);
        continue;
      }
      switch (step.kind) {
        case Recorder::Step::Kind::Operation: {
          const Cost& cost = program.operations()[step.value].cost;
          const double cycles = cost.start + cost.cycles + cost.latency;
          timeline_.operations[core][step.value] = {state.time, state.time + cycles};
          timeline_.one_by_one += cycles;
          state.time += cycles;
          break;
        }
        case Recorder::Step::Kind::Release:
          schedule(state.time, What::Ended, core, PIPE_S, step.value);
          break;
        case Recorder::Step::Kind::Acquire:
          if (!has_ended(core, step.source, step.value, core, PIPE_S)) return;
          break;
        case Recorder::Step::Kind::Learn:
          if (!has_learned(core, *program.messages()[step.value])) return;
          state.time += kMessageCycles;
          timeline_.one_by_one += kMessageCycles;
          break;
      }
    }
    check_ended(core);
  }

  // Whether an epoch has ended; if not, a pipe is woken when it may have.
  bool has_ended(uint32_t core, pipe_t pipe, uint32_t epoch, uint32_t of_core, pipe_t of_pipe) {
    State& state = states_[core];
    if (state.ended[pipe] >= epoch) return true;
    state.waiting[pipe].emplace_back(of_core, of_pipe);
    return false;
  }

  bool has_learned(uint32_t core, const Knowledge& message) {
    State& state = states_[core];
    for (; state.condition < message.size() * kPipes; ++state.condition) {
      const auto& [other, clock] = message[state.condition / kPipes];
      const auto pipe = static_cast<pipe_t>(state.condition % kPipes);
      if (!has_ended(other, pipe, clock[pipe], core, PIPE_S)) return false;
    }
    state.condition = 0;
    return true;
  }

  // A pipe goes through what has been issued to it.
  void work(uint32_t core, pipe_t pipe) {
    Queue& queue = states_[core].queues[pipe];
    if (queue.is_busy || queue.is_waiting) return;
    const Recorder& program = programs_[core];
    while (queue.next < queue.issued.size()) {
      const Issued& issued = queue.issued[queue.next];
      if (issued.time > now_) {
        if (queue.awake != issued.time) schedule(queue.awake = issued.time, What::Go, core, pipe);
        return;
      }
      const Recorder::Step& step = program.steps()[issued.step];
      switch (step.kind) {
        case Recorder::Step::Kind::Release:
          schedule(std::max(now_, queue.done), What::Ended, core, pipe, step.value);
          break;
        case Recorder::Step::Kind::Acquire:
          if (!has_ended(core, step.source, step.value, core, pipe)) {
            queue.is_waiting = true;
            return;
          }
          break;
        default:
          ++queue.next;
          return begin_operation(core, pipe, step.value);
      }
      ++queue.next;
    }
    if (states_[core].next == program.steps().size()) check_ended(core);
  }

  void begin_operation(uint32_t core, pipe_t pipe, uint32_t number) {
    Queue& queue = states_[core].queues[pipe];
    const Recorder::Operation& operation = programs_[core].operations()[number];
    queue.is_busy = true;
    queue.operation = number;
    timeline_.operations[core][number].begin = now_;
    const bool is_of_device = operation.runs != 0;
    schedule(now_ + operation.cost.start + (is_of_device ? 0 : operation.cost.cycles),
             is_of_device ? What::Bytes : What::Free, core, pipe);
  }

  // First what L2 has not comes out of device memory, then the rest.
  void begin_copy(uint32_t core, pipe_t pipe) {
    Queue& queue = states_[core].queues[pipe];
    const Recorder::Operation& operation = programs_[core].operations()[queue.operation];
    uint64_t missed = 0;
    for (uint32_t run = 0; run < operation.runs; ++run) {
      missed += cache_.miss(programs_[core].runs()[operation.first_run + run]);
    }
    const double from_memory = static_cast<double>(missed * kL2LineBytes), all = static_cast<double>(operation.work);
    timeline_.device_memory_bytes += from_memory;
    timeline_.l2_bytes += all;
    queue.bytes_left = std::max(0.0, all - from_memory);
    if (from_memory == 0) return go_on_copying(core, pipe);
    bandwidths_[0].begin(operation.path, from_memory, {core, pipe});
  }

  void go_on_copying(uint32_t core, pipe_t pipe) {
    Queue& queue = states_[core].queues[pipe];
    if (queue.bytes_left == 0) return end_operation(core, pipe);
    const Path path = programs_[core].operations()[queue.operation].path;
    bandwidths_[1].begin(path, std::exchange(queue.bytes_left, 0), {core, pipe});
  }

  void end_operation(uint32_t core, pipe_t pipe) {
    Queue& queue = states_[core].queues[pipe];
    Span& span = timeline_.operations[core][queue.operation];
    span.end = now_;
    const double latency = programs_[core].operations()[queue.operation].cost.latency;
    timeline_.one_by_one += span.end - span.begin + latency;
    queue.done = std::max(queue.done, now_ + latency);
    queue.is_busy = false;
    work(core, pipe);
  }

  void end_epoch(uint32_t core, pipe_t pipe, uint32_t epoch) {
    State& state = states_[core];
    state.ended[pipe] = std::max(state.ended[pipe], epoch);
    const auto waiting = std::exchange(state.waiting[pipe], {});
    for (const auto& [other, of_pipe] : waiting) {
      if (of_pipe == PIPE_S) {
        issue(other);
      } else {
        states_[other].queues[of_pipe].is_waiting = false;
        work(other, of_pipe);
      }
    }
  }

  void check_ended(uint32_t core) {
    State& state = states_[core];
    if (state.has_ended || state.next != programs_[core].steps().size()) return;
    double end = state.time;
    for (const Queue& queue : state.queues) {
      if (queue.is_busy || queue.next != queue.issued.size()) return;
      end = std::max(end, queue.done);
    }
    state.has_ended = true;
    schedule(std::max(now_, end), What::CoreEnds, core, PIPE_S);
  }

  const std::vector<Recorder>& programs_;
  const std::vector<Core>& cores_;
  Cache cache_;
  std::array<Bandwidth, 2> bandwidths_;  // of device memory, of L2
  std::vector<State> states_;
  std::priority_queue<Event> events_;
  uint64_t number_ = 0;
  double now_ = 0;
  bool has_cube_;
  size_t free_;            // cores of the kind that blocks begin on
  size_t next_block_ = 0;  // that has not begun
  double begins_ = 0;      // the earliest time for it
  std::vector<uint32_t> running_of_block_;
  Timeline timeline_;
};

}  // namespace

double device_memory_rate(const cann_cpu::Soc& soc) { return soc.device_memory_gb_per_second * 1e3 / soc.clock_mhz; }

double l2_rate(const cann_cpu::Soc& soc) { return kL2BytesPerSecond / 1e6 / soc.clock_mhz; }

Timeline timeline_of(const std::vector<Recorder>& programs, const std::vector<Core>& cores, const cann_cpu::Soc& soc) {
  return Machine(programs, cores, soc).run();
}

}  // namespace AscendC::cpu
