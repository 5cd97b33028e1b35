// SPDX-License-Identifier: Apache-2.0
// DataCopy and DataCopyPad: between device memory and the unified buffer, and within it.
#pragma once

#include <vector>

#include "ascendc/tensor.h"

namespace AscendC {
namespace cpu {

// Runs of bytes that follow each other at a distance.
struct Runs {
  uint32_t count;
  int64_t bytes;  // of one
  int64_t step;   // from the start of one to the start of the next
  int64_t end() const { return count == 0 ? 0 : (count - 1) * step + bytes; }
};

inline void copy_run(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }

// The same for long runs from and to device memory. What was stored is there when the block has ended.
inline constexpr int64_t kLongRun = 1024;
ASCENDC_CPU_EXPORT void load_run(std::byte* to, const std::byte* from, size_t bytes);
ASCENDC_CPU_EXPORT void store_run(std::byte* to, const std::byte* from, size_t bytes);

template <void (*long_run)(std::byte*, const std::byte*, size_t) = copy_run>
void copy(std::byte* to, const Runs& to_runs, const std::byte* from, const Runs& from_runs) {
  const auto bytes = static_cast<size_t>(from_runs.bytes);
  for (uint32_t run = 0; run < from_runs.count; ++run) {
    (from_runs.bytes < kLongRun ? copy_run : long_run)(to + run * to_runs.step, from + run * from_runs.step, bytes);
  }
}

ASCENDC_CPU_EXPORT void check_copy_in(const char* name, Where where, const LocalMemory& dst, const Runs& dst_runs,
                                      const GlobalMemory& src, const Runs& src_runs);
ASCENDC_CPU_EXPORT void check_copy_out(const char* name, Where where, const GlobalMemory& dst, const Runs& dst_runs,
                                       const LocalMemory& src, const Runs& src_runs);
ASCENDC_CPU_EXPORT void check_copy_within(const char* name, Where where, const LocalMemory& dst, const Runs& dst_runs,
                                          const LocalMemory& src, const Runs& src_runs);

// Whether a core has a memory: the unified buffer is of vector cores, the others of cube cores. In mixed kernels copies
// of the other core's are left out, as the compiler does.
inline bool has_memory(const char* name, Where where, const LocalMemory& memory) {
  return hardware_of(memory) == Hardware::UB ? !block(where).core.cube : has_matrix_unit(name, where);
}

// Memory of the device is rounded up to whole blocks and has 32 bytes more (aclrtMalloc), so that DataCopy, which moves
// whole blocks, may continue past the end of a tensor. Arrays of a program on the CPU have no such padding: nothing is
// copied past their end.
ASCENDC_CPU_EXPORT void copy_to_the_end(std::byte* to, const Runs& to_runs, const std::byte* from,
                                        const Runs& from_runs, const GlobalMemory& memory);

inline void copy_in(const char* name, Where where, const LocalMemory& dst, const Runs& dst_runs,
                    const GlobalMemory& src, const Runs& src_runs) {
  if (!has_memory(name, where, dst)) return;
  if (checker() != nullptr) [[unlikely]]
    check_copy_in(name, where, dst, dst_runs, src, src_runs);
  if (block(where).known != nullptr) [[unlikely]]
    return copy_to_the_end(dst.data, dst_runs, src.data, src_runs, src);
  copy<load_run>(dst.data, dst_runs, src.data, src_runs);
}

// Combines the runs with what is there, no two blocks at a time.
ASCENDC_CPU_EXPORT void combine_runs(const Atomic& atomic, std::byte* to, const Runs& to_runs, const std::byte* from,
                                     const Runs& from_runs);

inline void copy_out(const char* name, Where where, const GlobalMemory& dst, const Runs& dst_runs,
                     const LocalMemory& src, const Runs& src_runs) {
  if (!has_memory(name, where, src)) return;
  if (checker() != nullptr) [[unlikely]]
    check_copy_out(name, where, dst, dst_runs, src, src_runs);
  const Atomic& atomic = block(where).atomic;
  if (atomic.kind != Atomic::Kind::None) [[unlikely]] {
    combine_runs(atomic, dst.data, dst_runs, src.data, src_runs);
  } else if (block(where).known != nullptr) [[unlikely]] {
    copy_to_the_end(dst.data, dst_runs, src.data, src_runs, dst);
  } else {
    copy<store_run>(dst.data, dst_runs, src.data, src_runs);
  }
}

// From L1 to the bias table or the fixpipe buffer.
ASCENDC_CPU_EXPORT void copy_to_table(Where where, const LocalMemory& dst, const Runs& dst_runs, const LocalMemory& src,
                                      const Runs& src_runs, bool widen_halves);

inline void copy_within(const char* name, Where where, const LocalMemory& dst, const Runs& dst_runs,
                        const LocalMemory& src, const Runs& src_runs) {
  if (hardware_of(dst) != Hardware::UB || hardware_of(src) != Hardware::UB) [[unlikely]] {
    return copy_to_table(where, dst, dst_runs, src, src_runs, false);
  }
  if (checker() != nullptr) [[unlikely]]
    check_copy_within(name, where, dst, dst_runs, src, src_runs);
  copy(dst.data, dst_runs, src.data, src_runs);
}

// Elements in a row, which have to be whole blocks of 32 bytes.
template <class T>
Runs one_run(uint32_t elements, Where where) {
  const int64_t bytes = bytes_of<T>(elements);
  if (checker() != nullptr && bytes % kBlockBytes != 0) [[unlikely]] {
    fail(where, "DataCopy: %u elements are %lld bytes, no multiple of 32; use DataCopyPad, or round the count up",
         elements, static_cast<long long>(bytes));
  }
  return {1, bytes, 0};
}

// Lengths and gaps in whole blocks of 32 bytes.
inline Runs blocks(uint32_t count, uint32_t length, uint32_t gap) {
  return {count, int64_t{length} * kBlockBytes, (int64_t{length} + gap) * kBlockBytes};
}

// The same between memories of a core: a length is of 64 bytes in the bias table and of 128 in the fixpipe buffer,
// where the gaps lie between the starts.
inline Runs blocks_within(const LocalMemory& dst, const DataCopyParams& p, uint32_t gap, bool of_dst) {
  switch (hardware_of(dst)) {
    case Hardware::BIAS: {
      const int64_t bytes = int64_t{p.blockLen} * 64;
      return {p.blockCount, bytes, bytes + int64_t{gap} * (of_dst ? 64 : kBlockBytes)};
    }
    case Hardware::FIXBUF:
      return {p.blockCount, int64_t{p.blockLen} * 128, int64_t{gap} * (of_dst ? 128 : kBlockBytes)};
    default:
      return blocks(p.blockCount, p.blockLen, gap);
  }
}

}  // namespace cpu

template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, uint32_t count,
              cpu::Where where = cpu::Where::current()) {
  cpu::copy_in("DataCopy", where, dst.memory(), cpu::one_run<T>(count, where), src.memory(),
               cpu::one_run<T>(count, where));
}

