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
// Of ranks, so many bits are looked at to find those near the k-th.
constexpr int kNearBits = 10;

uint32_t digit(uint32_t rank, int shift) { return rank >> shift & (kDigits - 1); }

// Maps a score to an integer that orders in the same way; never 0.
uint32_t rank_of(float score) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0F);  // -0 + 0 is 0
  const uint32_t rank = bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000U);
  return score != score ? UINT32_MAX : rank;
}

float score_of(uint32_t rank) {
  const uint32_t bits = rank & 0x80000000U ? rank ^ 0x80000000U : ~rank;
  return std::bit_cast<float>(rank == UINT32_MAX ? 0x7FC00000U : bits);
}

// The k-th largest of ranks, of which it keeps only some: those that are equal to it in the first bits in which they
// differ, again and again.
uint32_t kth_largest(std::vector<uint32_t>& ranks, int64_t k) {
  while (true) {
    uint32_t lowest;
    uint32_t highest;
    simd().find_extremes(ranks.data(), static_cast<int64_t>(ranks.size()), &lowest, &highest);
    if (lowest == highest) return lowest;
    const int shift = std::max(0, static_cast<int>(std::bit_width(lowest ^ highest)) - kNearBits);
    const uint32_t first = lowest >> shift;
    const auto bin = [=](uint32_t rank) { return (rank >> shift) - first; };
    // Two by turns, since the next addition to a number waits for the last.
    std::array<std::array<int32_t, 1 << kNearBits>, 2> counts{};
    for (size_t i = 0; i < ranks.size(); ++i) ++counts[i % 2][bin(ranks[i])];
    const auto count = [&](uint32_t of) { return counts[0][of] + counts[1][of]; };
    uint32_t near = bin(highest);
    for (; count(near) < k; --near) k -= count(near);
    size_t kept = 0;
    for (const uint32_t rank : ranks) {
      ranks[kept] = rank;
      kept += bin(rank) == near;
    }
    ranks.resize(kept);
    if (ranks.size() == 1) return ranks.front();
  }
}

}  // namespace

void TopK::reset(int64_t k, int64_t keys) {
  k_ = k;
  size_ = 0;
  floor_ = 0;
  // Twice k makes a clean-up, whose cost is proportional to the room, rare enough; one more for a rejected entry.
  const auto room = static_cast<size_t>(std::min(keys, 2 * k + 1024) + 1);
  if (entries_.size() < room) entries_.resize(room);
}

void TopK::push(const float* scores, int64_t count, int64_t first_index) {
  make_room(count);
  Entry* end = entries_.data() + size_;
  const uint32_t floor = floor_;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t rank = rank_of(scores[i]);
    *end = {rank, static_cast<int32_t>(first_index + i)};
    end += rank > floor;
  }
  size_ = end - entries_.data();
}

void TopK::merge(const TopK& later) {
  make_room(later.size_);
  for (int64_t i = 0; i < later.size_; ++i) {
    entries_[size_] = later.entries_[i];
    size_ += later.entries_[i].rank > floor_;
  }
}

void TopK::make_room(int64_t count) {
  if (size_ + count < static_cast<int64_t>(entries_.size())) return;
  if (size_ > k_) keep_best();
  if (size_ + count >= static_cast<int64_t>(entries_.size())) entries_.resize(size_ + count + 1);
}

// Keeps, in their order, what ranks above the k-th and the first of what equals it.
void TopK::keep_best() {
  ranks_.resize(size_);
  for (int64_t i = 0; i < size_; ++i) ranks_[i] = entries_[i].rank;
  floor_ = kth_largest(ranks_, k_);
  int64_t above = 0;
  int64_t equal = 0;
  for (int64_t i = 0; i < size_; ++i) {
    above += entries_[i].rank > floor_;
    equal += entries_[i].rank == floor_;
  }
  int64_t kept = 0;
  const auto keep = [&](auto is_best) {
    for (int64_t i = 0; i < size_; ++i) {
      const Entry entry = entries_[i];
      entries_[kept] = entry;
      kept += is_best(entry.rank);
    }
  };
  if (above + equal == k_) {
    keep([floor = floor_](uint32_t rank) { return rank >= floor; });
  } else {
    keep([floor = floor_, left = k_ - above](uint32_t rank) mutable {
      const bool tie = rank == floor && left > 0;
      left -= tie;
      return rank > floor || tie;
    });
  }
  size_ = kept;
}

// Sorts by rank, best first; stable, so equal ranks stay in the order of their indices.
void TopK::sort() {
  if (scratch_.size() < entries_.size()) scratch_.resize(entries_.size());
  for (int shift = 0; shift < 32; shift += kDigitBits) {
    std::array<int64_t, kDigits> places{};
    for (int64_t i = 0; i < size_; ++i) ++places[digit(entries_[i].rank, shift)];
    if (size_ > 0 && places[digit(entries_[0].rank, shift)] == size_) continue;  // all have this digit
    int64_t place = 0;
    for (uint32_t d = kDigits; d-- > 0;) {
      const int64_t count = places[d];
      places[d] = place;
      place += count;
    }
    for (int64_t i = 0; i < size_; ++i) scratch_[places[digit(entries_[i].rank, shift)]++] = entries_[i];
    entries_.swap(scratch_);
  }
}

float TopK::score_at(int64_t i) const { return score_of(entries_[i].rank); }

void TopK::write(int32_t* indices, int64_t stride) {
  if (size_ > k_) keep_best();
  sort();
  for (int64_t i = 0; i < k_; ++i) indices[i * stride] = i < size_ ? entries_[i].index : -1;
}

}  // namespace opp
