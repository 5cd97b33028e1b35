// SPDX-License-Identifier: Apache-2.0
// Shadow memory: for each byte, its last writer and the readers since.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "ascendc/types.h"

namespace AscendC::cpu {

// The object that describes a place in the source: a call has its own.
inline const void* identity(const Where& where) { return std::bit_cast<const void*>(where); }

// An instruction that touched a byte. An epoch is the time between two releases (SetFlag, EnQue, ...) of a pipe;
// 0: there is none.
struct Access {
  const char* name = nullptr;
  Where where = {};
  uint32_t epoch = 0;
  uint32_t atomic = false;  // in any order with others that are; without padding, a copy is two moves

  // The place differs most often, and needs one comparison.
  bool operator==(const Access& other) const {
    return identity(where) == identity(other.where) && name == other.name && epoch == other.epoch &&
           atomic == other.atomic;
  }
};

class History {
 public:
  bool defined = false;  // whether it was written
  pipe_t writer = PIPE_S;
  Access write;

  void set_written(pipe_t pipe, const Access& access) {
    defined = true;
    writer = pipe;
    write = access;
    readers_ = 0;
  }

  // The last read of a pipe since the write, of epoch 0 if there is none.
  uint32_t epoch_of_read(pipe_t pipe) const { return readers_ >> pipe & 1 ? reads_[pipe].epoch : 0; }
  bool has_reads() const { return readers_ != 0; }
  void set_read(pipe_t pipe, const Access& access) {
    reads_[pipe] = access;
    readers_ |= uint32_t{1} << pipe;
  }

  // Calls see(pipe, access) for the last read of each pipe since the write.
  template <class See>
  void for_each_read(const See& see) const {
    for (uint32_t left = readers_; left != 0; left &= left - 1) {
      const auto pipe = static_cast<pipe_t>(std::countr_zero(left));
      see(pipe, reads_[pipe]);
    }
  }

  bool operator==(const History& other) const {
    if (write != other.write || readers_ != other.readers_ || writer != other.writer || defined != other.defined) {
      return false;
    }
    bool same = true;
    for_each_read([&](pipe_t pipe, const Access& access) { same &= access == other.reads_[pipe]; });
    return same;
  }

 private:
  uint32_t readers_ = 0;  // a bit for each pipe
  std::array<Access, kPipes> reads_;
};

// Histories of ranges of bytes: a sorted sequence of segments in chunks, since accesses split and join segments all the
// time, and a program can have a few or a million.
class Shadow {
 public:
  struct Segment {
    uintptr_t begin, end;
    History* history;
  };
  struct Position {
    size_t chunk, index;
  };

  // The first segment that ends after an address.
  Position position(uintptr_t address) const {
    const auto before = [&](const Segment& segment) { return segment.end <= address; };
    const auto chunk = std::ranges::partition_point(chunks_, [&](const Chunk& each) { return before(each.back()); });
    if (chunk == chunks_.end()) return {chunks_.size(), 0};
    const auto segment = std::ranges::partition_point(*chunk, before);
    return {static_cast<size_t>(chunk - chunks_.begin()), static_cast<size_t>(segment - chunk->begin())};
  }

  // The history of all bytes of a range, at the position of its begin; nullptr if they have several or none.
  const History* whole(Position at, uintptr_t begin, uintptr_t end) const {
    return !is_end(at) && (*this)[at].begin <= begin && end <= (*this)[at].end ? (*this)[at].history : nullptr;
  }

  // The history of an address, or nullptr.
  const History* find(uintptr_t address) const { return whole(position(address), address, address + 1); }

  // The history of an address, and the range of bytes around it with the same history; nullptr for unknown bytes.
  Segment around(uintptr_t address) const {
    const Position at = position(address);
    if (!is_end(at) && (*this)[at].begin <= address) return (*this)[at];
    return {is_begin(at) ? 0 : (*this)[before(at)].end, is_end(at) ? UINTPTR_MAX : (*this)[at].begin, nullptr};
  }

  // Calls see(segment) for all segments, in order.
  template <class See>
  void for_each(const See& see) const {
    for (const Chunk& chunk : chunks_) std::ranges::for_each(chunk, see);
  }

  void clear() {
    chunks_.clear();
    histories_.clear();
    unused_.clear();
  }

  // The following take the position of `begin`.

  // Calls see(begin, end, history) for the known parts of a range, in order.
  template <class See>
  void for_each(Position at, uintptr_t begin, uintptr_t end, const See& see) const {
    for (; !is_end(at) && (*this)[at].begin < end; at = after(at)) {
      const Segment& segment = (*this)[at];
      see(std::max(segment.begin, begin), std::min(segment.end, end), *segment.history);
    }
  }

