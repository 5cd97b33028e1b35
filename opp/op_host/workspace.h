// SPDX-License-Identifier: Apache-2.0
// The division of a kernel's workspace.
#pragma once

#include <cstdint>

namespace opp {

constexpr int64_t round_up(int64_t number, int64_t to) { return (number + to - 1) / to * to; }

// Places parts one after the other, each aligned for the fastest copies.
class Workspace {
 public:
  int64_t place(int64_t bytes) {
    const int64_t start = bytes_;
    bytes_ += round_up(bytes, kAlignment);
    return start;
  }
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr int64_t kAlignment = 512;

  int64_t bytes_ = 0;
};

}  // namespace opp
