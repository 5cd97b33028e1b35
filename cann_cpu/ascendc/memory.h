// The memory of the device that a launch may touch.
#pragma once

#include <map>

#include "ascendc/launch.h"

namespace AscendC::cpu {

// What GmAlloc has given and what a launch describes, as it stands when the launch begins.
class DeviceMemory {
 public:
  explicit DeviceMemory(const Launch& launch);

  // The buffer that holds an address, or nullptr.
  const DeviceBuffer* find(const void* address) const;

  // Whether memory in none of the buffers is refused: only if the launch describes all that it uses.
  bool complete() const { return complete_; }

 private:
  std::map<const void*, DeviceBuffer> buffers_;
  bool complete_;
};

}  // namespace AscendC::cpu
