// SPDX-License-Identifier: Apache-2.0
#include "guarded.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "protection_keys.h"

namespace cann_cpu::guarded {
namespace {

constexpr size_t kHugePage = 2 << 20;

size_t page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

uintptr_t round_up(uintptr_t value, size_t to) { return (value + to - 1) / to * to; }

void* pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

// Addresses, handed out one after the other: as many as the machine gives.
struct Arena {
  Arena() {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    for (size_t size = size_t{1} << 45; size >= (size_t{1} << 33); size /= 2) {
      void* const found = mmap(nullptr, size, PROT_NONE, kFlags, -1, 0);
      if (found == MAP_FAILED) continue;
      begin = reinterpret_cast<uintptr_t>(found);
      end = begin + size;
      next = begin + page_size();
      return;
    }
  }

  uintptr_t begin = 0;
  uintptr_t end = 0;
  std::atomic<uintptr_t> next{0};
};

Arena& arena() {
  static auto* const only = new Arena;
  return *only;
}

// To all threads, or to those that have access.
bool make_accessible(uintptr_t begin, uintptr_t end) {
  if (protection_keys::are_used()) return protection_keys::protect(pointer(begin), end - begin);
  return mprotect(pointer(begin), end - begin, PROT_READ | PROT_WRITE) == 0;
}

}  // namespace

bool contains(uintptr_t address) { return address >= arena().begin && address < arena().end; }

Block allocate(size_t size) {
  const size_t page = page_size();
  const size_t used = round_up(size, kAlignment);
  const size_t bytes = round_up(used, page);
  if (used < size || bytes < used || bytes > arena().end - arena().begin) return {};
  const size_t alignment = bytes >= kHugePage ? kHugePage : page;
  uintptr_t pages = arena().next, after;
  do {
    after = round_up(pages, alignment) + bytes + page;
    if (after > arena().end) return {};
  } while (!arena().next.compare_exchange_weak(pages, after));
  pages = round_up(pages, alignment);
  const Block block{pages, pages + bytes - used, pages + bytes};
  if (!open(block)) return {};
  if (bytes >= kHugePage) madvise(pointer(pages), bytes, MADV_HUGEPAGE);  // a wish
  fill(pages, block.limit);
  return block;
}

bool open(const Block& block) { return make_accessible(block.pages, block.limit); }

void close(const Block& block) { mprotect(pointer(block.pages), block.limit - block.pages, PROT_NONE); }

void release(const Block& block) {
  // A new mapping, which becomes one with its neighbours: the number of mappings is limited.
  mmap(pointer(block.pages), block.limit - block.pages, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void revive(uintptr_t begin, uintptr_t end) {
  begin = begin / page_size() * page_size();
  end = round_up(end, page_size());
  if (make_accessible(begin, end)) fill(begin, end);
}

void fill(uintptr_t begin, uintptr_t end) {
  const protection_keys::ThreadAccess access(true);
  auto* const bytes = reinterpret_cast<unsigned char*>(begin);
  const size_t count = end - begin;
  for (size_t i = 0; i < std::min<size_t>(count, 64); ++i) bytes[i] = kPoison[(begin + i) % 2];
  // Doubles what is there: an even number of bytes, which keeps the two in turn.
  for (size_t done = 64; done < count; done *= 2) {
    std::copy_n(bytes, std::min(done, count - done), bytes + done);
  }
}

uintptr_t first_written(uintptr_t begin, uintptr_t end) {
  const protection_keys::ThreadAccess access(true);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(begin);
  for (size_t i = 0; i < end - begin; ++i) {
    if (bytes[i] != kPoison[(begin + i) % 2]) return begin + i;
  }
  return end;
}

}  // namespace cann_cpu::guarded
