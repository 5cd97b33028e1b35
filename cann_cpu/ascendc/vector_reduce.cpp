// SPDX-License-Identifier: Apache-2.0
// Reductions of repeats, of groups of lanes, of whole tensors; sums are made in double, rounded to float once.
#include <cstring>

#include "ascendc/reduce.h"
#include "vector_loops.h"

namespace AscendC::cpu {
namespace {

constexpr uint32_t kMostLanes = kRepeatBytes / sizeof(half);

// The lanes of one repeat as floats. Those that do not take part have no defined value.
class Repeat {
 public:
  Repeat(Dtype dtype, const Operand& operand, uint32_t repeat, uint32_t lanes) {
    const std::byte* from = operand.memory.data + size_t{repeat} * operand.repeat_stride;
    if (operand.block_stride != kBlockBytes) {
      for (uint32_t at = 0; at < kRepeatBytes; at += kBlockBytes, from += operand.block_stride) {
        std::memcpy(gathered_ + at, from, kBlockBytes);
      }
      from = gathered_;
    }
    if (dtype == Dtype::Half) {
      loops().widen[0](from, numbers_, lanes);
      values = numbers_;
    } else {
      values = reinterpret_cast<const float*>(from);
    }
  }

  // The same with 0 for the lanes that do not take part.
  const float* masked(const Mask& mask, uint32_t lanes) {
    for (uint32_t i = 0; i < lanes; ++i) numbers_[i] = mask.has(i) ? values[i] : 0;
    return numbers_;
  }

  const float* values;