  // Notes that all of a range was written.
  void assign(Position at, uintptr_t begin, uintptr_t end, pipe_t writer, const Access& write) {
    at = cut(at, begin);
    if (is_end(at) || (*this)[at].begin >= end) {
      at = insert(at, {begin, end, history({})});
    } else {
      if ((*this)[at].end > end) at = before(split(at, end));
      for (Position next = after(at); !is_end(next) && (*this)[next].begin < end;) {
        if ((*this)[next].end > end) {
          (*this)[next].begin = end;
        } else {
          next = erase(next);
        }
      }
      (*this)[at].begin = begin, (*this)[at].end = end;
    }
    (*this)[at].history->set_written(writer, write);
    merge(at);
  }

  // Calls change(history) for every part of a range, also for unknown parts. It changes what it has changed no further.
  template <class Change>
  void change(Position at, uintptr_t begin, uintptr_t end, const Change& change) {
    at = cut(at, begin);
    while (begin < end) {
      if (is_end(at) || (*this)[at].begin > begin) {
        at = insert(at, {begin, is_end(at) ? end : std::min((*this)[at].begin, end), history({})});
      } else if ((*this)[at].end > end) {
        at = before(split(at, end));
      }
      change(*(*this)[at].history);
      at = merge(at);
      begin = (*this)[at].end;
      at = after(at);
    }
  }

 private:
  static constexpr size_t kLargestChunk = 256;
  using Chunk = std::vector<Segment>;  // not empty

  Segment& operator[](Position at) { return chunks_[at.chunk][at.index]; }
  const Segment& operator[](Position at) const { return chunks_[at.chunk][at.index]; }

  bool is_begin(Position at) const { return at.chunk == 0 && at.index == 0; }
  bool is_end(Position at) const { return at.chunk == chunks_.size(); }
  Position before(Position at) const {
    return at.index != 0 ? Position{at.chunk, at.index - 1} : Position{at.chunk - 1, chunks_[at.chunk - 1].size() - 1};
  }
  Position after(Position at) const {
    return at.index + 1 < chunks_[at.chunk].size() ? Position{at.chunk, at.index + 1} : Position{at.chunk + 1, 0};
  }

  // Returns the position of the segment. Other positions may have changed.
  Position insert(Position at, const Segment& segment) {
    if (chunks_.empty()) chunks_.emplace_back();
    if (is_end(at)) at = {chunks_.size() - 1, chunks_.back().size()};
    Chunk& chunk = chunks_[at.chunk];
    chunk.insert(chunk.begin() + static_cast<ptrdiff_t>(at.index), segment);
    if (chunk.size() <= kLargestChunk) return at;
    const auto half = chunk.begin() + kLargestChunk / 2;
    Chunk rest(half, chunk.end());
    chunk.erase(half, chunk.end());
    chunks_.insert(chunks_.begin() + static_cast<ptrdiff_t>(at.chunk) + 1, std::move(rest));
    return at.index < kLargestChunk / 2 ? at : Position{at.chunk + 1, at.index - kLargestChunk / 2};
  }

  // Returns the position after it. Those before stay.
  Position erase(Position at) {
    Chunk& chunk = chunks_[at.chunk];
    unused_.push_back(chunk[at.index].history);
    chunk.erase(chunk.begin() + static_cast<ptrdiff_t>(at.index));
    if (chunk.empty()) {
      chunks_.erase(chunks_.begin() + static_cast<ptrdiff_t>(at.chunk));
      return {at.chunk, 0};
    }
    return at.index < chunk.size() ? at : Position{at.chunk + 1, 0};
  }

  History* history(const History& like) {
    if (unused_.empty()) return &histories_.emplace_back(like);
    History* history = unused_.back();
    unused_.pop_back();
    *history = like;
    return history;
  }

  // Splits the segment there if it begins before the address. Returns the first that begins at or after the address.
  Position cut(Position at, uintptr_t address) {
    return !is_end(at) && (*this)[at].begin < address ? split(at, address) : at;
  }

  // Returns the position of the second part.
  Position split(Position at, uintptr_t address) {
    const Segment second{address, std::exchange((*this)[at].end, address), history(*(*this)[at].history)};
    return insert({at.chunk, at.index + 1}, second);
  }

  // Joins a segment with those beside it that have the same history.
  Position merge(Position at) {
    if (!is_begin(at) && joins((*this)[before(at)], (*this)[at])) {
      const Position first = before(at);
      (*this)[first].end = (*this)[at].end;
      erase(at);
      at = first;
    }
    if (const Position next = after(at); !is_end(next) && joins((*this)[at], (*this)[next])) {
      (*this)[at].end = (*this)[next].end;
      erase(next);
    }
    return at;
  }

  static bool joins(const Segment& one, const Segment& next) {
    return one.end == next.begin && *one.history == *next.history;
  }

  std::vector<Chunk> chunks_;
  std::deque<History> histories_;  // some are unused
  std::vector<History*> unused_;
};

}  // namespace AscendC::cpu