template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count,
              cpu::Where where = cpu::Where::current()) {
  cpu::copy_out("DataCopy", where, dst.memory(), cpu::one_run<T>(count, where), src.memory(),
                cpu::one_run<T>(count, where));
}

template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count,
              cpu::Where where = cpu::Where::current()) {
  cpu::copy_within("DataCopy", where, dst.memory(), cpu::one_run<T>(count, where), src.memory(),
                   cpu::one_run<T>(count, where));
}

template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& p,
              cpu::Where where = cpu::Where::current()) {
  cpu::copy_in("DataCopy", where, dst.memory(), cpu::blocks(p.blockCount, p.blockLen, p.dstStride), src.memory(),
               cpu::blocks(p.blockCount, p.blockLen, p.srcStride));
}

template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p,
              cpu::Where where = cpu::Where::current()) {
  cpu::copy_out("DataCopy", where, dst.memory(), cpu::blocks(p.blockCount, p.blockLen, p.dstStride), src.memory(),
                cpu::blocks(p.blockCount, p.blockLen, p.srcStride));
}

template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p,
              cpu::Where where = cpu::Where::current()) {
  cpu::copy_within("DataCopy", where, dst.memory(), cpu::blocks_within(dst.memory(), p, p.dstStride, true),
                   src.memory(), cpu::blocks_within(dst.memory(), p, p.srcStride, false));
}
// half to float, for a bias; the lengths are those of the halves.
template <class T, class U>
  requires(!std::is_same_v<T, U>)
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const DataCopyParams& p,
              cpu::Where where = cpu::Where::current()) {
  static_assert(std::is_same_v<T, float> && std::is_same_v<U, half>, "DataCopy: half in L1 to float in the bias table");
  cpu::Runs to = cpu::blocks_within(dst.memory(), p, p.dstStride, true);
  to.step += to.bytes;
  to.bytes *= 2;
  cpu::copy_to_table(where, dst.memory(), to, src.memory(), cpu::blocks_within(dst.memory(), p, p.srcStride, false),
                     true);
}

