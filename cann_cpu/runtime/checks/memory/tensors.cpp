// SPDX-License-Identifier: Apache-2.0
// Tensors' memory, which is given back while tasks may still use it: whose streams use it, and when they have done.
#include <algorithm>

#include "buffers.h"
#include "findings.h"
#include "runtime/checks/call_site.h"
#include "runtime/checks/race.h"
#include "runtime/checks/tensor_memory.h"
#include "runtime/memory.h"

namespace cann_cpu::memory {

void give_back_when_done(const std::vector<uintptr_t>& all_pages) {
  retain_until_done(std::shared_ptr<void>(nullptr, [all_pages](void*) {
    const std::lock_guard lock(buffers().mutex);
    for (const uintptr_t pages : all_pages) {
      const auto found = buffers().by_pages.find(pages);
      if (found != buffers().by_pages.end()) buffers().give_back(found->second);
    }
  }));
}

void used(const Stream& stream, const Accesses& accesses) {
  const auto is_device = [](const Access& access) { return guarded::contains(access.begin); };
  if (std::ranges::none_of(accesses, is_device)) return;
  const size_t agent = race::agent_of(stream);
  const uint64_t time = race::time_of(agent);
  const std::lock_guard lock(buffers().mutex);
  for (const Access& access : accesses) {
    if (Buffer* const found = is_device(access) ? buffers().find(access.begin) : nullptr) found->users[agent] = time;
  }
}

namespace {

// Tasks may still use the memory.
void release_tensor(void* address) {
  std::string where = call_site();
  uintptr_t pages = 0;
  std::optional<size_t> unknown;
  Buffer known;
  {
    Buffers& all = buffers();
    const std::lock_guard lock(all.mutex);
    Buffer* const found = all.find(reinterpret_cast<uintptr_t>(address));
    if (found == nullptr) return;
    found->is_left_to_graph = found->graph != nullptr;
    if (found->is_left_to_graph) return;
    found->freed_where = std::move(where);
    found->freed_at = all.launches;
    for (const auto& [agent, time] : found->users) {
      if (agent == found->agent || found->recorded.contains(agent)) continue;
      if (!race::knows(found->agent, agent, time)) unknown = agent;
    }
    if (unknown) known = *found;
    pages = found->block.pages;
  }
  give_back_when_done({pages});
  if (!unknown) return;
  report_finding("freed while another stream uses it",
                 "stream " + std::to_string(*unknown - 1) + " was given tasks that use it, and stream " +
                     std::to_string(known.agent - 1) + ", whose tensor it is, does not wait for them",
                 describe(known), "",
                 "tensor.record_stream(stream) before it goes, or let its own stream wait: stream.wait_stream(other).");
}

}  // namespace

void graph_destroyed(const void* graph) {
  std::vector<uintptr_t> left;
  {
    Buffers& all = buffers();
    const std::lock_guard lock(all.mutex);
    for (auto& [pages, buffer] : all.by_pages) {
      if (buffer.graph != graph) continue;
      buffer.graph = nullptr;
      if (!buffer.is_left_to_graph) continue;
      buffer.freed_where = "the end of its graph";
      buffer.freed_at = all.launches;
      left.push_back(pages);
    }
  }
  give_back_when_done(left);
}

}  // namespace cann_cpu::memory

namespace cann_cpu {

aclError allocate_tensor(void** address, size_t size, aclrtStream handle) {
  return call("allocate_tensor", [&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    malloc_device(address, size, nullptr);
    const std::lock_guard lock(memory::buffers().mutex);
    memory::Buffer* const found = memory::buffers().find(to_integer(*address));
    if (found == nullptr) return;
    found->agent = race::agent_of(*stream);
    found->graph = stream->graph;
  });
}

aclError free_tensor(void* address) {
  return call("free_tensor", [&] {
    if (find_range(address).space == Space::kPageable) return;  // it went with its device
    forget_device_memory(address);
    memory::release_tensor(address);
  });
}

aclError record_tensor(void* address, aclrtStream handle) {
  return call("record_tensor", [&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    const std::lock_guard lock(memory::buffers().mutex);
    memory::Buffer* const found = memory::buffers().find(to_integer(address));
    if (found != nullptr) found->recorded.insert(race::agent_of(*stream));
  });
}

}  // namespace cann_cpu
