// SPDX-License-Identifier: Apache-2.0
// What the matrix unit is set to, apart from its instructions: images, roundings, scales of columns; and sums that go
// on to L1.
#include "product.h"

namespace {

struct Image {
  uint32_t form;  // 0: LoadData says all, 1: SetFmatrix and SetLoadDataPaddingValue have, 2: in registers
  uint32_t right;
  uint32_t height, width, channels;
  uint32_t padding[4];
  uint32_t stride[2], filter[2], dilation[2];  // along the width, and the height
  uint32_t rows, columns, first_row, first_column;
  uint32_t times, step, along_columns;
};

constexpr IsResetLoad3dConfig kAsSet = {false, false};
constexpr half kPadding = half(2.5f);

void load(const LocalTensor<half>& to, const LocalTensor<half>& from, const Image& i) {
  uint8_t padding[4];
  for (int p = 0; p < 4; ++p) padding[p] = static_cast<uint8_t>(i.padding[p]);
  SetLoadDataBoundary(0);
  SetLoadDataRepeat(LoadDataRepeatParam(static_cast<uint16_t>(i.step), static_cast<uint8_t>(i.times),
                                        static_cast<uint8_t>(i.along_columns)));
  if (i.form != 0) {
    SetFmatrix(static_cast<uint16_t>(i.height), static_cast<uint16_t>(i.width), padding, FmatrixMode::FMATRIX_LEFT);
    SetLoadDataPaddingValue(kPadding);
  }
  if (i.form == 2) {
    LoadData3DParamsV2Pro p;
    p.channelSize = static_cast<uint16_t>(i.channels);
    p.extConfig = static_cast<uint64_t>(i.first_row) << 48 | static_cast<uint64_t>(i.first_column) << 32 |
                  static_cast<uint64_t>(i.rows) << 16 | i.columns;
    p.filterConfig = static_cast<uint64_t>(i.dilation[1]) << 40 | static_cast<uint64_t>(i.dilation[0]) << 32 |
                     static_cast<uint64_t>(i.filter[1]) << 24 | i.filter[0] << 16 | i.stride[1] << 8 | i.stride[0];
    LoadData(to, from, p);
  } else {
    LoadData3DParamsV2<half> p;
    if (i.form == 0) {
      p.l1H = static_cast<uint16_t>(i.height);
      p.l1W = static_cast<uint16_t>(i.width);
      for (int side = 0; side < 4; ++side) p.padList[side] = padding[side];
      p.padValue = kPadding;
    }
    p.channelSize = static_cast<uint16_t>(i.channels);
    p.mExtension = static_cast<uint16_t>(i.rows);
    p.kExtension = static_cast<uint16_t>(i.columns);
    p.mStartPt = static_cast<uint16_t>(i.first_row);
    p.kStartPt = static_cast<uint16_t>(i.first_column);
    p.strideW = static_cast<uint8_t>(i.stride[0]);
    p.strideH = static_cast<uint8_t>(i.stride[1]);
    p.filterW = static_cast<uint8_t>(i.filter[0]);
    p.filterH = static_cast<uint8_t>(i.filter[1]);
    p.dilationFilterW = static_cast<uint8_t>(i.dilation[0]);
    p.dilationFilterH = static_cast<uint8_t>(i.dilation[1]);
    if (i.form == 0) {
      LoadData(to, from, p);
    } else {
      LoadData<half, kAsSet>(to, from, p);
    }
  }
  SetLoadDataRepeat(LoadDataRepeatParam());
}

// A product with one factor loaded from an image (im2col).
class OfImage : public Product<half> {
 public:
  OfImage(TPipe& pipe, uint32_t m, uint32_t n, uint32_t k, uint32_t elements) : Product<half>(pipe, m, n, k) {
    pipe_.InitBuffer(image_, 1, elements * sizeof(half));
    in_l1_ = image_.AllocTensor<half>();
  }
  void CopyImage(GM_ADDR address, uint32_t elements) {
    GlobalTensor<half> from;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(address), elements);
    DataCopy(in_l1_, from, elements);
    image_.EnQue(in_l1_);
    in_l1_ = image_.DeQue<half>();
  }
  void Load(const Image& i) {
    if (i.right != 0) {
      const LocalTensor<half> to = b2_.AllocTensor<half>();
      load(to, in_l1_, i);
      b2_.EnQue(to);
    } else {
      const LocalTensor<half> to = a2_.AllocTensor<half>();
      load(to, in_l1_, i);
      a2_.EnQue(to);
    }
    image_.FreeTensor(in_l1_);
  }

