// SPDX-License-Identifier: Apache-2.0
// Addresses and copies the tokens of a tensor, however it lies in memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/matmul.h"
#include "cpu/simd.h"

namespace opp {

// Strides in elements of a tensor whose tokens lie BSND, PA_BSND (a page for a batch entry) or TND.
struct TokenStrides {
  int64_t batch;
  int64_t token;
  int64_t head;
  int64_t element;

  TokenStrides(c10::IntArrayRef strides)
      : batch(strides.size() == 4 ? strides[0] : 0),
        token(strides[strides.size() - 3]),
        head(strides[strides.size() - 2]),
        element(strides.back()) {}

  int64_t offset(int64_t b, int64_t t, int64_t h) const { return b * batch + t * token + h * head; }
};

// Copies `count` elements that lie `stride` apart, converted to Operand.
template <class Element, class Operand>
void copy_row(const Element* from, int64_t stride, int64_t count, Operand* to) {
  if (stride != 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Operand>(from[i * stride]);
  } else if constexpr (std::is_same_v<Element, Operand>) {
    std::copy_n(from, count, to);
  } else {
    simd().to_float(from, count, to);
  }
}

// The same for the left side of a product, where bytes have no sign: their sign bit is flipped, which adds 128 to each.
template <class Element, class Left>
void copy_left(const Element* from, int64_t stride, int64_t count, Left* to) {
  if constexpr (std::is_same_v<Left, uint8_t>) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Left>(from[i * stride] ^ 0x80);
  } else {
    copy_row(from, stride, count, to);
  }
}

// The rows of a tensor whose tokens are counted over its first dimensions, flattened: (T, ...), (B, S, ...) or a paged
// cache, (block_num, block_size, ...), in which a token's number is its slot. A token is one row, or one for each head.
template <class Element>
class TokenRows {
 public:
  // The tensor's last dimension is the elements of a row. The one before it is the heads', if `heads`.
  explicit TokenRows(const at::Tensor& tensor, bool heads = false)
      : data_(static_cast<Element*>(tensor.data_ptr())), width_(tensor.size(-1)), stride_(tensor.stride(-1)) {
    const int64_t leading = tensor.dim() - 1 - heads;
    head_stride_ = heads ? tensor.stride(-2) : 0;
    inner_ = std::max<int64_t>(1, tensor.size(leading - 1));
    inner_stride_ = tensor.stride(leading - 1);
    outer_stride_ = leading == 2 ? tensor.stride(0) : inner_ * inner_stride_;
  }

  int64_t width() const { return width_; }

  void read(int64_t token, Element* row) const { copy_row(at(token), stride_, width_, row); }

  void write(int64_t token, const Element* row, int64_t head = 0) const {
    Element* to = at(token) + head * head_stride_;
    if (stride_ == 1) {
      std::copy_n(row, width_, to);
    } else {
      for (int64_t i = 0; i < width_; ++i) to[i * stride_] = row[i];
    }
  }

  // Rows `stride` apart, whose elements lie side by side.
  struct Chunk {
    const Element* data;
    int64_t stride;
    Buffer<Element> copy;
  };

  // The rows of tokens [first, first + count), where they lie if possible.
  Chunk chunk(int64_t first, int64_t count) const {
    const bool even = outer_stride_ == inner_ * inner_stride_ || first / inner_ == (first + count - 1) / inner_;
    if (even && stride_ == 1) return {at(first), inner_stride_, Buffer<Element>(0)};
    Chunk chunk{nullptr, width_, Buffer<Element>(count * width_)};
    for (int64_t i = 0; i < count; ++i) read(first + i, chunk.copy.data() + i * width_);
    chunk.data = chunk.copy.data();
    return chunk;
  }

 private:
  Element* at(int64_t token) const { return data_ + token / inner_ * outer_stride_ + token % inner_ * inner_stride_; }

  Element* data_;
  int64_t width_;
  int64_t stride_;
  int64_t head_stride_;
  int64_t inner_;  // tokens of a batch entry or page
  int64_t inner_stride_;
  int64_t outer_stride_;
};

}  // namespace opp
