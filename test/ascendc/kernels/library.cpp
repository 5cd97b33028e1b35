// SPDX-License-Identifier: Apache-2.0
// The libraries of whole algorithms, each called as it stands on what is copied in.
#include "kernel_operator.h"
#include "register/tilingdata_base.h"

using namespace AscendC;

namespace optiling {
BEGIN_TILING_DATA_DEF(Inner)
TILING_DATA_FIELD_DEF(uint32_t, step);
END_TILING_DATA_DEF;
BEGIN_TILING_DATA_DEF(Described)
TILING_DATA_FIELD_DEF(uint32_t, count);
TILING_DATA_FIELD_DEF_ARR(int32_t, 3, offsets);
TILING_DATA_FIELD_DEF_STRUCT(Inner, inner);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(Described, Described)
}  // namespace optiling

namespace {

template <class T>
LocalTensor<T> room(TPipe& pipe, uint32_t count) {
  TBuf<> buffer;
  pipe.InitBuffer(buffer, count * sizeof(T));
  return buffer.Get<T>(count);
}

template <class T>
LocalTensor<T> loaded(TPipe& pipe, GM_ADDR address, uint32_t count) {
  LocalTensor<T> tensor = room<T>(pipe, count);
  GlobalTensor<T> from;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address), count);
  const auto bytes = static_cast<uint32_t>(count * sizeof(T));
  DataCopyPad(tensor, from, DataCopyExtParams{1, bytes, 0, 0, 0}, DataCopyPadExtParams<T>{});
  PipeBarrier<PIPE_ALL>();
  return tensor;
}

template <class T>
void stored(GM_ADDR address, const LocalTensor<T>& tensor, uint32_t count) {
  GlobalTensor<T> to;
  to.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address), count);
  PipeBarrier<PIPE_ALL>();
  DataCopyPad(to, tensor, DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0});
}

template <class T>
LocalTensor<T> zeros(TPipe& pipe, uint32_t count) {
  LocalTensor<T> tensor = room<T>(pipe, count);
  Duplicate(tensor, T(0), static_cast<int32_t>(count));
  return tensor;
}

enum SoftmaxForm : uint32_t { WITH_SUMS, WITH_WORK, WITHOUT_SUMS, SIMPLE, IN_PLACE };

template <class T>
void softmax_of(GM_ADDR x, GM_ADDR y, GM_ADDR sum, GM_ADDR max, uint32_t rows, uint32_t step, uint32_t columns,
                uint32_t form) {
  TPipe pipe;
  const uint32_t count = rows * step, statistics = rows * (32 / sizeof(T));
  const LocalTensor<T> src = loaded<T>(pipe, x, count), dst = form == IN_PLACE ? src : zeros<T>(pipe, count);
  const LocalTensor<T> sums = loaded<T>(pipe, sum, statistics), maxima = loaded<T>(pipe, max, statistics);
  const LocalTensor<uint8_t> work = room<uint8_t>(pipe, 4096);
  const SoftMaxTiling tiling;
  const SoftMaxShapeInfo shape{rows, step, rows, columns};
  if (form == WITH_WORK) {
    SoftMax<T>(dst, sums, maxima, src, work, tiling, shape);
  } else if (form == WITHOUT_SUMS) {
    SoftMax<T>(dst, src, work, tiling, shape);
  } else if (form == SIMPLE) {
    SimpleSoftMax<T>(dst, sums, maxima, src, tiling, shape);
  } else {
    SoftMax<T, true, false>(dst, sums, maxima, src, tiling, shape);
  }
  stored(y, dst, count);
  stored(sum, sums, statistics);
  stored(max, maxima, statistics);
}

