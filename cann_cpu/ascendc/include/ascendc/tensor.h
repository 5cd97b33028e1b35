// SPDX-License-Identifier: Apache-2.0
// Tensors: views of device memory and of a core's memories.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

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

enum class DataFormat : uint8_t { ND = 0, NZ, NCHW, NC1HWC0, NHWC, NCDHW, NDC1HWC0, FRACTAL_Z_3D };

// What an author notes of a tensor's shape, in elements; nothing is computed from it.
struct ShapeInfo {
  ShapeInfo() = default;
  ShapeInfo(uint8_t dimensions, const uint32_t* sizes, uint8_t original_dimensions, const uint32_t* original_sizes,
            DataFormat format)
      : shapeDim(std::min<uint8_t>(dimensions, 8)),
        originalShapeDim(std::min<uint8_t>(original_dimensions, 8)),
        dataFormat(format) {
    std::copy_n(sizes, shapeDim, shape);
    std::copy_n(original_sizes, originalShapeDim, originalShape);
  }
  ShapeInfo(uint8_t dimensions, const uint32_t* sizes, DataFormat format)
      : ShapeInfo(dimensions, sizes, dimensions, sizes, format) {}
  ShapeInfo(uint8_t dimensions, const uint32_t* sizes) : ShapeInfo(dimensions, sizes, DataFormat::ND) {}

  uint8_t shapeDim = 0;
  uint8_t originalShapeDim = 0;
  uint32_t shape[8] = {};
  uint32_t originalShape[8] = {};
  DataFormat dataFormat = DataFormat::ND;
};

inline int GetShapeSize(const ShapeInfo& info) {
  int elements = 1;
  for (uint8_t i = 0; i < info.shapeDim; ++i) elements *= static_cast<int>(info.shape[i]);
  return elements;
}

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

// The memory of a tensor. Assigning a position moves the tensor to the same address of that position's memory.
struct Placed {
  struct Position {
    Position(uint8_t number, Where where = Where::current()) : number(number), where(where) {}
    uint8_t number;
    Where where;
  };
  Placed& operator=(const Position& position) {
    move(GetPhyType(static_cast<TPosition>(position.number)), position.where);
    return *this;
  }
  void move(Hardware hardware, Where where) {
    const std::byte* const begin = block(where).memories[static_cast<size_t>(hardware_of(memory))];
    const auto address = static_cast<uint32_t>(memory.data == nullptr ? 0 : memory.data - begin);
    const uint32_t itemsize = memory.itemsize;
    memory = static_memory(where, hardware, address, memory.bytes);
    memory.itemsize = itemsize;
  }

  LocalMemory memory;
};

}  // namespace cpu

// Elements of a core's memory. Nothing is checked when a tensor is made or indexed, but when its elements are used.
template <class T>
class LocalTensor {
 public:
  using PrimType = T;

  LocalTensor() = default;
  explicit LocalTensor(const cpu::LocalMemory& memory) : address_{{memory}} {
    address_.logicPos.memory.itemsize = sizeof(T);
  }
  // `elements` of the position's memory from a byte on, without a TPipe; nothing else guards them than flags and
  // barriers.
  LocalTensor(TPosition position, uint32_t address, uint32_t elements, cpu::Where where = cpu::Where::current())
      : LocalTensor(cpu::static_memory(where, GetPhyType(position), address, cpu::bytes_of<T>(elements))) {}

  T GetValue(uint32_t index, cpu::Where where = cpu::Where::current()) const {
    static_assert(!std::is_same_v<T, int4b_t>, "GetValue: the scalar unit has no integers of 4 bits");
    check("GetValue", where, cpu::Use::Read, index);
    return cpu::load<T>(at(index));
  }

  template <class Number>
  void SetValue(uint32_t index, Number value, cpu::Where where = cpu::Where::current()) const {
    check("SetValue", where, cpu::Use::Write, index);
    cpu::store(at(index), static_cast<T>(value));
  }

  // The element itself, which may be assigned to. Checks take it as read.
  T& operator()(uint32_t index, cpu::Where where = cpu::Where::current()) const {
    check("tensor(index)", where, cpu::Use::Read, index);
    return *reinterpret_cast<T*>(at(index));
  }

  LocalTensor operator[](uint32_t offset) const {
    const int64_t bytes = cpu::bytes_of<T>(offset);
    LocalTensor moved = *this;
    moved.address_.logicPos.memory.data += bytes;
    moved.address_.logicPos.memory.bytes -= bytes;
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
    return LocalTensor<Other>(memory());
  }

