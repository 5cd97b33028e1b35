// SPDX-License-Identifier: Apache-2.0
// Settings: system parameters, attributes of this CANN, time-outs, limits on cores.
#include <array>

#include "cann_cpu/core_limits.h"
#include "cann_cpu/deterministic.h"
#include "stream.h"
#include "timeouts.h"

namespace cann_cpu {
namespace {

std::mutex settings_mutex;
std::map<aclSysParamOpt, int64_t> sys_params;
std::atomic<aclrtFloatOverflowMode> overflow_mode{ACL_RT_OVERFLOW_MODE_INFNAN};

constexpr int64_t kMostDeterministic = 2;  // torch_npu's levels

thread_local std::optional<Cores> thread_cores;
thread_local std::optional<bool> deterministic_call;

void check_option(aclSysParamOpt option) {
  if (option < ACL_OPT_DETERMINISTIC || option > ACL_OPT_STRONG_CONSISTENCY) {
    fail(ACL_ERROR_INVALID_PARAM, "option %d is unknown", option);
  }
}

// Equal calls give equal bits whatever ACL_OPT_STRONG_CONSISTENCY is. There are no kernels for debugging.
void check_value(aclSysParamOpt option, int64_t value) {
  check_option(option);
  const int64_t most = option == ACL_OPT_DETERMINISTIC ? kMostDeterministic : 1;
  if (value < 0 || value > most) fail(ACL_ERROR_INVALID_PARAM, "value is %ld; expected 0 to %ld", value, most);
  if (option == ACL_OPT_ENABLE_DEBUG_KERNEL && value != 0) {
    fail(ACL_ERROR_FEATURE_UNSUPPORTED,
         "ACL_OPT_ENABLE_DEBUG_KERNEL is not supported; ASCENDC_CPU_CHECKS=1 checks what kernels do");
  }
}

int64_t value_or_zero(const std::map<aclSysParamOpt, int64_t>& params, aclSysParamOpt option) {
  auto found = params.find(option);
  return found == params.end() ? 0 : found->second;
}

void check_cores(aclrtDevResLimitType type, uint32_t value) {
  uint32_t max = CoreLimits().at(type);
  if (value == 0 || value > max) fail(ACL_ERROR_INVALID_PARAM, "value is %u; expected 1 to %u cores", value, max);
}

CoreLimits limits_of(Stream& stream) {
  {
    std::lock_guard lock(stream.settings_mutex);
    if (stream.core_limits) return *stream.core_limits;
  }
  Device& device = find_device(stream.context->device);
  std::lock_guard lock(device.mutex);
  return device.core_limits;
}

// The limits of the thread if it has any, else those of the context's device.
CoreLimits limits_of_thread() {
  if (thread_cores) return {{thread_cores->cube, thread_cores->vector}};
  Device& device = find_device(current_device());
  std::lock_guard lock(device.mutex);
  return device.core_limits;
}

}  // namespace

bool is_deterministic() noexcept {
  if (deterministic_call) return *deterministic_call;
  try {
    const std::shared_ptr<Context> context = current_context();
    const std::lock_guard lock(context->mutex);
    const auto found = context->sys_params.find(ACL_OPT_DETERMINISTIC);
    if (found != context->sys_params.end()) return found->second != 0;
  } catch (const Failure&) {  // without a context
  }
  const std::lock_guard lock(settings_mutex);
  return value_or_zero(sys_params, ACL_OPT_DETERMINISTIC) != 0;
}

Deterministic::Deterministic(bool of_call) { deterministic_call = of_call; }

Deterministic::~Deterministic() { deterministic_call.reset(); }

Cores cores_of_chip() noexcept { return {soc().cube_cores, soc().vector_cores}; }

Cores cores_of_thread() noexcept {
  CoreLimits limits;
  try {
    limits = limits_of_thread();
  } catch (const Failure&) {  // without a context there is no limit
  }
  return {limits.values[ACL_RT_DEV_RES_CUBE_CORE], limits.values[ACL_RT_DEV_RES_VECTOR_CORE]};
}

CoresOfThread::CoresOfThread(std::optional<Cores> cores) : before_(thread_cores) {
  if (cores) thread_cores = cores;
}

CoresOfThread::~CoresOfThread() { thread_cores = before_; }

}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return host_call(__func__, [&] {
    check_value(opt, value);
    std::lock_guard lock(settings_mutex);
    sys_params[opt] = value;
  });
}

aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  return host_call(__func__, [&] {
    check_option(opt);
    require_pointer(value, "value");
    std::lock_guard lock(settings_mutex);
    *value = value_or_zero(sys_params, opt);
  });
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return call(__func__, [&] {
    check_value(opt, value);
    std::shared_ptr<Context> context = current_context();
    std::lock_guard lock(context->mutex);
    context->sys_params[opt] = value;
  });
}

aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  return call(__func__, [&] {
    check_option(opt);
    require_pointer(value, "value");
    std::shared_ptr<Context> context = current_context();
    std::lock_guard lock(context->mutex);
    const auto found = context->sys_params.find(opt);
    if (found == context->sys_params.end()) {
      fail(ACL_ERROR_RT_SYSPARAMOPT_NOT_SET, "option %d was not set by aclrtCtxSetSysParamOpt", opt);
    }
    *value = found->second;
  });
}

aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
  return call(__func__, [&] {
    if (mode != ACL_RT_OVERFLOW_MODE_INFNAN) {
      fail(ACL_ERROR_FEATURE_UNSUPPORTED, "mode %d is not supported; the CPU computes with infinities and NaNs", mode);
    }
    overflow_mode = mode;
  });
}

aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode* mode) {
  return call(__func__, [&] {
    require_pointer(mode, "mode");
    *mode = overflow_mode;
  });
}

aclError aclrtSetOpExecuteTimeOut(uint32_t timeout) {
  kernel_timeout_us = uint64_t{timeout} * 1000 * 1000;
  return ACL_SUCCESS;
}

aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t* actualTimeout) {
  return host_call(__func__, [&] {
    require_pointer(actualTimeout, "actualTimeout");
    kernel_timeout_us = timeout;
    *actualTimeout = timeout == 0 ? UINT64_MAX : timeout;  // CANN's words for: without end
  });
}

aclError aclrtSetOpWaitTimeout(uint32_t timeout) {
  event_wait_timeout_s = timeout;
  return ACL_SUCCESS;
}

aclError aclGetCannAttributeList(const aclCannAttr** cannAttrList, size_t* num) {
  return host_call(__func__, [&] {
    require_pointer(cannAttrList, "cannAttrList");
    require_pointer(num, "num");
    static constexpr std::array kHas = {ACL_CANN_ATTR_INF_NAN, ACL_CANN_ATTR_BF16, ACL_CANN_ATTR_JIT_COMPILE};
    *cannAttrList = kHas.data();
    *num = kHas.size();
  });
}

aclError aclGetCannAttribute(aclCannAttr cannAttr, int32_t* value) {
  return host_call(__func__, [&] {
    require_pointer(value, "value");
    if (cannAttr < ACL_CANN_ATTR_INF_NAN || cannAttr > ACL_CANN_ATTR_JIT_COMPILE) {
      fail(ACL_ERROR_INVALID_PARAM, "attribute %d is unknown", cannAttr);
    }
    *value = 1;
  });
}

aclError aclrtSetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t value) {
  return call(__func__, [&] {
    check_cores(type, value);
    Device& device = find_device(deviceId);
    std::lock_guard lock(device.mutex);
    device.core_limits.at(type) = value;
  });
}

aclError aclrtGetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t* value) {
  return call(__func__, [&] {
    require_pointer(value, "value");
    Device& device = find_device(deviceId);
    std::lock_guard lock(device.mutex);
    *value = device.core_limits.at(type);
  });
}

aclError aclrtResetDeviceResLimit(int32_t deviceId) {
  return call(__func__, [&] {
    Device& device = find_device(deviceId);
    std::lock_guard lock(device.mutex);
    device.core_limits = {};
  });
}

aclError aclrtSetStreamResLimit(aclrtStream handle, aclrtDevResLimitType type, uint32_t value) {
  return call(__func__, [&] {
    check_cores(type, value);
    std::shared_ptr<Stream> stream = find_stream(handle);
    CoreLimits limits = limits_of(*stream);
    limits.at(type) = value;
    std::lock_guard lock(stream->settings_mutex);
    stream->core_limits = limits;
  });
}

aclError aclrtGetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t* value) {
  return call(__func__, [&] {
    require_pointer(value, "value");
    *value = limits_of(*find_stream(stream)).at(type);
  });
}

aclError aclrtResetStreamResLimit(aclrtStream handle) {
  return call(__func__, [&] {
    std::shared_ptr<Stream> stream = find_stream(handle);
    std::lock_guard lock(stream->settings_mutex);
    stream->core_limits.reset();
  });
}

aclError aclrtUseStreamResInCurrentThread(aclrtStream stream) {
  return call(__func__, [&] {
    const CoreLimits limits = limits_of(*find_stream(stream));
    thread_cores = {limits.values[ACL_RT_DEV_RES_CUBE_CORE], limits.values[ACL_RT_DEV_RES_VECTOR_CORE]};
  });
}

aclError aclrtUnuseStreamResInCurrentThread(aclrtStream stream) {
  return call(__func__, [&] {
    find_stream(stream);
    thread_cores.reset();
  });
}

aclError aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t* value) {
  return call(__func__, [&] {
    require_pointer(value, "value");
    *value = limits_of_thread().at(type);
  });
}
