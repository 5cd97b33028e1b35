// SPDX-License-Identifier: Apache-2.0
// The rotary embedding of rows in the unified buffer.
#pragma once

#include "rows.h"

namespace opp {

// out = x' * cos + rotate_half(x') * sin, rotate_half([a, b]) = [-b, a], where x' is x, or if `interleaved`
// [x0, x2, ..., x1, x3, ...]; out stays in that order.
struct RopeSizes {
  uint32_t width;  // of what is rotated, even
  uint32_t rows;   // the most that are rotated at once
  uint32_t pitch;  // of the rows that it is part of
  bool interleaved;

  __aicore__ inline uint32_t Half() const { return width / 2; }
  // Halves of rows begin so many elements apart: whole blocks of 32 bytes, of 16 bits, too.
  __aicore__ inline uint32_t HalfPitch() const { return AscendC::AlignUp(Half(), 2 * kBlock); }
};

template <class T>
class Rope {
 public:
  // cos and sin are [tokens, width]; those of at most `tokens` are in use at once.
  __aicore__ inline Rope(AscendC::TPipe& pipe, const RopeSizes& sizes, uint32_t tokens, GM_ADDR cos, GM_ADDR sin)
      : sizes_(sizes), angleElements_(2 * tokens * sizes.HalfPitch()) {
    cos_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(cos));
    sin_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(sin));
    const uint32_t bytes = sizes.rows * sizes.HalfPitch() * sizeof(float);
    pipe.InitBuffer(loaded_, 2, 2 * angleElements_ * sizeof(T));
    pipe.InitBuffer(angles_, 2 * angleElements_ * sizeof(float));
    pipe.InitBuffer(places_, 2 * bytes);
    pipe.InitBuffer(halves_, 4 * bytes);
  }

  // Finds out where the halves of x' lie in rows.
  __aicore__ inline void Prepare() {
    const uint32_t pitch = sizes_.HalfPitch(), all = sizes_.rows * pitch;
    const AscendC::LocalTensor<int32_t> first = places_.Get<int32_t>(), second = first[all];
    constexpr int32_t kBytes = sizeof(float);
    const auto last = static_cast<int32_t>(sizes_.Half() - 1);
    const int32_t step = sizes_.interleaved ? 2 * kBytes : kBytes;
    AscendC::ArithProgression(first, 0, step, static_cast<int32_t>(pitch));
    AscendC::Mins(first, first, last * step, static_cast<int32_t>(pitch));  // what pads them lies in the row, too
    for (uint32_t row = 1; row < sizes_.rows; ++row) {
      AscendC::Adds(first[row * pitch], first, static_cast<int32_t>(row * sizes_.pitch) * kBytes,
                    static_cast<int32_t>(pitch));
    }
    AscendC::Adds(second, first, sizes_.interleaved ? kBytes : static_cast<int32_t>(sizes_.Half()) * kBytes,
                  static_cast<int32_t>(all));
  }

  // Takes the angles of tokens.
  __aicore__ inline void Load(int64_t token, uint32_t tokens) {
    AscendC::LocalTensor<T> loaded = loaded_.template AllocTensor<T>();
    const AscendC::DataCopyExtParams halves{static_cast<uint16_t>(2 * tokens),
                                            static_cast<uint32_t>(sizes_.Half() * sizeof(T)), 0, 0, 0};
    const AscendC::DataCopyPadExtParams<T> pad{false, 0, 0, T{}};
    AscendC::DataCopyPad(loaded, cos_[token * sizes_.width], halves, pad);
    AscendC::DataCopyPad(loaded[angleElements_], sin_[token * sizes_.width], halves, pad);
    loaded_.EnQue(loaded);
    loaded = loaded_.template DeQue<T>();
    const uint32_t count = 2 * tokens * sizes_.HalfPitch();
    AscendC::Cast(Cos(), loaded, AscendC::RoundMode::CAST_NONE, count);
    AscendC::Cast(Sin(), loaded[angleElements_], AscendC::RoundMode::CAST_NONE, count);
    loaded_.FreeTensor(loaded);
  }

  // Rotates what begins `column` elements into each of `count` rows: by the angles of the first token loaded, if
  // `shared`, or each by those of its own. `to` has the first halves of all rows, then the second ones.
  __aicore__ inline void Apply(const Floats& from, uint32_t column, uint32_t count, bool shared,
                               const AscendC::LocalTensor<T>& to) {
    const uint32_t pitch = sizes_.HalfPitch(), all = sizes_.rows * pitch;
    const Rows rows{count, pitch, pitch};
    const AscendC::LocalTensor<uint32_t> places = places_.Get<uint32_t>();
    const Floats first = halves_.Get<float>(), second = first[all], other = first[2 * all], turned = first[3 * all];
    const uint32_t base = column * sizeof(float);
    AscendC::Gather(first, from, places, base, rows.Elements());
    AscendC::Gather(second, from, places[all], base, rows.Elements());
    const uint32_t apart = shared ? 0 : 2 * pitch;
    const Floats cos = Cos(), sin = Sin();
    Combine<Multiplication>(other, second, sin, rows, apart);
    Combine<Multiplication>(turned, second, cos[pitch], rows, apart);
    Combine<Multiplication>(second, first, sin[pitch], rows, apart);
    Combine<Multiplication>(first, first, cos, rows, apart);
    const auto elements = static_cast<int32_t>(rows.Elements());
    AscendC::Sub(first, first, other, elements);
    AscendC::Add(turned, turned, second, elements);
    AscendC::Cast(to, first, AscendC::RoundMode::CAST_RINT, rows.Elements());
    AscendC::Cast(to[rows.Elements()], turned, AscendC::RoundMode::CAST_RINT, rows.Elements());
  }

  // Writes what Apply has made: rows that begin `stride` elements apart.
  __aicore__ inline void Store(const AscendC::GlobalTensor<T>& to, uint32_t stride, uint32_t count,
                               const AscendC::LocalTensor<T>& from) const {
    const uint32_t half = sizes_.Half();
    const AscendC::DataCopyExtParams halves{static_cast<uint16_t>(count), static_cast<uint32_t>(half * sizeof(T)), 0,
                                            static_cast<uint32_t>((stride - half) * sizeof(T)), 0};
    AscendC::DataCopyPad(to, from, halves);
    AscendC::DataCopyPad(to[half], from[count * sizes_.HalfPitch()], halves);
  }

 private:
  // For each token two halves.
  __aicore__ inline Floats Cos() { return angles_.Get<float>(); }
  __aicore__ inline Floats Sin() { return angles_.Get<float>()[angleElements_]; }

  const RopeSizes sizes_;
  const uint32_t angleElements_;  // of cos, and of sin
  AscendC::GlobalTensor<T> cos_, sin_;
  AscendC::TQue<AscendC::TPosition::VECIN, 1> loaded_;
  AscendC::TBuf<> angles_, places_, halves_;
};

}  // namespace opp
