// SPDX-License-Identifier: Apache-2.0
#include "tasks.h"

#include <algorithm>
#include <array>

#include "findings.h"
#include "protection_keys.h"
#include "runtime/checks/call_site.h"
#include "runtime/checks/observers.h"
#include "runtime/stream.h"

namespace cann_cpu::memory {
namespace {

struct Launch {
  std::string task;
  std::string where;
  int32_t stream;
  Accesses accesses;
  uint64_t number;
};

// What a thread runs now, and what that is part of.
struct Running {
  const Launch* launch;
  const Running* outer;

  const Launch& root() const { return outer == nullptr ? *launch : outer->root(); }
};
thread_local const Running* current = nullptr;

// The tasks that run now, in all threads.
struct Tasks {
  std::mutex mutex;
  std::vector<const Running*> running;
};

Tasks& tasks() {
  static auto* const only = new Tasks;
  return *only;
}

std::string describe(const Running& running) {
  const Launch& launch = *running.launch;
  if (running.outer == nullptr) {
    const std::string on = launch.stream < 0 ? "" : " on stream " + std::to_string(launch.stream);
    return launch.task + on + (launch.where.empty() ? "" : ", launched at " + launch.where);
  }
  const std::string captured = launch.where.empty() ? "" : " (captured at " + launch.where + ")";
  return launch.task + captured + " in " + describe(*running.outer);
}

std::string argument_of(const Access& access) {
  return access.argument == 0 ? "" : " its argument " + std::to_string(access.argument);
}

// Whether the buffer was freed before the task was launched. A tensor that is freed later still has its memory while
// the task runs.
bool is_gone(const Buffer& buffer, const Running& running) {
  return buffer.is_released || (buffer.freed_at > 0 && running.root().number > buffer.freed_at);
}

// Whether the task reads its first argument before it writes it. Other tasks that write in place ignore its old
// contents, or use only a part of them.
bool reads_what_it_writes(std::string_view task) {
  constexpr std::array kNames = {"aclnnInplaceAdd",
                                 "aclnnInplaceAdds",
                                 "aclnnInplaceAddcdiv",
                                 "aclnnInplaceAddcmul",
                                 "aclnnInplaceAddmm",
                                 "aclnnInplaceDiv",
                                 "aclnnInplaceDivs",
                                 "aclnnInplaceExp",
                                 "aclnnInplaceLerp",
                                 "aclnnInplaceLerps",
                                 "aclnnInplaceMul",
                                 "aclnnInplaceMuls",
                                 "aclnnInplacePowTensorScalar",
                                 "aclnnInplaceRelu",
                                 "aclnnInplaceRsqrt",
                                 "aclnnInplaceSigmoid",
                                 "aclnnInplaceSqrt",
                                 "aclnnInplaceSub",
                                 "aclnnInplaceSubs",
                                 "aclnnInplaceTanh"};
  return std::ranges::find(kNames, task) != kNames.end();
}

// Whether the task only copies its input to other device memory. Copying uninitialized memory is not an error.
bool is_copy(std::string_view task) {
  constexpr std::array kNames = {"aclnnInplaceCopy", "aclnnCast",        "aclnnCat",         "aclnnConstantPadNd",
                                 "aclrtMemcpy",      "aclrtMemcpyAsync", "aclrtMemcpyBatch", "aclrtMemcpyBatchAsync"};
  return std::ranges::find(kNames, task) != kNames.end();
}

// PyTorch's computing on the CPU what torch_npu does not have: it copies an operator's results to the host as well as
// its arguments, before they are computed.
bool is_fallback() { return is_within("_ZN2at6native12cpu_fallbackE"); }

// torchair's, which computes with empty tensors, only to learn the shapes of what a backward graph gives.
bool is_for_its_shape(const Buffer& buffer) {
  return buffer.where.find("/torchair/_ge_concrete_graph/infer_symbol_shape.py") != std::string::npos;
}

bool is_device(const Access& access) { return guarded::contains(access.begin); }

// Checks the accesses before the task runs. Returns false if it only copies uninitialized memory.
bool check_before(const Running& running) {
  const Launch& launch = *running.launch;
  const auto has = [&](bool writes) {
    return std::ranges::any_of(launch.accesses, [=](const Access& a) { return a.is_write == writes && is_device(a); });
  };
  const bool carries = is_copy(launch.task) && has(true) && has(false);  // data from the host is initialized
  bool has_written = !carries;
  for (const Access& access : launch.accesses) {
    if (!is_device(access)) continue;
    const bool reads = !access.is_write || (access.argument == 1 && reads_what_it_writes(launch.task));
    const char* verb = access.is_write ? " writes" : " reads";
    Buffer known;
    bool is_unwritten = false, is_in_front = false;
    {
      const std::lock_guard lock(buffers().mutex);
      Buffer* found = buffers().find(access.begin);
      if (found == nullptr) std::tie(found, is_in_front) = buffers().find_nearest(access.begin);
      if (found == nullptr) continue;
      if (!is_gone(*found, running) && access.begin >= found->begin() && access.end <= found->end()) {
        buffers().open(*found);
        is_unwritten = reads && !found->written.meets(access.begin, access.end);
        if (!is_unwritten) {
          has_written |= reads;
          continue;
        }
      }
      known = *found;
    }
    const std::string task = describe(running);
    if (is_gone(known, running)) {
      report_use_after_free(known, task);
    } else if (is_unwritten) {
      const bool is_poison =
          access.begin < access.end && guarded::first_written(access.begin, access.end) == access.end;
      if (is_poison && !carries && !is_for_its_shape(known) && !is_fallback()) {
        report_finding("use of uninitialized memory",
                       "all of" + argument_of(access) + ", " + std::to_string(access.end - access.begin) + " bytes",
                       describe(known), task,
                       "Fill it first (torch.zeros instead of torch.empty), or wait for what fills it.");
      }
      has_written |= !is_poison;
    } else {
      const bool in_front = is_in_front || access.begin < known.begin();
      const uintptr_t first = in_front ? access.begin : std::max(access.begin, known.end());
      const uintptr_t last = (in_front ? std::min(access.end, known.begin()) : access.end) - 1;
      report_finding(kOutOfBounds,
                     (task.substr(0, task.find(' ')) + verb) + argument_of(access) + ": " + beside(known, first, last),
                     describe(known), task, kBoundsAdvice);
    }
  }
  return has_written;
}

void check_behind(const Running& running, bool has_written) {
  const Launch& launch = *running.launch;
  for (const Access& access : launch.accesses) {
    const bool is_of_unknown_extent = access.begin == access.end;  // a launched kernel's access may also be a write
    if ((!access.is_write && !is_of_unknown_extent) || !is_device(access)) continue;
    Buffer around;
    {
      const std::lock_guard lock(buffers().mutex);
      Buffer* const found = buffers().find(access.begin);
      if (found == nullptr || is_gone(*found, running)) continue;
      if (access.is_write && is_of_unknown_extent) {
        found->written.add(found->begin(), found->end());
      } else if (access.is_write && has_written) {
        found->written.add(access.begin, access.end);
      }
      buffers().open(*found);
      around.block = found->block;
      around.size = found->size;
    }
    if (const auto found = written_around(around)) {
      const std::string what = "written: " + beside(around, found->first, found->second);
      std::string buffer;
      {
        const std::lock_guard lock(buffers().mutex);
        if (const Buffer* const again = buffers().find(access.begin)) buffer = describe(*again);
      }
      report_finding(kOutOfBounds, what, buffer, describe(running), kBoundsAdvice);
    }
  }
}

// A task that runs, or a call of the host's that does the work of one.
class Checked {
 public:
  explicit Checked(const Launch& launch) : running_{&launch, current} {
    ++buffers().touching;
    current = &running_;
    {
      const std::lock_guard lock(tasks().mutex);
      tasks().running.push_back(&running_);
    }
    has_written_ = check_before(running_);
  }