enum class BlockMode : uint8_t {
  BLOCK_MODE_NORMAL,
  BLOCK_MODE_MATRIX,
  BLOCK_MODE_VECTOR,
  BLOCK_MODE_SMALL_CHANNEL,
  BLOCK_MODE_DEPTHWISE
};
enum class DeqScale : uint8_t { DEQ_NONE, DEQ, VDEQ, DEQ8, VDEQ8, DEQ16, VDEQ16 };
enum class pad_t : uint8_t {
  PAD_NONE,
  PAD_MODE1,
  PAD_MODE2,
  PAD_MODE3,
  PAD_MODE4,
  PAD_MODE5,
  PAD_MODE6,
  PAD_MODE7,
  PAD_MODE8
};
}  // namespace AscendC
using AscendC::pad_t;
namespace AscendC {

// What a copy from L0C to the unified buffer computes on chips whose cores have both units.
struct DataCopyEnhancedParams {
  BlockMode blockMode = BlockMode::BLOCK_MODE_NORMAL;
  DeqScale deqScale = DeqScale::DEQ_NONE;
  uint64_t deqValue = 0;
  uint8_t sidStoreMode = 0;
  bool isRelu = false;
  pad_t padMode = pad_t::PAD_NONE;
  uint64_t padValue = 0;
  uint64_t deqTensorAddr = 0;
};

// From and to device memory, and within the unified buffer, it is a DataCopy: the parameters are for L0C.
template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& p,
              const DataCopyEnhancedParams& /*enhanced*/, cpu::Where where = cpu::Where::current()) {
  DataCopy(dst, src, p, where);
}
template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p,
              const DataCopyEnhancedParams& /*enhanced*/, cpu::Where where = cpu::Where::current()) {
  DataCopy(dst, src, p, where);
}
template <class T, class U>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const DataCopyParams& p,
              const DataCopyEnhancedParams& /*enhanced*/, cpu::Where where = cpu::Where::current()) {
  const Hardware from = cpu::hardware_of(src.memory()), to = cpu::hardware_of(dst.memory());
  if constexpr (std::is_same_v<T, U>) {
    if (from != Hardware::L0C && to != Hardware::L0C) return DataCopy(dst, src, p, where);
  }
  cpu::fail(
      where,
      "DataCopy: from %s to %s there is no way on this chip, whose two units are in separate cores; Fixpipe copies "
      "from L0C to device memory",
      cpu::name_of(from), cpu::name_of(to));
}

// A part of a dimension, in elements: pieces of burstLen blocks of 32 bytes from startIndex to endIndex, stride
// elements apart. In all dimensions but the first a piece is a single row, and burstLen is 1.
struct SliceInfo {
  constexpr SliceInfo() = default;
  constexpr SliceInfo(uint32_t start, uint32_t end, uint32_t stride, uint32_t burst, uint32_t shape = 0)
      : startIndex(start), endIndex(end), stride(stride), burstLen(burst), shapeValue(shape) {}

  uint32_t startIndex = 0;
  uint32_t endIndex = ONE_BLK_SIZE - 1;
  uint32_t stride = 0;
  uint32_t burstLen = ONE_BLK_SIZE;
  uint32_t shapeValue = 0;
};

namespace cpu {

// Where the rows of a slice begin, in elements, and how the pieces of a row lie, in bytes.
struct Slice {
  std::vector<int64_t> rows;
  Runs pieces;
};
ASCENDC_CPU_EXPORT Slice slice(Where where, const char* of, const SliceInfo* info, uint32_t dimensions,
                               uint32_t itemsize);
ASCENDC_CPU_EXPORT void check_slices(Where where, const Slice& dst, const Slice& src);

// move(row of dst, its pieces, row of src, its pieces) for each row; both slices have as many pieces of one length.
template <class T, class Move>
void move_slices(Where where, const SliceInfo* dst, const SliceInfo* src, uint32_t dimensions, const Move& move) {
  const Slice to = slice(where, "destination", dst, dimensions, sizeof(T));
  const Slice from = slice(where, "source", src, dimensions, sizeof(T));
  check_slices(where, to, from);
  for (size_t row = 0; row < to.rows.size(); ++row) move(to.rows[row], to.pieces, from.rows[row], from.pieces);
}

}  // namespace cpu

template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const SliceInfo dstSliceInfo[],
              const SliceInfo srcSliceInfo[], const uint32_t dimValue = 1, cpu::Where where = cpu::Where::current()) {
  const auto move = [&](int64_t to, const cpu::Runs& to_runs, int64_t from, const cpu::Runs& from_runs) {
    cpu::copy_in("DataCopy", where, dst[static_cast<uint32_t>(to)].memory(), to_runs,
                 src[static_cast<uint64_t>(from)].memory(), from_runs);
  };
  cpu::move_slices<T>(where, dstSliceInfo, srcSliceInfo, dimValue, move);
}
template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const SliceInfo dstSliceInfo[],
              const SliceInfo srcSliceInfo[], const uint32_t dimValue = 1, cpu::Where where = cpu::Where::current()) {
  const auto move = [&](int64_t to, const cpu::Runs& to_runs, int64_t from, const cpu::Runs& from_runs) {
    cpu::copy_out("DataCopy", where, dst[static_cast<uint64_t>(to)].memory(), to_runs,
                  src[static_cast<uint32_t>(from)].memory(), from_runs);
  };
  cpu::move_slices<T>(where, dstSliceInfo, srcSliceInfo, dimValue, move);
}

