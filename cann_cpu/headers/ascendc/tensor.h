// SPDX-License-Identifier: Apache-2.0
// Tensors: views of device memory and of a core's memories.
#pragma once

#include <cstring>
#include <type_traits>

#include "ascendc/block.h"
#include "ascendc/cores.h"
#include "ascendc/half.h"

namespace AscendC {

namespace cpu {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void store(std::byte* to, const T& value) {
  std::memcpy(to, &value, sizeof(T));
}

}  // namespace cpu

// Where a tensor lies that SetAddr makes, in bytes of the memory of its position.
struct TBuffAddr {
  uint32_t dataLen = 0;
  uint32_t bufferAddr = 0;
  uint64_t bufferHandle = 0;
  uint8_t logicPos = 0;
};

enum class CacheMode : uint8_t { CACHE_MODE_DISABLE, CACHE_MODE_NORMAL, CACHE_MODE_LAST, CACHE_MODE_PERSISTENT };

namespace cpu {

// What `dst = a + b` does, when it is known how many elements dst has.
template <class Tensor>
struct Deferred {
  void (*instruction)(const Tensor& dst, const Tensor& a, const Tensor& b, int32_t count, Where where);
  const Tensor& a;
  const Tensor& b;
  Where where;
};

}  // namespace cpu

// Elements of a core's memory. Nothing is checked when a tensor is made or indexed, but when its elements are used.
template <class T>
class LocalTensor {
 public:
  using PrimType = T;

  LocalTensor() = default;
  explicit LocalTensor(const cpu::LocalMemory& memory) : memory_(memory) { memory_.itemsize = sizeof(T); }
  // `elements` of the position's memory from a byte on, without a TPipe; nothing else guards them than flags and
  // barriers.
  LocalTensor(TPosition position, uint32_t address, uint32_t elements, cpu::Where where = cpu::Where::current())
      : LocalTensor(cpu::static_memory(where, GetPhyType(position), address, int64_t{elements} * sizeof(T))) {}

  T GetValue(uint32_t index, cpu::Where where = cpu::Where::current()) const {
    check("GetValue", where, cpu::Use::Read, index);
    return cpu::load<T>(at(index));
  }

  template <class Number>
  void SetValue(uint32_t index, Number value, cpu::Where where = cpu::Where::current()) const {
    check("SetValue", where, cpu::Use::Write, index);
    cpu::store(at(index), static_cast<T>(value));
  }

  LocalTensor operator[](uint32_t offset) const {
    const int64_t bytes = int64_t{offset} * sizeof(T);
    LocalTensor moved = *this;
    moved.memory_.data += bytes;
    moved.memory_.bytes -= bytes;
    return moved;
  }

  // dst = a + b computes as many elements as dst has.
  struct Operand {
    Operand(const LocalTensor& tensor, cpu::Where where = cpu::Where::current()) : tensor(tensor), where(where) {}
    const LocalTensor& tensor;
    cpu::Where where;
  };
#define ASCENDC_CPU_OPERATOR(sign, Name)                                                                \
  friend cpu::Deferred<LocalTensor> operator sign(const Operand& a, const LocalTensor& b) {             \
    return {[](const LocalTensor& dst, const LocalTensor& one, const LocalTensor& other, int32_t count, \
               cpu::Where where) { Name(dst, one, other, count, where); },                              \
            a.tensor, b, a.where};                                                                      \
  }
  ASCENDC_CPU_OPERATOR(+, Add)
  ASCENDC_CPU_OPERATOR(-, Sub)
  ASCENDC_CPU_OPERATOR(*, Mul)
  ASCENDC_CPU_OPERATOR(/, Div)
  ASCENDC_CPU_OPERATOR(&, And)
  ASCENDC_CPU_OPERATOR(|, Or)
#undef ASCENDC_CPU_OPERATOR
  LocalTensor& operator=(const cpu::Deferred<LocalTensor>& made) {
    made.instruction(*this, made.a, made.b, static_cast<int32_t>(GetSize()), made.where);
    return *this;
  }

  template <class Other>
  LocalTensor<Other> ReinterpretCast() const {
    return LocalTensor<Other>(memory_);
  }

  void SetAddr(const TBuffAddr& address, cpu::Where where = cpu::Where::current()) {
    const auto position = static_cast<TPosition>(address.logicPos);
    const Hardware hardware = position == TPosition::GM ? Hardware::UB : GetPhyType(position);
    *this = LocalTensor(cpu::static_memory(where, hardware, address.bufferAddr, address.dataLen));
  }
  void SetSize(uint32_t elements) { memory_.bytes = int64_t{elements} * sizeof(T); }
  void SetBufferLen(uint32_t elements) { SetSize(elements); }
  void SetUserTag(int32_t tag) { tag_ = tag; }
  int32_t GetUserTag() const { return tag_; }

