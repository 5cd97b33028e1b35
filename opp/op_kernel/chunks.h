// SPDX-License-Identifier: Apache-2.0
// Chunks of tokens that go through the stages of a kernel one after the other, and the common parts of these stages.
#pragma once

#include "cores.h"
#include "kernel_operator.h"

namespace opp {

// Tokens [first, first + count), and their part of the workspace.
struct Chunk {
  int64_t first;
  int64_t count;
  GM_ADDR workspace;
};

// In each step every stage has another chunk, so that two parts of the workspace are enough: what one stage writes in a
// step the next one reads in the following one.
struct Chunks {
  int64_t tokens;
  int64_t size;
  GM_ADDR workspace;
  int64_t bytes;  // of a chunk's part

  // The chunk of a number; one that there is not has no tokens.
  __aicore__ inline Chunk Get(int64_t number) const {
    const int64_t first = number * size;
    if (number < 0 || first >= tokens) return {0, 0, nullptr};
    return {first, Smaller(size, tokens - first), workspace + number % 2 * bytes};
  }

  // Until all are through.
  __aicore__ inline int64_t Steps(int64_t stages) const {
    const int64_t count = (tokens + size - 1) / size;
    return count == 0 ? 0 : count + stages - 1;
  }
};

__aicore__ inline int64_t CeilOf(int64_t number, int64_t by) { return (number + by - 1) / by; }

// Rows for a core at once, of `all`, and at most `max`.
__aicore__ inline uint32_t Portion(int64_t all, int64_t max, int64_t cores) {
  const int64_t rows = Smaller(CeilOf(all, cores), max);
  return rows > 1 ? static_cast<uint32_t>(rows) : 1;
}

template <class Element>
__aicore__ inline AscendC::GlobalTensor<Element> TensorAt(GM_ADDR address) {
  AscendC::GlobalTensor<Element> tensor;
  tensor.SetGlobalBuffer(reinterpret_cast<__gm__ Element*>(address));
  return tensor;
}

}  // namespace opp
