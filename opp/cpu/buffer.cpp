// SPDX-License-Identifier: Apache-2.0
// The memory that a kernel works in, which threads keep for the next.
#include "cpu/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <new>
#include <vector>

namespace opp {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = 2 << 20;
// What a thread keeps at most, in bytes and in pieces, which are looked through.
constexpr int64_t kMaxKept = 16 << 20;
constexpr size_t kMaxPieces = 64;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

struct Kept {
  std::unique_ptr<void, Free> memory;
  int64_t bytes;
};

// The memory that this thread has given back, the last at the end.
class Store {
 public:
  Memory take(int64_t bytes) {
    bytes = std::max(bytes, kAlignment);  // what is never found again would be kept all the same
    const auto fits = [=](const Kept& kept) { return kept.bytes >= bytes && kept.bytes < 2 * bytes; };
    const auto found = std::find_if(kept_.rbegin(), kept_.rend(), fits);
    if (found == kept_.rend()) return allocate(bytes);
    Memory memory(found->memory.release(), {found->bytes});
    bytes_ -= found->bytes;
    kept_.erase(std::next(found).base());
    return memory;
  }

  void give_back(void* memory, int64_t bytes) {
    kept_.push_back({std::unique_ptr<void, Free>(memory), bytes});
    bytes_ += bytes;
    while (bytes_ > kMaxKept || kept_.size() > kMaxPieces) {
      bytes_ -= kept_.front().bytes;
      kept_.erase(kept_.begin());
    }
  }

 private:
  static Memory allocate(int64_t bytes) {
    const int64_t alignment = bytes < kHugePage ? kAlignment : kHugePage;
    const int64_t size = (bytes + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, size);
    if (memory == nullptr) throw std::bad_alloc();
    if (alignment == kHugePage)
      madvise(memory, size, MADV_HUGEPAGE);  // optional: everything also works without huge pages
    return Memory(memory, {size});
  }

  std::vector<Kept> kept_;
  int64_t bytes_ = 0;
};

Store& store() {
  thread_local Store of_thread;
  return of_thread;
}

}  // namespace

void GiveBack::operator()(void* memory) const { store().give_back(memory, bytes); }

Memory take_memory(int64_t bytes) { return store().take(bytes); }

}  // namespace opp
