// SPDX-License-Identifier: Apache-2.0
// Launches: every block of a kernel runs once, in one of the pool's threads, with a unified buffer of its own.
#include "ascendc/launch.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ascendc/block.h"
#include "checker.h"
#include "memory.h"
#include "pool.h"
#include "running_block.h"
#include "team.h"

namespace AscendC::cpu {

constinit thread_local Block* current_block = nullptr;

namespace {

constinit thread_local uint64_t tiling_key = 0;

// An instruction may read the whole of a repeat of which the last lanes are masked.
struct alignas(kBlockBytes) UnifiedBuffer {
  std::byte bytes[kUnifiedBufferBytes + kRepeatBytes];
};

std::byte* unified_buffer() {
  thread_local const auto memory = std::make_unique_for_overwrite<UnifiedBuffer>();
  return memory->bytes;
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

using Body = void (*)(const void* context);
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
  Profile* profile;
  DeviceMemory memory = {};
  std::mutex of_profile = {};

  void add_profile(const Checker& checker, uint64_t buffer_bytes) {
    if (profile == nullptr) return;
    const std::lock_guard lock(of_profile);
    checker.add_to(*profile, buffer_bytes);
  }
};

// Runs one block; what it did to device memory, if it is checked.
DeviceUses run_block(const Block& start, Team& team, Body body, const void* context, Checking* checking) {
  RunningBlock block(start, team);
  std::optional<Checker> checker;
  if (checking != nullptr) {
    block.checker = &checker.emplace(block.index, block.unified_buffer, checking->memory, checking->auto_sync);
  }
  const Running running(block);
  body(context);
  if (!checker) return {};
  checker->finish();
  check_all_freed(block);
  checking->add_profile(*checker, block.bytes_used);
  return checker->device_uses();
}

}  // namespace

bool checks_by_default() { return is_set("ASCENDC_CPU_CHECKS", "1"); }

void run(const Launch& launch, Body body, const void* context) {
  if (current_block != nullptr) throw KernelError(std::string(launch.kernel) + " was launched inside a kernel");
  std::optional<Checking> checking;
  if (launch.checks == Checks::On || (launch.checks == Checks::AsTheEnvironmentSays && checks_by_default())) {
    checking.emplace(chosen(launch.auto_sync), launch.profile);
    if (launch.profile != nullptr) *launch.profile = {};
  }
  std::vector<DeviceUses> of_blocks(checking ? launch.blocks : 0);
  const uint64_t key = tiling_key;
  Team team(launch.blocks);
  run_in_parallel(launch.blocks, [&](uint32_t index) {
    const Block block{launch.kernel, index, launch.blocks, key, unified_buffer(), nullptr};
    try {
      DeviceUses uses = run_block(block, team, body, context, checking ? &*checking : nullptr);
      if (checking) of_blocks[index] = std::move(uses);
      team.end(index);
    } catch (const Abandoned&) {
      team.end(index);
    } catch (...) {
      team.give_up();
      throw;
    }
  });
  DeviceUses all;
  for (const DeviceUses& uses : of_blocks) all.insert(all.end(), uses.begin(), uses.end());
  if (!checking) return;
  std::vector<std::pair<uintptr_t, uintptr_t>> writes;
  for (const DeviceUse& use : all) {
    if (use.use == Use::Write) writes.emplace_back(use.begin, use.end);
  }
  checking->memory.count_written(std::move(writes));
  check_blocks_apart(launch.kernel, std::move(all), team, checking->memory);
}

namespace {

// In one line what crashed; the process is of no more use.
void report_crash(int signal) {
  static std::atomic_flag reported;
  if (reported.test_and_set()) pause();  // the other blocks crash, too
  const Block* block = current_block;
  if (block == nullptr) _exit(128 + signal);
  const Where last = block->checker != nullptr ? block->checker->last() : Where{};
  dprintf(STDERR_FILENO, "%s, block %u: crashed (%s)", block->kernel, block->index, strsignal(signal));
  if (last.line() != 0) dprintf(STDERR_FILENO, " behind line %u of %s", last.line(), last.file_name());
  dprintf(STDERR_FILENO, "\n");
  _exit(128 + signal);
}

}  // namespace

extern "C" ASCENDC_CPU_EXPORT void ascendc_cpu_report_crashes() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, report_crash);
}

void set_tiling_key(uint64_t key) { tiling_key = key; }

void fail(Where where, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  std::string message = std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": ";
  if (current_block != nullptr) {
    message += std::string(current_block->kernel) + ", block " + std::to_string(current_block->index) + ": ";
  }
  throw KernelError(message + text);
}

}  // namespace AscendC::cpu
