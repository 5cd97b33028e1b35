// SPDX-License-Identifier: Apache-2.0
// AddCustom: out = self + other, of tensors of one shape and dtype. The tiling key is the dtype, as aclDataType has it.
#include "kernel_operator.h"
#include "op_host/add_custom_tiling.h"

namespace {

using namespace AscendC;

constexpr uint32_t kBuffers = 2;

template <class T>
class AddCustom {
 public:
  __aicore__ inline AddCustom(GM_ADDR self, GM_ADDR other, GM_ADDR out, const opp::AddCustomTiling& tiling)
      : tile_(tiling.tile) {
    const uint64_t first = tiling.per_block * GetBlockIdx();
    const uint64_t rest = tiling.elements - first;
    elements_ = rest < tiling.per_block ? rest : tiling.per_block;
    self_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(self) + first, elements_);
    other_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(other) + first, elements_);
    out_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(out) + first, elements_);
    pipe_.InitBuffer(self_queue_, kBuffers, tile_ * sizeof(T));
    pipe_.InitBuffer(other_queue_, kBuffers, tile_ * sizeof(T));
    pipe_.InitBuffer(out_queue_, kBuffers, tile_ * sizeof(T));
    if constexpr (kInFloat) pipe_.InitBuffer(floats_, 2 * tile_ * sizeof(float));
  }

  __aicore__ inline void Process() {
    for (uint64_t start = 0; start < elements_; start += tile_) {
      const uint64_t rest = elements_ - start;
      const uint32_t count = rest < tile_ ? static_cast<uint32_t>(rest) : tile_;
      CopyIn(self_queue_, self_[start], count);
      CopyIn(other_queue_, other_[start], count);
      Compute(count);
      CopyOut(out_[start], count);
    }
  }

 private:
  static constexpr bool kInFloat = std::is_same_v<T, bfloat16_t>;  // the vector unit has no Add for it
  using InQueue = TQue<QuePosition::VECIN, kBuffers>;

  __aicore__ inline void CopyIn(InQueue& queue, const GlobalTensor<T>& from, uint32_t count) {
    LocalTensor<T> tensor = queue.template AllocTensor<T>();
    DataCopyPad(tensor, from, DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0},
                DataCopyPadExtParams<T>{false, 0, 0, T{}});
    queue.EnQue(tensor);
  }

  __aicore__ inline void Compute(uint32_t count) {
    LocalTensor<T> self = self_queue_.template DeQue<T>();
    LocalTensor<T> other = other_queue_.template DeQue<T>();
    LocalTensor<T> out = out_queue_.template AllocTensor<T>();
    if constexpr (kInFloat) {
      LocalTensor<float> sum = floats_.template Get<float>();
      LocalTensor<float> addend = sum[tile_];
      Cast(sum, self, RoundMode::CAST_NONE, count);
      Cast(addend, other, RoundMode::CAST_NONE, count);
      Add(sum, sum, addend, count);
      Cast(out, sum, RoundMode::CAST_RINT, count);
    } else {
      Add(out, self, other, count);
    }
    out_queue_.EnQue(out);
    self_queue_.FreeTensor(self);
    other_queue_.FreeTensor(other);
  }

  __aicore__ inline void CopyOut(const GlobalTensor<T>& to, uint32_t count) {
    LocalTensor<T> tensor = out_queue_.template DeQue<T>();
    DataCopyPad(to, tensor, DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0});
    out_queue_.FreeTensor(tensor);
  }

  TPipe pipe_;
  InQueue self_queue_;
  InQueue other_queue_;
  TQue<QuePosition::VECOUT, kBuffers> out_queue_;
  TBuf<TPosition::VECCALC> floats_;
  GlobalTensor<T> self_;
  GlobalTensor<T> other_;
  GlobalTensor<T> out_;
  uint64_t elements_;
  uint32_t tile_;
};

}  // namespace

extern "C" __global__ __aicore__ void add_custom(GM_ADDR self, GM_ADDR other, GM_ADDR out, GM_ADDR /*workspace*/,
                                                 GM_ADDR tiling) {
  GET_TILING_DATA_WITH_STRUCT(opp::AddCustomTiling, data, tiling);
  if (TILING_KEY_IS(0)) {
    AddCustom<float>(self, other, out, data).Process();
  } else if (TILING_KEY_IS(1)) {
    AddCustom<half>(self, other, out, data).Process();
  } else if (TILING_KEY_IS(3)) {
    AddCustom<int32_t>(self, other, out, data).Process();
  } else if (TILING_KEY_IS(6)) {
    AddCustom<int16_t>(self, other, out, data).Process();
  } else if (TILING_KEY_IS(27)) {
    AddCustom<bfloat16_t>(self, other, out, data).Process();
  } else {
    ASSERT(!"a tiling key of add_custom");
  }
}
