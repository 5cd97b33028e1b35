// SPDX-License-Identifier: Apache-2.0
// Numbers in device memory, which may be of several types, as floats in the unified buffer.
#pragma once

#include "float_type.h"
#include "kernel_operator.h"

namespace opp {

using namespace AscendC;

class Floats {
 public:
  // `stride` apart, and at most `max` at a time.
  __aicore__ inline void Init(TPipe& pipe, GM_ADDR address, FloatType type, uint32_t max, int64_t stride = 1) {
    address_ = address;
    type_ = type;
    stride_ = stride;
    const uint32_t bytes = AlignUp(max, 16u) * sizeof(float);
    pipe.InitBuffer(in_, 2, stride == 1 ? bytes : max * kBlock);
    pipe.InitBuffer(floats_, bytes);
    if (stride != 1) pipe.InitBuffer(together_, bytes);
  }

  // `count` of them from an element on, and zeros that fill their last 32 bytes.
  __aicore__ inline LocalTensor<float> Load(int64_t first, uint32_t count) {
    LocalTensor<float> to = floats_.Get<float>();
    Load(to, first, count);
    return to;
  }
  __aicore__ inline void Load(const LocalTensor<float>& to, int64_t first, uint32_t count) {
    if (type_ == FloatType::kHalf) return LoadOf<half>(to, first, count);
    if (type_ == FloatType::kBfloat16) return LoadOf<bfloat16_t>(to, first, count);
    LoadOf<float>(to, first, count);
  }

 private:
  static constexpr uint32_t kBlock = 32;  // bytes

  template <class T>
  __aicore__ inline void LoadOf(const LocalTensor<float>& to, int64_t first, uint32_t count) {
    constexpr uint32_t kElements = kBlock / sizeof(T);
    GlobalTensor<T> from;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address_));
    const bool apart = stride_ != 1;
    const uint32_t run = apart ? 1 : count, runs = apart ? count : 1, padded = AlignUp(count, kElements);
    const uint32_t gap = apart ? static_cast<uint32_t>((stride_ - 1) * sizeof(T)) : 0;
    LocalTensor<T> raw = in_.AllocTensor<T>();
    DataCopyPad(raw, from[first],
                DataCopyExtParams{static_cast<uint16_t>(runs), static_cast<uint32_t>(run * sizeof(T)), gap, 0, 0},
                DataCopyPadExtParams<T>{true, 0, static_cast<uint8_t>(AlignUp(run, kElements) - run), T{}});
    in_.EnQue(raw);
    raw = in_.DeQue<T>();
    if constexpr (!std::is_same_v<T, bfloat16_t>) {
      if (apart) return SumBlocks(to, raw, count);
    }
    Convert(to, raw, padded);
    in_.FreeTensor(raw);
  }

  // One element of each block counts, and zeros beside it.
  template <class T>
  __aicore__ inline void SumBlocks(const LocalTensor<float>& to, const LocalTensor<T>& blocks, uint32_t count) {
    constexpr int32_t kElements = kBlock / sizeof(T), kBlocks = 8;  // of a repeat
    const LocalTensor<T> together = together_.Get<T>();
    Duplicate(together, T{}, static_cast<int32_t>(AlignUp(count, 16u)));
    const auto whole = static_cast<int32_t>(count) / kBlocks, rest = static_cast<int32_t>(count) % kBlocks;
    if (whole > 0) BlockReduceSum(together, blocks, whole, kBlocks * kElements, 1, 1, kBlocks);
    if (rest > 0) {
      BlockReduceSum(together[whole * kBlocks], blocks[whole * kBlocks * kElements], 1, rest * kElements, 1, 1,
                     kBlocks);
    }
    Convert(to, together, AlignUp(count, static_cast<uint32_t>(kElements)));
    in_.FreeTensor(blocks);
  }

  template <class T>
  __aicore__ static inline void Convert(const LocalTensor<float>& to, const LocalTensor<T>& from, uint32_t count) {
    if constexpr (sizeof(T) == sizeof(float)) {
      Adds(to, from, 0.0f, static_cast<int32_t>(count));
    } else {
      Cast(to, from, RoundMode::CAST_NONE, count);
    }
  }

  GM_ADDR address_ = nullptr;
  FloatType type_ = FloatType::kFloat;
  int64_t stride_ = 1;
  TQue<TPosition::VECIN, 2> in_;
  TBuf<TPosition::VECCALC> floats_, together_;
};

}  // namespace opp
