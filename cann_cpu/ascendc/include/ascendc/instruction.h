// SPDX-License-Identifier: Apache-2.0
// The parts of all vector instructions: the lanes that take part, and a function applied to the lanes of operands.
#pragma once

#include <bit>
#include <type_traits>

#include "ascendc/tensor.h"

namespace AscendC {

// As a mask of an instruction that takes what SetVectorMask has set.
inline constexpr uint64_t MASK_PLACEHOLDER = 0;
inline constexpr uint64_t MASK_PLACEHOLDER_LIST[2] = {0, 0};

namespace cpu {

// As a mask: an integer is the number of elements of each repeat that take part, an array of two says which. In counter
// mode the integer is the number of all elements.
struct MaskArgument {
  template <class Number>
    requires std::is_integral_v<Number>
  MaskArgument(Number elements) : elements(static_cast<int64_t>(elements)) {}
  MaskArgument(const uint64_t* bits) : bits{bits[0], bits[1]} {}

  int64_t elements = -1;
  uint64_t bits[2] = {};
  bool as_set = false;  // the mask is the one that SetVectorMask has set
};

// An argument that is a number of repeats. The device takes 8 bits of it.
struct RepeatArgument {
  template <class Number>
    requires std::is_integral_v<Number>
  RepeatArgument(Number number) : number(static_cast<int64_t>(number)) {}

  uint32_t checked(const char* name, Where where) const {
    if (number != static_cast<uint8_t>(number) && checker() != nullptr) [[unlikely]] {
      fail(where, "%s: %lld repeats; there are at most 255, the device makes %u of it; divide the call", name,
           static_cast<long long>(number), static_cast<uint8_t>(number));
    }
    return static_cast<uint8_t>(number);
  }

  int64_t number;
};

// The mask of an instruction whose template argument isSetMask says whether it is given or was set before.
template <bool isSetMask>
MaskArgument chosen(MaskArgument mask) {
  mask.as_set = !isSetMask;
  return mask;
}

template <class T, class... Types>
concept OneOf = (std::is_same_v<T, Types> || ...);

template <class T>
concept Narrow = OneOf<T, half, bfloat16_t>;

// Numbers of 16 bits are computed with in float and rounded once.
template <class T>
using Computed = std::conditional_t<Narrow<T>, float, T>;

ASCENDC_CPU_EXPORT void widen(const half* from, float* to, uint32_t count);
ASCENDC_CPU_EXPORT void widen(const bfloat16_t* from, float* to, uint32_t count);
ASCENDC_CPU_EXPORT void narrow(const float* from, half* to, uint32_t count);
ASCENDC_CPU_EXPORT void narrow(const float* from, bfloat16_t* to, uint32_t count);

template <class... Types>
inline constexpr uint32_t kLanes = [] {
  uint32_t widest = 2;  // the vector unit has masks of 128 elements
  ((widest = sizeof(Types) > widest ? sizeof(Types) : widest), ...);
  return kRepeatBytes / widest;
}();

// Which elements of a repeat take part: bit i is the i-th.
struct Mask {
  static constexpr Mask first(uint32_t elements) {
    const auto word = [](uint32_t n) { return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; };
    return {{word(elements), elements > 64 ? word(elements - 64) : 0}, elements};
  }
  static constexpr Mask of(const uint64_t bits[2]) {
    const uint32_t elements = bits[0] == ~uint64_t{0} ? 64 + std::countr_one(bits[1]) : std::countr_one(bits[0]);
    const Mask prefix = first(elements);
    return {{bits[0], bits[1]}, prefix.bits[0] == bits[0] && prefix.bits[1] == bits[1] ? elements : kNotFirst};
  }
  constexpr bool has(uint32_t lane) const { return bits[lane / 64] >> (lane % 64) & 1; }
  constexpr bool has_any(uint32_t lane, uint32_t count) const {  // count divides 64
    return (bits[lane / 64] >> (lane % 64) & first(count).bits[0]) != 0;
  }

