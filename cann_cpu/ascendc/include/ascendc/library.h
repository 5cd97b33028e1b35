// SPDX-License-Identifier: Apache-2.0
// Shared by the libraries of whole algorithms: rows of a matrix in the unified buffer, read as float numbers and
// rounded once when they are written.
#pragma once

#include <vector>

#include "ascendc/vector.h"

namespace AscendC {
namespace cpu {

// Elements of half, bfloat16 or float.
ASCENDC_CPU_EXPORT void read_floats(Dtype dtype, const std::byte* from, float* to, size_t count);
ASCENDC_CPU_EXPORT void write_floats(Dtype dtype, const float* from, std::byte* to, size_t count);

template <class T>
std::vector<float> read_row(const char* name, Where where, const LocalTensor<T>& from, int64_t first, int64_t count) {
  check_bytes(name, where, Use::Read, from.memory(), first * sizeof(T), count * sizeof(T));
  std::vector<float> row(static_cast<size_t>(count));
  const std::byte* at = from.memory().data + first * static_cast<int64_t>(sizeof(T));
  if constexpr (OneOf<T, half, bfloat16_t, float>) {
    read_floats(dtype_of<T>(), at, row.data(), row.size());
  } else {
    for (float& number : row) number = static_cast<float>(load<T>(at)), at += sizeof(T);
  }
  return row;
}

template <class T, class Row>
void write_row(const char* name, Where where, const LocalTensor<T>& to, int64_t first, const Row& row) {
  check_bytes(name, where, Use::Write, to.memory(), first * sizeof(T), static_cast<int64_t>(row.size() * sizeof(T)));
  std::byte* at = to.memory().data + first * static_cast<int64_t>(sizeof(T));
  if constexpr (std::is_same_v<Row, std::vector<float>> && OneOf<T, half, bfloat16_t, float>) {
    write_floats(dtype_of<T>(), row.data(), at, row.size());
  } else {
    for (const auto number : row) store(at, static_cast<T>(number)), at += sizeof(T);
  }
}

ASCENDC_CPU_EXPORT double sum_of(const std::vector<float>& row);
ASCENDC_CPU_EXPORT double sum_of_squares(const std::vector<float>& row, float mean = 0);  // of row[i] - mean
ASCENDC_CPU_EXPORT float largest(const std::vector<float>& row);
ASCENDC_CPU_EXPORT void exponentials(std::vector<float>& row, float shift);  // row = exp(row - shift)
ASCENDC_CPU_EXPORT void divide(std::vector<float>& row, float divisor);
ASCENDC_CPU_EXPORT void add(std::vector<float>& row, float number);
ASCENDC_CPU_EXPORT void add(std::vector<float>& row, const std::vector<float>& numbers);
ASCENDC_CPU_EXPORT void multiply(std::vector<float>& row, float factor);
ASCENDC_CPU_EXPORT void multiply(std::vector<float>& row, const std::vector<float>& factors);

// Elements that a row of them has in the unified buffer, where each begins on a block of 32 bytes.
template <class T>
constexpr int64_t padded(int64_t elements) {
  return whole_blocks(elements * static_cast<int64_t>(sizeof(T))) / static_cast<int64_t>(sizeof(T));
}

template <class T>
inline constexpr int64_t kPerBlock = kBlockBytes / sizeof(T);

// A source may be the destination itself, which is read row by row before it is written, or lies apart from it.
template <class Dst, class Src>
void check_in_place(const char* name, Where where, const LocalTensor<Dst>& dst, int64_t dst_elements,
                    const LocalTensor<Src>& src, int64_t src_elements) {
  const std::byte* to = dst.memory().data;
  const std::byte* from = src.memory().data;
  if (checker() == nullptr || (to == from && sizeof(Dst) == sizeof(Src)) ||
      to + dst_elements * static_cast<int64_t>(sizeof(Dst)) <= from ||
      from + src_elements * static_cast<int64_t>(sizeof(Src)) <= to) {
    return;
  }
  fail(where, "%s: source and destination overlap in part; let them be the same or lie apart", name);
}

// A work buffer belongs to the function. How much it needs the host's tiling functions say; at least a block.
inline void check_work(const char* name, Where where, const LocalTensor<uint8_t>& work) {
  if (checker() == nullptr) return;
  if (work.memory().bytes < int64_t{kBlockBytes}) {
    fail(where, "%s: the work buffer has %lld bytes; any shape needs at least %u", name,
         static_cast<long long>(work.memory().bytes), kBlockBytes);
  }
  check_temporary(name, where, work.memory());
}

}  // namespace cpu

// Numbers divided and rounded up, and up to a multiple.
template <class A, class B>
  requires(std::is_integral_v<A> && std::is_integral_v<B>)
constexpr std::common_type_t<A, B> Ceil(A number, B by) {
  return by == 0 ? 0 : (number + by - 1) / by;
}
template <class A, class B>
  requires(std::is_integral_v<A> && std::is_integral_v<B>)
constexpr std::common_type_t<A, B> CeilDivision(A number, B by) {
  return Ceil(number, by);
}
template <class A, class B>
  requires(std::is_integral_v<A> && std::is_integral_v<B>)
constexpr std::common_type_t<A, B> AlignUp(A number, B multiple) {
  return Ceil(number, multiple) * multiple;
}

}  // namespace AscendC
