// SPDX-License-Identifier: Apache-2.0
#include "launch_config.h"

#include <string>

#include "cann_cpu/call.h"

namespace cann_cpu {
namespace {

void require_zero(const char* attribute, uint32_t value) {
  if (value != 0)
    fail(ACL_ERROR_FEATURE_UNSUPPORTED, "attribute %s of %u is not supported; remove it", attribute, value);
}

}  // namespace

void check_load_options(const aclrtBinaryLoadOptions* options) {
  if (options == nullptr || options->numOpt == 0) return;
  require_pointer(options->options, "options");
  for (size_t i = 0; i < options->numOpt; ++i) {
    const aclrtBinaryLoadOption& option = options->options[i];
    switch (option.type) {
      case ACL_RT_BINARY_LOAD_OPT_LAZY_LOAD:  // a library is loaded now: nothing is copied to a device later
      case ACL_RT_BINARY_LOAD_OPT_MAGIC:      // the library says for which cores its kernels are
        continue;
      case ACL_RT_BINARY_LOAD_OPT_CPU_KERNEL_MODE:
        fail(ACL_ERROR_FEATURE_UNSUPPORTED,
             "option ACL_RT_BINARY_LOAD_OPT_CPU_KERNEL_MODE is not supported: there are no AI CPU kernels");
    }
    fail(ACL_ERROR_INVALID_PARAM, "option %d is unknown", option.type);
  }
}

std::optional<uint64_t> timeout_of(const aclrtLaunchKernelCfg* config) {
  if (config == nullptr || config->numAttrs == 0) return std::nullopt;
  require_pointer(config->attrs, "cfg->attrs");
  std::optional<uint64_t> timeout;
  const auto set = [&](uint64_t microseconds) {
    if (timeout) fail(ACL_ERROR_INVALID_PARAM, "cfg has two time-outs");
    timeout = microseconds;
  };
  for (size_t i = 0; i < config->numAttrs; ++i) {
    const auto& [id, value] = config->attrs[i];
    switch (id) {
      case ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE:           // all blocks run, and those that wait for others too
      case ACL_RT_LAUNCH_KERNEL_ATTR_ENGINE_TYPE:          // the kernel says which
      case ACL_RT_LAUNCH_KERNEL_ATTR_BLOCK_TASK_PREFETCH:  // nothing is fetched before its time
        continue;
      case ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE:
        require_zero("ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE", value.dynUBufSize);
        continue;
      case ACL_RT_LAUNCH_KERNEL_ATTR_BLOCKDIM_OFFSET:
        require_zero("ACL_RT_LAUNCH_KERNEL_ATTR_BLOCKDIM_OFFSET", value.blockDimOffset);
        continue;
      case ACL_RT_LAUNCH_KERNEL_ATTR_DATA_DUMP:
        require_zero("ACL_RT_LAUNCH_KERNEL_ATTR_DATA_DUMP", value.isDataDump);
        continue;
      case ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT:
        set(uint64_t{value.timeout} * 1000 * 1000);
        continue;
      case ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US:
        set(uint64_t{value.timeoutUs.timeoutHigh} << 32 | value.timeoutUs.timeoutLow);
        continue;
    }
    fail(ACL_ERROR_INVALID_PARAM, "attribute %d of cfg is unknown", id);
  }
  return timeout;
}

}  // namespace cann_cpu
