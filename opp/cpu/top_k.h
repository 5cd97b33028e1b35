// SPDX-License-Identifier: Apache-2.0
// Selects the k best of a row of scores that comes block by block.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace opp {

// Keeps the k best of the scores pushed so far, and a few more between clean-ups. A higher score is better, of equal
// scores the one with the lower index; NaN is better than any number, as in torch.topk, and -0 equals 0. Scores must be
// pushed in the order of their indices.
class TopK {
 public:
  // Forgets everything; at most `keys` scores will be pushed.
  void reset(int64_t k, int64_t keys);

  // Offers the scores of the keys [first_index, first_index + count).
  void push(const float* scores, int64_t count, int64_t first_index);

  // Offers what another row, of later keys, has kept.
  void merge(const TopK& later);

  // Writes the indices kept, best first, then -1 up to k; `stride` apart. Nothing may be pushed afterwards.
  void write(int32_t* indices, int64_t stride);

  // Writes the scores of what write() has written, then -infinity.
  template <class Score>
  void write_scores(Score* scores, int64_t stride) const {
    for (int64_t i = 0; i < k_; ++i) scores[i * stride] = static_cast<Score>(i < size_ ? score_at(i) : kNoScore);
  }

 private:
  static constexpr float kNoScore = -std::numeric_limits<float>::infinity();

  float score_at(int64_t i) const;
  void make_room(int64_t count);
  void resize(int64_t room);
  void keep_best();
  void sort();

  int64_t k_ = 0;
  int64_t size_ = 0;
  uint32_t floor_ = 0;  // only what ranks above can still be among the k best
  // With room for what Simd writes over:
  std::vector<uint32_t> ranks_;
  std::vector<int32_t> indices_;
  std::vector<uint32_t> other_ranks_;  // for a moment
  std::vector<int32_t> other_indices_;
};

}  // namespace opp
