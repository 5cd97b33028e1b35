// SPDX-License-Identifier: Apache-2.0
// Reductions: of whole repeats, of blocks of 32 bytes, of pairs, of a whole tensor. Sums are made in float, rounded
// once.
#pragma once

#include <utility>

#include "ascendc/vector.h"

namespace AscendC {

// What WholeReduceMax and WholeReduceMin give: the value, the index of the element in its repeat, or both.
enum class ReduceOrder : uint8_t { ORDER_VALUE_INDEX, ORDER_INDEX_VALUE, ORDER_ONLY_VALUE, ORDER_ONLY_INDEX };

namespace cpu {

// Calls one(repeat, values, mask) for the lanes of every repeat. Reports here what it writes to dst: `written` bytes
// for each repeat, `step` bytes apart.
template <class T, class One>
void for_each_repeat(const char* name, Where where, const Lanes& lanes, const LocalTensor<T>& dst, int64_t written,
                     int64_t step, const Operand& src, const One& one) {
  needs<T>(name, where);
  if (checker() != nullptr) [[unlikely]] {
    check_vector(name, where, lanes, {src});
    for (uint32_t repeat = 0; repeat < lanes.repeats; ++repeat) {
      check_local(name, where, PIPE_V, Use::Write, dst.memory(), repeat * step, written);
    }
  }
  for (uint32_t repeat = 0; repeat < lanes.repeats; ++repeat) {
    const Mask& mask = lanes.of_repeat(repeat);
    one(dst.memory().data + repeat * step, Values<T, kLanes<T>>::read(src, repeat, mask).of, mask);
  }
}

// The index of the largest (smallest) of the lanes from..to that take part; `to` if none does. The first of equals.
template <class Better, class Number>
uint32_t best_lane(const Better& better, const Number* values, const Mask& mask, uint32_t from, uint32_t to) {
  uint32_t best = to;
  for (uint32_t lane = from; lane < to; ++lane) {
    if (mask.has(lane) && (best == to || better(values[lane], values[best]))) best = lane;
  }
  return best;
}

inline float sum_of_lanes(const float* values, const Mask& mask, uint32_t from, uint32_t to) {
  double sum = 0;
  for (uint32_t lane = from; lane < to; ++lane) sum += mask.has(lane) ? values[lane] : 0;
  return static_cast<float>(sum);
}

inline constexpr auto greater = [](auto a, auto b) { return a > b; };
inline constexpr auto less = [](auto a, auto b) { return a < b; };

template <class T>
using IndexOf = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;

// Value and index as an instruction gives them; the index has the width of the value, alone it has 32 bits.
template <class T>
void store_best(std::byte* to, ReduceOrder order, T value, uint32_t index) {
  switch (order) {
    case ReduceOrder::ORDER_VALUE_INDEX:
      store(to, value);
      store(to + sizeof(T), static_cast<IndexOf<T>>(index));
      return;
    case ReduceOrder::ORDER_INDEX_VALUE:
      store(to, static_cast<IndexOf<T>>(index));
      store(to + sizeof(T), value);
      return;
    case ReduceOrder::ORDER_ONLY_VALUE:
      store(to, value);
      return;
    case ReduceOrder::ORDER_ONLY_INDEX:
      store(to, index);
  }
}

template <class T>
constexpr int64_t bytes_of(ReduceOrder order) {
  switch (order) {
    case ReduceOrder::ORDER_ONLY_VALUE:
      return sizeof(T);
    case ReduceOrder::ORDER_ONLY_INDEX:
      return sizeof(uint32_t);
    default:
      return 2 * sizeof(T);
  }
}

template <class T, class Better>
void whole_reduce(const char* name, Where where, const Better& better, const LocalTensor<T>& dst,
                  const LocalTensor<T>& src, const cpu::MaskArgument& mask, cpu::RepeatArgument repeats,
                  uint32_t dst_stride, uint32_t block_stride, uint32_t repeat_stride, ReduceOrder order) {
  const int64_t bytes = bytes_of<T>(order);
  for_each_repeat(name, where, Lanes::of_mask(name, where, kLanes<T>, mask, repeats), dst, bytes, dst_stride * bytes,
                  strided(Use::Read, src, block_stride, repeat_stride),
                  [&](std::byte* to, const Computed<T>* values, const Mask& lanes) {
                    const uint32_t best = best_lane(better, values, lanes, 0, kLanes<T>);
                    if (best != kLanes<T>) store_best(to, order, T(values[best]), best);
                  });
}

// One result for each group of `group` lanes, stored consecutively; `dst_stride` counts repeats' results.
template <class T, class Reduce>
void group_reduce(const char* name, Where where, const Reduce& reduce, uint32_t group, const LocalTensor<T>& dst,
                  const LocalTensor<T>& src, const cpu::MaskArgument& mask, cpu::RepeatArgument repeats,
                  uint32_t dst_stride, uint32_t block_stride, uint32_t repeat_stride) {
  const uint32_t groups = kLanes<T> / group;
  const auto bytes = static_cast<int64_t>(groups * sizeof(T));
  for_each_repeat(name, where, Lanes::of_mask(name, where, kLanes<T>, mask, repeats), dst, bytes, dst_stride * bytes,
                  strided(Use::Read, src, block_stride, repeat_stride),
                  [&](std::byte* to, const float* values, const Mask& lanes) {
                    for (uint32_t i = 0; i < groups; ++i) {
                      store(to + i * sizeof(T), T(reduce(values, lanes, i * group, (i + 1) * group)));
                    }
                  });
}

// The vector unit gives zero for a block without participating lanes.
template <class Better>
auto best_value(const Better& better) {
  return [better](const float* values, const Mask& mask, uint32_t from, uint32_t to) {
    const uint32_t best = best_lane(better, values, mask, from, to);
    return best == to ? 0.0f : values[best];
  };
}

// The bytes of the work buffer. Every round keeps the result of each repeat, value and index, in whole blocks. With the
// index, all rounds are kept one after the other: the position in a round is needed to find the one in the tensor.
template <class T>
constexpr int64_t work_bytes(uint32_t repeats, bool with_index) {
  constexpr uint32_t kPerBlock = kBlockBytes / sizeof(T);
  const auto ceil = [](uint32_t number, uint32_t by) { return (number + by - 1) / by; };
  int64_t elements = 0;
  for (uint32_t results = 2 * repeats, round = 0; round < 3; ++round, results = 2 * ceil(results, kLanes<T>)) {
    elements += ceil(results, kPerBlock) * kPerBlock;
    if (!with_index || (round > 0 && results <= 2)) break;
  }
  return elements * static_cast<int64_t>(sizeof(T));
}

// The number of repeats whose results a work buffer keeps. An incomplete last repeat is not among them.
constexpr uint32_t kept_repeats(const Lanes& lanes) {
  return lanes.repeats > 1 && lanes.last.elements < lanes.mask.elements ? lanes.repeats - 1 : lanes.repeats;
}

// The best element of all repeats, and its place among the elements of the tensor.
template <class T, class Better>
void tensor_reduce(const char* name, Where where, const Better& better, const LocalTensor<T>& dst, const Operand& src,
                   const LocalMemory& work, const Lanes& lanes, bool with_index) {
  if (checker() != nullptr) [[unlikely]] {
    check_vector(name, where, lanes, {src});
    const int64_t needed = work_bytes<T>(kept_repeats(lanes), with_index);
    if (work.bytes < needed) {
      fail(where, "%s: the work buffer has %lld elements and needs %lld", name,
           static_cast<long long>(work.bytes / static_cast<int64_t>(sizeof(T))),
           static_cast<long long>(needed / static_cast<int64_t>(sizeof(T))));
    }
    check_local(name, where, PIPE_V, Use::Write, work, 0, needed);
    check_local(name, where, PIPE_V, Use::Write, dst.memory(), 0, sizeof(T) * (with_index ? 2 : 1));
  }
  Computed<T> best{};
  uint32_t index = 0;
  bool found = false;
  for (uint32_t repeat = 0; repeat < lanes.repeats; ++repeat) {
    const Mask& mask = lanes.of_repeat(repeat);
    const auto values = Values<T, kLanes<T>>::read(src, repeat, mask);
    const uint32_t lane = best_lane(better, values.of, mask, 0, kLanes<T>);
    if (lane == kLanes<T> || (found && !better(values.of[lane], best))) continue;
    found = true;
    best = values.of[lane];
    index = repeat * static_cast<uint32_t>(src.repeat_stride / sizeof(T)) + lane;
  }
  if (found)
    store_best(dst.memory().data, with_index ? ReduceOrder::ORDER_VALUE_INDEX : ReduceOrder::ORDER_ONLY_VALUE, T(best),
               index);
}

template <class T>
void tensor_sum(Where where, const LocalTensor<T>& dst, const Operand& src, const LocalMemory& work,
                const Lanes& lanes) {
  if (checker() != nullptr) [[unlikely]] {
    check_vector("ReduceSum", where, lanes, {src});
    const int64_t used = whole_blocks(kept_repeats(lanes) * sizeof(T));
    check_local("ReduceSum", where, PIPE_V, Use::Write, work, 0, used < work.bytes ? used : work.bytes);
    check_local("ReduceSum", where, PIPE_V, Use::Write, dst.memory(), 0, sizeof(T));
  }
  double sum = 0;
  for (uint32_t repeat = 0; repeat < lanes.repeats; ++repeat) {
    const Mask& mask = lanes.of_repeat(repeat);
    sum += sum_of_lanes(Values<T, kLanes<T>>::read(src, repeat, mask).of, mask, 0, kLanes<T>);
  }
  if (lanes.repeats != 0) store(dst.memory().data, T(static_cast<float>(sum)));
}

}  // namespace cpu

// The largest (smallest) of each repeat; dst_stride counts results.
#define ASCENDC_CPU_WHOLE_REDUCE(Name, better)                                                                       \
  template <class T, bool isSetMask = true>                                                                          \
    requires cpu::OneOf<T, half, float>                                                                              \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const cpu::MaskArgument& mask,                     \
            cpu::RepeatArgument repeats, uint32_t dst_stride, uint32_t src_block_stride, uint32_t src_repeat_stride, \
            ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, cpu::Where where = cpu::Where::current()) {          \
    cpu::whole_reduce(#Name, where, better, dst, src, cpu::chosen<isSetMask>(mask), repeats, dst_stride,             \
                      src_block_stride, src_repeat_stride, order);                                                   \
  }
