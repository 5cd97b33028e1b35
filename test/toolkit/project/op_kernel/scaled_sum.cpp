// SPDX-License-Identifier: Apache-2.0
#include "kernel_operator.h"

using namespace AscendC;

#if ORIG_DTYPE_X == DT_FLOAT16
using Element = half;
#elif ORIG_DTYPE_X == DT_FLOAT
using Element = float;
#else
#error "a dtype that the definition does not have"
#endif
static_assert(std::is_same_v<Element, DTYPE_X> && std::is_same_v<Element, DTYPE_THE_BIAS>);
static_assert(FORMAT_OUT == FORMAT_ND && TESTED == 1);

class Summing {
 public:
  __aicore__ inline Summing(GM_ADDR x, GM_ADDR y, GM_ADDR bias, GM_ADDR out, const ScaledSumTiling& tiling)
      : tiling_(tiling) {
    const uint64_t first = tiling.share.per_block * GetBlockIdx();
    const uint64_t rest = tiling.share.elements - first;
    count_ = rest < tiling.share.per_block ? rest : tiling.share.per_block;
    x_.SetGlobalBuffer(reinterpret_cast<__gm__ Element*>(x) + first, count_);
    y_.SetGlobalBuffer(reinterpret_cast<__gm__ Element*>(y) + first, count_);
    if (tiling.has_bias) bias_.SetGlobalBuffer(reinterpret_cast<__gm__ Element*>(bias) + first, count_);
    out_.SetGlobalBuffer(reinterpret_cast<__gm__ Element*>(out) + first, count_);
    pipe_.InitBuffer(in_, 2, tiling.tile * sizeof(Element));
    pipe_.InitBuffer(sum_, 2, tiling.tile * sizeof(Element));
  }

  __aicore__ inline void Process() {
    for (uint64_t start = 0; start < count_; start += tiling_.tile) {
      const uint64_t rest = count_ - start;
      const uint32_t count = rest < tiling_.tile ? static_cast<uint32_t>(rest) : tiling_.tile;
      LocalTensor<Element> y = Load(y_[start], count);
      LocalTensor<Element> sum = sum_.AllocTensor<Element>();
      Muls(sum, y, static_cast<Element>(tiling_.alpha), count);
      in_.FreeTensor(y);
      Include(sum, x_[start], count);
      if (tiling_.has_bias) Include(sum, bias_[start], count);
      sum_.EnQue(sum);
      sum = sum_.DeQue<Element>();
      DataCopyPad(out_[start], sum, DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(Element)), 0, 0, 0});
      sum_.FreeTensor(sum);
    }
  }

 private:
  __aicore__ inline LocalTensor<Element> Load(const GlobalTensor<Element>& from, uint32_t count) {
    LocalTensor<Element> tensor = in_.AllocTensor<Element>();
    DataCopyPad(tensor, from, DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(Element)), 0, 0, 0},
                DataCopyPadExtParams<Element>{false, 0, 0, Element{}});
    in_.EnQue(tensor);
    return in_.DeQue<Element>();
  }
  __aicore__ inline void Include(const LocalTensor<Element>& sum, const GlobalTensor<Element>& from, uint32_t count) {
    LocalTensor<Element> term = Load(from, count);
    Add(sum, sum, term, count);
    in_.FreeTensor(term);
  }

  const ScaledSumTiling& tiling_;
  TPipe pipe_;
  TQue<QuePosition::VECIN, 2> in_;
  TQue<QuePosition::VECOUT, 2> sum_;
  GlobalTensor<Element> x_, y_, bias_, out_;
  uint64_t count_;
};

extern "C" __global__ __aicore__ void scaled_sum(GM_ADDR x, GM_ADDR y, GM_ADDR bias, GM_ADDR out, GM_ADDR workspace,
                                                 GM_ADDR tiling) {
  GET_TILING_DATA(data, tiling);
  ASSERT(data.marks[0] == 1 && data.marks[1] == -2 && "the array among the tiling data");
  if (TILING_KEY_IS(1)) {
    Summing(x, y, bias, out, data).Process();
  } else if (TILING_KEY_IS(2)) {
    ASSERT(!"the kernel fails because it was asked to");
  }
}
