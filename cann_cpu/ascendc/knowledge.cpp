// SPDX-License-Identifier: Apache-2.0
#include "knowledge.h"

#include <algorithm>

namespace AscendC::cpu {

Message merged(const Message& one, const Message& other) {
  if (one == nullptr || one == other) return other;
  if (other == nullptr) return one;
  auto all = std::make_shared<Knowledge>();
  auto a = one->begin(), b = other->begin();
  while (a != one->end() || b != other->end()) {
    if (b == other->end() || (a != one->end() && a->first < b->first)) {
      all->push_back(*a++);
    } else if (a == one->end() || b->first < a->first) {
      all->push_back(*b++);
    } else {
      all->push_back(*a);
      std::ranges::transform(a->second, b->second, all->back().second.begin(),
                             [](uint32_t x, uint32_t y) { return std::max(x, y); });
      ++a;
      ++b;
    }
  }
  return all;
}

bool knows(const Message& knowledge, uint32_t core, pipe_t pipe, uint32_t epoch) {
  if (knowledge == nullptr) return false;
  const auto found = std::ranges::lower_bound(*knowledge, core, {}, &Knowledge::value_type::first);
  return found != knowledge->end() && found->first == core && found->second[pipe] >= epoch;
}

}  // namespace AscendC::cpu
