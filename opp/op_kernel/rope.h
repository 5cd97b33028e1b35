// SPDX-License-Identifier: Apache-2.0
// The rotary embedding of rows in the unified buffer, on their way to device memory.
#pragma once

#include "rows.h"
#include "slots.h"

namespace opp {

// What rows of several kinds are rotated with: the angles of tokens, and memory.
template <class T>
class Rotation {
 public:
  struct Sizes {
    uint32_t width;     // of what is rotated, even
    uint32_t tokens;    // whose angles are in use at once
    uint32_t rows;      // the most that are rotated at once
    uint32_t elements;  // the most that such rows take in the unified buffer
  };

  // cos and sin are [., width].
  __aicore__ inline Rotation(AscendC::TPipe& pipe, const Sizes& sizes, GM_ADDR cos, GM_ADDR sin)
      : sizes_(sizes), angles_(2 * sizes.tokens * HalfPitch()) {
    cos_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(cos));
    sin_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(sin));
    pipe.InitBuffer(in_, 2, 2 * angles_ * sizeof(T));
    pipe.InitBuffer(floats_, 2 * angles_ * sizeof(float));
    pipe.InitBuffer(halves_, kHalves * HalfElements() * sizeof(float));
    pipe.InitBuffer(out_, 2, (sizes.elements + 2 * HalfElements()) * sizeof(T));
  }

  // Takes the angles of tokens that follow one another.
  __aicore__ inline void Load(int64_t first, uint32_t count) {
    const AscendC::LocalTensor<T> angles = in_.template AllocTensor<T>();
    CopyIn(angles, 0, first, count);
    Convert(angles, count);
  }
  // Takes the angles of a group's tokens, which are counted from `first`.
  __aicore__ inline void Load(int64_t first, const SlotGroup& group) {
    const AscendC::LocalTensor<T> angles = in_.template AllocTensor<T>();
    for (uint32_t i = 0; i < group.count; ++i) CopyIn(angles, i, first + group.tokens[i], 1);
    Convert(angles, group.count);
  }

  __aicore__ inline uint32_t Half() const { return sizes_.width / 2; }
  // Halves begin this many elements apart: whole blocks of 32 bytes, also for elements of 16 bits.
  __aicore__ inline uint32_t HalfPitch() const { return AscendC::AlignUp(Half(), 2 * kBlock); }

  // Two halves for each token.
  __aicore__ inline LocalFloats Cos() { return floats_.Get<float>(); }
  __aicore__ inline LocalFloats Sin() { return floats_.Get<float>()[angles_]; }

  // Memory for a half of each row.
  static constexpr uint32_t kHalves = 4;
  __aicore__ inline LocalFloats Halves(uint32_t i) { return halves_.Get<float>()[i * HalfElements()]; }

  // Rows, and then their rotated halves: the first half of all rows, then the second.
  __aicore__ inline AscendC::TQue<AscendC::TPosition::VECOUT, 1>& Out() { return out_; }
  __aicore__ inline AscendC::LocalTensor<T> HalvesBehind(const AscendC::LocalTensor<T>& rows) const {
    return rows[sizes_.elements];
  }

 private:
  __aicore__ inline uint32_t HalfElements() const { return sizes_.rows * HalfPitch(); }

  __aicore__ inline void CopyIn(const AscendC::LocalTensor<T>& to, uint32_t place, int64_t token,
                                uint32_t count) const {
    const AscendC::DataCopyExtParams halves{static_cast<uint16_t>(2 * count), static_cast<uint32_t>(Half() * sizeof(T)),
                                            0, 0, 0};
    const AscendC::DataCopyPadExtParams<T> pad{false, 0, 0, T{}};
    const uint32_t at = 2 * place * HalfPitch();
    AscendC::DataCopyPad(to[at], cos_[token * sizes_.width], halves, pad);
    AscendC::DataCopyPad(to[angles_ + at], sin_[token * sizes_.width], halves, pad);
  }

  __aicore__ inline void Convert(AscendC::LocalTensor<T> angles, uint32_t count) {
    in_.EnQue(angles);
    angles = in_.template DeQue<T>();
    const uint32_t elements = 2 * count * HalfPitch();
    AscendC::Cast(Cos(), angles, AscendC::RoundMode::CAST_NONE, elements);
    AscendC::Cast(Sin(), angles[angles_], AscendC::RoundMode::CAST_NONE, elements);
    in_.FreeTensor(angles);
  }

  const Sizes sizes_;
  const uint32_t angles_;  // elements of cos, and of sin
  AscendC::GlobalTensor<T> cos_, sin_;
  AscendC::TQue<AscendC::TPosition::VECIN, 1> in_;
  AscendC::TBuf<> floats_, halves_;
  AscendC::TQue<AscendC::TPosition::VECOUT, 1> out_;
};

// Rows that are rounded to T, and whose first elements are rotated then, and rounded again:
//
//   out = x' * cos + rotate_half(x') * sin      rotate_half([a, b]) = [-b, a]
//
// where x' is x, or if `interleaved` [x0, x2, ..., x1, x3, ...]; out stays in that order.
template <class T>
class RotatedRows {
 public:
  // At most `rows.count` at once.
  __aicore__ inline RotatedRows(AscendC::TPipe& pipe, Rotation<T>& rotation, const Rows& rows, bool interleaved)
      : rotation_(rotation), rows_(rows), interleaved_(interleaved) {
    pipe.InitBuffer(places_, 2 * rows.count * rotation.HalfPitch() * sizeof(int32_t));
  }

