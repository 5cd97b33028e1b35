// SPDX-License-Identifier: Apache-2.0
// Debug output of kernels: printf, DumpTensor, DumpAccChkPoint, assertions with a log, the clock.
#pragma once

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>

#include "ascendc/tensor.h"

namespace AscendC {
namespace cpu {

// How many rows, of one dimension or more, end before an element.
inline size_t rows_that_end_at(const ShapeInfo& shape, uint64_t element) {
  size_t ends = 0;
  uint64_t row = 1;
  for (int i = shape.shapeDim - 1; i > 0; --i) {
    row *= shape.shape[i];
    ends += row != 0 && element % row == 0;
  }
  return ends;
}

// Whether what is said counts: not while it is tried out which cores the kernel is for.
inline bool is_heard() { return current_block == nullptr || !current_block->type.tried; }

// As printf takes it.
template <class T>
auto printable(const T& value) {
  if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16_t>) {
    return static_cast<double>(value);
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<int>(value);
  } else {
    return value;
  }
}

template <class T>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<T, half>) return "half";
  if constexpr (std::is_same_v<T, bfloat16_t>) return "bfloat16_t";
  if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? "float" : "double";
  constexpr const char* kNames[][2] = {
      {"uint8_t", "int8_t"}, {"uint16_t", "int16_t"}, {"uint32_t", "int32_t"}, {"uint64_t", "int64_t"}};
  return kNames[sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3][std::is_signed_v<T>];
}

template <class T>
const char* place_of(const LocalTensor<T>& tensor, Where where) {
  constexpr const char* kPlaces[kHardwares] = {"GM", "UB", "L1", nullptr, nullptr, "L0C", "BIAS", "FIXBUF"};
  const Hardware hardware = hardware_of(tensor.memory());
  const char* place = kPlaces[static_cast<size_t>(hardware)];
  if (place == nullptr) fail(where, "DumpTensor: a tensor in %s, which only Mmad reads", name_of(hardware));
  return place;
}
template <class T>
const char* place_of(const GlobalTensor<T>&, Where) {
  return "GM";
}

// One line for each tensor, written at once, since blocks write beside each other; brackets where a dimension of the
// shape begins and ends.
template <class T>
void dump(const char* place, const std::byte* data, uint32_t number, uint32_t elements, Where where,
          const ShapeInfo& shape = {}) {
  if (!is_heard()) return;
  std::string line = std::string("DumpTensor: desc=") + std::to_string(number) +
                     ", block=" + std::to_string(block(where).core.block) + ", data_type=" + type_name<T>() +
                     ", position=" + place + ", dump_size=" + std::to_string(elements) + "\n[";
  for (uint32_t i = 0; i < elements; ++i) {
    const T value = load<T>(data + i * sizeof(T));
    line += (i == 0 ? "" : ", ") + std::string(rows_that_end_at(shape, i), '[');
    if constexpr (std::is_integral_v<T>) {
      line += std::to_string(value);
    } else {
      char text[32];
      std::snprintf(text, sizeof(text), "%.9g", static_cast<double>(value));
      line += text;
    }
    if (i + 1 < elements) line += std::string(rows_that_end_at(shape, i + 1), ']');
  }
  line += std::string(shape.shapeDim > 1 ? shape.shapeDim - 1 : 0, ']') + "]\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

}  // namespace cpu

// As C's function, also for half and bfloat16_t.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
template <class... Values>
void printf(const char* format, const Values&... values) {
  if (!cpu::is_heard()) return;
  std::printf(format, cpu::printable(values)...);
  std::fflush(stdout);
}
#pragma GCC diagnostic pop
template <class... Values>
void PRINTF(const char* format, const Values&... values) {
  AscendC::printf(format, values...);
}

// Prints the first elements of a tensor as they are now. `number` distinguishes the dumps.
template <class T>
void DumpTensor(const LocalTensor<T>& tensor, uint32_t number, uint32_t elements,
                cpu::Where where = cpu::Where::current()) {
  cpu::dump<T>(cpu::place_of(tensor, where), tensor.memory().data, number, std::min(elements, tensor.GetSize()), where);
}
template <class T>
void DumpTensor(const GlobalTensor<T>& tensor, uint32_t number, uint32_t elements,
                cpu::Where where = cpu::Where::current()) {
  cpu::dump<T>(cpu::place_of(tensor, where), tensor.memory().data, number, elements, where);
}
// With the elements in rows of a shape.
template <class Tensor>
void DumpTensor(const Tensor& tensor, uint32_t number, uint32_t elements, const ShapeInfo& shape,
                cpu::Where where = cpu::Where::current()) {
  constexpr bool is_local = std::is_same_v<Tensor, LocalTensor<typename Tensor::PrimType>>;
  if constexpr (is_local) elements = std::min(elements, tensor.GetSize());
  cpu::dump<typename Tensor::PrimType>(cpu::place_of(tensor, where), tensor.memory().data, number, elements, where,
                                       shape);
}
// The same from an element on.
template <class Tensor>
void DumpAccChkPoint(const Tensor& tensor, uint32_t number, uint32_t offset, uint32_t elements,
                     cpu::Where where = cpu::Where::current()) {
  DumpTensor(tensor[offset], number, elements, where);
}

// The device counts 50 million a second.
inline int64_t GetSystemCycle() {
  constexpr int64_t kNanoseconds = 20;
  timespec now;  // <chrono> takes a third of a second to compile
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec) / kNanoseconds;
}

}  // namespace AscendC

// ASCENDC_ASSERT(condition, { KERNEL_LOG(KERNEL_ERROR, "...", ...); })
#define KERNEL_ERROR "ERROR"
#define KERNEL_WARN "WARNING"
#define KERNEL_INFO "INFO"
#define KERNEL_DEBUG "DEBUG"
#define KERNEL_LOG(level, format, ...) AscendC::printf("[" level "] " format "\n" __VA_OPT__(, ) __VA_ARGS__)
#define ASCENDC_ASSERT(condition, report)                                                                 \
  do {                                                                                                    \
    if (!(condition)) {                                                                                   \
      report;                                                                                             \
      AscendC::cpu::fail(AscendC::cpu::Where::current(), "ASCENDC_ASSERT(%s) does not hold", #condition); \
    }                                                                                                     \
  } while (false)
#undef assert
#define assert(...) ascendc_assert(__VA_ARGS__)
