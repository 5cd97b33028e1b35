// Launches: every block of a kernel runs once, in one of the pool's threads, with a unified buffer of its own.
#include "ascendc/launch.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "ascendc/block.h"
#include "pool.h"
#include "running_block.h"

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
  ~Running() { current_block = outer_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Block* outer_;
};

}  // namespace

void run(const Launch& launch, void (*body)(const void* context), const void* context) {
  if (current_block != nullptr) throw KernelError(std::string(launch.kernel) + " was launched inside a kernel");
  const uint64_t key = tiling_key;
  run_in_parallel(launch.blocks, [&](uint32_t index) {
    RunningBlock block;
    static_cast<Block&>(block) = {launch.kernel, index, launch.blocks, key, unified_buffer(), nullptr};
    const Running running(block);
    body(context);
  });
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
