// SPDX-License-Identifier: Apache-2.0
// The 64 largest of every row and their places, in descending order: every 32 elements are sorted, and the runs merged
// four at a time. A block takes every n-th row of 2048 elements.
#include "kernel_operator.h"

using namespace AscendC;

constexpr uint32_t kColumns = 2048;
constexpr uint32_t kTop = 64;
constexpr uint32_t kRun = 32;  // what Sort32 sorts
constexpr uint32_t kPair = 2;  // floats: the score and its place
constexpr uint32_t kPairBytes = 8;

extern "C" __global__ __aicore__ void top64(GM_ADDR x, GM_ADDR values, GM_ADDR places, uint32_t rows) {
  GlobalTensor<float> from, to;
  GlobalTensor<uint32_t> to_places;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), uint64_t{rows} * kColumns);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(values), uint64_t{rows} * kTop);
  to_places.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t*>(places), uint64_t{rows} * kTop);

  TPipe pipe;
  TQue<QuePosition::VECIN, 1> in;
  TQue<QuePosition::VECOUT, 1> out, out_places;
  TBuf<> indices, pairs, merged;
  pipe.InitBuffer(in, 2, kColumns * sizeof(float));
  pipe.InitBuffer(out, 1, kTop * sizeof(float));
  pipe.InitBuffer(out_places, 1, kTop * sizeof(uint32_t));
  pipe.InitBuffer(indices, kColumns * sizeof(uint32_t));
  pipe.InitBuffer(pairs, kColumns * kPairBytes);
  pipe.InitBuffer(merged, kColumns * kPairBytes);
  CreateVecIndex(indices.Get<int32_t>(), 0, kColumns);

  for (uint32_t row = GetBlockIdx(); row < rows; row += GetBlockNum()) {
    LocalTensor<float> source = in.AllocTensor<float>();
    DataCopy(source, from[row * kColumns], kColumns);
    in.EnQue(source);

    source = in.DeQue<float>();
    LocalTensor<float> sorted = pairs.Get<float>(), next = merged.Get<float>();
    Sort32(sorted, source, indices.Get<uint32_t>(), kColumns / kRun);
    in.FreeTensor(source);
    for (uint32_t run = kRun; run < kColumns; run *= 4) {
      const uint32_t runs = kColumns / run < 4 ? kColumns / run : 4;  // the last round has two
      const auto length = static_cast<uint16_t>(run);
      const uint16_t lengths[4] = {length, length, length, length};
      const MrgSort4Info info(lengths, false, static_cast<uint16_t>((1u << runs) - 1), 1);
      for (uint32_t start = 0; start < kColumns; start += runs * run) {
        const auto part = [&](uint32_t i) { return sorted[(start + (i < runs ? i : 0) * run) * kPair]; };
        MrgSort(next[start * kPair], MrgSortSrcList<float>(part(0), part(1), part(2), part(3)), info);
      }
      const LocalTensor<float> free = sorted;
      sorted = next;
      next = free;
    }

    LocalTensor<float> value = out.AllocTensor<float>();
    LocalTensor<uint32_t> place = out_places.AllocTensor<uint32_t>();
    Extract(value, place, sorted, kTop / kRun);
    out.EnQue(value);
    out_places.EnQue(place);

    value = out.DeQue<float>();
    place = out_places.DeQue<uint32_t>();
    DataCopy(to[row * kTop], value, kTop);
    DataCopy(to_places[row * kTop], place, kTop);
    out.FreeTensor(value);
    out_places.FreeTensor(place);
  }
}