// Runs of any number of bytes. In the unified buffer every run starts on a block of 32 bytes and fills whole ones:
// isPad puts paddingValue before it (leftPadding elements) and after it (rightPadding). The rest of its last block has
// no defined value on the device.
template <class T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyExtParams& p,
                 const DataCopyPadExtParams<T>& pad, cpu::Where where = cpu::Where::current()) {
  cpu::needs<T>("DataCopyPad", where);
  if (!cpu::has_memory("DataCopyPad", where, dst.memory())) return;
  const int64_t left = pad.isPad ? int64_t{pad.leftPadding} * sizeof(T) : 0;
  const int64_t right = pad.isPad ? int64_t{pad.rightPadding} * sizeof(T) : 0;
  if (left > cpu::kBlockBytes || right > cpu::kBlockBytes) {
    cpu::fail(where, "DataCopyPad: paddings of %lld and %lld bytes; each is at most 32", static_cast<long long>(left),
              static_cast<long long>(right));
  }
  const int64_t filled = cpu::whole_blocks(left + p.blockLen + right);
  const cpu::Runs to{p.blockCount, filled, filled + p.dstStride * cpu::kBlockBytes};
  const cpu::Runs from{p.blockCount, p.blockLen, p.blockLen + p.srcStride};
  if (cpu::checker() != nullptr) [[unlikely]] {
    cpu::check_copy_in("DataCopyPad", where, dst.memory(), to, src.memory(), from);
  }
  cpu::copy<cpu::load_run>(dst.memory().data + left, to, src.memory().data, from);
  if (!pad.isPad) return;
  for (uint32_t run = 0; run < p.blockCount; ++run) {
    std::byte* start = dst.memory().data + run * to.step;
    for (int64_t at = 0; at < left; at += sizeof(T)) cpu::store(start + at, pad.paddingValue);
    for (int64_t at = left + p.blockLen; at < left + p.blockLen + right; at += sizeof(T)) {
      cpu::store(start + at, pad.paddingValue);
    }
  }
}

template <class T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyExtParams& p,
                 cpu::Where where = cpu::Where::current()) {
  cpu::needs<T>("DataCopyPad", where);
  cpu::copy_out("DataCopyPad", where, dst.memory(), {p.blockCount, p.blockLen, p.blockLen + p.dstStride}, src.memory(),
                {p.blockCount, p.blockLen, cpu::whole_blocks(p.blockLen) + p.srcStride * cpu::kBlockBytes});
}

template <class T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& p,
                 const DataCopyPadParams& pad, cpu::Where where = cpu::Where::current()) {
  T value;
  std::memcpy(&value, &pad.paddingValue, sizeof(T));
  DataCopyPad(dst, src, DataCopyExtParams{p.blockCount, p.blockLen, p.srcStride, p.dstStride, 0},
              DataCopyPadExtParams<T>{pad.isPad, pad.leftPadding, pad.rightPadding, value}, where);
}

template <class T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p,
                 cpu::Where where = cpu::Where::current()) {
  DataCopyPad(dst, src, DataCopyExtParams{p.blockCount, p.blockLen, p.srcStride, p.dstStride, 0}, where);
}

// The first `count` elements in device memory become `value`, by copies out: what reads them waits for MTE3, and other
// blocks by SyncAll.
template <class T>
void InitGlobalMemory(GlobalTensor<T>& tensor, const uint64_t count, const T value,
                      cpu::Where where = cpu::Where::current()) {
  if (cpu::block(where).core.cube) return;  // it is of the vector unit
  const cpu::GlobalMemory& memory = tensor.memory();
  if (cpu::checker() != nullptr) [[unlikely]] {
    cpu::check_global("InitGlobalMemory", where, PIPE_MTE3, cpu::Use::Write, memory, 0, count * sizeof(T));
  }
  for (uint64_t i = 0; i < count; ++i) cpu::store(memory.data + i * sizeof(T), value);
}

// The same by its other names.
template <class T>
void InitOutput(GlobalTensor<T> tensor, uint32_t count, std::type_identity_t<T> value = {},
                cpu::Where where = cpu::Where::current()) {
  InitGlobalMemory(tensor, count, value, where);
}
template <class T>
void Fill(GlobalTensor<T>& tensor, const uint64_t count, const std::type_identity_t<T> value,
          cpu::Where where = cpu::Where::current()) {
  InitGlobalMemory(tensor, count, value, where);
}

}  // namespace AscendC