template <class T>
void norms_of(GM_ADDR x, GM_ADDR gamma, GM_ADDR beta, GM_ADDR y, GM_ADDR mean, GM_ADDR variance, uint32_t rows,
              uint32_t step, uint32_t n, float epsilon, bool rms) {
  TPipe pipe;
  const LocalTensor<T> src = loaded<T>(pipe, x, rows * step), dst = zeros<T>(pipe, rows * step);
  const LocalTensor<T> scale = loaded<T>(pipe, gamma, n), shift = loaded<T>(pipe, beta, n);
  const LocalTensor<T> means = room<T>(pipe, rows), variances = room<T>(pipe, rows);
  const LocalTensor<uint8_t> work = room<uint8_t>(pipe, 4096);
  if (rms) {
    RmsNormTiling tiling;
    tiling.bLength = 1, tiling.sLength = rows, tiling.hLength = step, tiling.originalHLength = n;
    RmsNorm<T>(dst, src, scale, work, T(epsilon), tiling);
  } else {
    LayerNormTiling tiling;
    tiling.bLength = 1, tiling.sLength = rows, tiling.hLength = step, tiling.originalHLength = n;
    LayerNorm<T>(dst, means, variances, src, scale, shift, work, T(epsilon), tiling);
    stored(mean, means, rows);
    stored(variance, variances, rows);
  }
  stored(y, dst, rows * step);
}

enum Reduction : uint32_t { SUM, MEAN, SUM_OF_ROWS, SUM_OF_COLUMNS, MAX_OF_ROWS, MIN_OF_COLUMNS };

template <class T>
void reduced(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t step, uint32_t n, uint32_t count, uint32_t which) {
  TPipe pipe;
  const LocalTensor<T> src = loaded<T>(pipe, x, rows * step), dst = room<T>(pipe, count);
  const LocalTensor<uint8_t> work = room<uint8_t>(pipe, 4096);
  const uint32_t shape[] = {rows, n};
  if (which == SUM) Sum<T>(dst, src, work, SumParams{rows, step, n});
  if (which == MEAN) Mean<T>(dst, src, MeanParams{rows, step, n});
  if (which == SUM_OF_ROWS) ReduceSum<T, Pattern::Reduce::AR, true>(dst, src, shape, true);
  if (which == SUM_OF_COLUMNS) ReduceSum<T, Pattern::Reduce::RA>(dst, src, work, shape, true);
  if (which == MAX_OF_ROWS) ReduceMax<T, Pattern::Reduce::AR>(dst, src, work, shape, true);
  if (which == MIN_OF_COLUMNS) ReduceMin<T, Pattern::Reduce::RA>(dst, src, shape, true);
  stored(y, dst, count);
}

enum Elementwise : uint32_t { GELU, SWISH, SWIGLU, CLAMP, DIFFERENCE };

template <class T>
void elementwise_of(GM_ADDR x, GM_ADDR z, GM_ADDR y, uint32_t count, uint32_t which, float scalar) {
  TPipe pipe;
  const LocalTensor<T> one = loaded<T>(pipe, x, count), other = loaded<T>(pipe, z, count);
  LocalTensor<T> dst = room<T>(pipe, count);
  if (which == GELU) Gelu(dst, one, count);
  if (which == SWISH) Swish(dst, one, count, T(scalar));
  if (which == SWIGLU) SwiGLU<T, false>(dst, one, other, scalar, count);
  if (which == CLAMP) Clamp(dst, one, T(-scalar), T(scalar), count);
  if (which == DIFFERENCE) dst = one - other;
  stored(y, dst, count);
}