  // Computes the offsets of the halves of x' in the rows.
  __aicore__ inline void Prepare() {
    const uint32_t pitch = rotation_.HalfPitch(), all = rows_.count * pitch;
    const AscendC::LocalTensor<int32_t> first = places_.Get<int32_t>(), second = first[all];
    constexpr int32_t kBytes = sizeof(float);
    const auto half = static_cast<int32_t>(rotation_.Half()), count = static_cast<int32_t>(pitch);
    const int32_t step = interleaved_ ? 2 * kBytes : kBytes;
    AscendC::ArithProgression(first, 0, step, count);
    AscendC::Mins(first, first, (half - 1) * step, count);  // the padding's offsets also stay in the row
    for (uint32_t row = 1; row < rows_.count; ++row) {
      AscendC::Adds(first[row * pitch], first, static_cast<int32_t>(row * rows_.pitch) * kBytes, count);
    }
    AscendC::Adds(second, first, interleaved_ ? kBytes : half * kBytes, static_cast<int32_t>(all));
  }

  // Writes rows side by side: rotated by the angles of the first token loaded, if `shared`, or each by those of its
  // own. What is in `rows` becomes the rounded numbers.
  __aicore__ inline void Store(const AscendC::GlobalTensor<T>& to, const LocalFloats& rows, uint32_t count,
                               bool shared) {
    const AscendC::LocalTensor<T> out = Make(rows, count, shared);
    AscendC::DataCopyPad(to, out, WholeRows(count));
    AscendC::PipeBarrier<PIPE_MTE3>();  // what is rotated goes over what is not
    StoreHalves(to, count, rotation_.HalvesBehind(out), count);
    rotation_.Out().FreeTensor(out);
  }

  // Writes each to its slot.
  __aicore__ inline void Store(const AscendC::GlobalTensor<T>& cache, const LocalFloats& rows, const SlotGroup& group) {
    const AscendC::LocalTensor<T> out = Make(rows, group.count, false);
    for (uint32_t i = 0; i < group.count; ++i) {
      AscendC::DataCopyPad(cache[group.slots[i] * rows_.width], out[i * rows_.pitch], WholeRows(1));
    }
    AscendC::PipeBarrier<PIPE_MTE3>();
    const AscendC::LocalTensor<T> halves = rotation_.HalvesBehind(out);
    for (uint32_t i = 0; i < group.count; ++i) {
      StoreHalves(cache[group.slots[i] * rows_.width], 1, halves[i * rotation_.HalfPitch()], group.count);
    }
    rotation_.Out().FreeTensor(out);
  }

 private:
  __aicore__ inline AscendC::DataCopyExtParams WholeRows(uint32_t count) const {
    return {static_cast<uint16_t>(count), static_cast<uint32_t>(rows_.width * sizeof(T)), 0, 0, 0};
  }

  // Stores the rotated halves of `count` rows. `halves` has those of `all` rows.
  __aicore__ inline void StoreHalves(const AscendC::GlobalTensor<T>& to, uint32_t count,
                                     const AscendC::LocalTensor<T>& halves, uint32_t all) const {
    const uint32_t half = rotation_.Half();
    const AscendC::DataCopyExtParams params{static_cast<uint16_t>(count), static_cast<uint32_t>(half * sizeof(T)), 0,
                                            static_cast<uint32_t>((rows_.width - half) * sizeof(T)), 0};
    AscendC::DataCopyPad(to, halves, params);
    AscendC::DataCopyPad(to[half], halves[all * rotation_.HalfPitch()], params);
  }

  // Rounded rows, and their rotated halves.
  __aicore__ inline AscendC::LocalTensor<T> Make(const LocalFloats& rows, uint32_t count, bool shared) {
    const AscendC::LocalTensor<T> out = rotation_.Out().template AllocTensor<T>();
    AscendC::Cast(out, rows, AscendC::RoundMode::CAST_RINT, count * rows_.pitch);
    AscendC::Cast(rows, out, AscendC::RoundMode::CAST_NONE, count * rows_.pitch);
    Rotate(rows, count, shared, rotation_.HalvesBehind(out));
    rotation_.Out().EnQue(out);
    return rotation_.Out().template DeQue<T>();
  }

  __aicore__ inline void Rotate(const LocalFloats& from, uint32_t count, bool shared,
                                const AscendC::LocalTensor<T>& to) {
    const uint32_t pitch = rotation_.HalfPitch(), apart = shared ? 0 : 2 * pitch;
    const Rows rows{count, pitch, pitch};
    const uint32_t all = rows.Elements();
    const AscendC::LocalTensor<uint32_t> places = places_.Get<uint32_t>();
    const LocalFloats first = rotation_.Halves(0), second = rotation_.Halves(1), other = rotation_.Halves(2),
                      turned = rotation_.Halves(3), cos = rotation_.Cos(), sin = rotation_.Sin();
    AscendC::Gather(first, from, places, 0, all);
    AscendC::Gather(second, from, places[rows_.count * pitch], 0, all);
    Combine<Product>(other, second, sin, rows, apart);
    Combine<Product>(turned, second, cos[pitch], rows, apart);
    Combine<Product>(second, first, sin[pitch], rows, apart);
    Combine<Product>(first, first, cos, rows, apart);
    AscendC::Sub(first, first, other, static_cast<int32_t>(all));
    AscendC::Add(turned, turned, second, static_cast<int32_t>(all));
    AscendC::Cast(to, first, AscendC::RoundMode::CAST_RINT, all);
    AscendC::Cast(to[all], turned, AscendC::RoundMode::CAST_RINT, all);
  }

  Rotation<T>& rotation_;
  const Rows rows_;
  const bool interleaved_;
  AscendC::TBuf<> places_;
};

}  // namespace opp