  void SetAddr(const TBuffAddr& address, cpu::Where where = cpu::Where::current()) {
    const auto position = static_cast<TPosition>(address.logicPos);
    const Hardware hardware = position == TPosition::GM ? Hardware::UB : GetPhyType(position);
    *this = LocalTensor(cpu::static_memory(where, hardware, address.bufferAddr, address.dataLen));
  }
  // The older form of SetAddr. The position is assigned to address_.logicPos, before or after this call.
  void InitBuffer(uint32_t offset, uint32_t elements, cpu::Where where = cpu::Where::current()) {
    cpu::LocalMemory& memory = address_.logicPos.memory;
    const Hardware hardware = cpu::hardware_of(memory);
    memory.data = cpu::block(where).memories[static_cast<size_t>(hardware)] + offset;
    memory.bytes = cpu::bytes_of<T>(elements);
    memory.itemsize = sizeof(T);
    if (memory.buffer != nullptr) address_.logicPos.move(hardware, where);
  }
  struct {
    cpu::Placed logicPos;
  } address_;

  void SetSize(uint32_t elements) { address_.logicPos.memory.bytes = cpu::bytes_of<T>(elements); }
  void SetBufferLen(uint32_t elements) { SetSize(elements); }
  void SetUserTag(int32_t tag) { tag_ = tag; }
  int32_t GetUserTag() const { return tag_; }
  void SetShapeInfo(const ShapeInfo& info) { shape_ = info; }
  ShapeInfo GetShapeInfo() const { return shape_; }

  uint32_t GetSize() const { return memory().bytes * (std::is_same_v<T, int4b_t> ? 2 : 1) / sizeof(T); }
  __ubuf__ T* GetPhyAddr(uint32_t offset = 0) const { return reinterpret_cast<T*>(at(offset)); }
  const cpu::LocalMemory& memory() const { return address_.logicPos.memory; }

 private:
  std::byte* at(uint32_t index) const { return memory().data + cpu::bytes_of<T>(index); }

  void check(const char* name, cpu::Where where, cpu::Use use, uint32_t index) const {
    cpu::Checker* checker = cpu::checker();
    if (checker == nullptr) [[likely]]
      return;
    cpu::check_scalar(*checker, name, where, use, memory(), int64_t{index} * sizeof(T), sizeof(T));
  }

  int32_t tag_ = 0;
  ShapeInfo shape_;
};

// Elements in device memory, from an address on. If SetGlobalBuffer gets their number, it bounds every use.
template <class T>
class GlobalTensor {
 public:
  using PrimType = T;

  void SetGlobalBuffer(__gm__ T* address, uint64_t elements) {
    set(address, cpu::bytes_of<T>(static_cast<int64_t>(elements)), elements);
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

  // The element itself, which may be assigned to. Checks take it as read.
  __gm__ T& operator()(uint64_t index, cpu::Where where = cpu::Where::current()) const {
    check("tensor(index)", where, cpu::Use::Read, index);
    return *reinterpret_cast<T*>(at(index));
  }

  GlobalTensor operator[](uint64_t offset) const {
    GlobalTensor moved = *this;
    const int64_t bytes = cpu::bytes_of<T>(static_cast<int64_t>(offset));
    moved.memory_.data += bytes;
    if (memory_.bytes != INT64_MAX) moved.memory_.bytes -= bytes;
    return moved;
  }

  void SetL2CacheHint(CacheMode /*mode*/) {}
  void SetShapeInfo(const ShapeInfo& info) { shape_ = info; }
  ShapeInfo GetShapeInfo() const { return shape_; }

  uint64_t GetSize() const { return memory_.elements; }
  const __gm__ T* GetPhyAddr() const { return GetPhyAddr(0); }
  __gm__ T* GetPhyAddr(uint64_t offset) const { return reinterpret_cast<T*>(at(offset)); }
  const cpu::GlobalMemory& memory() const { return memory_; }

 private:
  void set(T* address, int64_t bytes, uint64_t elements) {
    auto* data = reinterpret_cast<std::byte*>(address);
    memory_ = {data, data, bytes, elements, sizeof(T)};
  }

  std::byte* at(uint64_t index) const { return memory_.data + cpu::bytes_of<T>(static_cast<int64_t>(index)); }

  void check(const char* name, cpu::Where where, cpu::Use use, uint64_t index) const {
    if (cpu::checker() == nullptr) [[likely]]
      return;
    cpu::check_global(name, where, PIPE_S, use, memory_, index * sizeof(T), sizeof(T));
  }

  cpu::GlobalMemory memory_;
  ShapeInfo shape_;
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
    const LocalTensor<T> tensor(cpu::static_memory(where, hardware, used_, cpu::bytes_of<T>(elements)));
    used_ += static_cast<uint32_t>(cpu::whole_blocks(cpu::bytes_of<T>(elements)));
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
