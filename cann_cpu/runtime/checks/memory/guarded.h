// SPDX-License-Identifier: Apache-2.0
// The layout of device memory under the check `memory`: each allocation ends at an inaccessible page, no address is
// used twice, and unwritten bytes are poison.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cann_cpu::guarded {

// Device memory begins at multiples of this, as aclrtMallocAlign32 promises. After an allocation of another size, up to
// 31 bytes of poison precede the inaccessible page.
constexpr size_t kAlignment = 32;

// Poison, as two bytes that repeat: not a number in float16, bfloat16, float32 and float64, negative as an integer.
constexpr unsigned char kPoison[] = {0xA5, 0xFF};

struct Block {
  uintptr_t pages;  // the first accessible page
  uintptr_t begin;  // what the caller gets
  uintptr_t limit;  // the end of the last accessible page
};

bool contains(uintptr_t address);
// Accessible and filled with poison; all zero when the machine has no memory, addresses or mappings left.
Block allocate(size_t size);
// open() makes the block accessible to all threads, or, if the processor has protection keys, to threads with access
// (protection_keys.h). close() makes it inaccessible. open() returns false when the machine has no mappings left.
bool open(const Block& block);
void close(const Block& block);
// Gives the memory back. The addresses stay inaccessible.
void release(const Block& block);
// Makes inaccessible pages accessible again, as poison: for a program that continues after its fault was reported.
void revive(uintptr_t begin, uintptr_t end);

void fill(uintptr_t begin, uintptr_t end);
// The first byte that is not poison, or end.
uintptr_t first_written(uintptr_t begin, uintptr_t end);

}  // namespace cann_cpu::guarded