  uint32_t GetSize() const { return memory_.bytes / sizeof(T); }
  __ubuf__ T* GetPhyAddr(uint32_t offset = 0) const { return reinterpret_cast<T*>(at(offset)); }
  const cpu::LocalMemory& memory() const { return memory_; }

 private:
  std::byte* at(uint32_t index) const { return memory_.data + size_t{index} * sizeof(T); }

  void check(const char* name, cpu::Where where, cpu::Use use, uint32_t index) const {
    cpu::Checker* checker = cpu::checker();
    if (checker == nullptr) [[likely]]
      return;
    cpu::check_scalar(*checker, name, where, use, memory_, int64_t{index} * sizeof(T), sizeof(T));
  }

  cpu::LocalMemory memory_;
  int32_t tag_ = 0;
};

// Elements in device memory, from an address on; their number, where SetGlobalBuffer is told it, bounds every use.
template <class T>
class GlobalTensor {
 public:
  using PrimType = T;

  void SetGlobalBuffer(__gm__ T* address, uint64_t elements) {
    set(address, static_cast<int64_t>(elements * sizeof(T)), elements);
  }
  void SetGlobalBuffer(__gm__ T* address) { set(address, INT64_MAX, 0); }

  T GetValue(uint64_t index, cpu::Where where = cpu::Where::current()) const {
    check("GetValue", where, cpu::Use::Read, index);
    return cpu::load<T>(at(index));
  }

  void SetValue(uint64_t index, T value, cpu::Where where = cpu::Where::current()) const {
    check("SetValue", where, cpu::Use::Write, index);
    cpu::store(at(index), value);
  }

  GlobalTensor operator[](uint64_t offset) const {
    GlobalTensor moved = *this;
    moved.memory_.data += offset * sizeof(T);
    if (memory_.bytes != INT64_MAX) moved.memory_.bytes -= offset * sizeof(T);
    return moved;
  }

  void SetL2CacheHint(CacheMode /*mode*/) {}

  uint64_t GetSize() const { return memory_.elements; }
  const __gm__ T* GetPhyAddr(uint64_t offset = 0) const { return reinterpret_cast<T*>(at(offset)); }
  const cpu::GlobalMemory& memory() const { return memory_; }

 private:
  void set(T* address, int64_t bytes, uint64_t elements) {
    auto* data = reinterpret_cast<std::byte*>(address);
    memory_ = {data, data, bytes, elements, sizeof(T)};
  }

  std::byte* at(uint64_t index) const { return memory_.data + index * sizeof(T); }

  void check(const char* name, cpu::Where where, cpu::Use use, uint64_t index) const {
    if (cpu::checker() == nullptr) [[likely]]
      return;
    cpu::check_global(name, where, PIPE_S, use, memory_, index * sizeof(T), sizeof(T));
  }

  cpu::GlobalMemory memory_;
};

// Gives out a memory from its start on, for kernels without a TPipe.
template <Hardware hardware = Hardware::UB>
class LocalMemAllocator {
  static_assert(hardware != Hardware::GM && hardware != Hardware::MAX, "LocalMemAllocator: a memory of a core");

 public:
  template <class T, uint32_t elements>
  LocalTensor<T> Alloc(cpu::Where where = cpu::Where::current()) {
    return Alloc<T>(elements, where);
  }
  template <TPosition position, class T, uint32_t elements>
  LocalTensor<T> Alloc(cpu::Where where = cpu::Where::current()) {
    return Alloc<T>(elements, where);
  }
  template <class T>
  LocalTensor<T> Alloc(uint32_t elements, cpu::Where where = cpu::Where::current()) {
    const LocalTensor<T> tensor(cpu::static_memory(where, hardware, used_, int64_t{elements} * sizeof(T)));
    used_ += static_cast<uint32_t>(cpu::whole_blocks(int64_t{elements} * sizeof(T)));
    return tensor;
  }
  template <TPosition position, class T>
  LocalTensor<T> Alloc(uint32_t elements, cpu::Where where = cpu::Where::current()) {
    return Alloc<T>(elements, where);
  }
  uint32_t GetCurAddr() const { return used_; }

 private:
  uint32_t used_ = 0;
};

// Sets the core's registers for a kernel without a TPipe; on the CPU they are as it sets them.
inline void InitSocState() {}

}  // namespace AscendC