 private:
  TQue<TPosition::A1, 1> image_;
  LocalTensor<half> in_l1_;
};

// The way out of sums, by the instruction and its scales: one scalar, or one for each column.
enum Way : uint32_t { FIXPIPE, DATA_COPY };

template <class T, class Out>
class Scaled : public Product<T> {
  using Sum = SumOf<T>;

 public:
  Scaled(TPipe& pipe, uint32_t m, uint32_t n, uint32_t k) : Product<T>(pipe, m, n, k) {
    const uint32_t bytes = AlignUp(n, 16u) * sizeof(uint64_t);
    pipe.InitBuffer(l1_, bytes);
    pipe.InitBuffer(table_, bytes);
  }
  void Store(GM_ADDR to, GM_ADDR scales, Way way, QuantMode_t mode, bool fractals) {
    GlobalTensor<uint64_t> from;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ uint64_t*>(scales));
    const uint32_t count = AlignUp(this->n_, 16u);
    const LocalTensor<uint64_t> in_l1 = l1_.Get<uint64_t>(), of_columns = table_.Get<uint64_t>();
    DataCopy(in_l1, from, count);
    SetFlag<HardEvent::MTE2_FIX>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_FIX>(EVENT_ID0);
    DataCopy(of_columns, in_l1, count);
    PipeBarrier<PIPE_FIX>();
    const LocalTensor<Sum> c = this->sums_.template DeQue<Sum>();
    GlobalTensor<Out> out;
    out.SetGlobalBuffer(reinterpret_cast<__gm__ Out*>(to));
    const uint16_t rows = static_cast<uint16_t>(AlignUp(this->m_, kRows));
    const uint16_t columns = static_cast<uint16_t>(fractals ? AlignUp(this->n_, kRows) : this->n_);
    const uint32_t step = fractals ? rows * kRows * (sizeof(Out) == 1 ? 2 : 1) * sizeof(Out) / 32 : this->n_;
    if (way == FIXPIPE) {
      FixpipeParamsV220 params(columns, static_cast<uint16_t>(this->m_), rows, step, false);
      params.quantPre = mode;
      if (fractals) {
        Fixpipe<Out, Sum, CFG_NZ>(out, c, of_columns, params);
      } else {
        Fixpipe<Out, Sum, CFG_ROW_MAJOR>(out, c, of_columns, params);
      }
    } else {
      SetFixPipeConfig(of_columns);
      SetFixpipeNz2ndFlag(1, 0, 0);
      DataCopyCO12DstParams params(columns, static_cast<uint16_t>(this->m_), step, rows, mode, 0, false, !fractals);
      DataCopy(out, c, params);
    }
    this->sums_.FreeTensor(c);
  }

 private:
  TBuf<TPosition::A1> l1_;
  TBuf<TPosition::C2PIPE2GM> table_;
};

// d[m, p] = (a[m, n] b[n, k])[m, k] e[k, p]: the first product, rounded to half, goes to L1 and is a factor of the
// second.
class Chain : public Product<half> {
 public:
  using Product<half>::Product;

