// SPDX-License-Identifier: Apache-2.0
// Normalises rows of floats in the unified buffer.
#pragma once

#include "rows.h"

namespace opp {

// A layer norm, (x - mean) / sqrt(variance + epsilon) * gamma + beta, the variance being the biased one; or, not
// centred, an RMS norm, x / sqrt(mean of x^2 + epsilon) * gamma. gamma and beta are of T.
template <class T, bool centred>
class Norm {
 public:
  // Normalizes rows of this width and pitch.
  __aicore__ inline Norm(AscendC::TPipe& pipe, uint32_t width, uint32_t pitch, float epsilon, GM_ADDR gamma,
                         GM_ADDR beta = nullptr)
      : width_(width), pitch_(pitch), epsilon_(epsilon), gamma_(gamma), beta_(beta) {
    pipe.InitBuffer(loaded_, kParameters * pitch * sizeof(T));
    pipe.InitBuffer(parameters_, kParameters * pitch * sizeof(float));
  }

  // Reads gamma and beta.
  __aicore__ inline void Load() {
    const AscendC::LocalTensor<T> loaded = loaded_.template Get<T>();
    GM_ADDR from[] = {gamma_, beta_};
    for (uint32_t i = 0; i < kParameters; ++i) {
      AscendC::GlobalTensor<T> parameter;
      parameter.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(from[i]), width_);
      AscendC::DataCopyPad(loaded[i * pitch_], parameter,
                           AscendC::DataCopyExtParams{1, static_cast<uint32_t>(width_ * sizeof(T)), 0, 0, 0},
                           AscendC::DataCopyPadExtParams<T>{false, 0, 0, T{}});
    }
    const auto arrived = GetTPipePtr()->FetchEventID(AscendC::HardEvent::MTE2_V);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(arrived);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(arrived);
    for (uint32_t i = 0; i < kParameters; ++i) {
      AscendC::Cast(parameters_.Get<float>()[i * pitch_], loaded[i * pitch_], AscendC::RoundMode::CAST_NONE, width_);
    }
  }

  // Normalizes `count` rows in place.
  __aicore__ inline void Apply(const LocalFloats& x, uint32_t count, RowNumbers& numbers) {
    const Rows rows{count, width_, pitch_};
    const LocalFloats parameters = parameters_.Get<float>(), squares = numbers.Work();
    if constexpr (centred) CombineWithNumbers<Difference>(x, x, numbers.Spread(Mean(x, rows, numbers), rows), rows);
    Combine<Product>(squares, x, x, rows, pitch_);
    const LocalFloats deviations = Mean(squares, rows, numbers);
    const auto all = static_cast<int32_t>(count);
    AscendC::Adds(deviations, deviations, epsilon_, all);
    AscendC::Sqrt(deviations, deviations, all);
    CombineWithNumbers<Quotient>(x, x, numbers.Spread(deviations, rows), rows);
    Combine<Product>(x, x, parameters, rows, 0);
    if constexpr (centred) Combine<Sum>(x, x, parameters[pitch_], rows, 0);
  }

 private:
  static constexpr uint32_t kParameters = centred ? 2 : 1;

  __aicore__ inline LocalFloats Mean(const LocalFloats& x, const Rows& rows, RowNumbers& numbers) const {
    const LocalFloats sums = numbers.Sums(x, rows);
    AscendC::Muls(sums, sums, 1.0f / static_cast<float>(width_), static_cast<int32_t>(rows.count));
    return sums;
  }

  const uint32_t width_;
  const uint32_t pitch_;
  const float epsilon_;
  GM_ADDR gamma_;
  GM_ADDR beta_;
  AscendC::TBuf<> loaded_, parameters_;
};

}  // namespace opp