  ~Checked() {
    check_behind(running_, has_written_);
    {
      const std::lock_guard lock(tasks().mutex);
      std::erase(tasks().running, &running_);
    }
    current = running_.outer;
    --buffers().touching;
  }

  Checked(const Checked&) = delete;

 private:
  const protection_keys::ThreadAccess access_{true};
  Running running_;
  bool has_written_;
};

// The thread may touch device memory: the runtime's own copies do.
class HostAccess {
 public:
  HostAccess(const char* function, const Accesses& accesses)
      : launch_{function, call_site(), -1, accesses, ++buffers().launches} {
    ++host_accesses;
    checked_.emplace(launch_);
  }
  ~HostAccess() {
    checked_.reset();
    --host_accesses;
    close();
  }
  HostAccess(const HostAccess&) = delete;

 private:
  const Launch launch_;
  std::optional<Checked> checked_;
};

// A stream's thread calls a function of the host's, and may not touch device memory meanwhile.
struct HostCall {
  HostCall() { is_in_host_function = true; }
  ~HostCall() { is_in_host_function = false; }
  HostCall(const HostCall&) = delete;
  const protection_keys::ThreadAccess access{false};
};

struct MemoryObserver final : Observer {
  void on_task(const Stream& stream, const char* name, const Accesses& accesses, Task& task) override {
    const std::string where = is_worker() ? "" : call_site();
    auto launch = std::make_shared<const Launch>(name, where, stream.id, accesses, ++buffers().launches);
    task = [launch = std::move(launch), task = std::move(task)] {
      const Checked checked(*launch);
      return task();
    };
  }

  void on_queue(const Stream& stream, const char*, const Accesses& accesses, Task&) override { used(stream, accesses); }

  void on_replay(const Stream& stream, std::span<const CapturedTask> tasks, TaskEnds&) override {
    if (is_running(stream.handle)) return;
    for (const CapturedTask& task : tasks) used(stream, task.accesses);
  }

  void on_graph_destroyed(const void* graph) override { graph_destroyed(graph); }

  void on_host_access(const char* function, const Accesses& accesses, Scope& scope) override {
    scope.push_back(std::make_shared<HostAccess>(function, accesses));
  }

  void on_host_function(const Stream&, bool is_kernel, Scope& scope) override {
    if (!is_kernel) scope.push_back(std::make_shared<HostCall>());
  }

  void on_idle() override { close(); }
} memory_observer;

}  // namespace

std::string running_task() {
  if (current != nullptr) return describe(*current);
  const std::lock_guard lock(tasks().mutex);
  const auto& all = tasks().running;
  if (!all.empty() && &all.front()->root() == &all.back()->root()) return describe(*all.back());
  return "one of the tasks that run now";
}

}  // namespace cann_cpu::memory

cann_cpu::Observer& cann_cpu::memory_uses = memory::memory_observer;
