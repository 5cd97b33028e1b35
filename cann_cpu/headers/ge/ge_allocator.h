// SPDX-License-Identifier: Apache-2.0
// ge::Allocator: the caller's device memory allocator, which the engine takes outputs of unknown size from.
#pragma once

#include <cstddef>

namespace ge {

class MemBlock;

class Allocator {
 public:
  Allocator() = default;
  virtual ~Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // A block with one reference; nullptr when there is no memory.
  virtual MemBlock* Malloc(size_t size) = 0;
  virtual void Free(MemBlock* block) = 0;
  virtual MemBlock* MallocAdvise(size_t size, void*) { return Malloc(size); }
};

// Memory that several owners count their references to; the last Free gives it back.
class MemBlock {
 public:
  MemBlock(Allocator& allocator, void* addr, size_t size) : allocator_(allocator), addr_(addr), size_(size) {}
  virtual ~MemBlock() = default;

  void* GetAddr() { return addr_; }
  size_t GetSize() const { return size_; }
  size_t AddCount() { return ++count_; }
  void Free() {
    if (count_ > 0 && --count_ == 0) {
      allocator_.Free(this);
    }
  }

 private:
  // The order is the ABI's: torchair derives from this class.
  Allocator& allocator_;
  void* addr_;
  size_t count_ = 1;
  size_t size_;
};

}  // namespace ge
