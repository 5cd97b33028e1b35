// SPDX-License-Identifier: Apache-2.0
// The memory that a kernel works in.
#pragma once

#include <cstdint>
#include <memory>

namespace opp {

// Memory that a thread had before and gave back, if some is large enough and not twice as large, else new: pages that
// are new in each call cost more than small products.
struct GiveBack {
  int64_t bytes;
  void operator()(void* memory) const;
};
using Memory = std::unique_ptr<void, GiveBack>;
Memory take_memory(int64_t bytes);

// Memory for `count` elements, aligned for vectors. What is in it is not defined.
template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t count) : memory_(take_memory(count * static_cast<int64_t>(sizeof(T)))) {}
  T* data() { return static_cast<T*>(memory_.get()); }

 private:
  Memory memory_;
};

}  // namespace opp
