// SPDX-License-Identifier: Apache-2.0
// Sorted runs of pairs as Sort32 makes them, 8 bytes each with the score first and the index last: merged, sorted
// whole and taken apart.
#pragma once

#include <algorithm>
#include <vector>

#include "ascendc/library.h"
#include "ascendc/tiling_structs.h"

// As the host's tiling function fills it; the CPU needs nothing of it.
namespace AscendC {

using ::TopkTiling;
namespace tiling {
using ::TopkTiling;
}

template <class T>
struct MrgSortSrcList {
  MrgSortSrcList() = default;
  MrgSortSrcList(const LocalTensor<T>& one, const LocalTensor<T>& two, const LocalTensor<T>& three,
                 const LocalTensor<T>& four)
      : src1(one), src2(two), src3(three), src4(four) {}

  LocalTensor<T> src1, src2, src3, src4;
};

// The lengths of the runs in pairs, whether to stop where one is at its end, and a bit for each run that is there.
struct MrgSort4Info {
  MrgSort4Info() = default;
  MrgSort4Info(const uint16_t lengths[4], bool stops, uint16_t valid, uint16_t repeats)
      : elementLengths{lengths[0], lengths[1], lengths[2], lengths[3]},
        ifExhaustedSuspension(stops),
        validBit(valid),
        repeatTimes(static_cast<uint8_t>(repeats)) {}