  static constexpr uint32_t kNotFirst = ~uint32_t{0};
  uint64_t bits[2];
  uint32_t elements;  // the first that many, if it is just these
};

// The lanes of an instruction: of every repeat those in `mask`, of the last one those in `last`.
struct Lanes {
  static constexpr Lanes of_count(uint32_t per_repeat, int64_t count) {
    const auto repeats = static_cast<uint32_t>(count > 0 ? (count + per_repeat - 1) / per_repeat : 0);
    const auto rest = static_cast<uint32_t>(count - int64_t{per_repeat} * (repeats - 1));
    return {per_repeat, repeats, Mask::first(per_repeat), Mask::first(rest)};
  }
  static Lanes of_mask(const char* name, Where where, uint32_t per_repeat, const MaskArgument& argument,
                       uint32_t repeats) {
    const MaskRegister& set = block(where).mask;
    if (set.counter) {
      const uint64_t low = argument.as_set ? set.bits[0] : argument.bits[0];
      return of_count(per_repeat,
                      argument.elements >= 0 && !argument.as_set ? argument.elements : static_cast<int64_t>(low));
    }
    if (argument.as_set) {
      const Mask all = Mask::first(per_repeat);
      const uint64_t bits[2] = {set.bits[0] & all.bits[0], set.bits[1] & all.bits[1]};
      const Mask mask = Mask::of(bits);
      return {per_repeat, repeats, mask, mask};
    }
    if (argument.elements > int64_t{per_repeat}) {
      fail(where, "%s: a mask of %lld elements; a repeat has %u of this dtype", name,
           static_cast<long long>(argument.elements), per_repeat);
    }
    const Mask mask =
        argument.elements >= 0 ? Mask::first(static_cast<uint32_t>(argument.elements)) : Mask::of(argument.bits);
    return {per_repeat, repeats, mask, mask};
  }
  static Lanes of_mask(const char* name, Where where, uint32_t per_repeat, const MaskArgument& argument,
                       const RepeatArgument& repeats) {
    return of_mask(name, where, per_repeat, argument, repeats.checked(name, where));
  }
  const Mask& of_repeat(uint32_t repeat) const { return repeat + 1 == repeats ? last : mask; }

  uint32_t per_repeat;
  uint32_t repeats;
  Mask mask;
  Mask last;
};

// The lanes of one operand in one repeat, as they are computed with.
template <class T, uint32_t lanes>
struct Values {
  static constexpr uint32_t kPerBlock = kBlockBytes / sizeof(T);
  Computed<T> of[lanes];

  static Values read(const Operand& operand, uint32_t repeat, const Mask& mask) {
    Values values;
    if constexpr (Narrow<T>) {
      T stored[lanes];
      gather(operand, repeat, mask, stored);
      widen(stored, values.of, lanes);
    } else {
      gather(operand, repeat, mask, values.of);
    }
    return values;
  }

  static void gather(const Operand& operand, uint32_t repeat, const Mask& mask, T (&stored)[lanes]) {
    const std::byte* from = operand.memory.data + size_t{repeat} * operand.repeat_stride;
    if (operand.block_stride == kBlockBytes) {
      std::memcpy(stored, from, sizeof(stored));
      return;
    }
    for (uint32_t lane = 0; lane < lanes; lane += kPerBlock, from += operand.block_stride) {
      if (mask.has_any(lane, kPerBlock)) {
        std::memcpy(stored + lane, from, kBlockBytes);
      } else {
        std::memset(static_cast<void*>(stored + lane), 0, kBlockBytes);
      }
    }
  }

  static void scatter(const T (&stored)[lanes], const Operand& operand, uint32_t repeat, const Mask& mask) {
    std::byte* to = operand.memory.data + size_t{repeat} * operand.repeat_stride;
    if (operand.block_stride == kBlockBytes && mask.elements <= lanes) {
      std::memcpy(to, stored, mask.elements * sizeof(T));
      return;
    }
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      std::byte* block = to + size_t{lane / kPerBlock} * operand.block_stride;
      if (mask.has(lane)) store(block + lane % kPerBlock * sizeof(T), stored[lane]);
    }
  }
};

// dst[i] = function(src[i]...) of the lanes. A repeat is read before it is written, so operands may be the same.
// The function takes and gives the types that are computed with; it may also give dst's own type, rounded as it likes.
template <class Dst, class... Src>
struct Elementwise {
  static constexpr uint32_t kLanes = cpu::kLanes<Dst, Src...>;

  template <class Function, class... Sources>
  static void run(const char* name, Where where, const Lanes& lanes, Function function, const Operand& dst,
                  const Sources&... sources) {
    needs<Dst, Src...>(name, where);
    if (checker() != nullptr) [[unlikely]] {
      const Operand operands[] = {dst, sources...};
      check_vector(name, where, lanes, operands);
    }
    for (uint32_t repeat = 0; repeat < lanes.repeats; ++repeat) {
      const Mask& mask = lanes.of_repeat(repeat);
      one_repeat(function, dst, repeat, mask, Values<Src, kLanes>::read(sources, repeat, mask)...);
    }
  }