template <class T>
void top_of(GM_ADDR x, GM_ADDR finished, GM_ADDR values, GM_ADDR indices, int32_t rows, int32_t inner, int32_t n,
            int32_t k, bool largest, bool small) {
  TPipe pipe;
  const LocalTensor<T> src = loaded<T>(pipe, x, rows * inner);
  const LocalTensor<bool> finish = loaded<bool>(pipe, finished, rows);
  const uint32_t value_count = small ? rows * k : rows * AlignUp(k, int32_t(32 / sizeof(T)));
  const uint32_t index_count = small ? rows * k : rows * AlignUp(k, 8);
  const LocalTensor<T> value = zeros<T>(pipe, value_count);
  const LocalTensor<int32_t> index = zeros<int32_t>(pipe, index_count), none;
  const LocalTensor<uint8_t> work = room<uint8_t>(pipe, 4096);
  const TopkTiling tiling;
  const TopKInfo info{rows, inner, n};
  PipeBarrier<PIPE_V>();
  if (small) {
    TopK<T, false, false, false, TopKMode::TOPK_NSMALL>(value, index, src, none, finish, work, k, tiling, info,
                                                        largest);
  } else {
    TopK<T, false, true>(value, index, src, none, finish, k, tiling, info, largest);
  }
  stored(values, value, value_count);
  stored(indices, index, index_count);
}

template <class T>
void transposed(GM_ADDR x, GM_ADDR y, uint32_t repeats, bool by_address) {
  TPipe pipe;
  const uint32_t block = 32 / sizeof(T), count = 16 * block * repeats;
  const LocalTensor<T> src = loaded<T>(pipe, x, count), dst = room<T>(pipe, count);
  LocalTensor<T> from[16], to[16];
  uint64_t from_address[16], to_address[16];
  for (uint32_t i = 0; i < 16; ++i) {
    from[i] = src[i * block], to[i] = dst[i * block];
    from_address[i] = reinterpret_cast<uint64_t>(from[i].GetPhyAddr());
    to_address[i] = reinterpret_cast<uint64_t>(to[i].GetPhyAddr());
  }
  TransDataTo5HDParams params;
  params.repeatTimes = static_cast<uint8_t>(repeats), params.dstRepStride = 16, params.srcRepStride = 16;
  if (by_address) {
    TransDataTo5HD<T>(to_address, from_address, params);
  } else {
    TransDataTo5HD<T>(to, from, params);
  }
  stored(y, dst, count);
}

}  // namespace

extern "C" __global__ __aicore__ void softmax(GM_ADDR x, GM_ADDR y, GM_ADDR sum, GM_ADDR max, uint32_t rows,
                                              uint32_t step, uint32_t columns, uint32_t form, bool is_half) {
  is_half ? softmax_of<half>(x, y, sum, max, rows, step, columns, form)
          : softmax_of<float>(x, y, sum, max, rows, step, columns, form);
}

// The softmax of rows that come in two parts of `step` columns each.
extern "C" __global__ __aicore__ void flash(GM_ADDR x, GM_ADDR y, GM_ADDR sum, GM_ADDR max, GM_ADDR shrinks,
                                            uint32_t rows, uint32_t step) {
  TPipe pipe;
  const uint32_t count = rows * step;
  const LocalTensor<float> src = loaded<float>(pipe, x, 2 * count), dst = room<float>(pipe, 2 * count);
  const LocalTensor<float> sums = room<float>(pipe, rows * 8), maxima = room<float>(pipe, rows * 8);
  const LocalTensor<float> by = room<float>(pipe, rows * 8);
  const LocalTensor<uint8_t> work = room<uint8_t>(pipe, 4096);
  const SoftMaxTiling tiling;
  const SoftMaxShapeInfo shape{rows, step, rows, step};
  SoftmaxFlashV2<float, false>(dst, sums, maxima, src, by, sums, maxima, tiling, shape);
  SoftmaxFlashV2<float, true>(dst[count], sums, maxima, src[count], by, sums, maxima, work, tiling, shape);
  stored(y, dst, 2 * count);
  stored(sum, sums, rows * 8);
  stored(max, maxima, rows * 8);
  stored(shrinks, by, rows * 8);
}

extern "C" __global__ __aicore__ void norms(GM_ADDR x, GM_ADDR gamma, GM_ADDR beta, GM_ADDR y, GM_ADDR mean,
                                            GM_ADDR variance, uint32_t rows, uint32_t step, uint32_t n, float epsilon,
                                            bool rms, bool is_half) {
  is_half ? norms_of<half>(x, gamma, beta, y, mean, variance, rows, step, n, epsilon, rms)
          : norms_of<float>(x, gamma, beta, y, mean, variance, rows, step, n, epsilon, rms);
}

