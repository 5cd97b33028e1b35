// Softcap: out = cap * tanh(x / cap).
#include "kernel_operator.h"
#include "softcap_tiling.h"

namespace {

using namespace AscendC;
using Tiling = opp::SoftcapTiling;

// tanh(y) = 1 - 2 / (exp(2 y) + 1), which is also right where exp overflows.
__aicore__ inline void Compute(const LocalTensor<float>& x, const LocalTensor<float>& out, uint32_t count,
                               const Tiling& tiling) {
  Muls(x, x, 2 / tiling.cap, count);
  Exp(x, x, count);
  Adds(x, x, 1.0f, count);
  Duplicate(out, -2 * tiling.cap, count);
  Div(out, out, x, count);
  Adds(out, out, tiling.cap, count);
}

constexpr uint32_t kBuffers = 2;  // one is copied while the other is computed

// Takes tiles through the unified buffer. float16 and bfloat16 are computed in float32, and rounded once.
template <class T>
class Kernel {
 public:
  __aicore__ inline Kernel(GM_ADDR x, GM_ADDR out, const Tiling& tiling) : tiling_(tiling) {
    x_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x));
    out_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(out));
    pipe_.InitBuffer(x_queue_, kBuffers, Tiling::kTile * sizeof(T));
    pipe_.InitBuffer(out_queue_, kBuffers, Tiling::kTile * sizeof(T));
    if constexpr (!kFloat) pipe_.InitBuffer(floats_, 2 * Tiling::kTile * sizeof(float));
  }

  __aicore__ inline void Process() {
    const uint64_t first = tiling_.per_block * GetBlockIdx();
    for (uint64_t at = first; at < tiling_.elements && at < first + tiling_.per_block; at += Tiling::kTile) {
      const uint64_t rest = tiling_.elements - at;
      const uint32_t count = rest < Tiling::kTile ? static_cast<uint32_t>(rest) : Tiling::kTile;
      CopyIn(x_queue_, x_[at], count);
      ComputeTile(count);
      CopyOut(out_[at], out_queue_, count);
    }
  }

 private:
  static constexpr bool kFloat = std::is_same_v<T, float>;
  using InQueue = TQue<TPosition::VECIN, kBuffers>;
  using OutQueue = TQue<TPosition::VECOUT, kBuffers>;

  __aicore__ inline void ComputeTile(uint32_t count) {
    LocalTensor<T> x = x_queue_.template DeQue<T>();
    LocalTensor<T> out = out_queue_.template AllocTensor<T>();
    if constexpr (kFloat) {
      Compute(x, out, count, tiling_);
    } else {
      LocalTensor<float> floats = floats_.template Get<float>();
      Cast(floats, x, RoundMode::CAST_NONE, count);
      Compute(floats, floats[Tiling::kTile], count, tiling_);
      Cast(out, floats[Tiling::kTile], RoundMode::CAST_RINT, count);
    }
    out_queue_.EnQue(out);
    x_queue_.FreeTensor(x);
  }

  __aicore__ inline void CopyIn(InQueue& queue, const GlobalTensor<T>& from, uint32_t count) {
    LocalTensor<T> tile = queue.template AllocTensor<T>();
    DataCopyPad(tile, from, DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0},
                DataCopyPadExtParams<T>{false, 0, 0, T{}});
    queue.EnQue(tile);
  }

  __aicore__ inline void CopyOut(const GlobalTensor<T>& to, OutQueue& queue, uint32_t count) {
    LocalTensor<T> tile = queue.template DeQue<T>();
    DataCopyPad(to, tile, DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0});
    queue.FreeTensor(tile);
  }

  const Tiling& tiling_;
  TPipe pipe_;
  InQueue x_queue_;
  OutQueue out_queue_;
  TBuf<TPosition::VECCALC> floats_;
  GlobalTensor<T> x_;
  GlobalTensor<T> out_;
};

}  // namespace

extern "C" __global__ __aicore__ void softcap(GM_ADDR x, GM_ADDR out, GM_ADDR /*workspace*/, GM_ADDR tiling) {
  REGISTER_TILING_DEFAULT(Tiling);
  GET_TILING_DATA(tiling_data, tiling);
  Kernel<DTYPE_X>(x, out, tiling_data).Process();
}