 private:
  std::byte gathered_[kRepeatBytes];
  float numbers_[kMostLanes];
};

// The index of the largest (smallest) of the lanes from..to that take part; `to` if none does. The first of equals.
uint32_t best_lane(bool largest, const float* values, const Mask& mask, uint32_t from, uint32_t to) {
  uint32_t best = to;
  for (uint32_t lane = from; lane < to; ++lane) {
    if (!mask.has(lane)) continue;
    if (best == to || (largest ? values[lane] > values[best] : values[lane] < values[best])) best = lane;
  }
  return best;
}

uint32_t best_of_repeat(bool largest, const float* values, const Mask& mask, uint32_t lanes) {
  if (mask.elements > lanes) return best_lane(largest, values, mask, 0, lanes);
  return mask.elements == 0 ? lanes : loops().best(values, mask.elements, largest);
}

float sum_of_repeat(Repeat& repeat, const Mask& mask, uint32_t lanes) {
  return mask.elements <= lanes ? loops().sum(repeat.values, mask.elements)
                                : loops().sum(repeat.masked(mask, lanes), lanes);
}

void store_value(std::byte* to, Dtype dtype, float value) {
  dtype == Dtype::Half ? store(to, half(value)) : store(to, value);
}

// Value and index as an instruction gives them; the index has the width of the value, alone it has 32 bits.
void store_best(std::byte* to, ReduceOrder order, Dtype dtype, float value, uint32_t index) {
  const auto store_index = [&](std::byte* at) {
    dtype == Dtype::Half ? store(at, static_cast<uint16_t>(index)) : store(at, index);
  };
  switch (order) {
    case ReduceOrder::ORDER_VALUE_INDEX:
      store_value(to, dtype, value);
      return store_index(to + itemsize_of(dtype));
    case ReduceOrder::ORDER_INDEX_VALUE:
      store_index(to);
      return store_value(to + itemsize_of(dtype), dtype, value);
    case ReduceOrder::ORDER_ONLY_VALUE:
      return store_value(to, dtype, value);
    case ReduceOrder::ORDER_ONLY_INDEX:
      store(to, index);
  }
}

int64_t bytes_of(ReduceOrder order, Dtype dtype) {
  switch (order) {
    case ReduceOrder::ORDER_ONLY_VALUE:
      return itemsize_of(dtype);
    case ReduceOrder::ORDER_ONLY_INDEX:
      return sizeof(uint32_t);
    default:
      return 2 * itemsize_of(dtype);
  }
}

Operand source(const Reduced& r, uint32_t block_stride, uint32_t repeat_stride) {
  return {r.src, Use::Read, itemsize_of(r.dtype), block_stride, repeat_stride};
}

// Reports an instruction that writes `written` bytes for each repeat, `step` bytes apart.
void check_reduction(const Reduced& r, Where where, const Lanes& lanes, const Operand& src, int64_t written,
                     int64_t step) {
  if (checker() == nullptr) [[likely]]
    return;
  check_vector(r.name, where, lanes, std::span(&src, 1));
  for (uint32_t repeat = 0; repeat < lanes.repeats; ++repeat) {
    check_local(r.name, where, PIPE_V, Use::Write, r.dst, repeat * step, written);
  }
}

// The bytes of the work buffer. Every round keeps the result of each repeat, value and index, in whole blocks. With the
// index, all rounds are kept one after the other: the position in a round is needed to find the one in the tensor.
int64_t work_bytes(uint32_t itemsize, uint32_t repeats, bool with_index) {
  const uint32_t per_block = kBlockBytes / itemsize, lanes = kRepeatBytes / itemsize;
  const auto ceil = [](uint32_t number, uint32_t by) { return (number + by - 1) / by; };
  int64_t elements = 0;
  for (uint32_t results = 2 * repeats, round = 0; round < 3; ++round, results = 2 * ceil(results, lanes)) {
    elements += ceil(results, per_block) * per_block;
    if (!with_index || (round > 0 && results <= 2)) break;
  }
  return elements * itemsize;
}

// The number of repeats whose results a work buffer keeps. An incomplete last repeat is not among them.
uint32_t kept_repeats(const Lanes& lanes) {
  return lanes.repeats > 1 && lanes.last.elements < lanes.mask.elements ? lanes.repeats - 1 : lanes.repeats;
}

void check_work(const Reduced& r, Where where, const LocalMemory& work, const Lanes& lanes, const Operand& src,
                bool with_index) {
  const uint32_t itemsize = src.itemsize;
  check_vector(r.name, where, lanes, std::span(&src, 1));
  int64_t used = whole_blocks(kept_repeats(lanes) * itemsize);
  if (r.reduction == Reduction::Sum) {
    used = used < work.bytes ? used : work.bytes;
  } else {
    used = work_bytes(itemsize, kept_repeats(lanes), with_index);
    if (work.bytes < used) {
      fail(where, "%s: the work buffer has %lld elements and needs %lld", r.name,
           static_cast<long long>(work.bytes / itemsize), static_cast<long long>(used / itemsize));
    }
  }
  check_local(r.name, where, PIPE_V, Use::Write, work, 0, used);
  check_local(r.name, where, PIPE_V, Use::Write, r.dst, 0, itemsize * (with_index ? 2 : 1));
}

void reduce_all(const Reduced& r, Where where, const LocalMemory& work, bool with_index, const Lanes& lanes,
                const Operand& src) {
  if (checker() != nullptr) [[unlikely]]
    check_work(r, where, work, lanes, src, with_index);
  const bool largest = r.reduction == Reduction::Max;
  double sum = 0;
  float best = 0;
  uint32_t index = 0;
  bool found = false;
  for (uint32_t number = 0; number < lanes.repeats; ++number) {
    const Mask& mask = lanes.of_repeat(number);
    Repeat repeat(r.dtype, src, number, lanes.per_repeat);
    if (r.reduction == Reduction::Sum) {
      sum += static_cast<double>(sum_of_repeat(repeat, mask, lanes.per_repeat));
      continue;
    }
    const uint32_t lane = best_of_repeat(largest, repeat.values, mask, lanes.per_repeat);
    if (lane == lanes.per_repeat) continue;
    const float value = repeat.values[lane];
    if (found && !(largest ? value > best : value < best)) continue;
    found = true;
    best = value;
    index = number * (src.repeat_stride / src.itemsize) + lane;
  }
  if (r.reduction == Reduction::Sum) {
    if (lanes.repeats != 0) store_value(r.dst.data, r.dtype, static_cast<float>(sum));
  } else if (found) {
    store_best(r.dst.data, with_index ? ReduceOrder::ORDER_VALUE_INDEX : ReduceOrder::ORDER_ONLY_VALUE, r.dtype, best,
               index);
  }
}

}  // namespace

void reduce_repeats(const Reduced& r, Where where, const MaskArgument& mask, RepeatArgument repeats,
                    uint32_t dst_stride, uint32_t block_stride, uint32_t repeat_stride, ReduceOrder order) {
  const uint32_t n = kRepeatBytes / itemsize_of(r.dtype);
  const Lanes lanes = Lanes::of_mask(r.name, where, n, mask, repeats);
  const Operand src = source(r, block_stride * kBlockBytes, repeat_stride * kBlockBytes);
  const int64_t bytes = bytes_of(order, r.dtype), step = dst_stride * bytes;
  check_reduction(r, where, lanes, src, bytes, step);
  for (uint32_t number = 0; number < lanes.repeats; ++number) {
    const Repeat repeat(r.dtype, src, number, n);
    const uint32_t best = best_of_repeat(r.reduction == Reduction::Max, repeat.values, lanes.of_repeat(number), n);
    if (best != n) store_best(r.dst.data + number * step, order, r.dtype, repeat.values[best], best);
  }
}

void reduce_groups(const Reduced& r, Where where, uint32_t group, const MaskArgument& mask, RepeatArgument repeats,
                   uint32_t dst_stride, uint32_t block_stride, uint32_t repeat_stride) {
  const uint32_t n = kRepeatBytes / itemsize_of(r.dtype), groups = n / group;
  const Lanes lanes = Lanes::of_mask(r.name, where, n, mask, repeats);
  const Operand src = source(r, block_stride * kBlockBytes, repeat_stride * kBlockBytes);
  const int64_t bytes = int64_t{groups} * itemsize_of(r.dtype), step = dst_stride * bytes;
  check_reduction(r, where, lanes, src, bytes, step);
  const bool largest = r.reduction == Reduction::Max;
  for (uint32_t number = 0; number < lanes.repeats; ++number) {
    const Mask& of_repeat = lanes.of_repeat(number);
    Repeat repeat(r.dtype, src, number, n);
    float results[kMostLanes];
    if (r.reduction == Reduction::Sum && groups == 1) {
      results[0] = sum_of_repeat(repeat, of_repeat, n);
    } else if (r.reduction == Reduction::Sum) {
      loops().sums(of_repeat.elements == n ? repeat.values : repeat.masked(of_repeat, n), groups, group, results);
    } else if (of_repeat.elements == n) {
      loops().bests(repeat.values, groups, group, largest, results);
    } else {
      for (uint32_t i = 0; i < groups; ++i) {
        const uint32_t best = best_lane(largest, repeat.values, of_repeat, i * group, (i + 1) * group);
        results[i] = best == (i + 1) * group ? 0 : repeat.values[best];  // the vector unit gives zero
      }
    }
    std::byte* to = r.dst.data + number * step;
    r.dtype == Dtype::Half ? loops().narrow[0](results, to, groups)
                           : static_cast<void>(std::memcpy(to, results, groups * sizeof(float)));
  }
}

void reduce_all(const Reduced& r, Where where, const LocalMemory& work, bool with_index, int64_t count) {
  const Lanes lanes = Lanes::of_count(kRepeatBytes / itemsize_of(r.dtype), count);
  reduce_all(r, where, work, with_index, lanes, source(r, kBlockBytes, kRepeatBytes));
}

void reduce_all(const Reduced& r, Where where, const LocalMemory& work, bool with_index, const MaskArgument& mask,
                uint32_t repeats, uint32_t repeat_stride) {
  const Lanes lanes = Lanes::of_mask(r.name, where, kRepeatBytes / itemsize_of(r.dtype), mask, repeats);
  reduce_all(r, where, work, with_index, lanes, source(r, kBlockBytes, repeat_stride * kBlockBytes));
}

}  // namespace AscendC::cpu
