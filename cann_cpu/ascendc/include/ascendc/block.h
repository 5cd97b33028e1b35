// SPDX-License-Identifier: Apache-2.0
// The core that runs in this thread, its memories, and the checker that follows it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ascendc/half.h"
#include "ascendc/launch.h"
#include "ascendc/types.h"

namespace cann_cpu {
struct Soc;
}

namespace AscendC {

class TPipe;

namespace cpu {

class Checker;

// Ends the launch with an error that names the place in the kernel, the kernel and the block.
[[noreturn]] ASCENDC_CPU_EXPORT void fail(Where where, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Warns on stderr, once per call site, of what may be wrong and cannot be distinguished from correct code.
ASCENDC_CPU_EXPORT void warn(Where where, const char* format, ...) __attribute__((format(printf, 2, 3)));

// A piece of a core's memory that InitBuffer gave to a queue or a TBuf.
struct Buffer {
  enum class State : uint8_t { Free, Allocated, Queued, Dequeued };

  std::byte* data = nullptr;
  Hardware hardware = Hardware::UB;
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

// Bytes of a core's memory that a tensor stands for.
struct LocalMemory {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  uint32_t generation = 0;
  const Buffer* buffer = nullptr;
  uint32_t itemsize = 1;
};

// The size of an image and its padding: left, right, top, bottom.
struct Fmatrix {
  uint16_t height = 0, width = 0;
  uint8_t padding[4] = {};
};

// How often LoadData takes its part of an image, each time `stride` further along the rows or the columns of the
// matrix.
struct ImageRepeats {
  uint16_t stride = 0;  // in 16 rows, or in 32 bytes of columns
  uint8_t times = 1;
  bool along_columns = false;
};

// What the Set functions of the matrix unit have set.
struct MatrixUnit {
  Fmatrix fmatrix[2] = {};  // of the left and of the right matrix
  uint64_t padding = 0;
  ImageRepeats repeats = {};
  bool hf32 = false, hf32_toward_zero = false;
  struct {
    uint16_t count = 1, src_stride = 0, dst_stride = 0;
  } matrices = {};          // of SetFixpipeNz2ndFlag
  uint64_t scale = 0;       // of SetFixpipePreQuantFlag
  LocalMemory scales = {};  // of SetFixPipeConfig
};

// A core that runs a block: its cube core (AIC), or one of its vector cores (AIV).
struct Core {
  uint32_t number;  // among all of the launch
  uint32_t block;
  bool cube;
  uint8_t sub;         // of the vector cores of its block
  uint8_t sub_blocks;  // vector cores of its block; 1 for a cube core
};

struct KernelType {
  bool fused() const { return name >= KERNEL_TYPE_AICORE; }  // a core has the matrix and the vector unit

  KernelMetaType name;
  bool known;  // the kernel has shown it; else it is taken to be for vector cores alone
  bool declared = false;
  bool tried = false;  // a cube core runs alone, to see whether the kernel uses it
  bool asked = false;  // it is tried, and has asked what core it runs on
};

struct Block {
  const char* kernel;
  Core core;
  KernelType type;
  uint32_t count;  // of the launch
  uint64_t tiling_key;
  const std::array<std::byte*, kHardwares>& memories;
  const cann_cpu::Soc& chip;
  const KnownMemory* known;  // null: nothing is known of the device's memory
  Contexts contexts;         // of the launch's communicators
  Checker* checker;          // null: the launch is not checked
  TPipe* pipe = nullptr;
  MaskRegister mask = {};
  Atomic atomic = {};
  uint16_t merged[4] = {};              // what MrgSort took of each run
  std::optional<float> deq_scale = {};  // what SetDeqScale has set
  MatrixUnit matrix_unit = {};
  uint64_t bytes_stored = 0;  // in long runs to device memory
};

// Every instruction reads it: at a fixed distance from the thread's pointer it needs no call of __tls_get_addr.
ASCENDC_CPU_EXPORT extern constinit thread_local Block* current_block [[gnu::tls_model("initial-exec")]];

inline Block& block(Where where) {
  if (current_block == nullptr) fail(where, "a kernel function was called; launch it with ICPU_RUN_KF");
  return *current_block;
}

inline Checker* checker() { return current_block != nullptr ? current_block->checker : nullptr; }

// Bytes of the device that a tensor stands for.
struct GlobalMemory {
  std::byte* data = nullptr;
  const std::byte* origin = nullptr;  // passed to SetGlobalBuffer; the tensor is in the device buffer that contains it

  int64_t bytes = INT64_MAX;  // as far as its author knows
  uint64_t elements = 0;      // passed to SetGlobalBuffer
  uint32_t itemsize = 1;
};

enum class Use : uint8_t { Read, Write };

// The memory of a tensor that was created from an address.
ASCENDC_CPU_EXPORT LocalMemory static_memory(Where where, Hardware hardware, uint32_t address, int64_t bytes);

inline Hardware hardware_of(const LocalMemory& memory) {
  return memory.buffer != nullptr ? memory.buffer->hardware : Hardware::UB;
}

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

// ---- what the chip does not have

// The bit of a dtype in the set of those that an instruction takes.
template <class T>
constexpr uint16_t dtype_bit() {
  if constexpr (std::is_same_v<T, half>) return 1;
  if constexpr (std::is_same_v<T, bfloat16_t>) return 2;
  if constexpr (std::is_same_v<T, float>) return 4;
  if constexpr (std::is_integral_v<T>) return (std::is_signed_v<T> ? 8 : 128) << (std::bit_width(sizeof(T)) - 1);
  return 0;
}
// Fails, and names the chip, if it does not have an instruction, or not of these dtypes.
ASCENDC_CPU_EXPORT void check_chip_has(const char* name, Where where, uint16_t to, uint16_t from);
template <class To = void, class... From>
void needs(const char* name, Where where) {
  if constexpr (__NPU_ARCH__ != 2201) check_chip_has(name, where, dtype_bit<To>(), (dtype_bit<From>() | ... | 0));
}
// Instructions that write to the last bytes of the unified buffer call this: a tensor must not lie there.
ASCENDC_CPU_EXPORT void check_scratch(const char* name, Where where);

// Reports an instruction to the checker before it runs. is_more: it belongs to the instruction reported before.
ASCENDC_CPU_EXPORT void check_vector(const char* name, Where where, const Lanes& lanes,
                                     std::span<const Operand> operands, bool is_more = false);
ASCENDC_CPU_EXPORT void check_scalar(Checker& checker, const char* name, Where where, Use use,
                                     const LocalMemory& memory, int64_t offset, int64_t bytes);
ASCENDC_CPU_EXPORT void check_local(const char* name, Where where, pipe_t pipe, Use use, const LocalMemory& memory,
                                    int64_t offset, int64_t bytes);
ASCENDC_CPU_EXPORT void check_global(const char* name, Where where, pipe_t pipe, Use use, const GlobalMemory& memory,
                                     int64_t offset, int64_t bytes, bool atomic = false);

// ASSERT expands to nothing for a device, so it may follow a number there: n = tiles ASSERT(tiles != 0);
struct Asserted {
  constexpr void operator+() const {}
  template <class T>
  friend constexpr T operator+(T value, Asserted /*holds*/) {
    return value;
  }
};

}  // namespace cpu

inline int64_t GetBlockNum(cpu::Where where = cpu::Where::current()) { return cpu::block(where).count; }
// A vector core of a mixed kernel counts the vector cores of all blocks.
inline int64_t GetBlockIdx(cpu::Where where = cpu::Where::current()) {
  const cpu::Core& core = cpu::block(where).core;
  return int64_t{core.block} * core.sub_blocks + core.sub;
}

}  // namespace AscendC

#define ASSERT(condition)                                                                                      \
  +((condition) ? AscendC::cpu::Asserted()                                                                     \
                : (AscendC::cpu::fail(AscendC::cpu::Where::current(), "ASSERT(%s) does not hold", #condition), \
                   AscendC::cpu::Asserted()))

// The same, with a message if there is one: a format literal and its arguments.
#define ascendc_assert(condition, ...)                                                                          \
  ((condition)                                                                                                  \
       ? void()                                                                                                 \
       : AscendC::cpu::fail(AscendC::cpu::Where::current(),                                                     \
                            "ascendc_assert(%s) does not hold" __VA_OPT__(": " ASCENDC_CPU_FIRST(__VA_ARGS__)), \
                            #condition __VA_OPT__(ASCENDC_CPU_REST(__VA_ARGS__))))
#define ASCENDC_CPU_FIRST(format, ...) format
#define ASCENDC_CPU_REST(format, ...) __VA_OPT__(, ) __VA_ARGS__
