// SPDX-License-Identifier: Apache-2.0
// SoftMax, LayerNorm and RmsNorm of the rows of a matrix, by the libraries. A block takes every n-th row.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

class Rows {
 public:
  __aicore__ inline Rows(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t columns) : rows_(rows), columns_(columns) {
    from_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), uint64_t{rows} * columns);
    to_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), uint64_t{rows} * columns);
    pipe.InitBuffer(in_, 2, columns * sizeof(float));
    pipe.InitBuffer(out_, 2, columns * sizeof(float));
  }

  // A vector that all rows share.
  __aicore__ inline LocalTensor<float> Shared(TBuf<>& buffer, GM_ADDR address) {
    GlobalTensor<float> from;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(address), columns_);
    pipe.InitBuffer(buffer, columns_ * sizeof(float));
    LocalTensor<float> shared = buffer.Get<float>();
    DataCopy(shared, from, columns_);
    const auto id = pipe.FetchEventID(HardEvent::MTE2_V);
    SetFlag<HardEvent::MTE2_V>(id);
    WaitFlag<HardEvent::MTE2_V>(id);
    return shared;
  }

  // compute(result, source) of each row.
  template <class Compute>
  __aicore__ inline void ForEach(const Compute& compute) {
    for (uint32_t row = GetBlockIdx(); row < rows_; row += GetBlockNum()) {
      LocalTensor<float> source = in_.AllocTensor<float>();
      DataCopy(source, from_[uint64_t{row} * columns_], columns_);
      in_.EnQue(source);
      source = in_.DeQue<float>();
      LocalTensor<float> result = out_.AllocTensor<float>();
      compute(result, source);
      out_.EnQue(result);
      in_.FreeTensor(source);
      result = out_.DeQue<float>();
      DataCopy(to_[uint64_t{row} * columns_], result, columns_);
      out_.FreeTensor(result);
    }
  }

  TPipe pipe;

 private:
  uint32_t rows_, columns_;
  GlobalTensor<float> from_, to_;
  TQue<QuePosition::VECIN, 1> in_;
  TQue<QuePosition::VECOUT, 1> out_;
};

}  // namespace

extern "C" __global__ __aicore__ void softmax_rows(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t columns) {
  const SoftMaxTiling tiling{};
  Rows(x, y, rows, columns).ForEach([&](const LocalTensor<float>& result, const LocalTensor<float>& source) {
    SoftMax<float>(result, source, tiling, {1, columns, 1, columns});
  });
}

extern "C" __global__ __aicore__ void layer_norm_rows(GM_ADDR x, GM_ADDR gamma, GM_ADDR beta, GM_ADDR y, uint32_t rows,
                                                      uint32_t columns, float epsilon) {
  LayerNormTiling tiling{};
  tiling.bLength = tiling.sLength = 1, tiling.hLength = tiling.originalHLength = columns;
  Rows all(x, y, rows, columns);
  TBuf<> buffers[4];
  const LocalTensor<float> scale = all.Shared(buffers[0], gamma), shift = all.Shared(buffers[1], beta);
  all.pipe.InitBuffer(buffers[2], ONE_BLK_SIZE);
  all.pipe.InitBuffer(buffers[3], ONE_BLK_SIZE);
  const LocalTensor<float> mean = buffers[2].Get<float>(), variance = buffers[3].Get<float>();
  all.ForEach([&](const LocalTensor<float>& result, const LocalTensor<float>& source) {
    LayerNorm<float>(result, mean, variance, source, scale, shift, epsilon, tiling);
  });
}

extern "C" __global__ __aicore__ void rms_norm_rows(GM_ADDR x, GM_ADDR gamma, GM_ADDR y, uint32_t rows,
                                                    uint32_t columns, float epsilon) {
  RmsNormTiling tiling{};
  tiling.bLength = tiling.sLength = 1, tiling.hLength = tiling.originalHLength = columns;
  Rows all(x, y, rows, columns);
  TBuf<> buffer;
  const LocalTensor<float> scale = all.Shared(buffer, gamma);
  all.ForEach([&](const LocalTensor<float>& result, const LocalTensor<float>& source) {
    RmsNorm<float>(result, source, scale, epsilon, tiling);
  });
}
