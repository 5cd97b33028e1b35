// SPDX-License-Identifier: Apache-2.0
// Selects the k best of a row of scores, by their ranks: digit by digit, and only those near the k-th.
#include "cpu/top_k.h"

#include <algorithm>
#include <array>
#include <bit>

#include "cpu/simd.h"

namespace opp {
namespace {

constexpr int kDigitBits = 8;
constexpr uint32_t kDigits = 1 << kDigitBits;
// The number of a rank's bits that are compared to find the ranks near the k-th.
constexpr int kNearBits = 10;

uint32_t digit(uint32_t rank, int shift) { return rank >> shift & (kDigits - 1); }

// The inverse of Simd::rank().
float score_of(uint32_t rank) {
  const uint32_t bits = rank & 0x80000000U ? rank ^ 0x80000000U : ~rank;
  return std::bit_cast<float>(rank == UINT32_MAX ? 0x7FC00000U : bits);
}

// The k-th largest of the first `size` ranks. Repeatedly keeps only the ranks that equal it in the first bits in which
// the ranks differ.
uint32_t kth_largest(uint32_t* ranks, int64_t size, int64_t k) {
  while (size > 1) {
    uint32_t lowest;
    uint32_t highest;
    simd().find_extremes(ranks, size, &lowest, &highest);
    if (lowest == highest) break;
    const int shift = std::max(0, static_cast<int>(std::bit_width(lowest ^ highest)) - kNearBits);
    const uint32_t first = lowest >> shift;
    const auto bin = [=](uint32_t rank) { return (rank >> shift) - first; };
    // Two by turns, since the next addition to a number waits for the last.
    std::array<std::array<int32_t, 1 << kNearBits>, 2> counts{};
    for (int64_t i = 0; i < size; ++i) ++counts[i % 2][bin(ranks[i])];
    const auto count = [&](uint32_t of) { return counts[0][of] + counts[1][of]; };
    uint32_t near = bin(highest);
    for (; count(near) < k; --near) k -= count(near);
    const uint32_t from = (first + near) << shift;
    size = simd().select(ranks, nullptr, size, from, from + ((1U << shift) - 1), ranks, nullptr);
  }
  return ranks[0];
}

}  // namespace

void TopK::reset(int64_t k, int64_t keys) {
  k_ = k;
  size_ = 0;
  floor_ = 0;
  // Twice k makes a clean-up, whose cost is proportional to the room, rare enough.
  const int64_t room = std::min(keys, 2 * k + 1024);
  if (room > static_cast<int64_t>(ranks_.size()) - kLanes) resize(room);
}

void TopK::push(const float* scores, int64_t count, int64_t first_index) {
  make_room(count);
  size_ += simd().rank(scores, count, static_cast<int32_t>(first_index), floor_, ranks_.data() + size_,
                       indices_.data() + size_);
}

void TopK::merge(const TopK& later) {
  if (floor_ == UINT32_MAX) return;
  make_room(later.size_);
  size_ += simd().select(later.ranks_.data(), later.indices_.data(), later.size_, floor_ + 1, UINT32_MAX,
                         ranks_.data() + size_, indices_.data() + size_);
}

void TopK::make_room(int64_t count) {
  const auto room = static_cast<int64_t>(ranks_.size()) - kLanes;
  if (size_ + count <= room) return;
  if (size_ > k_) keep_best();
  if (size_ + count > room) resize(size_ + count);
}

void TopK::resize(int64_t room) {
  ranks_.resize(room + kLanes);
  indices_.resize(room + kLanes);
}

// Keeps, in their order, what ranks above the k-th and the first of what equals it.
void TopK::keep_best() {
  other_ranks_ = ranks_;
  floor_ = kth_largest(other_ranks_.data(), size_, k_);
  size_ = simd().select(ranks_.data(), indices_.data(), size_, floor_, UINT32_MAX, ranks_.data(), indices_.data());
  if (size_ == k_) return;
  int64_t left = k_ - std::count_if(ranks_.begin(), ranks_.begin() + size_,
                                    [floor = floor_](uint32_t rank) { return rank > floor; });
  int64_t kept = 0;
  for (int64_t i = 0; i < size_; ++i) {
    if (ranks_[i] == floor_ && left-- <= 0) continue;
    ranks_[kept] = ranks_[i];
    indices_[kept++] = indices_[i];
  }
  size_ = kept;
}

// Sorts by rank, best first; stable, so equal ranks stay in the order of their indices.
void TopK::sort() {
  other_ranks_.resize(ranks_.size());
  other_indices_.resize(indices_.size());
  for (int shift = 0; shift < 32; shift += kDigitBits) {
    std::array<int64_t, kDigits> places{};
    for (int64_t i = 0; i < size_; ++i) ++places[digit(ranks_[i], shift)];
    if (size_ > 0 && places[digit(ranks_[0], shift)] == size_) continue;  // all have this digit
    int64_t place = 0;
    for (uint32_t d = kDigits; d-- > 0;) {
      const int64_t count = places[d];
      places[d] = place;
      place += count;
    }
    for (int64_t i = 0; i < size_; ++i) {
      const int64_t to = places[digit(ranks_[i], shift)]++;
      other_ranks_[to] = ranks_[i];
      other_indices_[to] = indices_[i];
    }
    ranks_.swap(other_ranks_);
    indices_.swap(other_indices_);
  }
}

float TopK::score_at(int64_t i) const { return score_of(ranks_[i]); }

void TopK::write(int32_t* indices, int64_t stride) {
  if (size_ > k_) keep_best();
  sort();
  for (int64_t i = 0; i < k_; ++i) indices[i * stride] = i < size_ ? indices_[i] : -1;
}

}  // namespace opp
