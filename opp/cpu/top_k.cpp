// SPDX-License-Identifier: Apache-2.0
// Selects the k best of a row of scores, by radix selection and radix sort on ranks.
#include "cpu/top_k.h"

#include <algorithm>
#include <array>
#include <bit>

namespace opp {
namespace {

constexpr int kDigitBits = 8;
constexpr uint32_t kDigits = 1 << kDigitBits;

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

// Finds the k-th rank digit by digit, then keeps, in their order, what ranks above and the first of what equals it.
void TopK::keep_best() {
  uint32_t kth = 0;
  uint32_t known = 0;
  int64_t left = k_;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    std::array<int64_t, kDigits> counts{};
    for (int64_t i = 0; i < size_; ++i) {
      const uint32_t rank = entries_[i].rank;
      counts[digit(rank, shift)] += (rank & known) == kth;
    }
    uint32_t d = kDigits - 1;
    for (; counts[d] < left; --d) left -= counts[d];
    kth |= d << shift;
    known |= (kDigits - 1) << shift;
  }
  int64_t kept = 0;
  for (int64_t i = 0; i < size_; ++i) {
    const Entry entry = entries_[i];
    const bool tie = entry.rank == kth && left > 0;
    left -= tie;
    entries_[kept] = entry;
    kept += entry.rank > kth || tie;
  }
  size_ = kept;
  floor_ = kth;
}

// Sorts by rank, best first; stable, so equal ranks stay in the order of their indices.
void TopK::sort() {
  if (scratch_.size() < entries_.size()) scratch_.resize(entries_.size());
  for (int shift = 0; shift < 32; shift += kDigitBits) {
    std::array<int64_t, kDigits> places{};
    for (int64_t i = 0; i < size_; ++i) ++places[digit(entries_[i].rank, shift)];
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
