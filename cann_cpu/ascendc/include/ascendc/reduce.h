// SPDX-License-Identifier: Apache-2.0
// Reductions: of whole repeats, of blocks of 32 bytes, of pairs, of a whole tensor. Sums are made in float, rounded
// once.
#pragma once

#include "ascendc/vector.h"

namespace AscendC {

// What WholeReduceMax and WholeReduceMin give: the value, the index of the element in its repeat, or both.
enum class ReduceOrder : uint8_t { ORDER_VALUE_INDEX, ORDER_INDEX_VALUE, ORDER_ONLY_VALUE, ORDER_ONLY_INDEX };

namespace cpu {

enum class Reduction : uint8_t { Sum, Max, Min };

// The operands of a reduction; the strides are those of src.
struct Reduced {
  const char* name;
  Reduction reduction;
  Dtype dtype;
  const LocalMemory& dst;
  const LocalMemory& src;
};
template <class T>
Reduced reduced(const char* name, Where where, Reduction reduction, const LocalTensor<T>& dst,
                const LocalTensor<T>& src) {
  needs<T>(name, where);
  return {name, reduction, dtype_of<T>(), dst.memory(), src.memory()};
}

// The value of each repeat, its index, or both; dst_stride counts such results.
ASCENDC_CPU_EXPORT void reduce_repeats(const Reduced& operands, Where where, const MaskArgument& mask,
                                       RepeatArgument repeats, uint32_t dst_stride, uint32_t block_stride,
                                       uint32_t repeat_stride, ReduceOrder order);
// A result for each `group` lanes, one after the other; dst_stride counts the results of a repeat.
ASCENDC_CPU_EXPORT void reduce_groups(const Reduced& operands, Where where, uint32_t group, const MaskArgument& mask,
                                      RepeatArgument repeats, uint32_t dst_stride, uint32_t block_stride,
                                      uint32_t repeat_stride);
// Of the first `count` elements, or those of a mask: the sum, or the best and, with_index, then its place.
ASCENDC_CPU_EXPORT void reduce_all(const Reduced& operands, Where where, const LocalMemory& work, bool with_index,
                                   int64_t count);
ASCENDC_CPU_EXPORT void reduce_all(const Reduced& operands, Where where, const LocalMemory& work, bool with_index,
                                   const MaskArgument& mask, uint32_t repeats, uint32_t repeat_stride);

}  // namespace cpu

// The largest (smallest) of each repeat; dst_stride counts results.
#define ASCENDC_CPU_WHOLE_REDUCE(Name, reduction)                                                                      \
  template <class T, bool isSetMask = true>                                                                            \
    requires cpu::OneOf<T, half, float>                                                                                \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const cpu::MaskArgument& mask,                       \
            cpu::RepeatArgument repeats, uint32_t dst_stride, uint32_t src_block_stride, uint32_t src_repeat_stride,   \
            ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, cpu::Where where = cpu::Where::current()) {            \
    cpu::reduce_repeats(cpu::reduced(#Name, where, reduction, dst, src), where, cpu::chosen<isSetMask>(mask), repeats, \
                        dst_stride, src_block_stride, src_repeat_stride, order);                                       \
  }
ASCENDC_CPU_WHOLE_REDUCE(WholeReduceMax, cpu::Reduction::Max)
ASCENDC_CPU_WHOLE_REDUCE(WholeReduceMin, cpu::Reduction::Min)
#undef ASCENDC_CPU_WHOLE_REDUCE

// The sum of each repeat; dst_stride counts elements.
template <class T, bool isSetMask = true>
  requires cpu::OneOf<T, half, float>
void WholeReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const cpu::MaskArgument& mask,
                    cpu::RepeatArgument repeats, uint32_t dst_stride, uint32_t src_block_stride,
                    uint32_t src_repeat_stride, cpu::Where where = cpu::Where::current()) {
  cpu::reduce_groups(cpu::reduced("WholeReduceSum", where, cpu::Reduction::Sum, dst, src), where, cpu::kLanes<T>,
                     cpu::chosen<isSetMask>(mask), repeats, dst_stride, src_block_stride, src_repeat_stride);
}

// The sum of each repeat; dst_stride counts elements.
template <class T, bool isSetMask = true>
  requires cpu::OneOf<T, half, float>
void RepeatReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, cpu::RepeatArgument repeats,
                     const cpu::MaskArgument& mask, uint32_t /*dst_block_stride*/, uint32_t src_block_stride,
                     uint32_t dst_stride, uint32_t src_repeat_stride, cpu::Where where = cpu::Where::current()) {
  cpu::reduce_groups(cpu::reduced("RepeatReduceSum", where, cpu::Reduction::Sum, dst, src), where, cpu::kLanes<T>,
                     cpu::chosen<isSetMask>(mask), repeats, dst_stride, src_block_stride, src_repeat_stride);
}

// A result for each block of 32 bytes, or for each pair of elements; dst_stride counts the results of a repeat.
#define ASCENDC_CPU_GROUP_REDUCE(Name, reduction, group)                                                               \
  template <class T, bool isSetMask = true>                                                                            \
    requires cpu::OneOf<T, half, float>                                                                                \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, cpu::RepeatArgument repeats,                         \
            const cpu::MaskArgument& mask, uint32_t dst_stride, uint32_t src_block_stride, uint32_t src_repeat_stride, \
            cpu::Where where = cpu::Where::current()) {                                                                \
    cpu::reduce_groups(cpu::reduced(#Name, where, cpu::Reduction::reduction, dst, src), where, group,                  \
                       cpu::chosen<isSetMask>(mask), repeats, dst_stride, src_block_stride, src_repeat_stride);        \
  }
ASCENDC_CPU_GROUP_REDUCE(BlockReduceSum, Sum, cpu::kBlockBytes / sizeof(T))
ASCENDC_CPU_GROUP_REDUCE(BlockReduceMax, Max, cpu::kBlockBytes / sizeof(T))
ASCENDC_CPU_GROUP_REDUCE(BlockReduceMin, Min, cpu::kBlockBytes / sizeof(T))
ASCENDC_CPU_GROUP_REDUCE(PairReduceSum, Sum, 2)
#undef ASCENDC_CPU_GROUP_REDUCE

// The largest (smallest) of all elements and, with_index, then its index in the bits of an integer.
#define ASCENDC_CPU_TENSOR_REDUCE(Name, reduction)                                                                \
  template <class T>                                                                                              \
    requires cpu::OneOf<T, half, float>                                                                           \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& workspace, int32_t count, \
            bool with_index = false, cpu::Where where = cpu::Where::current()) {                                  \
    cpu::reduce_all(cpu::reduced(#Name, where, cpu::Reduction::reduction, dst, src), where, workspace.memory(),   \
                    with_index, count);                                                                           \
  }                                                                                                               \
  template <class T, bool isSetMask = true>                                                                       \
    requires cpu::OneOf<T, half, float>                                                                           \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& workspace,                \
            const cpu::MaskArgument& mask, int32_t repeats, int32_t src_repeat_stride, bool with_index = false,   \
            cpu::Where where = cpu::Where::current()) {                                                           \
    cpu::reduce_all(cpu::reduced(#Name, where, cpu::Reduction::reduction, dst, src), where, workspace.memory(),   \
                    with_index, cpu::chosen<isSetMask>(mask), static_cast<uint32_t>(repeats), src_repeat_stride); \
  }
ASCENDC_CPU_TENSOR_REDUCE(ReduceMax, Max)
ASCENDC_CPU_TENSOR_REDUCE(ReduceMin, Min)
#undef ASCENDC_CPU_TENSOR_REDUCE

// The sum of all elements.
template <class T>
  requires cpu::OneOf<T, half, float>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& workspace, int32_t count,
               cpu::Where where = cpu::Where::current()) {
  cpu::reduce_all(cpu::reduced("ReduceSum", where, cpu::Reduction::Sum, dst, src), where, workspace.memory(), false,
                  count);
}

template <class T, bool isSetMask = true>
  requires cpu::OneOf<T, half, float>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& workspace,
               const cpu::MaskArgument& mask, int32_t repeats, int32_t src_repeat_stride,
               cpu::Where where = cpu::Where::current()) {
  cpu::reduce_all(cpu::reduced("ReduceSum", where, cpu::Reduction::Sum, dst, src), where, workspace.memory(), false,
                  cpu::chosen<isSetMask>(mask), static_cast<uint32_t>(repeats), src_repeat_stride);
}

}  // namespace AscendC
