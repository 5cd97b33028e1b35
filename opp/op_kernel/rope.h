// SPDX-License-Identifier: Apache-2.0
// The rotary embedding of rows in the unified buffer.
#pragma once

#include "rows.h"
#include "slots.h"

namespace opp {

struct RopeSizes {
  uint32_t width;  // of what is rotated, even
  uint32_t rows;   // the most that are rotated at once
  uint32_t pitch;  // of the rows that it is part of
  bool interleaved;

  __aicore__ inline uint32_t Half() const { return width / 2; }
  // Halves of rows begin so many elements apart: whole blocks of 32 bytes, of 16 bits, too.
  __aicore__ inline uint32_t HalfPitch() const { return AscendC::AlignUp(Half(), 2 * kBlock); }
};

// out = x' * cos + rotate_half(x') * sin, rotate_half([a, b]) = [-b, a], where x' is x, or if `interleaved`
// [x0, x2, ..., x1, x3, ...]; out stays in that order.
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

  // Takes the angles of tokens that follow one another.
  __aicore__ inline void Load(int64_t first, uint32_t count) {
    const AscendC::LocalTensor<T> loaded = loaded_.template AllocTensor<T>();
    CopyAngles(loaded, 0, first, count);
    Convert(loaded, count);
  }
  // Those of tokens by their numbers, counted from `first`.
  __aicore__ inline void Load(int64_t first, const int64_t* tokens, uint32_t count) {
    const AscendC::LocalTensor<T> loaded = loaded_.template AllocTensor<T>();
    for (uint32_t i = 0; i < count; ++i) CopyAngles(loaded, i, first + tokens[i], 1);
    Convert(loaded, count);
  }

  // Rotates what begins `column` elements into each of `count` rows: by the angles of the first token loaded, if
  // `shared`, or each by those of its own. `to` has the first halves of all rows, then the second ones.
  __aicore__ inline void Apply(const LocalFloats& from, uint32_t column, uint32_t count, bool shared,
                               const AscendC::LocalTensor<T>& to) {
    const uint32_t pitch = sizes_.HalfPitch(), all = sizes_.rows * pitch;
    const Rows rows{count, pitch, pitch};
    const AscendC::LocalTensor<uint32_t> places = places_.Get<uint32_t>();
    const LocalFloats first = halves_.Get<float>(), second = first[all], other = first[2 * all],
                      turned = first[3 * all];
    const uint32_t base = column * sizeof(float);
    AscendC::Gather(first, from, places, base, rows.Elements());
    AscendC::Gather(second, from, places[all], base, rows.Elements());
    const uint32_t apart = shared ? 0 : 2 * pitch;
    const LocalFloats cos = Cos(), sin = Sin();
    Combine<Product>(other, second, sin, rows, apart);
    Combine<Product>(turned, second, cos[pitch], rows, apart);
    Combine<Product>(second, first, sin[pitch], rows, apart);
    Combine<Product>(first, first, cos, rows, apart);
    const auto elements = static_cast<int32_t>(rows.Elements());
    AscendC::Sub(first, first, other, elements);
    AscendC::Add(turned, turned, second, elements);
    AscendC::Cast(to, first, AscendC::RoundMode::CAST_RINT, rows.Elements());
    AscendC::Cast(to[rows.Elements()], turned, AscendC::RoundMode::CAST_RINT, rows.Elements());
  }

  // Writes what Apply has made of `count` rows, to rows that begin `stride` elements apart.
  __aicore__ inline void Store(const AscendC::GlobalTensor<T>& to, uint32_t stride, uint32_t count,
                               const AscendC::LocalTensor<T>& from) const {
    StoreHalves(to, stride, count, from, from[count * sizes_.HalfPitch()]);
  }
  // The i-th of them alone.
  __aicore__ inline void StoreRow(const AscendC::GlobalTensor<T>& to, uint32_t i, uint32_t count,
                                  const AscendC::LocalTensor<T>& from) const {
    const uint32_t pitch = sizes_.HalfPitch();
    StoreHalves(to, sizes_.width, 1, from[i * pitch], from[(count + i) * pitch]);
  }

 private:
  __aicore__ inline void CopyAngles(const AscendC::LocalTensor<T>& to, uint32_t place, int64_t token,
                                    uint32_t count) const {
    const AscendC::DataCopyExtParams halves{static_cast<uint16_t>(2 * count),
                                            static_cast<uint32_t>(sizes_.Half() * sizeof(T)), 0, 0, 0};
    const AscendC::DataCopyPadExtParams<T> pad{false, 0, 0, T{}};
    const uint32_t at = 2 * place * sizes_.HalfPitch();
    AscendC::DataCopyPad(to[at], cos_[token * sizes_.width], halves, pad);
    AscendC::DataCopyPad(to[angleElements_ + at], sin_[token * sizes_.width], halves, pad);
  }

