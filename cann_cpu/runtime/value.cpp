// SPDX-License-Identifier: Apache-2.0
// Values in device memory that a stream writes or waits for.
#include "memory.h"
#include "stream.h"

namespace cann_cpu {
namespace {

uint64_t* check_value(void* address) {
  check_range("devAddr", address, sizeof(uint64_t), /*on_device=*/true);
  if (reinterpret_cast<uintptr_t>(address) % sizeof(uint64_t) != 0) {
    fail(ACL_ERROR_RT_ADDR_UNALIGNED, "devAddr %p is not aligned to 8 bytes", address);
  }
  return static_cast<uint64_t*>(address);
}

bool holds(uint64_t found, uint64_t value, uint32_t flag) {
  switch (flag) {
    case ACL_STREAM_WAIT_VALUE_GEQ:
      return static_cast<int64_t>(found - value) >= 0;
    case ACL_STREAM_WAIT_VALUE_EQ:
      return found == value;
    case ACL_STREAM_WAIT_VALUE_AND:
      return (found & value) != 0;
    default:
      return ~(found | value) != 0;
  }
}

}  // namespace
}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclrtValueWrite(void* devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
  return call(__func__, [&] {
    uint64_t* target = check_value(devAddr);
    if (flag != 0) fail(ACL_ERROR_INVALID_PARAM, "flag is %u; it is reserved and must be 0", flag);
    append(stream, "aclrtValueWrite", [=] {
      __atomic_store_n(target, value, __ATOMIC_RELEASE);
      notify_waits();
      return ACL_SUCCESS;
    });
  });
}

aclError aclrtValueWait(void* devAddr, uint64_t value, uint32_t flag, aclrtStream handle) {
  return call(__func__, [&] {
    uint64_t* source = check_value(devAddr);
    if (flag > ACL_STREAM_WAIT_VALUE_NOR) fail(ACL_ERROR_INVALID_PARAM, "flag is %u; expected 0 to 3", flag);
    append(handle, "aclrtValueWait", [=] {
      Stream& stream = *running_stream();
      std::optional<Failure> stop;  // the write may be among the tasks that do not run any more
      const auto is_over = [&] {
        return holds(__atomic_load_n(source, __ATOMIC_ACQUIRE), value, flag) || (stop = stream.context->stopped_by());
      };
      stream.block_until(is_over, /*poll=*/true);
      if (!stop) return ACL_SUCCESS;
      throw Failure{stop->code, "it waits no longer (ACL_STOP_ON_FAILURE): " + stop->message};
    });
  });
}