extern "C" __global__ __aicore__ void reduce(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t step, uint32_t n,
                                             uint32_t count, uint32_t which, bool is_half) {
  is_half ? reduced<half>(x, y, rows, step, n, count, which) : reduced<float>(x, y, rows, step, n, count, which);
}

template <class T>
__aicore__ void broadcast_of(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t columns, uint32_t axis) {
  TPipe pipe;
  const LocalTensor<T> src = loaded<T>(pipe, x, axis == 0 ? columns : rows);
  const LocalTensor<T> dst = room<T>(pipe, rows * columns);
  const uint32_t to[] = {rows, columns}, from[] = {axis == 0 ? 1 : rows, axis == 0 ? columns : 1};
  if (axis == 0) {
    Broadcast<T, 2, 0>(dst, src, to, from);
  } else {
    Broadcast<T, 2, 1>(dst, src, to, from, room<uint8_t>(pipe, 4096));
  }
  stored(y, dst, rows * columns);
}

extern "C" __global__ __aicore__ void broadcast(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t columns, uint32_t axis,
                                                uint32_t type) {
  constexpr void (*kOfTypes[])(GM_ADDR, GM_ADDR, uint32_t, uint32_t, uint32_t) = {
      broadcast_of<float>, broadcast_of<int8_t>, broadcast_of<bfloat16_t>, broadcast_of<int16_t>,
      broadcast_of<int32_t>};
  kOfTypes[type](x, y, rows, columns, axis);
}

// Pads the first `columns` of rows of `width` elements to whole blocks, and removes the padding again.
extern "C" __global__ __aicore__ void pad(GM_ADDR x, GM_ADDR y, GM_ADDR back, uint32_t rows, uint32_t width,
                                          uint32_t columns, uint32_t left, int32_t value) {
  TPipe pipe;
  const uint32_t padded = AlignUp(width, 8u);
  const LocalTensor<float> src = loaded<float>(pipe, x, rows * width), dst = room<float>(pipe, rows * padded);
  const LocalTensor<uint8_t> work = room<uint8_t>(pipe, 4096);
  PadTiling tiling;
  tiling.srcHeight = rows, tiling.srcWidth = width, tiling.srcOriWidth = columns;
  PadParams params{static_cast<uint16_t>(left), static_cast<uint16_t>(left != 0 ? 0 : padded - columns), value};
  Pad(dst, src, params, work, tiling);
  if (left == 0) {
    const LocalTensor<float> unpadded = room<float>(pipe, rows * columns);
    UnPadTiling unpad;
    unpad.srcHeight = rows, unpad.srcWidth = padded;
    UnPadParams taken{0, static_cast<uint16_t>(padded - columns)};
    UnPad(unpadded, dst, taken, work, unpad);
    stored(back, unpadded, rows * columns);
  }
  stored(y, dst, rows * padded);
}

extern "C" __global__ __aicore__ void quantize(GM_ADDR x, GM_ADDR y, uint32_t count, float scale, float offset,
                                               bool is_half) {
  TPipe pipe;
  const LocalTensor<int8_t> dst = room<int8_t>(pipe, count);
  if (is_half) {
    AscendQuant(dst, loaded<half>(pipe, x, count), room<uint8_t>(pipe, 4096), scale, offset, count);
  } else {
    AscendQuant(dst, loaded<float>(pipe, x, count), scale, offset, count);
  }
  stored(y, dst, count);
}