  __aicore__ inline void Convert(AscendC::LocalTensor<T> loaded, uint32_t count) {
    loaded_.EnQue(loaded);
    loaded = loaded_.template DeQue<T>();
    const uint32_t elements = 2 * count * sizes_.HalfPitch();
    AscendC::Cast(Cos(), loaded, AscendC::RoundMode::CAST_NONE, elements);
    AscendC::Cast(Sin(), loaded[angleElements_], AscendC::RoundMode::CAST_NONE, elements);
    loaded_.FreeTensor(loaded);
  }

  __aicore__ inline void StoreHalves(const AscendC::GlobalTensor<T>& to, uint32_t stride, uint32_t count,
                                     const AscendC::LocalTensor<T>& first,
                                     const AscendC::LocalTensor<T>& second) const {
    const uint32_t half = sizes_.Half();
    const AscendC::DataCopyExtParams halves{static_cast<uint16_t>(count), static_cast<uint32_t>(half * sizeof(T)), 0,
                                            static_cast<uint32_t>((stride - half) * sizeof(T)), 0};
    AscendC::DataCopyPad(to, first, halves);
    AscendC::DataCopyPad(to[half], second, halves);
  }

  // For each token two halves.
  __aicore__ inline LocalFloats Cos() { return angles_.Get<float>(); }
  __aicore__ inline LocalFloats Sin() { return angles_.Get<float>()[angleElements_]; }

  const RopeSizes sizes_;
  const uint32_t angleElements_;  // of cos, and of sin
  AscendC::GlobalTensor<T> cos_, sin_;
  AscendC::TQue<AscendC::TPosition::VECIN, 1> loaded_;
  AscendC::TBuf<> angles_, places_, halves_;
};

// Rows that are rounded to T and whose first elements are rotated, on their way to device memory.
template <class T>
class RotatedRows {
 public:
  // Rows of `width` elements, which begin sizes.pitch apart in the unified buffer.
  __aicore__ inline RotatedRows(AscendC::TPipe& pipe, const RopeSizes& sizes, uint32_t width, uint32_t tokens,
                                GM_ADDR cos, GM_ADDR sin)
      : width_(width), pitch_(sizes.pitch), elements_(sizes.rows * sizes.pitch), rope_(pipe, sizes, tokens, cos, sin) {
    pipe.InitBuffer(out_, 2, (elements_ + 2 * sizes.rows * sizes.HalfPitch()) * sizeof(T));
  }

  // Of which the angles are to be prepared and loaded.
  __aicore__ inline Rope<T>& Angles() { return rope_; }

  // Writes them side by side. `shared` is Rope's; what is in `rows` becomes the rounded numbers.
  __aicore__ inline void Store(const AscendC::GlobalTensor<T>& to, const LocalFloats& rows, uint32_t count,
                               bool shared) {
    const AscendC::LocalTensor<T> out = Make(rows, count, shared);
    AscendC::DataCopyPad(to, out, WholeRows(count));
    AscendC::PipeBarrier<PIPE_MTE3>();  // what is rotated goes over what is not
    rope_.Store(to, width_, count, out[elements_]);
    out_.FreeTensor(out);
  }

  // Writes each to its slot.
  __aicore__ inline void Store(const AscendC::GlobalTensor<T>& cache, const LocalFloats& rows, const SlotGroup& group) {
    const AscendC::LocalTensor<T> out = Make(rows, group.count, false);
    for (uint32_t i = 0; i < group.count; ++i) {
      AscendC::DataCopyPad(cache[group.slots[i] * width_], out[i * pitch_], WholeRows(1));
    }
    AscendC::PipeBarrier<PIPE_MTE3>();
    for (uint32_t i = 0; i < group.count; ++i) {
      rope_.StoreRow(cache[group.slots[i] * width_], i, group.count, out[elements_]);
    }
    out_.FreeTensor(out);
  }

 private:
  __aicore__ inline AscendC::DataCopyExtParams WholeRows(uint32_t count) const {
    return {static_cast<uint16_t>(count), static_cast<uint32_t>(width_ * sizeof(T)), 0, 0, 0};
  }

  // Rounded rows, and behind them what Rope makes.
  __aicore__ inline AscendC::LocalTensor<T> Make(const LocalFloats& rows, uint32_t count, bool shared) {
    const AscendC::LocalTensor<T> out = out_.template AllocTensor<T>();
    AscendC::Cast(out, rows, AscendC::RoundMode::CAST_RINT, count * pitch_);
    AscendC::Cast(rows, out, AscendC::RoundMode::CAST_NONE, count * pitch_);
    rope_.Apply(rows, 0, count, shared, out[elements_]);
    out_.EnQue(out);
    return out_.template DeQue<T>();
  }

  const uint32_t width_;
  const uint32_t pitch_;
  const uint32_t elements_;  // of the rows
  Rope<T> rope_;
  AscendC::TQue<AscendC::TPosition::VECOUT, 1> out_;
};

}  // namespace opp
