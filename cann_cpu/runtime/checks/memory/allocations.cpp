// SPDX-License-Identifier: Apache-2.0
// Allocates and frees buffers, and reports wrong frees.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cann_cpu/export.h"
#include "findings.h"
#include "page_faults.h"
#include "runtime/checks/call_site.h"
#include "runtime/checks/observers.h"
#include "runtime/checks/report.h"

namespace cann_cpu::memory {
namespace {

bool is_programs_code(const void* caller) {
  Dl_info own{}, found{};
  dladdr(reinterpret_cast<const void*>(&is_programs_code), &own);
  if (caller == nullptr || dladdr(caller, &found) == 0 || found.dli_fname == nullptr) return false;
  const std::string_view file = found.dli_fname, runtime = own.dli_fname;
  if (file.starts_with(runtime.substr(0, runtime.rfind('/') + 1))) return false;
  return file.find("/torch_npu/") == std::string_view::npos && file.find("/torchair/") == std::string_view::npos;
}

void tell_leaks(const std::vector<Buffer>& left) {
  std::map<std::pair<std::string, int32_t>, std::pair<size_t, size_t>> places;  // numbers and bytes
  for (const Buffer& buffer : left) {
    auto& [count, bytes] = places[{buffer.where, buffer.device}];
    ++count;
    bytes += buffer.size;
  }
  for (const auto& [place, sum] : places) {
    report_finding("never freed", std::to_string(sum.first) + (sum.first == 1 ? " buffer" : " buffers") + " at the end",
                   std::to_string(sum.second) + " bytes of npu:" + std::to_string(place.second) + ", allocated at " +
                       (place.first.empty() ? "a place that is not known" : place.first),
                   "", "Give them back with aclrtFree before the device is reset.");
  }
}

void tell_what_lives() {
  if (!is_on(Check::kMemory)) return;
  std::vector<Buffer> left;
  {
    const std::lock_guard lock(buffers().mutex);
    for (const auto& [pages, buffer] : buffers().by_pages) {
      if (buffer.is_programs && buffer.freed_at == 0) left.push_back(buffer);
    }
  }
  tell_leaks(left);
}

// By std::atexit, as all that ends with a process: a process of a fork server calls no destructors of libraries.
[[maybe_unused]] const int told_at_the_end = std::atexit(tell_what_lives);

void reject_free(const void* address) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const std::string by = "aclrtFree, called at " + call_site_nonblocking();
  Buffer known;
  const char* fault = "free of memory that was never allocated";
  {
    const std::lock_guard lock(buffers().mutex);
    if (const Buffer* const found = buffers().find(begin)) {
      known = *found;
      fault = found->freed_at == 0      ? "free of an address inside a buffer"
              : found->begin() == begin ? "double free"
                                        : "free of an address inside a freed buffer";
    }
  }
  char text[64];
  std::snprintf(text, sizeof(text), "0x%zx", static_cast<size_t>(begin));
  report_finding(fault, text, known.size == 0 ? "no buffer of the device" : describe(known), by,
                 "Free each address that aclrtMalloc gave, once.");
}

void reject_device(const void* address, int32_t device) {
  const std::string by = "aclrtFree on npu:" + std::to_string(device) + ", called at " + call_site_nonblocking();
  Buffer known;
  {
    const std::lock_guard lock(buffers().mutex);
    if (const Buffer* const found = buffers().find(reinterpret_cast<uintptr_t>(address))) known = *found;
  }
  report_finding("free of another device's memory", "the calling thread's device is npu:" + std::to_string(device),
                 describe(known), by, "Set the buffer's device first (aclrtSetDevice).");
}

// What the program's own code leaves at the end is listed.
struct GuardedAllocator final : DeviceAllocator {
  // The GIL is waited for where a tensor is allocated: no lock is held.
  void* allocate(size_t size, int32_t device, const void* caller) override {
    handle_page_faults();
    std::string where = caller == nullptr ? call_site() : call_site_nonblocking();
    const guarded::Block block = guarded::allocate(size);
    if (block.begin == 0) return nullptr;
    Buffer buffer;
    buffer.block = block;
    buffer.size = size;
    buffer.device = device;
    buffer.where = std::move(where);
    buffer.is_programs = is_programs_code(caller);
    Buffers& all = buffers();
    const std::lock_guard lock(all.mutex);
    all.add(std::move(buffer));
    if (all.touching == 0) all.close_all();
    return reinterpret_cast<void*>(block.begin);
  }

  void release(void* address) override {
    const std::string where = call_site_nonblocking();
    Buffer around;
    ++buffers().touching;  // no thread closes it meanwhile
    {
      const std::lock_guard lock(buffers().mutex);
      Buffer* const found = buffers().find(reinterpret_cast<uintptr_t>(address));
      if (found == nullptr) {
        --buffers().touching;
        return;
      }
      found->freed_where = where;
      found->freed_at = buffers().launches;
      buffers().open(*found);
      around = *found;
    }
    if (const auto found = written_around(around)) {
      report_finding(kOutOfBounds, "written: " + beside(around, found->first, found->second), describe(around),
                     "found when it was freed", kBoundsAdvice);
    }
    --buffers().touching;
    const std::lock_guard lock(buffers().mutex);
    if (Buffer* const found = buffers().find(around.begin())) buffers().give_back(*found);
  }

  void release_left(const std::vector<void*>& addresses) override {
    std::vector<Buffer> left;
    std::vector<uintptr_t> pages;
    {
      const std::lock_guard lock(buffers().mutex);
      for (void* const address : addresses) {
        Buffer* const found = buffers().find(reinterpret_cast<uintptr_t>(address));
        if (found == nullptr || found->is_released) continue;
        if (found->is_programs) left.push_back(*found);
        found->freed_where = "the end of its device";
        found->freed_at = buffers().launches;
        pages.push_back(found->block.pages);
      }
    }
    give_back_when_done(pages);
    tell_leaks(left);
  }

  void check_free(const void* address) override {
    const Range range = find_range(address);
    if (range.space != Space::kDevice || range.begin != to_integer(address)) {
      reject_free(address);
    } else if (range.device != current_context()->device) {
      reject_device(address, current_context()->device);
    }
  }

  void reject_range(const char* name, uintptr_t address, size_t size) override {
    const std::string where = call_site();
    Buffer known;
    bool is_in_front = false;
    {
      const std::lock_guard lock(buffers().mutex);
      Buffer* found = buffers().find(address);
      if (found == nullptr && guarded::contains(address))
        std::tie(found, is_in_front) = buffers().find_nearest(address);
      if (found == nullptr) return;
      known = *found;
    }
    const std::string by = std::string("a copy or fill of ") + std::to_string(size) + " bytes, called at " + where;
    if (known.freed_at > 0) return report_use_after_free(known, by);
    const bool in_front = is_in_front || address < known.begin();
    const uintptr_t first = in_front ? address : std::max(address, known.end());
    const uintptr_t last = in_front ? known.begin() - 1 : address + size - 1;
    report_finding(kOutOfBounds, std::string(name) + ": " + beside(known, first, last), describe(known), by,
                   kBoundsAdvice);
  }
} guarded_allocator;

}  // namespace
}  // namespace cann_cpu::memory

cann_cpu::DeviceAllocator& cann_cpu::guarded_memory = memory::guarded_allocator;

// Ends a process without what was registered before torch_npu was loaded, and without torch_npu's destructors
// (checks/fork_server.py).
extern "C" CANN_EXPORT void cann_cpu_end_before_backends(int status, void*) {
  cann_cpu::memory::tell_what_lives();
  std::fflush(nullptr);
  _exit(status);
}
