// SPDX-License-Identifier: Apache-2.0
// The caller's allocator of device memory, which the engine takes outputs of unknown size from.
//
// torchair implements these classes, compiled in its own library, so that their layout is an ABI. It was measured there
// (_npu_graph_executor.so of the torch_npu wheel): the slots by the relocations of NpuAllocator's and NpuMemBlock's
// vtables, the members by the offsets at which NpuAllocator::Malloc and FreeMemBlock store and read them.
#pragma once

#include <cstddef>
#include <memory>

namespace ge {

class MemBlock;

class Allocator {
 public:
  virtual ~Allocator() = default;                                                // slots 0 and 1
  virtual MemBlock* Malloc(size_t bytes) = 0;                                    // slot 2; null: no memory left
  virtual void Free(MemBlock* block) = 0;                                        // slot 3
  virtual MemBlock* MallocAdvise(size_t bytes, void*) { return Malloc(bytes); }  // slot 4; not called here
};
using AllocatorPtr = std::shared_ptr<Allocator>;

// Memory of an allocator, for as long as it is referenced.
class MemBlock {
 public:
  MemBlock(Allocator& owner, void* address, size_t bytes) : owner_(&owner), address_(address), bytes_(bytes) {}
  virtual ~MemBlock() = default;  // slots 0 and 1

  void* address() const { return address_; }
  void retain() { ++references_; }
  void release() {
    if (references_ != 0 && --references_ == 0) owner_->Free(this);
  }

 private:
  Allocator* owner_;       // at 8
  void* address_;          // at 16
  size_t references_ = 1;  // at 24
  size_t bytes_;           // at 32
};

static_assert(sizeof(MemBlock) == 40, "torchair's own members follow");

}  // namespace ge
