// Addresses and copies the tokens of a tensor, however it lies in memory.
#pragma once

#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

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
    to_float(from, count, to);
  }
}

}  // namespace opp
