// SPDX-License-Identifier: Apache-2.0
// Compares Shadow with a history for each byte, over random accesses. Prints what differs, and returns 1.
#include "shadow.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>

using namespace AscendC;
using namespace AscendC::cpu;

namespace {

class Comparison {
 public:
  Comparison(uint32_t seed, uintptr_t bytes) : random_(seed), histories_(bytes) {}

  void access(uintptr_t longest) {
    const uintptr_t begin = kBase + number(histories_.size()), end = begin + 1 + number(longest);
    const Access access{names_[number(2)], places_[number(3)], 1 + number(3), number(2)};
    const auto pipe = static_cast<pipe_t>(number(kPipes));
    const Shadow::Position at = shadow_.position(begin);
    const bool writes = number(2) == 0;
    if (writes) {
      shadow_.assign(at, begin, end, pipe, access);
    } else {
      shadow_.change(at, begin, end, [&](History& history) { history.set_read(pipe, access); });
    }
    for (uintptr_t byte = begin - kBase; byte < std::min(end - kBase, histories_.size()); ++byte) {
      if (!histories_[byte]) histories_[byte].emplace();
      if (writes) {
        histories_[byte]->set_written(pipe, access);
      } else {
        histories_[byte]->set_read(pipe, access);
      }
    }
  }

  void clear() {
    shadow_.clear();
    histories_.assign(histories_.size(), std::nullopt);
  }

  size_t compare() const {
    size_t segments = 0;
    const Shadow::Segment* before = nullptr;
    std::vector<std::optional<History>> found(histories_.size());
    shadow_.for_each([&](const Shadow::Segment& segment) {
      require(segment.begin < segment.end, "a segment is empty", segment.begin);
      if (before != nullptr) {
        require(before->end <= segment.begin, "segments overlap", segment.begin);
        const bool joins = before->end == segment.begin && *before->history == *segment.history;
        require(!joins, "segments of one history are apart", segment.begin);
      }
      for (uintptr_t byte = segment.begin - kBase; byte < std::min(segment.end - kBase, found.size()); ++byte) {
        found[byte] = *segment.history;
      }
      before = &segment;
      ++segments;
    });
    for (uintptr_t byte = 0; byte < found.size(); ++byte) {
      require(found[byte] == histories_[byte], "the history of a byte differs", kBase + byte);
      const Shadow::Segment around = shadow_.around(kBase + byte);
      require(around.begin <= kBase + byte && kBase + byte < around.end, "the byte is not in the range", kBase + byte);
      require((around.history != nullptr) == histories_[byte].has_value(), "known, or not", kBase + byte);
    }
    return segments;
  }

 private:
  static constexpr uintptr_t kBase = 1000;

  uint32_t number(uint64_t below) {
    return static_cast<uint32_t>(std::uniform_int_distribution<uint64_t>(0, below - 1)(random_));
  }

  static void require(bool holds, const char* what, uintptr_t address) {
    if (holds) return;
    std::printf("%s, at %zu\n", what, static_cast<size_t>(address));
    std::exit(1);
  }

  const char* const names_[2] = {"Add", "Mul"};
  const Where places_[3] = {Where::current(), Where::current(), Where::current()};
  std::mt19937 random_;
  Shadow shadow_;
  std::vector<std::optional<History>> histories_;
};

}  // namespace

int main() {
  size_t most = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Comparison small(seed, 64), large(seed, 4000);
    for (uint32_t i = 0; i < 300; ++i) {
      small.access(1 + seed);
      small.compare();
      if (i % 100 == 99) small.clear();
    }
    for (uint32_t round = 0; round < 8; ++round) {
      for (uint32_t i = 0; i < 1000; ++i) large.access(2);
      most = std::max(most, large.compare());
      for (uint32_t i = 0; i < 5; ++i) large.access(2000);
      large.compare();
    }
  }
  std::printf("%zu segments\n", most);
  return 0;
}
