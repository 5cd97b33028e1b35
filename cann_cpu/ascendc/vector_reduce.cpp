// SPDX-License-Identifier: Apache-2.0
// Reductions of repeats, of groups of lanes, of whole tensors; sums are made in double, rounded to float once.
#include <algorithm>
#include <cstring>

#include "ascendc/reduce.h"
#include "vector_loops.h"

namespace AscendC::cpu {
namespace {

constexpr uint32_t kMostLanes = kRepeatBytes / sizeof(half);

constexpr uint32_t kMostRepeats = 16;  // that are reduced at a time, where dst lies apart from them

// The lanes of repeats as floats, one after the other. Those that do not take part have no defined value.
class Repeats {
 public:
  Repeats(Dtype dtype, const Operand& operand, uint32_t first, uint32_t repeats, uint32_t lanes) {
    const std::byte* from = operand.memory.data + size_t{first} * operand.repeat_stride;
    const bool is_one = operand.block_stride == kBlockBytes && (repeats == 1 || operand.repeat_stride == kRepeatBytes);
    if (!is_one) {
      for (uint32_t i = 0; i < repeats * kRepeatBytes; i += kBlockBytes) {
        std::memcpy(gathered_ + i,
                    from + size_t{i / kRepeatBytes} * operand.repeat_stride +
                        size_t{i % kRepeatBytes / kBlockBytes} * operand.block_stride,
                    kBlockBytes);
      }
      from = gathered_;
    }
    if (dtype == Dtype::Half) {
      loops().widen[0](from, numbers_, repeats * lanes);
      values = numbers_;
    } else {
      values = reinterpret_cast<const float*>(from);
    }
  }

  // One repeat with 0 for the lanes that do not take part.
  const float* masked(const Mask& mask, uint32_t lanes) {
    for (uint32_t i = 0; i < lanes; ++i) numbers_[i] = mask.has(i) ? values[i] : 0;
    return numbers_;
  }

  const float* values;

 private:
  std::byte gathered_[kMostRepeats * kRepeatBytes];
  float numbers_[kMostRepeats * kMostLanes];
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

// The same of a repeat; its best is looked for only if it may be better than `best`.
uint32_t best_of_repeat(bool largest, const float* values, const Mask& mask, uint32_t lanes, const float* best) {
  if (mask.elements > lanes) return best_lane(largest, values, mask, 0, lanes);
  if (mask.elements == 0) return lanes;
  float value;
  loops().bests(values, 1, mask.elements, largest, &value);
  if (best != nullptr && !(largest ? value > *best : value < *best)) return lanes;
  return loops().place(values, mask.elements, value);
}

float sum_of_repeat(Repeats& repeat, const Mask& mask, uint32_t lanes) {
  const bool is_prefix = mask.elements <= lanes;
  float sum;
  loops().sums(is_prefix ? repeat.values : repeat.masked(mask, lanes), 1, is_prefix ? mask.elements : lanes, &sum);
  return sum;
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
  if (step == written) return check_local(r.name, where, PIPE_V, Use::Write, r.dst, 0, lanes.repeats * written);
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
    Repeats repeat(r.dtype, src, number, 1, lanes.per_repeat);
    if (r.reduction == Reduction::Sum) {
      sum += static_cast<double>(sum_of_repeat(repeat, mask, lanes.per_repeat));
      continue;
    }
    const uint32_t lane = best_of_repeat(largest, repeat.values, mask, lanes.per_repeat, found ? &best : nullptr);
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
    const Repeats repeat(r.dtype, src, number, 1, n);
    const uint32_t best =
        best_of_repeat(r.reduction == Reduction::Max, repeat.values, lanes.of_repeat(number), n, nullptr);
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
  const bool largest = r.reduction == Reduction::Max, is_full = lanes.mask.elements == n;
  const std::byte *from_end = src.memory.data + size_t{lanes.repeats} * src.repeat_stride + 8 * src.block_stride,
                  *to_end = r.dst.data + lanes.repeats * step + bytes;
  const bool is_apart = to_end <= src.memory.data || from_end <= r.dst.data;
  const uint32_t at_a_time = is_full && is_apart ? kMostRepeats : 1;
  for (uint32_t first = 0; first < lanes.repeats; first += at_a_time) {
    const uint32_t count = std::min(at_a_time, lanes.repeats - first);
    Repeats repeats_read(r.dtype, src, first, count, n);
    float results[kMostRepeats * kMostLanes];
    if (r.reduction == Reduction::Sum) {
      if (is_full) {
        loops().sums(repeats_read.values, count * groups, group, results);
      } else if (groups == 1) {
        results[0] = sum_of_repeat(repeats_read, lanes.mask, n);
      } else {
        loops().sums(repeats_read.masked(lanes.mask, n), groups, group, results);
      }
    } else if (is_full) {
      loops().bests(repeats_read.values, count * groups, group, largest, results);
    } else {
      for (uint32_t i = 0; i < groups; ++i) {
        const uint32_t best = best_lane(largest, repeats_read.values, lanes.mask, i * group, (i + 1) * group);
        results[i] = best == (i + 1) * group ? 0 : repeats_read.values[best];  // the vector unit gives zero
      }
    }
    const bool in_a_row = step == bytes;
    for (uint32_t i = 0; i < (in_a_row ? 1 : count); ++i) {
      std::byte* to = r.dst.data + (first + i) * step;
      const uint32_t written = in_a_row ? count * groups : groups;
      r.dtype == Dtype::Half ? loops().narrow[0](results + i * groups, to, written)
                             : static_cast<void>(std::memcpy(to, results + i * groups, written * sizeof(float)));
    }
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