 private:
  template <class Function>
  static void one_repeat(Function& function, const Operand& dst, uint32_t repeat, const Mask& mask,
                         const Values<Src, kLanes>&... values) {
    using Result = decltype(function(values.of[0]...));
    Dst stored[kLanes];
    if constexpr (Narrow<Dst> && !std::is_same_v<Result, Dst>) {
      float results[kLanes];
      for (uint32_t i = 0; i < kLanes; ++i) results[i] = function(values.of[i]...);
      narrow(results, stored, kLanes);
    } else {
      for (uint32_t i = 0; i < kLanes; ++i) stored[i] = static_cast<Dst>(function(values.of[i]...));
    }
    Values<Dst, kLanes>::scatter(stored, dst, repeat, mask);
  }
};

// Tells the checker of bytes that an instruction of the vector unit reads or writes.
inline void check_bytes(const char* name, Where where, Use use, const LocalMemory& memory, int64_t offset,
                        int64_t bytes) {
  if (checker() != nullptr) [[unlikely]]
    check_local(name, where, PIPE_V, use, memory, offset, bytes);
}

// Reports an instruction to the checker. Its operands are reported piece by piece afterwards.
template <class T>
void check_repeats(const char* name, Where where, int64_t repeats) {
  needs<T>(name, where);
  if (checker() != nullptr) [[unlikely]] {
    const Mask all = Mask::first(kLanes<T>);
    check_vector(name, where, {kLanes<T>, static_cast<uint32_t>(repeats), all, all}, {});
  }
}

// The memory for intermediate results belongs to the instruction: whatever was in it is lost.
inline void check_temporary(const char* name, Where where, const LocalMemory& memory) {
  check_bytes(name, where, Use::Write, memory, 0, memory.bytes);
}

// An operand of consecutive elements. An instruction takes `lanes` of them at a time.
template <class T>
Operand consecutive(Use use, const LocalTensor<T>& tensor, uint32_t lanes) {
  return {tensor.memory(), use, sizeof(T), kBlockBytes, static_cast<uint32_t>(lanes * sizeof(T))};
}

// An operand whose strides are given in blocks.
template <class T>
Operand strided(Use use, const LocalTensor<T>& tensor, uint32_t block_stride, uint32_t repeat_stride) {
  return {tensor.memory(), use, sizeof(T), block_stride * kBlockBytes, repeat_stride * kBlockBytes};
}

// ---- the instructions that libascendc_cpu computes, for each level of the CPU's vector instructions

enum class Dtype : uint8_t { Half, Bfloat16, Float, Int8, Uint8, Int16, Uint16, Int32, Uint32, Int64 };
inline constexpr uint32_t kDtypes = 10;

template <class T>
constexpr Dtype dtype_of() {
  if constexpr (std::is_same_v<T, half>) return Dtype::Half;
  if constexpr (std::is_same_v<T, bfloat16_t>) return Dtype::Bfloat16;
  if constexpr (std::is_same_v<T, float>) return Dtype::Float;
  if constexpr (sizeof(T) == 1) return std::is_signed_v<T> ? Dtype::Int8 : Dtype::Uint8;
  if constexpr (sizeof(T) == 2 && !Narrow<T>) return std::is_signed_v<T> ? Dtype::Int16 : Dtype::Uint16;
  if constexpr (sizeof(T) == 4 && !std::is_same_v<T, float>) return std::is_signed_v<T> ? Dtype::Int32 : Dtype::Uint32;
  if constexpr (sizeof(T) == 8) return Dtype::Int64;
}

#define ASCENDC_CPU_OPERATIONS(of)                                                                                     \
  of(Add) of(Sub) of(Mul) of(Div) of(Max) of(Min) of(And) of(Or) of(AddRelu) of(SubRelu) of(MulAddDst) of(FusedMulAdd) \
      of(FusedMulAddRelu) of(Abs) of(Exp) of(Ln) of(Sqrt) of(Rsqrt) of(Reciprocal) of(Relu) of(Not) of(Adds) of(Muls)  \
          of(Maxs) of(Mins) of(ShiftLeft) of(ShiftRight) of(LeakyRelu) of(Axpy) of(AxpyToFloat) of(Duplicate) of(Copy) \
              of(AddReluCast) of(SubReluCast) of(MulCast) of(Cast)
enum class Operation : uint8_t {
#define ASCENDC_CPU_NAME(Name) Name,
  ASCENDC_CPU_OPERATIONS(ASCENDC_CPU_NAME)
#undef ASCENDC_CPU_NAME
};
inline constexpr uint32_t kOperations = static_cast<uint32_t>(Operation::Cast) + 1;

struct Instruction {
  const char* name;
  Operation operation;
  Dtype dst, src;
  bool reads_dst = false;
};

template <class Dst, class Src>
Instruction instruction(const char* name, Where where, Operation operation, bool reads_dst = false) {
  needs<Dst, Src>(name, where);
  return {name, operation, dtype_of<Dst>(), dtype_of<Src>(), reads_dst};
}

// The strides of dst and the sources, in blocks.
struct Strides {
  uint16_t block[3] = {}, repeat[3] = {};
};

// A scalar operand as it is computed with: the bits of a float, or an integer.
template <class T>
constexpr uint32_t scalar_bits(T scalar) {
  if constexpr (Narrow<T> || std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(static_cast<float>(scalar));
  else
    return static_cast<uint32_t>(scalar);
}

// The first `count` elements, or those that a mask leaves of each repeat.
ASCENDC_CPU_EXPORT void elementwise(const Instruction& instruction, Where where, int64_t count, uint32_t scalar,
                                    const LocalMemory& dst, const LocalMemory* src0 = nullptr,
                                    const LocalMemory* src1 = nullptr);
ASCENDC_CPU_EXPORT void elementwise(const Instruction& instruction, Where where, const MaskArgument& mask,
                                    RepeatArgument repeats, const Strides& strides, uint32_t scalar,
                                    const LocalMemory& dst, const LocalMemory* src0 = nullptr,
                                    const LocalMemory* src1 = nullptr);

// Comparisons: a bit of dst for each element, those that do not take part 0. Without b it is compared with the scalar.
ASCENDC_CPU_EXPORT void compare(const char* name, Where where, Dtype dtype, CMPMODE mode, int64_t count,
                                uint32_t scalar, const LocalMemory& dst, const LocalMemory& a, const LocalMemory* b);
ASCENDC_CPU_EXPORT void compare(const char* name, Where where, Dtype dtype, CMPMODE mode, const MaskArgument& mask,
                                RepeatArgument repeats, const Strides& strides, uint32_t scalar, const LocalMemory& dst,
                                const LocalMemory& a, const LocalMemory* b);

// dst[i] = its bit ? a[i] : b[i], or the scalar without b; of elements of 16 or 32 bits.
ASCENDC_CPU_EXPORT void select(Where where, Dtype dtype, SELMODE mode, int64_t count, uint32_t scalar,
                               const LocalMemory& dst, const LocalMemory& bits, const LocalMemory& a,
                               const LocalMemory* b);
ASCENDC_CPU_EXPORT void select(Where where, Dtype dtype, SELMODE mode, const MaskArgument& mask, RepeatArgument repeats,
                               const Strides& strides, uint32_t scalar, const LocalMemory& dst, const LocalMemory& bits,
                               const LocalMemory& a, const LocalMemory* b);

}  // namespace cpu

enum class MaskMode : uint8_t { NORMAL, COUNTER };

// Instructions whose isSetMask is false work on the elements that SetVectorMask selects: in each repeat, or, after
// SetMaskCount, that many in total for any number of repeats.
inline void SetMaskCount(cpu::Where where = cpu::Where::current()) { cpu::block(where).mask.counter = true; }
inline void SetMaskNorm(cpu::Where where = cpu::Where::current()) { cpu::block(where).mask.counter = false; }

template <class T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(uint64_t high, uint64_t low, cpu::Where where = cpu::Where::current()) {
  uint64_t (&bits)[2] = cpu::block(where).mask.bits;
  bits[0] = low;
  bits[1] = mode == MaskMode::COUNTER ? 0 : high;
}

template <class T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(int32_t elements, cpu::Where where = cpu::Where::current()) {
  const cpu::Mask first = cpu::Mask::first(static_cast<uint32_t>(elements));
  const bool counter = mode == MaskMode::COUNTER || cpu::block(where).mask.counter;
  SetVectorMask<T, mode>(counter ? 0 : first.bits[1], counter ? static_cast<uint64_t>(elements) : first.bits[0], where);
}

struct AscendCUtils {
  template <class T, bool isSetMask = true>
  static void SetMask(uint64_t high, uint64_t low, cpu::Where where = cpu::Where::current()) {
    if (isSetMask) SetVectorMask<T>(high, low, where);
  }
  template <class T, bool isSetMask = true>
  static void SetMask(int32_t elements, cpu::Where where = cpu::Where::current()) {
    if (isSetMask) SetVectorMask<T>(elements, where);
  }
};

inline void ResetMask(cpu::Where where = cpu::Where::current()) {
  const cpu::MaskRegister all;
  for (int word = 0; word < 2; ++word) cpu::block(where).mask.bits[word] = all.bits[word];
}

}  // namespace AscendC
