// SPDX-License-Identifier: Apache-2.0
// Runs the kernel on 128 zeros, and returns 0 if they are ones.
#include <vector>

#include "acl/acl.h"

extern "C" void plus_one_do(uint32_t blocks, void* stream, uint8_t* x);

int main() {
  aclInit(nullptr);
  aclrtSetDevice(0);
  aclrtStream stream;
  aclrtCreateStream(&stream);
  std::vector<float> x(128);
  void* memory;
  aclrtMalloc(&memory, 512, ACL_MEM_MALLOC_HUGE_FIRST);
  aclrtMemcpy(memory, 512, x.data(), 512, ACL_MEMCPY_HOST_TO_DEVICE);
  plus_one_do(2, stream, static_cast<uint8_t*>(memory));
  aclrtSynchronizeStream(stream);
  aclrtMemcpy(x.data(), 512, memory, 512, ACL_MEMCPY_DEVICE_TO_HOST);
  return x != std::vector<float>(128, 1);
}