ASCENDC_CPU_WHOLE_REDUCE(WholeReduceMax, cpu::greater)
ASCENDC_CPU_WHOLE_REDUCE(WholeReduceMin, cpu::less)
#undef ASCENDC_CPU_WHOLE_REDUCE

// The sum of each repeat; dst_stride counts elements.
template <class T, bool isSetMask = true>
  requires cpu::OneOf<T, half, float>
void WholeReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const cpu::MaskArgument& mask,
                    cpu::RepeatArgument repeats, uint32_t dst_stride, uint32_t src_block_stride,
                    uint32_t src_repeat_stride, cpu::Where where = cpu::Where::current()) {
  cpu::group_reduce("WholeReduceSum", where, cpu::sum_of_lanes, cpu::kLanes<T>, dst, src, cpu::chosen<isSetMask>(mask),
                    repeats, dst_stride, src_block_stride, src_repeat_stride);
}

// The sum of each repeat; dst_stride counts elements.
template <class T, bool isSetMask = true>
  requires cpu::OneOf<T, half, float>
void RepeatReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, cpu::RepeatArgument repeats,
                     const cpu::MaskArgument& mask, uint32_t /*dst_block_stride*/, uint32_t src_block_stride,
                     uint32_t dst_stride, uint32_t src_repeat_stride, cpu::Where where = cpu::Where::current()) {
  cpu::group_reduce("RepeatReduceSum", where, cpu::sum_of_lanes, cpu::kLanes<T>, dst, src, cpu::chosen<isSetMask>(mask),
                    repeats, dst_stride, src_block_stride, src_repeat_stride);
}

