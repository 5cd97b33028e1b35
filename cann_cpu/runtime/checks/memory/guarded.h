// SPDX-License-Identifier: Apache-2.0
// Where device memory lies under the check `memory`: each allocation ends at an inaccessible page, no address is used
// twice, and what nobody has written is poison.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cann_cpu::guarded {

// Device memory begins at multiples of this, as aclrtMallocAlign32 promises: behind an allocation of another size lie
// up to 31 bytes of poison before the inaccessible page.
constexpr size_t kAlignment = 32;

// Poison, as two bytes that repeat: not a number in float16, bfloat16, float32 and float64, negative as an integer.
constexpr unsigned char kPoison[] = {0xA5, 0xFF};

struct Block {
  uintptr_t pages;  // the first accessible page
  uintptr_t begin;  // what the caller gets
  uintptr_t limit;  // behind the last accessible page
};

bool contains(uintptr_t address);
// Accessible and filled with poison; all zero when the machine has no memory, addresses or mappings left.
Block allocate(size_t size);
// For all threads, or, where the processor has protection keys, for those that have access (protection_keys.h), and for
// nobody. False when the machine has no mappings left.
bool open(const Block& block);
void close(const Block& block);
// Gives the memory back. The addresses stay inaccessible.
void release(const Block& block);
// Makes pages accessible again that were not, as poison: for a program that goes on after its fault was reported.
void revive(uintptr_t begin, uintptr_t end);

void fill(uintptr_t begin, uintptr_t end);
// The first byte that is not poison, or end.
uintptr_t first_written(uintptr_t begin, uintptr_t end);

}  // namespace cann_cpu::guarded
