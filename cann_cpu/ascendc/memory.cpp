// GmAlloc and GmFree: memory that stands for a device's.
#include <cstdlib>

#include "ascendc/launch.h"

namespace AscendC {

namespace {
constexpr size_t kAlignment = 512;
}

void* GmAlloc(size_t bytes) {
  return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

void GmFree(void* memory) { std::free(memory); }

}  // namespace AscendC