  uint16_t elementLengths[4] = {};
  bool ifExhaustedSuspension = false;
  uint16_t validBit = 0;
  uint8_t repeatTimes = 1;
};

namespace cpu {

inline constexpr int64_t kPairBytes = 8;

struct Pair {
  std::byte bytes[kPairBytes];
};

template <class T>
T score(const Pair& pair) {
  return load<T>(pair.bytes);
}

inline Pair pair_at(const LocalMemory& memory, int64_t index) { return load<Pair>(memory.data + index * kPairBytes); }

// Merges the runs, and notes in the block how many pairs of each it took.
ASCENDC_CPU_EXPORT void merge_sorted(Where where, Dtype dtype, const LocalMemory& dst, const LocalMemory (&sources)[4],
                                     const MrgSort4Info& info);
template <class T>
void merge_sorted(const char* name, Where where, const LocalTensor<T>& dst, const MrgSortSrcList<T>& list,
                  const MrgSort4Info& info) {
  needs<T>(name, where);
  merge_sorted(where, dtype_of<T>(), dst.memory(),
               {list.src1.memory(), list.src2.memory(), list.src3.memory(), list.src4.memory()}, info);
}

// Pairs in descending order of their scores, equal ones as they lie.
template <class T>
void sort_pairs(std::vector<Pair>& pairs, size_t run) {
  for (auto begin = pairs.begin(); begin < pairs.end(); begin += static_cast<ptrdiff_t>(run)) {
    std::stable_sort(begin, begin + static_cast<ptrdiff_t>(run),
                     [](const Pair& a, const Pair& b) { return score<T>(a) > score<T>(b); });
  }
}

template <class T>
Pair pair_of(T score, uint32_t index) {
  Pair pair{};
  store(pair.bytes, score);
  store(pair.bytes + sizeof(uint32_t), index);
  return pair;
}

}  // namespace cpu

// Merges up to four sorted runs into one; of equal scores that of the first run comes first.
template <class T>
  requires cpu::OneOf<T, half, float>
void MrgSort(const LocalTensor<T>& dst, const MrgSortSrcList<T>& src, const MrgSort4Info& params,
             cpu::Where where = cpu::Where::current()) {
  cpu::merge_sorted("MrgSort", where, dst, src, params);
}

// The same; `taken` is then how many pairs of each run are in dst.
template <class T, bool stops = false>
  requires cpu::OneOf<T, half, float>
void MrgSort(const LocalTensor<T>& dst, const MrgSortSrcList<T>& src, const uint16_t lengths[4], uint32_t taken[4],
             uint16_t valid, int32_t repeats, cpu::Where where = cpu::Where::current()) {
  cpu::merge_sorted("MrgSort", where, dst, src, {lengths, stops, valid, static_cast<uint16_t>(repeats)});
  std::copy_n(cpu::block(where).merged, 4, taken);
}

// How many pairs the last MrgSort took of each run.
inline void GetMrgSortResult(uint16_t& one, uint16_t& two, uint16_t& three, uint16_t& four,
                             cpu::Where where = cpu::Where::current()) {
  const uint16_t (&taken)[4] = cpu::block(where).merged;
  one = taken[0], two = taken[1], three = taken[2], four = taken[3];
}

// What Sort takes as its source: on Atlas A2 the scores as they are.
template <class T>
  requires cpu::OneOf<T, half, float>
void Concat(LocalTensor<T>& concat, const LocalTensor<T>& src, const LocalTensor<T>& /*tmp*/, int32_t /*repeats*/) {
  concat = src;
}

// Pairs of scores and indices in descending order: of every 32, or with isFullSort of all 32 * repeats.
template <class T, bool isFullSort>
  requires cpu::OneOf<T, half, float>
void Sort(const LocalTensor<T>& dst, const LocalTensor<T>& concat, const LocalTensor<uint32_t>& index,
          const LocalTensor<T>& tmp, int32_t repeats, cpu::Where where = cpu::Where::current()) {
  const int64_t count = int64_t{repeats} * 32;
  cpu::check_bytes("Sort", where, cpu::Use::Read, concat.memory(), 0, count * static_cast<int64_t>(sizeof(T)));
  cpu::check_bytes("Sort", where, cpu::Use::Read, index.memory(), 0, count * 4);
  if (isFullSort) cpu::check_bytes("Sort", where, cpu::Use::Write, tmp.memory(), 0, count * cpu::kPairBytes);
  cpu::check_bytes("Sort", where, cpu::Use::Write, dst.memory(), 0, count * cpu::kPairBytes);
  std::vector<cpu::Pair> pairs(static_cast<size_t>(count));
  for (size_t i = 0; i < pairs.size(); ++i) {
    pairs[i] = cpu::pair_of(cpu::load<T>(concat.memory().data + i * sizeof(T)),
                            cpu::load<uint32_t>(index.memory().data + i * sizeof(uint32_t)));
  }
  cpu::sort_pairs<T>(pairs, isFullSort ? pairs.size() : 32);
  if (count != 0) std::memcpy(dst.memory().data, pairs.data(), pairs.size() * sizeof(cpu::Pair));
}

// The scores and the indices of 32 * repeats pairs.
template <class T>
  requires cpu::OneOf<T, half, float>
void Extract(const LocalTensor<T>& value, const LocalTensor<uint32_t>& index, const LocalTensor<T>& sorted,
             int32_t repeats, cpu::Where where = cpu::Where::current()) {
  const int64_t count = int64_t{repeats} * 32;
  cpu::check_bytes("Extract", where, cpu::Use::Read, sorted.memory(), 0, count * cpu::kPairBytes);
  cpu::check_bytes("Extract", where, cpu::Use::Write, value.memory(), 0, count * static_cast<int64_t>(sizeof(T)));
  cpu::check_bytes("Extract", where, cpu::Use::Write, index.memory(), 0, count * 4);
  for (int64_t i = 0; i < count; ++i) {
    const cpu::Pair pair = cpu::pair_at(sorted.memory(), i);
    cpu::store(value.memory().data + i * static_cast<int64_t>(sizeof(T)), cpu::score<T>(pair));
    cpu::store(index.memory().data + i * 4, cpu::load<uint32_t>(pair.bytes + sizeof(uint32_t)));
  }
}

// The bytes of pairs, and where the pair of an element begins, in elements of the score's type.
template <class T>
constexpr uint32_t GetSortLen(uint32_t elements) {
  return elements * static_cast<uint32_t>(cpu::kPairBytes);
}
template <class T>
constexpr uint32_t GetSortOffset(uint32_t element) {
  return element * static_cast<uint32_t>(cpu::kPairBytes / sizeof(T));
}

// NORMAL: rows of any length; NSMALL: rows of 32, and the results of each lie k apart.
enum class TopKMode : uint8_t { TOPK_NORMAL, TOPK_NSMALL };

// Rows, their elements rounded up to a multiple of 32, and as they are.
struct TopKInfo {
  int32_t outter = 1, inner = 0, n = 0;
};

// The k largest (smallest) numbers of each row in their order, equal ones as they lie, and the index of each. With
// isInitIndex the indices are srcIndex's; with isHasfinish a row whose bit in `finish` is set has n for all of them.
template <class T, bool isInitIndex = false, bool isHasfinish = false, bool isReuseSrc = false,
          TopKMode topkMode = TopKMode::TOPK_NORMAL>
  requires cpu::OneOf<T, half, float>
void TopK(const LocalTensor<T>& dstValue, const LocalTensor<int32_t>& dstIndex, const LocalTensor<T>& src,
          const LocalTensor<int32_t>& srcIndex, const LocalTensor<bool>& finish, const int32_t k,
          const TopkTiling& /*tiling*/, const TopKInfo& info, const bool isLargest = true,
          cpu::Where where = cpu::Where::current()) {
  constexpr bool kSmall = topkMode == TopKMode::TOPK_NSMALL;
  if (info.inner % 32 != 0 || info.n > info.inner || k < 1 || k > info.n || (kSmall && info.inner != 32)) {
    cpu::fail(where, "TopK: k %d of n %d elements, inner %d; 1 <= k <= n <= inner, a multiple of 32%s", k, info.n,
              info.inner, kSmall ? ", and 32 in TOPK_NSMALL" : "");
  }
  const int64_t value_step = kSmall ? k : cpu::padded<T>(k), index_step = kSmall ? k : cpu::padded<int32_t>(k);
  for (int64_t i = 0; i < info.outter; ++i) {
    const std::vector<float> row = cpu::read_row("TopK", where, src, i * info.inner, info.n);
    std::vector<int32_t> places(row.size());
    for (size_t place = 0; place < places.size(); ++place) places[place] = static_cast<int32_t>(place);
    std::stable_sort(places.begin(), places.end(), [&](int32_t a, int32_t b) {
      const float one = row[static_cast<size_t>(a)], other = row[static_cast<size_t>(b)];
      return isLargest ? one > other : one < other;
    });
    places.resize(static_cast<size_t>(k));
    std::vector<float> values;
    for (const int32_t place : places) values.push_back(row[static_cast<size_t>(place)]);
    if constexpr (isInitIndex) {
      const int64_t first = kSmall ? i * info.inner : 0;
      cpu::check_bytes("TopK", where, cpu::Use::Read, srcIndex.memory(), first * 4, int64_t{info.n} * 4);
      for (int32_t& place : places) place = cpu::load<int32_t>(srcIndex.memory().data + (first + place) * 4);
    }
    if constexpr (isHasfinish) {
      cpu::check_bytes("TopK", where, cpu::Use::Read, finish.memory(), i, 1);
      if (cpu::load<bool>(finish.memory().data + i)) std::fill(places.begin(), places.end(), info.n);
    }
    cpu::write_row("TopK", where, dstValue, i * value_step, values);
    cpu::write_row("TopK", where, dstIndex, i * index_step, places);
  }
}

template <class T, bool isInitIndex = false, bool isHasfinish = false, bool isReuseSrc = false,
          TopKMode topkMode = TopKMode::TOPK_NORMAL>
  requires cpu::OneOf<T, half, float>
void TopK(const LocalTensor<T>& dstValue, const LocalTensor<int32_t>& dstIndex, const LocalTensor<T>& src,
          const LocalTensor<int32_t>& srcIndex, const LocalTensor<bool>& finish, const LocalTensor<uint8_t>& work,
          const int32_t k, const TopkTiling& tiling, const TopKInfo& info, const bool isLargest = true,
          cpu::Where where = cpu::Where::current()) {
  cpu::check_work("TopK", where, work);
  TopK<T, isInitIndex, isHasfinish, isReuseSrc, topkMode>(dstValue, dstIndex, src, srcIndex, finish, k, tiling, info,
                                                          isLargest, where);
}

}  // namespace AscendC
