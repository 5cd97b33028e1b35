// SPDX-License-Identifier: Apache-2.0
#include "buffers.h"

#include <algorithm>
#include <iterator>

#include "protection_keys.h"

namespace cann_cpu::memory {
namespace {

constexpr size_t kInFront = 64;        // bytes in front of a buffer that are checked after each task that writes it
constexpr size_t kMaxFreed = 1 << 16;  // buffers that are remembered after they were freed

}  // namespace

Buffers& buffers() {
  static auto* const only = new Buffers;
  return *only;
}

void Buffers::add(Buffer buffer) {
  const uintptr_t pages = buffer.block.pages;
  by_pages.emplace_hint(by_pages.end(), pages, std::move(buffer));
  open_.push_back(pages);
}

Buffer* Buffers::find(uintptr_t address) {
  const auto next = by_pages.upper_bound(address);
  if (next == by_pages.begin()) return nullptr;
  Buffer& buffer = std::prev(next)->second;
  return address < buffer.block.limit ? &buffer : nullptr;
}

std::pair<Buffer*, bool> Buffers::find_nearest(uintptr_t address) {
  const auto next = by_pages.upper_bound(address);
  Buffer* const before = next == by_pages.begin() ? nullptr : &std::prev(next)->second;
  Buffer* const after = next == by_pages.end() ? nullptr : &next->second;
  if (before == nullptr) return {after, true};
  if (after == nullptr || address < before->end()) return {before, false};
  const bool is_in_front = after->begin() - address < address - before->end();
  return {is_in_front ? after : before, is_in_front};
}

void Buffers::open(Buffer& buffer) {
  if (buffer.is_open || buffer.is_released) return;
  buffer.is_open = guarded::open(buffer.block);
  open_.push_back(buffer.block.pages);
}

void Buffers::close_all() {
  if (protection_keys::are_used()) return open_.clear();  // to the host they are closed at all times
  for (const uintptr_t pages : open_) {
    const auto found = by_pages.find(pages);
    if (found == by_pages.end() || found->second.is_released || !found->second.is_open) continue;
    guarded::close(found->second.block);
    found->second.is_open = false;
  }
  open_.clear();
}

void Buffers::give_back(Buffer& buffer) {
  if (buffer.is_released) return;
  guarded::release(buffer.block);
  buffer.is_released = true;
  buffer.is_open = false;
  buffer.written = {};
  freed_.push_back(buffer.block.pages);
  if (freed_.size() <= kMaxFreed) return;
  by_pages.erase(freed_.front());
  freed_.pop_front();
}

std::optional<std::pair<uintptr_t, uintptr_t>> written_around(const Buffer& buffer) {
  const uintptr_t front = std::max(buffer.block.pages, buffer.begin() - std::min(buffer.begin(), kInFront));
  for (const auto& [begin, end] : {std::pair(front, buffer.begin()), std::pair(buffer.end(), buffer.block.limit)}) {
    const uintptr_t first = guarded::first_written(begin, end);
    if (first == end) continue;
    uintptr_t last = first;
    for (uintptr_t at = first; at < end; ++at) {
      if (guarded::first_written(at, at + 1) == at) last = at;
    }
    guarded::fill(begin, end);
    return std::pair(first, last);
  }
  return std::nullopt;
}

void close() {
  Buffers& all = buffers();
  if (all.touching > 0) return;
  const std::lock_guard lock(all.mutex);
  if (all.touching == 0) all.close_all();
}

}  // namespace cann_cpu::memory