// A result for each block of 32 bytes, or for each pair of elements; dst_stride counts the results of a repeat.
#define ASCENDC_CPU_GROUP_REDUCE(Name, reduce, group)                                                                  \
  template <class T, bool isSetMask = true>                                                                            \
    requires cpu::OneOf<T, half, float>                                                                                \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, cpu::RepeatArgument repeats,                         \
            const cpu::MaskArgument& mask, uint32_t dst_stride, uint32_t src_block_stride, uint32_t src_repeat_stride, \
            cpu::Where where = cpu::Where::current()) {                                                                \
    cpu::group_reduce(#Name, where, reduce, group, dst, src, cpu::chosen<isSetMask>(mask), repeats, dst_stride,        \
                      src_block_stride, src_repeat_stride);                                                            \
  }
ASCENDC_CPU_GROUP_REDUCE(BlockReduceSum, cpu::sum_of_lanes, cpu::kBlockBytes / sizeof(T))
ASCENDC_CPU_GROUP_REDUCE(BlockReduceMax, cpu::best_value(cpu::greater), cpu::kBlockBytes / sizeof(T))
ASCENDC_CPU_GROUP_REDUCE(BlockReduceMin, cpu::best_value(cpu::less), cpu::kBlockBytes / sizeof(T))
ASCENDC_CPU_GROUP_REDUCE(PairReduceSum, cpu::sum_of_lanes, 2)
#undef ASCENDC_CPU_GROUP_REDUCE

