// SPDX-License-Identifier: Apache-2.0
// Launches kernels: every block runs once on each of its cores, each in one of the pool's threads, with separate
// memories.
#include "ascendc/launch.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ascendc/block.h"
#include "ascendc/cores.h"
#include "cann_cpu/named_crash.h"
#include "cann_cpu/soc.h"
#include "checker.h"
#include "fiber.h"
#include "memory.h"
#include "report.h"
#include "running_block.h"
#include "team.h"

namespace AscendC::cpu {

constinit thread_local Block* current_block [[gnu::tls_model("initial-exec")]] = nullptr;

namespace {

constinit thread_local uint64_t tiling_key = 0;

using Body = void (*)(const void* context);

// Ends a launch that was begun with other cores than the kernel is for; nothing where its type has to be found.
struct OtherType {
  std::optional<KernelMetaType> type;
};

// The types that kernels have shown, by name, by the function of their library that calls them, and by tiling key.
std::mutex types_mutex;
using Shown = std::map<std::tuple<std::string, Body, uint64_t>, KernelMetaType>;
Shown& types() {
  static auto& shown = *new Shown;
  return shown;
}
std::atomic<bool> any_types = false;

KernelType type_of(const char* kernel, Body body, uint64_t key) {
  if (!any_types.load(std::memory_order_acquire)) return {KERNEL_TYPE_AIV_ONLY, false};
  const std::lock_guard lock(types_mutex);
  const auto found = types().find({kernel, body, key});
  return found == types().end() ? KernelType{KERNEL_TYPE_AIV_ONLY, false} : KernelType{found->second, true};
}

void remember_type(const char* kernel, Body body, uint64_t key, KernelMetaType type) {
  const std::lock_guard lock(types_mutex);
  types()[{kernel, body, key}] = type;
  any_types.store(true, std::memory_order_release);
}

// Makes a block the one that runs in this thread.
class Running {
 public:
  explicit Running(Block& block) : outer_(current_block) { current_block = &block; }
  ~Running() {
    finish_stores();
    current_block = outer_;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Block* outer_;
};

void check_all_freed(const RunningBlock& block) {
  for (const auto& buffers : block.buffers) {
    for (const Buffer& buffer : buffers) {
      if (buffer.state == Buffer::State::Free) continue;
      fail(buffer.taken, "AllocTensor: the tensor of %s was not given back when the kernel ended; call FreeTensor",
           name_of(buffer).c_str());
    }
  }
}

using DeviceUses = std::vector<DeviceUse>;

bool is_set(const char* variable, const char* value) {
  const char* found = std::getenv(variable);
  return found != nullptr && std::strcmp(found, value) == 0;
}

AutoSync chosen(AutoSync of_launch) {
  if (of_launch != AutoSync::AsTheEnvironmentSays) return of_launch;
  if (is_set("ASCENDC_CPU_AUTO_SYNC", "0")) return AutoSync::Off;
  return is_set("ASCENDC_CPU_AUTO_SYNC", "1") ? AutoSync::On : AutoSync::Vector;
}

// What a launch is checked with, if it is.
struct Checking {
  AutoSync auto_sync;
  DeviceMemory memory = {};
  std::vector<Recorder> recorders = {};         // of all cores, if the launch is profiled
  std::atomic<uint64_t> most_buffer_bytes = 0;  // of the unified buffer, that a core has taken
};

// Runs one block; what it did to device memory, if it is checked.
DeviceUses run_block(const Block& start, Team& team, Body body, const void* context, Checking* checking) {
  RunningBlock block(start, team);
  std::unique_ptr<Checker> checker;
  if (checking != nullptr) {
    Recorder* recorder = checking->recorders.empty() ? nullptr : &checking->recorders[block.core.number];
    checker = std::make_unique<Checker>(block, checking->memory, checking->auto_sync, recorder);
    block.checker = checker.get();
  }
  const Running running(block);
  body(context);
  if (!checker) return {};
  checker->finish();
  check_all_freed(block);
  uint64_t most = checking->most_buffer_bytes;
  while (most < block.bytes_used && !checking->most_buffer_bytes.compare_exchange_weak(most, block.bytes_used)) {
  }
  return checker->device_uses();
}

}  // namespace

// A profile is generated from the checks' records.
bool checks_by_default() { return is_set("ASCENDC_CPU_CHECKS", "1") || profile_folder() != nullptr; }

namespace {

void run_as(const KernelType& type, const Launch& launch, Body body, const void* context) {
  std::optional<Checking> checking;
  if (launch.checks == Checks::On || (launch.checks == Checks::AsTheEnvironmentSays && checks_by_default())) {
    checking.emplace(chosen(launch.auto_sync));
  }
  const bool is_profiled = checking && (launch.profile != nullptr || profile_folder() != nullptr);
  const uint64_t key = tiling_key;
  const KnownMemory* const known = known_memory();
  Team team(type, launch.blocks);
  for (uint32_t core = 0; is_profiled && core < team.cores(); ++core) {
    checking->recorders.emplace_back(team.core(core).cube, checking->memory);
  }
  std::vector<DeviceUses> of_cores(checking ? team.cores() : 0);
  const auto run_core = [&](uint32_t number) {
    const Core& core = team.core(number);
    const Block block{
        launch.kernel,   core,   type, launch.blocks, key, Fiber::current()->memories(), cann_cpu::soc(), known,
        launch.contexts, nullptr};
    try {
      DeviceUses uses = run_block(block, team, body, context, checking ? &*checking : nullptr);
      if (checking) of_cores[number] = std::move(uses);
      team.end(core);
    } catch (const Abandoned&) {
      team.end(core);
    } catch (...) {
      team.give_up();
      throw;
    }
  };
  try {
    team.run(run_core);
    team.end_servers(launch.kernel);
  } catch (const OtherType&) {
    throw;
  } catch (const std::exception& e) {
    team.give_up_servers(launch.contexts, e.what());
    throw;
  }
  if (!checking) return;
  team.check_all_waited(launch.kernel);
  DeviceUses all;
  for (DeviceUses& uses : of_cores) std::ranges::move(uses, std::back_inserter(all));
  std::vector<std::pair<uintptr_t, uintptr_t>> writes;
  for (const DeviceUse& use : all) {
    if (use.use == Use::Write) writes.emplace_back(use.begin, use.end);
  }
  checking->memory.count_written(std::move(writes));
  check_cores_apart(launch.kernel, all, team, checking->memory);
  if (!is_profiled) return;
  write_profile({launch.kernel, launch.blocks, checking->most_buffer_bytes, team, checking->recorders}, launch.profile);
}

// Runs the kernel on a cube core until it does what only a cube core or a mixed kernel does. Before that it writes no
// device memory, since copies of vectors do nothing there.
KernelMetaType tried_type(const Launch& launch, Body body, const void* context) {
  const KernelType type{KERNEL_TYPE_AIC_ONLY, false, false, true};
  Team team(type, 1);
  const uint64_t key = tiling_key;
  const auto run_core = [&](uint32_t number) {
    const Block block{
        launch.kernel, team.core(number), type,   launch.blocks, key, Fiber::current()->memories(), cann_cpu::soc(),
        nullptr,       launch.contexts,   nullptr};
    run_block(block, team, body, context, nullptr);
  };
  try {
    team.run(run_core);
  } catch (const OtherType& other) {
    return *other.type;
  } catch (const KernelError&) {
  }
  return KERNEL_TYPE_AIV_ONLY;
}

// In one line what crashed, of the first block that does.
void say_crash(int signal) {
  static std::atomic_flag reported;
  thread_local bool is_mine = false;
  const Block* block = current_block;
  if (block == nullptr || is_mine) return;
  if (reported.test_and_set()) pause();  // other blocks crash as well
  is_mine = true;
  const Where last = block->checker != nullptr ? block->checker->last() : Where{};
  dprintf(STDERR_FILENO, "%s, block %u: crashed (%s)", block->kernel, block->core.block, strsignal(signal));
  if (last.line() != 0) dprintf(STDERR_FILENO, " after line %u of %s", last.line(), last.file_name());
  dprintf(STDERR_FILENO, "\n");
}

}  // namespace

void run(const Launch& launch, Body body, const void* context) {
  if (current_block != nullptr) throw KernelError(std::string(launch.kernel) + " was launched inside a kernel");
  [[maybe_unused]] static const bool named = (cann_cpu::name_crashes(say_crash), true);
  const cann_cpu::Architecture& architecture = cann_cpu::soc().architecture();
  if (launch.npu_arch != architecture.number) {
    throw KernelError(std::string(launch.kernel) + " was compiled for dav-" + std::to_string(launch.npu_arch) +
                      ", and this is " + cann_cpu::soc().name + ", of dav-" + std::to_string(architecture.number) +
                      " (" + cann_cpu::soc_reason() + "): set CANN_CPU_SOC=" + cann_cpu::soc_of(launch.npu_arch).name +
                      ", or compile it for this chip");
  }
  KernelType type =
      architecture.fused ? KernelType{KERNEL_TYPE_AICORE, true} : type_of(launch.kernel, body, tiling_key);
  while (true) {
    try {
      return run_as(type, launch, body, context);
    } catch (const OtherType& other) {
      type = {other.type ? *other.type : tried_type(launch, body, context), true};
      remember_type(launch.kernel, body, tiling_key, type.name);
    }
  }
}

void declare_type(Where where, KernelMetaType type) {
  Block& block = cpu::block(where);
  const CoresOf cores = cores_of(type);
  if (block.type.fused() && cores.cube + cores.vectors > 1) {
    fail(where, "KERNEL_TASK_TYPE: a block of several cores; a core of %s has the matrix and the vector unit",
         block.chip.name);
  }
  if (!block.type.fused() && type >= KERNEL_TYPE_AICORE) {
    fail(where, "KERNEL_TASK_TYPE: a type of chips whose cores have both units, which %s does not have",
         block.chip.name);
  }
  if (block.type.fused()) return;
  if (block.type.name != type || block.type.tried) {
    if (block.type.declared)
      fail(where, "KERNEL_TASK_TYPE: the kernel declared another type before; declare one of them");
    throw OtherType{type};
  }
  block.type.known = block.type.declared = true;
}

void find_type() { throw OtherType{}; }

void is_mixed() { throw OtherType{KERNEL_TYPE_MIX_AIC_1_2}; }

namespace {

// The process cannot continue.
void report_crash(int signal) {
  say_crash(signal);
  _exit(128 + signal);
}

}  // namespace

extern "C" ASCENDC_CPU_EXPORT void ascendc_cpu_report_crashes() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, report_crash);
}

void set_tiling_key(uint64_t key) { tiling_key = key; }

namespace {

std::string message_of(Where where, const char* format, va_list arguments) {
  char text[1024];
  vsnprintf(text, sizeof(text), format, arguments);
  std::string message = std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": ";
  if (current_block != nullptr) {
    message += std::string(current_block->kernel) + ", " + name_of(current_block->core, current_block->type) + ": ";
  }
  return message + text;
}

}  // namespace

void fail(Where where, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const std::string message = message_of(where, format, arguments);
  va_end(arguments);
  throw KernelError(message);
}

void warn(Where where, const char* format, ...) {
  static std::mutex mutex;
  static auto& said = *new std::set<std::pair<std::string, uint32_t>>;
  const std::lock_guard lock(mutex);
  if (!said.emplace(where.file_name(), where.line()).second) return;
  va_list arguments;
  va_start(arguments, format);
  std::fprintf(stderr, "warning: %s\n", message_of(where, format, arguments).c_str());
  va_end(arguments);
}

}  // namespace AscendC::cpu
