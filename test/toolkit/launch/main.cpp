// SPDX-License-Identifier: Apache-2.0
// Scales the numbers 0 to 1023 in each way that the run mode has, and ends with 1 where one comes out otherwise.
#include <cstdio>
#include <cstring>
#include <string>

#include "scale.h"
#ifdef ASCENDC_CPU_DEBUG
#include "tikicpulib.h"
extern "C" __global__ __aicore__ void scale(GM_ADDR x, GM_ADDR y, ScaleTiling tiling);
#else
#include "acl/acl.h"
#include "aclrtlaunch_scale.h"
#include "aclrtlaunch_scale_by.h"
#include "kernel_tiling/kernel_tiling.h"
void scale_do(uint32_t blocks, void* stream, uint8_t* x, uint8_t* y, const ScaleTiling& tiling);
#endif

constexpr uint32_t kCount = 1024, kBlocks = 4;
constexpr size_t kBytes = kCount * sizeof(float);
float x[kCount], y[kCount];

int wrong(const std::string& what) {
  for (uint32_t i = 0; i < kCount; ++i) {
    if (y[i] == 0.5f * static_cast<float>(i) + 2) continue;
    std::printf("%s: y[%u] is %f\n", what.c_str(), i, y[i]);
    return 1;
  }
  return 0;
}

#define CHECK(call)                                         \
  if (const auto code = (call); code != 0) {                \
    std::printf("%s: %d\n", #call, static_cast<int>(code)); \
    return 1;                                               \
  }

int main() {
  for (uint32_t i = 0; i < kCount; ++i) x[i] = static_cast<float>(i);
  ScaleTiling tiling{kCount, 0.5f};
#ifdef ASCENDC_CPU_DEBUG
  auto* from = static_cast<uint8_t*>(AscendC::GmAlloc(kBytes));
  auto* to = static_cast<uint8_t*>(AscendC::GmAlloc(kBytes));
  memcpy_s(from, kBytes, x, kBytes);
  AscendC::SetKernelMode(KernelMode::AIV_MODE);
  ICPU_RUN_KF(scale, kBlocks, from, to, tiling);
  std::memcpy(y, to, kBytes);
  AscendC::GmFree(from);
  AscendC::GmFree(to);
  return wrong("ICPU_RUN_KF");
#else
  CHECK(aclInit(nullptr));
  CHECK(aclrtSetDevice(0));
  aclrtStream stream;
  CHECK(aclrtCreateStream(&stream));
  void *from, *to;
  CHECK(aclrtMalloc(&from, kBytes, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclrtMalloc(&to, kBytes, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclrtMemcpy(from, kBytes, x, kBytes, ACL_MEMCPY_HOST_TO_DEVICE));
  const char* ways[] = {"<<<>>>", "ACLRT_LAUNCH_KERNEL with a struct", "ACLRT_LAUNCH_KERNEL with numbers"};
  int failed = 0;
  for (int way = 0; way < 3; ++way) {
    CHECK(aclrtMemset(to, kBytes, 0, kBytes));
    if (way == 0) scale_do(kBlocks, stream, static_cast<uint8_t*>(from), static_cast<uint8_t*>(to), tiling);
    if (way == 1) CHECK(ACLRT_LAUNCH_KERNEL(scale)(kBlocks, stream, from, to, &tiling));
    if (way == 2) CHECK(ACLRT_LAUNCH_KERNEL(scale_by)(kBlocks, stream, from, to, kCount, 0.5f));
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclrtMemcpy(y, kBytes, to, kBytes, ACL_MEMCPY_DEVICE_TO_HOST));
    failed |= wrong(ways[way]);
  }
  CHECK(aclrtFree(from));
  CHECK(aclrtFree(to));
  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
  return failed;
#endif
}