  void KeepIn(Chain& next, Way way) {
    const LocalTensor<half> to = next.a1_.AllocTensor<half>();
    const LocalTensor<float> c = sums_.DeQue<float>();
    const uint16_t rows = static_cast<uint16_t>(AlignUp(m_, kRows)),
                   columns = static_cast<uint16_t>(AlignUp(n_, kRows));
    if (way == FIXPIPE) {
      FixpipeParamsV220 params(columns, static_cast<uint16_t>(m_), rows, rows, false);
      params.quantPre = F322F16;
      Fixpipe(to, c, params);
    } else {
      DataCopy(to, c, DataCopyCO12DstParams(columns, static_cast<uint16_t>(m_), rows, rows, F322F16, 0, false, false));
    }
    sums_.FreeTensor(c);
    SetFlag<HardEvent::FIX_MTE1>(EVENT_ID0);
    WaitFlag<HardEvent::FIX_MTE1>(EVENT_ID0);
    const LocalTensor<half> a2 = next.a2_.AllocTensor<half>();
    for (uint32_t i = 0; i < rows / kRows; ++i) {
      LoadData(
          a2[i * columns * kRows], to[i * kRows * 16],
          LoadData2DParams(0, static_cast<uint8_t>(columns / 16), static_cast<uint16_t>(rows / kRows), 0, 0, false, 0));
    }
    next.a2_.EnQue(a2);
    next.a1_.FreeTensor(to);
  }
};

}  // namespace

extern "C" __global__ __aicore__ void image(GM_ADDR x, GM_ADDR unit, GM_ADDR c, Image i, uint32_t elements, uint32_t m,
                                            uint32_t n, uint32_t k) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  TPipe pipe;
  OfImage product(pipe, m, n, k, elements);
  product.CopyImage(x, elements);
  if (i.right != 0) {
    product.LoadLeft(unit, false, BY_FRACTALS);
  } else {
    product.LoadRight(unit, true, BY_FRACTALS);
  }
  product.Load(i);
  product.Multiply();
  product.Store<float>(c, NoQuant, 0, false, false);
}

extern "C" __global__ __aicore__ void floats(GM_ADDR a, GM_ADDR b, GM_ADDR c, uint32_t m, uint32_t n, uint32_t k,
                                             uint32_t hf32, uint32_t toward_zero, uint32_t depth_by_16) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  TPipe pipe;
  Product<float> product(pipe, m, n, k, depth_by_16 != 0);
  product.LoadLeft(a, false, BY_IMAGE);
  product.LoadRight(b, true, BY_FRACTALS);
  SetHF32Mode(hf32 != 0 ? HF32Mode::ENABLE : HF32Mode::DISABLE);
  SetHF32TransMode(toward_zero != 0 ? HF32TransMode::NEAREST_ZERO : HF32TransMode::NEAREST_EVEN);
  product.Multiply();
  product.Store<float>(c, NoQuant, 0, false, false);
}

#define SCALED(name, T, Out)                                                                                          \
  extern "C" __global__ __aicore__ void name(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR scales, uint32_t m, uint32_t n, \
                                             uint32_t k, uint32_t way, uint32_t mode, uint32_t nz) {                  \
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);                                                                   \
    TPipe pipe;                                                                                                       \
    Scaled<T, Out> product(pipe, m, n, k);                                                                            \
    product.LoadLeft(a, false, BY_FRACTALS);                                                                          \
    product.LoadRight(b, true, BY_FRACTALS);                                                                          \
    product.Multiply();                                                                                               \
    product.Store(c, scales, static_cast<Way>(way), static_cast<QuantMode_t>(mode), nz != 0);                         \
  }
SCALED(half_to_int8_by_columns, half, int8_t)
SCALED(int8_to_half_by_columns, int8_t, half)
SCALED(int8_to_int8_by_columns, int8_t, int8_t)

extern "C" __global__ __aicore__ void chain(GM_ADDR a, GM_ADDR b, GM_ADDR e, GM_ADDR d, uint32_t m, uint32_t n,
                                            uint32_t k, uint32_t p, uint32_t way) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  TPipe pipe;
  Chain first(pipe, m, k, n), second(pipe, m, p, k);
  first.LoadLeft(a, false, BY_FRACTALS);
  first.LoadRight(b, false, BY_FRACTALS);
  first.Multiply();
  first.KeepIn(second, static_cast<Way>(way));
  second.LoadRight(e, false, BY_FRACTALS);
  second.Multiply();
  second.Store<float>(d, NoQuant, 0, false, false);
}
