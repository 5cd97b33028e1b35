// The memory of the device: GmAlloc and GmFree, and what a launch may touch of it.
#include "memory.h"

#include <cstdlib>
#include <mutex>

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
  void* memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
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

DeviceMemory::DeviceMemory(const Launch& launch) : complete_(launch.buffers != nullptr) {
  const std::lock_guard lock(allocations_mutex);
  for (const auto& [begin, bytes] : allocations()) buffers_[begin] = {begin, bytes, "a buffer of GmAlloc"};
  for (size_t i = 0; i < launch.buffer_count; ++i) buffers_[launch.buffers[i].begin] = launch.buffers[i];
}

const DeviceBuffer* DeviceMemory::find(const void* address) const {
  auto at = buffers_.upper_bound(address);
  if (at == buffers_.begin()) return nullptr;
  const DeviceBuffer& buffer = (--at)->second;
  const auto offset = static_cast<const std::byte*>(address) - static_cast<const std::byte*>(buffer.begin);
  return static_cast<size_t>(offset) < buffer.bytes ? &buffer : nullptr;
}

}  // namespace cpu
}  // namespace AscendC
