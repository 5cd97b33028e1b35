// SPDX-License-Identifier: Apache-2.0
// AddCustom: out = self + other, broadcast, of tensors of one dtype.
#include "add_custom_tiling.h"
#include "kernel_operator.h"

namespace {

using namespace AscendC;
using Tiling = opp::AddCustomTiling;

constexpr uint32_t kBuffers = 2;

template <class T>
class AddCustom {
 public:
  __aicore__ inline AddCustom(GM_ADDR self, GM_ADDR other, GM_ADDR out, const Tiling& tiling) : tiling_(tiling) {
    self_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(self));
    other_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(other));
    out_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(out));
    pipe_.InitBuffer(self_queue_, kBuffers, tiling.tile * sizeof(T));
    pipe_.InitBuffer(other_queue_, kBuffers, tiling.tile * sizeof(T));
    pipe_.InitBuffer(out_queue_, kBuffers, tiling.tile * sizeof(T));
    if constexpr (kInFloat) pipe_.InitBuffer(floats_, 2 * tiling.tile * sizeof(float));
  }

  __aicore__ inline void Process() {
    const uint64_t first = tiling_.per_block * GetBlockIdx();
    const uint64_t rest = tiling_.all_tiles - first;
    const uint64_t last = first + (rest < tiling_.per_block ? rest : tiling_.per_block);
    for (uint64_t tile = first; tile < last; ++tile) AddTile(tile / tiling_.tiles, tile % tiling_.tiles * tiling_.tile);
  }

 private:
  static constexpr bool kInFloat = std::is_same_v<T, bfloat16_t>;  // the vector unit has no Add for it
  using InQueue = TQue<QuePosition::VECIN, kBuffers>;

  // Elements of a row from `start` on.
  __aicore__ inline void AddTile(uint64_t row, uint64_t start) {
    const uint64_t rest = tiling_.inner - start;
    const uint32_t count = rest < tiling_.tile ? static_cast<uint32_t>(rest) : tiling_.tile;
    uint64_t self = 0, other = 0, index = row;
    for (uint32_t i = tiling_.dimensions; i-- > 0; index /= tiling_.sizes[i]) {
      self += index % tiling_.sizes[i] * tiling_.self_strides[i];
      other += index % tiling_.sizes[i] * tiling_.other_strides[i];
    }
    if (tiling_.single == Tiling::kSelf) {
      AddSingle(other_queue_, other_[other + start], self_.GetValue(self), count);
    } else if (tiling_.single == Tiling::kOther) {
      AddSingle(self_queue_, self_[self + start], other_.GetValue(other), count);
    } else {
      CopyIn(self_queue_, self_[self + start], count);
      CopyIn(other_queue_, other_[other + start], count);
      AddRows(count);
    }
    CopyOut(out_[row * tiling_.inner + start], count);
  }

  __aicore__ inline void CopyIn(InQueue& queue, const GlobalTensor<T>& from, uint32_t count) {
    LocalTensor<T> tensor = queue.template AllocTensor<T>();
    DataCopyPad(tensor, from, DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0},
                DataCopyPadExtParams<T>{false, 0, 0, T{}});
    queue.EnQue(tensor);
  }

  __aicore__ inline void AddRows(uint32_t count) {
    LocalTensor<T> self = self_queue_.template DeQue<T>();
    LocalTensor<T> other = other_queue_.template DeQue<T>();
    LocalTensor<T> out = out_queue_.template AllocTensor<T>();
    if constexpr (kInFloat) {
      LocalTensor<float> sum = floats_.template Get<float>();
      LocalTensor<float> addend = sum[tiling_.tile];
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

  __aicore__ inline void AddSingle(InQueue& queue, const GlobalTensor<T>& from, T single, uint32_t count) {
    CopyIn(queue, from, count);
    LocalTensor<T> row = queue.template DeQue<T>();
    LocalTensor<T> out = out_queue_.template AllocTensor<T>();
    if constexpr (kInFloat) {
      LocalTensor<float> sum = floats_.template Get<float>();
      Cast(sum, row, RoundMode::CAST_NONE, count);
      Adds(sum, sum, ToFloat(single), count);
      Cast(out, sum, RoundMode::CAST_RINT, count);
    } else {
      Adds(out, row, single, count);
    }
    out_queue_.EnQue(out);
    queue.FreeTensor(row);
  }

  __aicore__ inline void CopyOut(const GlobalTensor<T>& to, uint32_t count) {
    LocalTensor<T> tensor = out_queue_.template DeQue<T>();
    DataCopyPad(to, tensor, DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0});
    out_queue_.FreeTensor(tensor);
  }

  const Tiling& tiling_;
  TPipe pipe_;
  InQueue self_queue_;
  InQueue other_queue_;
  TQue<QuePosition::VECOUT, kBuffers> out_queue_;
  TBuf<TPosition::VECCALC> floats_;
  GlobalTensor<T> self_;
  GlobalTensor<T> other_;
  GlobalTensor<T> out_;
};

}  // namespace

extern "C" __global__ __aicore__ void add_custom(GM_ADDR self, GM_ADDR other, GM_ADDR out, GM_ADDR /*workspace*/,
                                                 GM_ADDR tiling) {
  REGISTER_TILING_DEFAULT(opp::AddCustomTiling);
  GET_TILING_DATA(data, tiling);
  AddCustom<DTYPE_SELF>(self, other, out, data).Process();
}
