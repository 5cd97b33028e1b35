// SPDX-License-Identifier: Apache-2.0
// Settings: system parameters, attributes of this CANN, limits on cores. They are kept and given back.
#include <array>

#include "stream.h"

namespace cann_cpu {
namespace {

std::mutex settings_mutex;
std::map<aclSysParamOpt, int64_t> sys_params;
std::atomic<aclrtFloatOverflowMode> overflow_mode{ACL_RT_OVERFLOW_MODE_INFNAN};
std::atomic<uint64_t> op_execute_timeout_us{0};
std::atomic<uint32_t> op_wait_timeout_s{0};

thread_local std::optional<CoreLimits> thread_core_limits;

void check_option(aclSysParamOpt option) {
  if (option < ACL_OPT_DETERMINISTIC || option > ACL_OPT_STRONG_CONSISTENCY) {
    fail(ACL_ERROR_INVALID_PARAM, "option %d is unknown", option);
  }
}

int64_t value_or_zero(const std::map<aclSysParamOpt, int64_t>& params, aclSysParamOpt option) {
  auto found = params.find(option);
  return found == params.end() ? 0 : found->second;
}

void check_cores(aclrtDevResLimitType type, uint32_t value) {
  uint32_t max = CoreLimits().at(type);
  if (value == 0 || value > max) fail(ACL_ERROR_INVALID_PARAM, "value is %u; 1 to %u cores", value, max);
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

}  // namespace
}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return host_call(__func__, [&] {
    check_option(opt);
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
    check_option(opt);
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
    *value = value_or_zero(context->sys_params, opt);
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
  op_execute_timeout_us = uint64_t{timeout} * 1000 * 1000;
  return ACL_SUCCESS;
}

aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t* actualTimeout) {
  return host_call(__func__, [&] {
    require_pointer(actualTimeout, "actualTimeout");
    op_execute_timeout_us = timeout;
    *actualTimeout = timeout;
  });
}

aclError aclrtSetOpWaitTimeout(uint32_t timeout) {
  op_wait_timeout_s = timeout;
  return ACL_SUCCESS;
}

aclError aclGetCannAttributeList(const aclCannAttr** cannAttrList, size_t* num) {
  return host_call(__func__, [&] {
    require_pointer(cannAttrList, "cannAttrList");
    require_pointer(num, "num");
    static constexpr std::array kHas = {ACL_CANN_ATTR_INF_NAN, ACL_CANN_ATTR_BF16};
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
    *value = cannAttr != ACL_CANN_ATTR_JIT_COMPILE;
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
  return call(__func__, [&] { thread_core_limits = limits_of(*find_stream(stream)); });
}

aclError aclrtUnuseStreamResInCurrentThread(aclrtStream stream) {
  return call(__func__, [&] {
    find_stream(stream);
    thread_core_limits.reset();
  });
}

aclError aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t* value) {
  return call(__func__, [&] {
    require_pointer(value, "value");
    if (thread_core_limits) {
      *value = thread_core_limits->at(type);
      return;
    }
    Device& device = find_device(current_context()->device);
    std::lock_guard lock(device.mutex);
    *value = device.core_limits.at(type);
  });
}