// With a scale for each of `columns`, or one for all.
extern "C" __global__ __aicore__ void dequantize(GM_ADDR x, GM_ADDR scale, GM_ADDR y, uint32_t rows, uint32_t n,
                                                 uint32_t columns, bool one) {
  TPipe pipe;
  const LocalTensor<int32_t> src = loaded<int32_t>(pipe, x, rows * n);
  const LocalTensor<half> dst = zeros<half>(pipe, rows * AlignUp(n, 16u));
  const LocalTensor<float> scales = loaded<float>(pipe, scale, columns);
  const DequantParams params{rows, n, columns};
  PipeBarrier<PIPE_ALL>();
  if (one) {
    AscendDequant(dst, src, scales.GetValue(0), room<uint8_t>(pipe, 4096), params);
  } else {
    AscendDequant(dst, src, scales, params);
  }
  stored(y, dst, rows * AlignUp(n, 16u));
}

// With a scale and an offset for each column of each of `groups` groups of rows, or one for all.
extern "C" __global__ __aicore__ void antiquantize(GM_ADDR x, GM_ADDR scale, GM_ADDR offset, GM_ADDR y, uint32_t rows,
                                                   uint32_t columns, uint32_t groups) {
  TPipe pipe;
  const uint32_t count = rows * columns;
  const LocalTensor<int8_t> src = loaded<int8_t>(pipe, x, count);
  const LocalTensor<half> dst = room<half>(pipe, count);
  const LocalTensor<uint8_t> work = room<uint8_t>(pipe, 4096);
  const uint32_t scale_count = groups != 0 ? groups * columns : 1;
  const LocalTensor<half> scales = loaded<half>(pipe, scale, scale_count),
                          offsets = loaded<half>(pipe, offset, scale_count);
  if (groups != 0) {
    AscendAntiQuant<int8_t, half, false>(dst, src, offsets, scales, work, rows, {groups, columns, groups, columns});
  } else {
    AscendAntiQuant<int8_t, half, false>(dst, src, offsets.GetValue(0), scales.GetValue(0), work, rows);
  }
  stored(y, dst, count);
}

extern "C" __global__ __aicore__ void elementwise(GM_ADDR x, GM_ADDR z, GM_ADDR y, uint32_t count, uint32_t which,
                                                  float scalar, bool is_half) {
  is_half ? elementwise_of<half>(x, z, y, count, which, scalar) : elementwise_of<float>(x, z, y, count, which, scalar);
}

extern "C" __global__ __aicore__ void top(GM_ADDR x, GM_ADDR finished, GM_ADDR values, GM_ADDR indices, int32_t rows,
                                          int32_t inner, int32_t n, int32_t k, bool largest, bool small, bool is_half) {
  is_half ? top_of<half>(x, finished, values, indices, rows, inner, n, k, largest, small)
          : top_of<float>(x, finished, values, indices, rows, inner, n, k, largest, small);
}

extern "C" __global__ __aicore__ void transpose(GM_ADDR x, GM_ADDR y, uint32_t repeats, uint32_t bytes,
                                                bool by_address) {
  bytes == 2 ? transposed<half>(x, y, repeats, by_address) : transposed<int32_t>(x, y, repeats, by_address);
}

// Halves of blocks: 16 elements of 8 bits of each of 16 blocks.
extern "C" __global__ __aicore__ void transpose_bytes(GM_ADDR x, GM_ADDR y, bool src_high, bool dst_high) {
  TPipe pipe;
  const LocalTensor<int8_t> src = loaded<int8_t>(pipe, x, 512), dst = loaded<int8_t>(pipe, y, 512);
  LocalTensor<int8_t> from[16], to[16];
  for (uint32_t i = 0; i < 16; ++i) from[i] = src[i * 32], to[i] = dst[i * 32];
  TransDataTo5HDParams params;
  params.srcHighHalf = src_high, params.dstHighHalf = dst_high;
  TransDataTo5HD<int8_t>(to, from, params);
  stored(y, dst, 512);
}

