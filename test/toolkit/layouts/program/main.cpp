// SPDX-License-Identifier: Apache-2.0
// Calls aclnnHypot of 3 and 4, and prints what comes.
#include <cstdio>
#include <vector>

#include "acl/acl.h"
#include "aclnn_hypot.h"

#define CHECK(call)                                             \
  do {                                                          \
    const int code = call;                                      \
    if (code != 0) {                                            \
      printf("%s: %d %s\n", #call, code, aclGetRecentErrMsg()); \
      return 1;                                                 \
    }                                                           \
  } while (0)

int main() {
  CHECK(aclInit(nullptr));
  CHECK(aclrtSetDevice(0));
  aclrtStream stream;
  CHECK(aclrtCreateStream(&stream));
  const int64_t shape[] = {128}, stride[] = {1};
  void* memory[3];
  aclTensor* tensors[3];
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> values(128, i == 0 ? 3.0f : 4.0f);
    CHECK(aclrtMalloc(&memory[i], 512, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(memory[i], 512, values.data(), 512, ACL_MEMCPY_HOST_TO_DEVICE));
    tensors[i] = aclCreateTensor(shape, 1, ACL_FLOAT, stride, 0, ACL_FORMAT_ND, shape, 1, memory[i]);
  }
  uint64_t size = 0;
  aclOpExecutor* executor;
  CHECK(aclnnHypotGetWorkspaceSize(tensors[0], tensors[1], tensors[2], &size, &executor));
  CHECK(aclnnHypot(nullptr, size, executor, stream));
  CHECK(aclrtSynchronizeStream(stream));
  std::vector<float> result(128);
  CHECK(aclrtMemcpy(result.data(), 512, memory[2], 512, ACL_MEMCPY_DEVICE_TO_HOST));
  printf("%g %g\n", result.front(), result.back());
  return 0;
}
