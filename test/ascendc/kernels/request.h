// SPDX-License-Identifier: Apache-2.0
// What the kernels that test the vector API have in common: a function is asked for by its name, dtype and form.
#pragma once

#include "kernel_operator.h"

using namespace AscendC;

enum Form : uint32_t { kCount, kMaskOfElements, kMaskOfBits };

struct Request {
  char name[24];
  char dtype;  // as numpy has it, and E for bfloat16
  char to;     // dst's, where it is another
  bool flag;
  uint32_t form;
  uint32_t count;
  uint32_t repeats;
  uint32_t option;
  float scalar;
  uint64_t mask[2];
  uint32_t block_stride[3];  // of dst and the sources
  uint32_t repeat_stride[3];
  uint32_t bytes[4];  // of dst, the sources and a temporary buffer

  bool is(const char* wanted) const { return std::strcmp(name, wanted) == 0; }
  BinaryRepeatParams binary() const {
    const auto narrow = [](uint32_t stride) { return static_cast<uint8_t>(stride); };
    return {narrow(block_stride[0]),  narrow(block_stride[1]),  narrow(block_stride[2]),
            narrow(repeat_stride[0]), narrow(repeat_stride[1]), narrow(repeat_stride[2])};
  }
  UnaryRepeatParams unary() const {
    return {static_cast<uint16_t>(block_stride[0]), static_cast<uint16_t>(block_stride[1]),
            static_cast<uint8_t>(repeat_stride[0]), static_cast<uint8_t>(repeat_stride[1])};
  }
};

// Copies dst and the sources in, runs the function between barriers, and copies dst out.
class Run {
 public:
  Run(GM_ADDR dst, GM_ADDR src0, GM_ADDR src1, GM_ADDR request) {
    GET_TILING_DATA_WITH_STRUCT(Request, data, request);
    r = data;
    dst_.SetGlobalBuffer(dst, r.bytes[0]);
    GlobalTensor<uint8_t> sources[2];
    sources[0].SetGlobalBuffer(src0, r.bytes[1]);
    sources[1].SetGlobalBuffer(src1, r.bytes[2]);
    for (int i = 0; i < 4; ++i) pipe_.InitBuffer(buffers_[i], r.bytes[i] > 0 ? r.bytes[i] : 32);
    copy_in(0, dst_);
    copy_in(1, sources[0]);
    copy_in(2, sources[1]);
    PipeBarrier<PIPE_ALL>();
  }

  ~Run() noexcept(false) {
    if (std::uncaught_exceptions() != 0) return;
    PipeBarrier<PIPE_ALL>();
    DataCopyPad(dst_, buffers_[0].Get<uint8_t>(), DataCopyExtParams{1, r.bytes[0], 0, 0, 0});
  }

  template <class T>
  LocalTensor<T> dst() {
    return buffers_[0].Get<T>();
  }
  template <class T>
  LocalTensor<T> src0() {
    return buffers_[1].Get<T>();
  }
  template <class T>
  LocalTensor<T> src1() {
    return buffers_[2].Get<T>();
  }
  template <class T>
  LocalTensor<T> temporary() {
    return buffers_[3].Get<T>();
  }

  // Calls function(the request's mask).
  template <class Function>
  void with_mask(const Function& function) {
    if (r.form == kMaskOfElements) {
      function(r.mask[0]);
    } else {
      function(r.mask);
    }
  }

  Request r;

 private:
  void copy_in(int buffer, const GlobalTensor<uint8_t>& from) {
    if (r.bytes[buffer] == 0) return;
    DataCopyPad(buffers_[buffer].Get<uint8_t>(), from, DataCopyExtParams{1, r.bytes[buffer], 0, 0, 0},
                DataCopyPadExtParams<uint8_t>{});
  }

  TPipe pipe_;
  TBuf<TPosition::VECCALC> buffers_[4];
  GlobalTensor<uint8_t> dst_;
};

// Calls function.operator()<T>() with the dtype of that letter.
template <class Function>
void with_dtype(char letter, const Function& function) {
  switch (letter) {
    case 'e':
      return function.template operator()<half>();
    case 'E':
      return function.template operator()<bfloat16_t>();
    case 'f':
      return function.template operator()<float>();
    case 'b':
      return function.template operator()<int8_t>();
    case 'B':
      return function.template operator()<uint8_t>();
    case 'h':
      return function.template operator()<int16_t>();
    case 'H':
      return function.template operator()<uint16_t>();
    case 'i':
      return function.template operator()<int32_t>();
    case 'I':
      return function.template operator()<uint32_t>();
    case 'l':
      return function.template operator()<int64_t>();
    default:
      ASSERT(!"a dtype");
  }
}

// RUN_IF(Name, does the call compile for T?, what to do): the row of a function.
#define RUN_IF(Name, supported, ...)                                               \
  if (run.r.is(#Name)) {                                                           \
    with_dtype(run.r.dtype, [&]<class T>() {                                       \
      if constexpr (requires(const LocalTensor<T>& t, T s, int32_t n) supported) { \
        __VA_ARGS__                                                                \
      } else {                                                                     \
        ASSERT(!"the function has the dtype");                                     \
      }                                                                            \
    });                                                                            \
    return;                                                                        \
  }
