// SPDX-License-Identifier: Apache-2.0
// The memory of the device: GmAlloc and GmFree, and what a launch may touch of it.
#include "memory.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include "ascendc/data_copy.h"

namespace AscendC {
namespace {

constexpr size_t kAlignment = 512;

std::mutex allocations_mutex;
std::map<const void*, size_t>& allocations() {
  static auto& made = *new std::map<const void*, size_t>;  // outlives what frees memory as the process ends
  return made;
}

}  // namespace

void* GmAlloc(size_t bytes) {
  const size_t with_a_block = bytes + cpu::kBlockBytes;  // as aclrtMalloc has one more
  void* memory = std::aligned_alloc(kAlignment, (with_a_block + kAlignment - 1) / kAlignment * kAlignment);
  const std::lock_guard lock(allocations_mutex);
  if (memory != nullptr) allocations()[memory] = bytes;
  return memory;
}

void GmFree(void* memory) {
  const std::lock_guard lock(allocations_mutex);
  allocations().erase(memory);
  std::free(memory);
}

namespace cpu {

namespace {

constinit thread_local const KnownMemory* known_by_thread = nullptr;

bool holds(const DeviceBuffer& buffer, const void* begin, size_t bytes) {
  const auto offset = static_cast<const std::byte*>(begin) - static_cast<const std::byte*>(buffer.begin);
  return offset >= 0 && static_cast<size_t>(offset) + bytes <= buffer.bytes;
}

}  // namespace

KnownMemory::KnownMemory(const DeviceBuffer* buffers, size_t count, size_t* written)
    : buffers(buffers), count(count), written(written), outer_(known_by_thread) {
  known_by_thread = this;
}

KnownMemory::~KnownMemory() { known_by_thread = outer_; }

const KnownMemory* known_memory() { return known_by_thread; }

DeviceMemory::DeviceMemory() : complete_(known_memory() != nullptr) {
  if (complete_) buffers_.assign(known_memory()->buffers, known_memory()->buffers + known_memory()->count);
  const std::lock_guard lock(allocations_mutex);
  for (const auto& [begin, bytes] : allocations()) buffers_.push_back({begin, bytes, "a buffer of GmAlloc"});
}

std::pair<uintptr_t, uintptr_t> DeviceMemory::lines(uintptr_t begin, uintptr_t end) const {
  const DeviceBuffer* buffer = find(begin);
  const uintptr_t base = buffer != nullptr ? reinterpret_cast<uintptr_t>(buffer->begin) : 0;
  const uintptr_t last = base + (end - base + kCacheLine - 1) / kCacheLine * kCacheLine;
  return {base + (begin - base) / kCacheLine * kCacheLine,
          buffer != nullptr ? std::min(last, base + buffer->bytes) : last};
}

void DeviceMemory::count_written(std::vector<std::pair<uintptr_t, uintptr_t>> writes) const {
  const KnownMemory* known = known_memory();
  if (known == nullptr || known->written == nullptr) return;
  std::ranges::sort(writes);
  for (size_t i = 0; i < known->count; ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(known->buffers[i].begin);
    const uintptr_t end = begin + known->buffers[i].bytes;
    uintptr_t until = begin;
    size_t bytes = 0;
    for (const auto& [from, to] : writes) {
      const uintptr_t first = std::max(from, until), last = std::min(to, end);
      if (first >= last) continue;
      bytes += last - first;
      until = last;
    }
    known->written[i] = bytes;
  }
}

const DeviceBuffer* DeviceMemory::find(const void* address, const void* begin, size_t bytes) const {
  const DeviceBuffer* found = nullptr;
  for (const DeviceBuffer& buffer : buffers_) {
    if (!holds(buffer, address, 1)) continue;
    found = &buffer;
    if (holds(buffer, begin, bytes)) break;
  }
  return found;
}

const DeviceBuffer* DeviceMemory::find(uintptr_t address) const {
  const void* there = reinterpret_cast<const void*>(address);
  return find(there, there, 1);
}

std::string DeviceMemory::nothing() const {
  std::string names;
  for (const DeviceBuffer& buffer : buffers_) {
    if (buffer.begin == nullptr) names += (names.empty() ? "'" : " or '") + std::string(buffer.name) + "'";
  }
  return names.empty() ? "a null address" : "argument " + names + ", which is None";
}

void copy_to_the_end(std::byte* to, const Runs& to_runs, const std::byte* from, const Runs& from_runs,
                     const GlobalMemory& memory) {
  const std::byte* end = nullptr;
  for (size_t i = 0; i < current_block->known->count; ++i) {
    const DeviceBuffer& buffer = current_block->known->buffers[i];
    if (holds(buffer, memory.origin, 1)) {
      end = std::max(end, static_cast<const std::byte*>(buffer.begin) + buffer.bytes);
    }
  }
  const bool is_store = memory.data == to;
  for (uint32_t run = 0; run < from_runs.count; ++run) {
    const std::byte* source = from + run * from_runs.step;
    std::byte* target = to + run * to_runs.step;
    const std::byte* there = is_store ? target : source;
    int64_t bytes = from_runs.bytes;
    if (end != nullptr && there < end) bytes = std::min<int64_t>(bytes, end - there);
    if (end != nullptr && there >= end && there < end + kBlockBytes) bytes = 0;
    (bytes < kLongRun ? copy_run : is_store ? store_run : load_run)(target, source, static_cast<size_t>(bytes));
  }
}

}  // namespace cpu
}  // namespace AscendC