// The largest (smallest) of all elements and, with_index, then its index in the bits of an integer.
#define ASCENDC_CPU_TENSOR_REDUCE(Name, better)                                                                   \
  template <class T>                                                                                              \
    requires cpu::OneOf<T, half, float>                                                                           \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& workspace, int32_t count, \
            bool with_index = false, cpu::Where where = cpu::Where::current()) {                                  \
    constexpr uint32_t n = cpu::kLanes<T>;                                                                        \
    cpu::tensor_reduce(#Name, where, better, dst, cpu::consecutive(cpu::Use::Read, src, n), workspace.memory(),   \
                       cpu::Lanes::of_count(n, count), with_index);                                               \
  }                                                                                                               \
  template <class T, bool isSetMask = true>                                                                       \
    requires cpu::OneOf<T, half, float>                                                                           \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& workspace,                \
            const cpu::MaskArgument& mask, int32_t repeats, int32_t src_repeat_stride, bool with_index = false,   \
            cpu::Where where = cpu::Where::current()) {                                                           \
    cpu::tensor_reduce(#Name, where, better, dst, cpu::strided(cpu::Use::Read, src, 1, src_repeat_stride),        \
                       workspace.memory(),                                                                        \
                       cpu::Lanes::of_mask(#Name, where, cpu::kLanes<T>, cpu::chosen<isSetMask>(mask),            \
                                           static_cast<uint32_t>(repeats)),                                       \
                       with_index);                                                                               \
  }
ASCENDC_CPU_TENSOR_REDUCE(ReduceMax, cpu::greater)
ASCENDC_CPU_TENSOR_REDUCE(ReduceMin, cpu::less)
#undef ASCENDC_CPU_TENSOR_REDUCE

// The sum of all elements.
template <class T>
  requires cpu::OneOf<T, half, float>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& workspace, int32_t count,
               cpu::Where where = cpu::Where::current()) {
  constexpr uint32_t n = cpu::kLanes<T>;
  cpu::tensor_sum(where, dst, cpu::consecutive(cpu::Use::Read, src, n), workspace.memory(),
                  cpu::Lanes::of_count(n, count));
}

template <class T, bool isSetMask = true>
  requires cpu::OneOf<T, half, float>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& workspace,
               const cpu::MaskArgument& mask, int32_t repeats, int32_t src_repeat_stride,
               cpu::Where where = cpu::Where::current()) {
  cpu::tensor_sum(where, dst, cpu::strided(cpu::Use::Read, src, 1, src_repeat_stride), workspace.memory(),
                  cpu::Lanes::of_mask("ReduceSum", where, cpu::kLanes<T>, cpu::chosen<isSetMask>(mask),
                                      static_cast<uint32_t>(repeats)));
}

}  // namespace AscendC
