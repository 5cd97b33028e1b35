// SPDX-License-Identifier: Apache-2.0
// The instructions of the vector unit: checked, then computed by the loops of the CPU's level.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ascendc/cast.h"
#include "cann_cpu/cpu_capability.h"
#include "vector_loops.h"

namespace AscendC::cpu {

const Loops& loops() {
  static const Loops& chosen = []() -> const Loops& {
#if defined(__x86_64__)
    const auto level = cann_cpu::cpu_capability();
    if (level == cann_cpu::CpuCapability::kAvx512) return avx512::loops();
    if (level == cann_cpu::CpuCapability::kAvx2) return avx2::loops();
#endif
    return generic::loops();
  }();
  return chosen;
}

namespace {

uint32_t lanes_of(const Instruction& instruction) {
  return kRepeatBytes / std::max({itemsize_of(instruction.dst), itemsize_of(instruction.src), 2u});
}

constexpr uint32_t kBits = 0;  // as the size of an element: a bit

int64_t bytes_of(const Operand& operand, uint32_t elements) {
  return operand.itemsize == kBits ? (elements + 7) / 8 : int64_t{elements} * operand.itemsize;
}

// ---- operands as rows

// The bytes of operands that a loop takes: where the first repeat begins, and how far on each other one does.
struct Place {
  const std::byte* data;
  int64_t step;
  int64_t row_bytes;
};

bool is_apart(const Place& a, const Place& b, uint32_t rows) {
  const auto begin = [](const Place& place) { return reinterpret_cast<uintptr_t>(place.data); };
  const auto end = [&](const Place& place) {
    return begin(place) + static_cast<uintptr_t>(int64_t{rows - 1} * place.step + place.row_bytes);
  };
  return end(a) <= begin(b) || end(b) <= begin(a);
}

// Whether a loop may take rows as they lie: each row of the source is that of dst, or apart from it.
bool is_in_place(const Place& dst, const Place& src, uint32_t rows) {
  if (is_apart(dst, src, rows)) return true;
  const bool same_width = dst.row_bytes == src.row_bytes;
  if (dst.data == src.data && dst.step == src.step && same_width) return true;
  for (uint32_t row = 0; row < rows; ++row) {
    const Place to{dst.data + row * dst.step, 0, dst.row_bytes}, from{src.data + row * src.step, 0, src.row_bytes};
    if (!(to.data == from.data && same_width) && !is_apart(to, from, 1)) return false;
  }
  return true;
}

// The lanes of an operand in a repeat, one after the other. Blocks without lanes are not read, and are 0.
void gather(const Operand& operand, uint32_t repeat, uint32_t lanes, const Mask& mask, std::byte* to) {
  const std::byte* from = operand.memory.data + size_t{repeat} * operand.repeat_stride;
  const auto bytes = static_cast<uint32_t>(bytes_of(operand, lanes));
  if (operand.block_stride == kBlockBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  if (operand.block_stride == 0 && mask.elements <= lanes) {  // one block, again and again
    std::byte block[kBlockBytes];
    std::memcpy(block, from, kBlockBytes);
    for (uint32_t at = 0; at < bytes; at += kBlockBytes) std::memcpy(to + at, block, kBlockBytes);
    return;
  }
  const uint32_t per_block = kBlockBytes / operand.itemsize;
  for (uint32_t at = 0; at < bytes; at += kBlockBytes, from += operand.block_stride) {
    if (mask.has_any(at / kBlockBytes * per_block, per_block)) {
      std::memcpy(to + at, from, kBlockBytes);
    } else {
      std::memset(to + at, 0, kBlockBytes);
    }
  }
}

template <uint32_t itemsize>
void scatter_lanes(const std::byte* from, std::byte* to, uint32_t block_stride, uint32_t lanes, const Mask& mask) {
  constexpr uint32_t kPerBlock = kBlockBytes / itemsize;
  for (uint32_t lane = 0; lane < lanes; lane += kPerBlock, from += kBlockBytes, to += block_stride) {
    for (uint64_t bits = mask.bits[lane / 64] >> lane % 64 & Mask::first(kPerBlock).bits[0]; bits != 0;
         bits &= bits - 1) {
      const auto i = static_cast<uint32_t>(std::countr_zero(bits));
      std::memcpy(to + i * itemsize, from + i * itemsize, itemsize);
    }
  }
}

void scatter(const std::byte* from, const Operand& operand, uint32_t repeat, uint32_t lanes, const Mask& mask) {
  std::byte* to = operand.memory.data + size_t{repeat} * operand.repeat_stride;
  if (operand.itemsize == kBits) {
    for (uint32_t i = 0; i < lanes / 8; ++i) to[i] = from[i] & static_cast<std::byte>(mask.bits[i / 8] >> i % 8 * 8);
    return;
  }
  const uint32_t itemsize = operand.itemsize;
  if (operand.block_stride == kBlockBytes && mask.elements <= lanes) {
    std::memcpy(to, from, mask.elements * itemsize);
    return;
  }
  switch (itemsize) {
    case 1:
      return scatter_lanes<1>(from, to, operand.block_stride, lanes, mask);
    case 2:
      return scatter_lanes<2>(from, to, operand.block_stride, lanes, mask);
    case 4:
      return scatter_lanes<4>(from, to, operand.block_stride, lanes, mask);
    default:
      return scatter_lanes<8>(from, to, operand.block_stride, lanes, mask);
  }
}

constexpr uint32_t kAtATime = 16;  // repeats that are gathered before they are computed with

// Runs a loop over the lanes. Repeats that lie as the loop takes them go to it all at once; of the others each is read
// before it is written, one after the other.
struct Runner {
  Loop loop;
  uint32_t scalar;
  const Lanes& lanes;
  const Operand& dst;
  const Operand* src;
  uint32_t sources;

  void run() const {
    if (lanes.repeats == 0) return;
    if (lanes.last.elements == lanes.mask.elements) return rows(0, lanes.repeats, lanes.mask);
    if (is_consecutive()) return rows_of_all();
    rows(0, lanes.repeats - 1, lanes.mask);
    rows(lanes.repeats - 1, 1, lanes.last);
  }

 private:
  Place place(const Operand& operand, uint32_t repeat, uint32_t elements) const {
    return {operand.memory.data + size_t{repeat} * operand.repeat_stride, operand.repeat_stride,
            bytes_of(operand, elements)};
  }

  bool is_consecutive(const Operand& operand) const {
    return operand.block_stride == kBlockBytes && operand.repeat_stride == bytes_of(operand, lanes.per_repeat);
  }

  // Whether all lanes make one row.
  bool is_consecutive() const {
    if (!is_consecutive(dst) || lanes.mask.elements != lanes.per_repeat || lanes.last.elements > lanes.per_repeat ||
        !is_whole(lanes.last)) {
      return false;
    }
    const uint32_t count = all();
    for (uint32_t i = 0; i < sources; ++i) {
      if (!is_consecutive(src[i]) || !is_in_place(place(dst, 0, count), place(src[i], 0, count), 1)) return false;
    }
    return true;
  }

  uint32_t all() const { return (lanes.repeats - 1) * lanes.per_repeat + lanes.last.elements; }
  void rows_of_all() const { call(0, 1, all()); }

  void call(uint32_t first, uint32_t repeats, uint32_t elements) const {
    OperandRows rows{};
    const Place to = place(dst, first, elements);
    rows.dst = const_cast<std::byte*>(to.data), rows.dst_step = to.step;
    for (uint32_t i = 0; i < sources; ++i) {
      const Place from = place(src[i], first, elements);
      rows.src[i] = from.data, rows.src_step[i] = from.step;
    }
    rows.rows = repeats, rows.count = elements;
    loop(rows, scalar);
  }

  bool is_row(const Operand& operand, uint32_t elements) const {
    return operand.block_stride == kBlockBytes || bytes_of(operand, elements) <= kBlockBytes;
  }

  // The bits of lanes that do not take part are written, and 0.
  bool is_whole(const Mask& mask) const { return dst.itemsize != kBits || mask.elements == lanes.per_repeat; }

  void rows(uint32_t first, uint32_t repeats, const Mask& mask) const {
    if (repeats == 0) return;
    bool direct = mask.elements <= lanes.per_repeat && is_row(dst, mask.elements) && is_whole(mask);
    if (direct && repeats == lanes.repeats && repeats > 1 && is_consecutive()) return rows_of_all();
    uint32_t gathered = 0;  // a bit for each source whose blocks do not follow each other
    const Place to = place(dst, first, mask.elements);
    for (uint32_t i = 0; direct && i < sources; ++i) {
      Place from = place(src[i], first, mask.elements);
      const bool is_gathered = !is_row(src[i], mask.elements);
      if (is_gathered)
        gathered |= 1u << i, from.row_bytes = kRepeatBytes / kBlockBytes * src[i].block_stride + kBlockBytes;
      direct = is_gathered ? is_apart(to, from, repeats) : is_in_place(to, from, repeats);
    }
    if (direct)
      return gathered == 0 ? call(first, repeats, mask.elements) : gather_rows(first, repeats, mask, gathered);
    for (uint32_t repeat = first; repeat < first + repeats; ++repeat) one(repeat, mask);
  }

  void gather_rows(uint32_t first, uint32_t repeats, const Mask& mask, uint32_t gathered) const {
    alignas(64) std::byte buffers[3][kAtATime * kRepeatBytes];
    for (uint32_t begin = first; begin < first + repeats; begin += kAtATime) {
      OperandRows rows{};
      rows.rows = std::min(kAtATime, first + repeats - begin), rows.count = mask.elements;
      const Place to = place(dst, begin, mask.elements);
      rows.dst = const_cast<std::byte*>(to.data), rows.dst_step = to.step;
      for (uint32_t i = 0; i < sources; ++i) {
        const Place from = place(src[i], begin, mask.elements);
        rows.src[i] = from.data, rows.src_step[i] = from.step;
        if ((gathered >> i & 1) == 0) continue;
        for (uint32_t row = 0; row < rows.rows; ++row) {
          gather(src[i], begin + row, lanes.per_repeat, mask, buffers[i] + row * kRepeatBytes);
        }
        rows.src[i] = buffers[i], rows.src_step[i] = kRepeatBytes;
      }
      loop(rows, scalar);
    }
  }

  void one(uint32_t repeat, const Mask& mask) const {
    alignas(64) std::byte buffers[4][kRepeatBytes];
    OperandRows rows{};
    rows.rows = 1, rows.count = lanes.per_repeat;
    for (uint32_t i = 0; i < sources; ++i) {
      gather(src[i], repeat, lanes.per_repeat, mask, buffers[i]);
      rows.src[i] = buffers[i];
    }
    rows.dst = buffers[3];
    loop(rows, scalar);
    scatter(buffers[3], dst, repeat, lanes.per_repeat, mask);
  }
};

// ---- casts whose rounding no vector instruction has

template <class To, class From>
void cast_one_by_one(const OperandRows& rows, uint32_t mode) {
  for (uint32_t row = 0; row < rows.rows; ++row) {
    for (uint32_t i = 0; i < rows.count; ++i) {
      const auto value = load<From>(rows.src[0] + row * rows.src_step[0] + i * sizeof(From));
      store(rows.dst + row * rows.dst_step + i * sizeof(To), cast<To>(value, static_cast<RoundMode>(mode)));
    }
  }
}

Loop one_by_one(Dtype to, Dtype from) {
#define CASE(From, To) \
  if (to == dtype_of<To>() && from == dtype_of<From>()) return cast_one_by_one<To, From>;
  CASE(float, half)
  CASE(float, bfloat16_t)
  CASE(float, int64_t)
  CASE(int16_t, half)
  CASE(int32_t, float)
  CASE(int32_t, int16_t)
  CASE(int64_t, int32_t)
  CASE(int64_t, float)
#undef CASE
  return nullptr;
}

// An int32_t by SetDeqScale's number, as half.
void scale(const OperandRows& rows, uint32_t scale) {
  const double factor = std::bit_cast<float>(scale);
  for (uint32_t row = 0; row < rows.rows; ++row) {
    for (uint32_t i = 0; i < rows.count; ++i) {
      const auto value = load<int32_t>(rows.src[0] + row * rows.src_step[0] + i * sizeof(int32_t));
      store(rows.dst + row * rows.dst_step + i * sizeof(half), half(static_cast<float>(value * factor)));
    }
  }
}

Loop cast_loop(const Instruction& instruction, Where where, uint32_t& scalar) {
  const auto mode = static_cast<RoundMode>(scalar);
  if (instruction.dst == Dtype::Half && instruction.src == Dtype::Int32) {
    const std::optional<float> factor = block(where).deq_scale;
    if (!factor) fail(where, "Cast: int32_t to half multiplies by what SetDeqScale(half) has set; call it before");
    scalar = std::bit_cast<uint32_t>(*factor);
    return scale;
  }
  const Loop loop = loops().casts[static_cast<size_t>(instruction.dst)][static_cast<size_t>(instruction.src)];
  const Loop exact = one_by_one(instruction.dst, instruction.src);
  const bool nearest = mode == RoundMode::CAST_NONE || mode == RoundMode::CAST_RINT;
  return loop != nullptr && (nearest || exact == nullptr) ? loop : exact;
}

Loop loop_of(const Instruction& instruction, Where where, uint32_t& scalar) {
  if (instruction.operation == Operation::Cast) return cast_loop(instruction, where, scalar);
  const Dtype dtype = instruction.operation == Operation::MulCast ? instruction.dst : instruction.src;
  return loops().elements[static_cast<size_t>(instruction.operation)][static_cast<size_t>(dtype)];
}

// The usual instructions: the first lanes of each repeat, in blocks that follow each other. False if
// there is more to it.
bool run_rows(const Instruction& instruction, Loop loop, uint32_t scalar, uint32_t repeats, uint32_t elements,
              const Strides* strides, const LocalMemory& dst, const LocalMemory* src0, const LocalMemory* src1) {
  const int64_t sizes[] = {itemsize_of(instruction.dst), itemsize_of(instruction.src)};
  OperandRows rows{dst.data, {}, 0, {}, repeats, elements};
  uint32_t sources = 0;
  bool is_whole = true;  // every repeat begins where the one before it ends
  const auto step = [&](uint32_t operand, int64_t bytes) -> int64_t {
    if (strides == nullptr) return 0;
    const int64_t repeat_stride = int64_t{strides->repeat[operand]} * kBlockBytes;
    is_whole &= repeat_stride == bytes;
    return strides->block[operand] == 1 || bytes <= kBlockBytes ? repeat_stride : -1;
  };
  const int64_t dst_bytes = elements * sizes[0], src_bytes = elements * sizes[1];
  rows.dst_step = step(0, dst_bytes);
  if (rows.dst_step < 0) return false;
  if (instruction.reads_dst) rows.src[sources] = dst.data, rows.src_step[sources++] = rows.dst_step;
  const uint32_t first = sources;
  for (const LocalMemory* source : {src0, src1}) {
    if (source == nullptr) continue;
    rows.src[sources] = source->data;
    rows.src_step[sources] = step(1 + sources - first, src_bytes);
    if (rows.src_step[sources++] < 0) return false;
  }
  if (is_whole) rows.rows = 1, rows.count = repeats * elements;
  for (uint32_t i = first; i < sources; ++i) {
    const int64_t bytes_of_dst = rows.count * sizes[0], bytes_of_src = rows.count * sizes[1];
    if (!is_in_place({rows.dst, rows.dst_step, bytes_of_dst}, {rows.src[i], rows.src_step[i], bytes_of_src},
                     rows.rows)) {
      return false;
    }
  }
  loop(rows, scalar);
  return true;
}

// Checks an instruction, and runs it: by `rows`, which returns false if there is more to it, or in the general way. The
// operands are dst, the old dst if it is read, and the sources.
template <class Place, class Rows>
void run(const Instruction& instruction, Where where, Loop loop, const Lanes& lanes, uint32_t scalar,
         const LocalMemory& dst, const LocalMemory* src0, const LocalMemory* src1, const Place& place,
         const Rows& rows) {
  Operand operands[4];
  uint32_t count = 0;
  const auto add = [&](Use use, const LocalMemory& memory, Dtype dtype, int i) {
    new (&operands[count++]) Operand(place(use, memory, dtype, i));  // without a copy
  };
  add(Use::Write, dst, instruction.dst, 0);
  if (instruction.reads_dst) add(Use::Read, dst, instruction.dst, 0);
  if (src0 != nullptr) add(Use::Read, *src0, instruction.src, 1);
  if (src1 != nullptr) add(Use::Read, *src1, instruction.src, 2);
  if (checker() != nullptr) [[unlikely]] {
    check_vector(instruction.name, where, lanes, std::span(operands, count));
    if (rows()) return;
  }
  Runner{loop, scalar, lanes, operands[0], operands + 1, count - 1}.run();
}

struct Consecutive {
  uint32_t lanes;
  Operand operator()(Use use, const LocalMemory& memory, Dtype dtype, int) const {
    return {memory, use, itemsize_of(dtype), kBlockBytes, lanes * itemsize_of(dtype)};
  }
};

struct Strided {
  const Strides& strides;
  Operand operator()(Use use, const LocalMemory& memory, Dtype dtype, int i) const {
    return {memory, use, itemsize_of(dtype), strides.block[i] * kBlockBytes, strides.repeat[i] * kBlockBytes};
  }
};

template <class Place>
void compare(const char* name, Where where, Dtype dtype, CMPMODE mode, const Lanes& lanes, uint32_t scalar,
             const LocalMemory& dst, const LocalMemory& a, const LocalMemory* b, const Place& place) {
  const Operand sources[] = {place(Use::Read, a, dtype, 1),
                             place(Use::Read, b != nullptr ? *b : a, dtype, b != nullptr ? 2 : 1)};
  if (checker() != nullptr) [[unlikely]] {
    check_vector(name, where, lanes, sources);
    check_local(name, where, PIPE_V, Use::Write, dst, 0, lanes.repeats * (lanes.per_repeat / 8));
  }
  const auto& all = b != nullptr ? loops().comparisons : loops().scalar_comparisons;
  const Operand bits{dst, Use::Write, kBits, kBlockBytes, lanes.per_repeat / 8};
  Runner{
      all[static_cast<size_t>(dtype)][static_cast<size_t>(mode)], scalar, lanes, bits, sources, b != nullptr ? 2u : 1u}
      .run();
}

template <class Place>
void select(Where where, Dtype dtype, SELMODE mode, const Lanes& lanes, uint32_t scalar, const LocalMemory& dst,
            const LocalMemory& bits, const LocalMemory& a, const LocalMemory* b, const Place& place) {
  constexpr const char* kName = "Select";
  if ((mode == SELMODE::VSEL_TENSOR_SCALAR_MODE) != (b == nullptr)) {
    fail(where, b != nullptr ? "Select: of two tensors, this mode selects a scalar"
                             : "Select: of a tensor and a scalar, this mode selects tensors");
  }
  const bool same_bits = mode == SELMODE::VSEL_CMPMASK_SPR;
  const Operand sources[] = {{bits, Use::Read, kBits, kBlockBytes, same_bits ? 0 : lanes.per_repeat / 8},
                             place(Use::Read, a, dtype, 1),
                             b != nullptr ? place(Use::Read, *b, dtype, 2) : Operand{}};
  const Operand to = place(Use::Write, dst, dtype, 0);
  if (checker() != nullptr) [[unlikely]] {
    if (!same_bits) check_scratch(kName, where);
    if (b != nullptr) check_vector(kName, where, lanes, std::span(&sources[2], 1));
    check_local(kName, where, PIPE_V, Use::Read, bits, 0, (same_bits ? 1 : lanes.repeats) * (lanes.per_repeat / 8));
    const Operand operands[] = {to, sources[1]};
    check_vector(kName, where, lanes, operands, true);
  }
  const auto& all = b != nullptr ? loops().selections : loops().scalar_selections;
  Runner{all[itemsize_of(dtype) / 4], scalar, lanes, to, sources, b != nullptr ? 3u : 2u}.run();
}

}  // namespace

void elementwise(const Instruction& instruction, Where where, int64_t count, uint32_t scalar, const LocalMemory& dst,
                 const LocalMemory* src0, const LocalMemory* src1) {
  const bool checked = block(where).checker != nullptr;
  const Loop loop = loop_of(instruction, where, scalar);
  const auto rows = [&] {
    return count > 0 && run_rows(instruction, loop, scalar, 1, static_cast<uint32_t>(count), nullptr, dst, src0, src1);
  };
  if (!checked && rows()) return;
  const uint32_t lanes = lanes_of(instruction);
  run(instruction, where, loop, Lanes::of_count(lanes, count), scalar, dst, src0, src1, Consecutive{lanes}, rows);
}

void elementwise(const Instruction& instruction, Where where, const MaskArgument& mask, RepeatArgument repeats,
                 const Strides& strides, uint32_t scalar, const LocalMemory& dst, const LocalMemory* src0,
                 const LocalMemory* src1) {
  const Block& current = block(where);
  const uint32_t lanes = lanes_of(instruction);
  const Loop loop = loop_of(instruction, where, scalar);
  const auto rows = [&] {
    if (current.mask.counter || mask.as_set) return false;
    const uint32_t elements = mask.elements >= 0 ? static_cast<uint32_t>(mask.elements) : Mask::of(mask.bits).elements;
    const auto number = static_cast<uint8_t>(repeats.number);
    return elements != 0 && elements <= lanes && number != 0 &&
           run_rows(instruction, loop, scalar, number, elements, &strides, dst, src0, src1);
  };
  if (current.checker == nullptr && rows()) return;
  run(instruction, where, loop, Lanes::of_mask(instruction.name, where, lanes, mask, repeats), scalar, dst, src0, src1,
      Strided{strides}, rows);
}

void compare(const char* name, Where where, Dtype dtype, CMPMODE mode, int64_t count, uint32_t scalar,
             const LocalMemory& dst, const LocalMemory& a, const LocalMemory* b) {
  const uint32_t lanes = kRepeatBytes / itemsize_of(dtype);
  compare(name, where, dtype, mode, Lanes::of_count(lanes, count), scalar, dst, a, b, Consecutive{lanes});
}

void compare(const char* name, Where where, Dtype dtype, CMPMODE mode, const MaskArgument& mask, RepeatArgument repeats,
             const Strides& strides, uint32_t scalar, const LocalMemory& dst, const LocalMemory& a,
             const LocalMemory* b) {
  const Lanes lanes = Lanes::of_mask(name, where, kRepeatBytes / itemsize_of(dtype), mask, repeats);
  compare(name, where, dtype, mode, lanes, scalar, dst, a, b, Strided{strides});
}

void select(Where where, Dtype dtype, SELMODE mode, int64_t count, uint32_t scalar, const LocalMemory& dst,
            const LocalMemory& bits, const LocalMemory& a, const LocalMemory* b) {
  const uint32_t lanes = kRepeatBytes / itemsize_of(dtype);
  select(where, dtype, mode, Lanes::of_count(lanes, count), scalar, dst, bits, a, b, Consecutive{lanes});
}

void select(Where where, Dtype dtype, SELMODE mode, const MaskArgument& mask, RepeatArgument repeats,
            const Strides& strides, uint32_t scalar, const LocalMemory& dst, const LocalMemory& bits,
            const LocalMemory& a, const LocalMemory* b) {
  const Lanes lanes = Lanes::of_mask("Select", where, kRepeatBytes / itemsize_of(dtype), mask, repeats);
  select(where, dtype, mode, lanes, scalar, dst, bits, a, b, Strided{strides});
}

}  // namespace AscendC::cpu