// y = x as half, times what SetDeqScale sets, if it does.
extern "C" __global__ __aicore__ void scaled_cast(GM_ADDR x, GM_ADDR y, uint32_t count, float scale, uint32_t mode) {
  TPipe pipe;
  const LocalTensor<int32_t> src = loaded<int32_t>(pipe, x, count);
  const LocalTensor<half> dst = room<half>(pipe, count);
  if (scale != 0) SetDeqScale(static_cast<half>(scale));
  Cast(dst, src, static_cast<RoundMode>(mode), count);
  stored(y, dst, count);
}

// Each block writes its number where another block may read it only after SyncAll.
extern "C" __global__ __aicore__ void initialised(GM_ADDR y, uint32_t count, int32_t value) {
  GlobalTensor<int32_t> all;
  all.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(y), count);
  if (value < 0) {
    InitGlobalMemory(all, count, value);
  } else if (value == 0) {
    InitOutput(all, count);
  } else {
    Fill<int32_t>(all, count, 1);
  }
}

// The blocks of the first group fill x; those of the second add it up.
extern "C" __global__ __aicore__ void groups(GM_ADDR x, GM_ADDR workspace, GM_ADDR y, uint32_t arrive, uint32_t wait,
                                             bool skips) {
  GroupBarrier<PipeMode::MTE3_MODE> barrier(workspace, arrive, wait);
  TPipe pipe;
  const auto index = static_cast<uint32_t>(GetBlockIdx());
  if (index < arrive) {
    const LocalTensor<float> part = room<float>(pipe, 16);
    Duplicate(part, static_cast<float>(index + 1), 16);
    stored(x + index * 64, part, 16);
    PipeBarrier<PIPE_ALL>();
    barrier.Arrive(index);
  } else {
    if (!skips) barrier.Wait(index - arrive);
    const LocalTensor<float> parts = loaded<float>(pipe, x, 16 * arrive), sums = room<float>(pipe, 16);
    Duplicate(sums, 0.0f, 16);
    for (uint32_t i = 0; i < arrive; ++i) Add(sums, sums, parts[i * 16], 16);
    stored(y + (index - arrive) * 64, sums, 16);
  }
}

// y = the members of the tiling that the host described.
extern "C" __global__ __aicore__ void described(GM_ADDR y, GM_ADDR tiling) {
  GET_TILING_DATA(data, tiling);
  TPipe pipe;
  const LocalTensor<int32_t> members = zeros<int32_t>(pipe, 8);
  PipeBarrier<PIPE_ALL>();
  members.SetValue(0, data.count);
  for (int i = 0; i < 3; ++i) members.SetValue(1 + i, data.offsets[i]);
  members.SetValue(4, data.inner.step);
  stored(y, members, 8);
}

enum Wrong : uint32_t { SMALL_WORK, PARTIAL_OVERLAP, UNINITIALISED, NO_FLAG, NO_SHAPE, OUTSIDE };

// A softmax of 4 rows of 16, called wrongly.
extern "C" __global__ __aicore__ void wrong(GM_ADDR x, GM_ADDR y, uint32_t which) {
  TPipe pipe;
  LocalTensor<float> src = room<float>(pipe, 96), dst = room<float>(pipe, which == OUTSIDE ? 56 : 64);
  GlobalTensor<float> from;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), 96);
  if (which != UNINITIALISED) DataCopy(src, from, 96);
  if (which != NO_FLAG) PipeBarrier<PIPE_ALL>();
  const SoftMaxTiling tiling;
  const SoftMaxShapeInfo shape{4, 16, 4, 16};
  if (which == SMALL_WORK) {
    SoftMax<float>(dst, src, room<uint8_t>(pipe, 16), tiling, shape);
  } else if (which == PARTIAL_OVERLAP) {
    SoftMax<float>(src[8], src, tiling, shape);
  } else if (which == NO_SHAPE) {
    SoftMax<float>(dst, src, tiling);
  } else {
    SoftMax<float>(dst, src, tiling, shape);
  }
  stored(y, dst, 56);
}
