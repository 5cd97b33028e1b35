// SPDX-License-Identifier: Apache-2.0
// The block that runs in this thread, its unified buffer, and the checker that follows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "ascendc/launch.h"
#include "ascendc/types.h"

namespace AscendC {

class TPipe;

namespace cpu {

class Checker;

// Ends the launch with an error that names the place in the kernel, the kernel and the block.
[[noreturn]] ASCENDC_CPU_EXPORT void fail(Where where, const char* format, ...) __attribute__((format(printf, 2, 3)));

// A piece of the unified buffer that InitBuffer gave to a queue or a TBuf.
struct Buffer {
  enum class State : uint8_t { Free, Allocated, Queued, Dequeued };

  std::byte* data = nullptr;
  uint32_t bytes = 0;
  uint32_t number = 0;      // of the block's buffers
  uint32_t generation = 0;  // how often it was taken from its queue
  State state = State::Free;
  int8_t event_id = -1;  // of the flag by which one pipe waits for the other to be done with it
  uint8_t event = 0;
  Buffer* next = nullptr;  // in the queue
  Where taken = {};
  Where made = {};  // its InitBuffer
};

// What SetVectorMask has set, for instructions that are called with isSetMask false.
struct MaskRegister {
  bool counter = false;  // then the first number counts elements, and repeats do not matter
  uint64_t bits[2] = {~uint64_t{0}, ~uint64_t{0}};
};

// What copies to device memory do to the elements that are there.
struct Atomic {
  enum class Kind : uint8_t { None, Add, Max, Min };
  using Combine = void (*)(std::byte* to, const std::byte* from, size_t bytes);

  Kind kind = Kind::None;
  uint8_t itemsize = 1;
  Combine combine = nullptr;
  bool operator==(const Atomic&) const = default;
};

struct Block {
  const char* kernel;
  uint32_t index;
  uint32_t count;
  uint64_t tiling_key;
  std::byte* unified_buffer;
  Checker* checker;  // null: the launch is not checked
  TPipe* pipe = nullptr;
  MaskRegister mask = {};
  Atomic atomic = {};
  uint16_t merged[4] = {};              // what MrgSort took of each run
  std::optional<float> deq_scale = {};  // what SetDeqScale has set
};

ASCENDC_CPU_EXPORT extern constinit thread_local Block* current_block;

inline Block& block(Where where) {
  if (current_block == nullptr) fail(where, "a kernel function was called; launch it with ICPU_RUN_KF");
  return *current_block;
}

inline Checker* checker() { return current_block != nullptr ? current_block->checker : nullptr; }

// Bytes of the unified buffer that a tensor stands for.
struct LocalMemory {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  uint32_t generation = 0;
  const Buffer* buffer = nullptr;
  uint32_t itemsize = 1;
};

// Bytes of the device that a tensor stands for.
struct GlobalMemory {
  std::byte* data = nullptr;
  const std::byte* origin =
      nullptr;  // what SetGlobalBuffer was told; everything lies in the device buffer that holds it

  int64_t bytes = INT64_MAX;  // as far as its author knows
  uint64_t elements = 0;      // as SetGlobalBuffer was told
  uint32_t itemsize = 1;
};

enum class Use : uint8_t { Read, Write };

// The whole unified buffer, for tensors that are made of an address in it.
ASCENDC_CPU_EXPORT LocalMemory static_memory(Where where, uint32_t address, int64_t bytes);

// Where the elements of a vector instruction's operand lie: in blocks `block_stride` bytes apart, and the repeats
// `repeat_stride` bytes apart.
struct Operand {
  LocalMemory memory;
  Use use;
  uint32_t itemsize;
  uint32_t block_stride = kBlockBytes;
  uint32_t repeat_stride = kRepeatBytes;
  uint32_t alignment = kBlockBytes;
};

struct Lanes;

// What the checker is told before anything is done.
ASCENDC_CPU_EXPORT void check_vector(const char* name, Where where, const Lanes& lanes,
                                     std::initializer_list<Operand> operands);
ASCENDC_CPU_EXPORT void check_scalar(Checker& checker, const char* name, Where where, Use use,
                                     const LocalMemory& memory, int64_t offset, int64_t bytes);
ASCENDC_CPU_EXPORT void check_local(const char* name, Where where, pipe_t pipe, Use use, const LocalMemory& memory,
                                    int64_t offset, int64_t bytes);
ASCENDC_CPU_EXPORT void check_global(const char* name, Where where, pipe_t pipe, Use use, const GlobalMemory& memory,
                                     int64_t offset, int64_t bytes);

}  // namespace cpu

inline int64_t GetBlockNum(cpu::Where where = cpu::Where::current()) { return cpu::block(where).count; }
inline int64_t GetBlockIdx(cpu::Where where = cpu::Where::current()) { return cpu::block(where).index; }

}  // namespace AscendC

#define ASSERT(condition) \
  ((condition) ? void() : AscendC::cpu::fail(AscendC::cpu::Where::current(), "ASSERT(%s) does not hold", #condition))

// The same, with a message if there is one: a format literal and its arguments.
#define ascendc_assert(condition, ...)                                                                          \
  ((condition)                                                                                                  \
       ? void()                                                                                                 \
       : AscendC::cpu::fail(AscendC::cpu::Where::current(),                                                     \
                            "ascendc_assert(%s) does not hold" __VA_OPT__(": " ASCENDC_CPU_FIRST(__VA_ARGS__)), \
                            #condition __VA_OPT__(ASCENDC_CPU_REST(__VA_ARGS__))))
#define ASCENDC_CPU_FIRST(format, ...) format
#define ASCENDC_CPU_REST(format, ...) __VA_OPT__(, ) __VA_ARGS__
