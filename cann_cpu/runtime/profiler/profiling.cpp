// SPDX-License-Identifier: Apache-2.0
// The profiler's public functions, as torch_npu.profiler calls them, and the hooks for libraries that report
// themselves.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <string_view>

#include "acl/acl_prof.h"
#include "recorder.h"
#include "runtime/device.h"
#include "runtime/device_call.h"

struct aclprofConfig {
  cann_cpu::profiler::Selection selection;
  uint64_t data_types;
};

namespace cann_cpu::profiler {
namespace {

constexpr uint64_t kAicoreShape = 0x800000000;  // ACL_PROF_AICORE_SHAPE, which torch_npu's header does not have yet

struct DataType {
  uint64_t bit;
  const char* name;
  const char* why_not;  // null: it is there
};

constexpr DataType kDataTypes[] = {
    {ACL_PROF_ACL_API, "ACL_PROF_ACL_API", nullptr},
    {ACL_PROF_TASK_TIME, "ACL_PROF_TASK_TIME", nullptr},
    {ACL_PROF_AICORE_METRICS, "ACL_PROF_AICORE_METRICS", nullptr},  // by the metrics
    {ACL_PROF_AICPU, "ACL_PROF_AICPU", nullptr},                    // as all of a stream's tasks
    {ACL_PROF_L2CACHE, "ACL_PROF_L2CACHE (l2_cache)", "a CPU has no L2 cache of an NPU"},
    {ACL_PROF_HCCL_TRACE, "ACL_PROF_HCCL_TRACE", nullptr},  // as all of a stream's tasks
    {ACL_PROF_TRAINING_TRACE, "ACL_PROF_TRAINING_TRACE", "iterations of models are not traced"},
    {ACL_PROF_MSPROFTX, "ACL_PROF_MSPROFTX (mstx, msprof_tx)", "marks are not recorded"},
    {ACL_PROF_RUNTIME_API, "ACL_PROF_RUNTIME_API", nullptr},  // the calls of acl are the runtime's
    {ACL_PROF_TASK_TIME_L0, "ACL_PROF_TASK_TIME_L0", nullptr},
    {ACL_PROF_TASK_MEMORY, "ACL_PROF_TASK_MEMORY", nullptr},  // torch_npu records its own; graphs have none beside it
    {ACL_PROF_OP_ATTR, "ACL_PROF_OP_ATTR (op_attr)", "attributes of operators are not recorded"},
    {0x200, "ACL_PROF_GE_API_L0", "calls of the Graph Engine are not recorded"},
    {0x1000000, "ACL_PROF_GE_API_L1", "calls of the Graph Engine are not recorded"},
    {0x2000, "ACL_PROF_TASK_TIME_L2", "tasks have their times and no more; ask for ACL_PROF_TASK_TIME"},
    {0x8000, "ACL_PROF_TASK_TIME_L3", "tasks have their times and no more; ask for ACL_PROF_TASK_TIME"},
    {0x400000000, "ACL_PROF_API_STATS", "statistics of calls are not recorded"},
    {kAicoreShape, "ACL_PROF_AICORE_SHAPE", nullptr},
};

struct Session {
  std::mutex mutex;
  bool is_initialized = false;
  std::filesystem::path folder;  // PROF_*, made at the first start
  std::filesystem::path parent;
};

Session& session() {
  static auto* const only = new Session;
  return *only;
}

// torch_npu only logs such failures, and would continue without the devices' part of the profile. So they are printed
// as well.
template <class Body>
aclError printed_call(const char* function, Body&& body) {
  const aclError code = host_call(function, body);
  if (code != ACL_SUCCESS) {
    const std::string message = take_message();
    std::fprintf(stderr, "cann_cpu profiler: %s\n", message.c_str());
    return error(code, "%s", message.c_str());
  }
  return code;
}

void check_data_types(uint64_t given) {
  for (const DataType& each : kDataTypes) {
    if ((given & each.bit) != 0 && each.why_not != nullptr) {
      fail(ACL_ERROR_INVALID_PROFILING_CONFIG, "%s is not implemented: %s; leave it out", each.name, each.why_not);
    }
    given &= ~each.bit;
  }
  if (given != 0) fail(ACL_ERROR_INVALID_PROFILING_CONFIG, "dataTypeConfig has bits %#lx, which are unknown", given);
}

// "PROF_000001_20260101120000123_ABCDEFGHIJKLMNOP", which torch_npu looks for.
std::string folder_name() {
  using namespace std::chrono;
  const auto now = system_clock::now();
  const std::time_t seconds = system_clock::to_time_t(now);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char time[32];
  std::strftime(time, sizeof(time), "%Y%m%d%H%M%S", &parts);
  char name[64];
  std::snprintf(name, sizeof(name), "PROF_000001_%s%03d_", time,
                static_cast<int>(duration_cast<milliseconds>(now.time_since_epoch()).count() % 1000));
  std::random_device random;
  std::string letters;
  for (int i = 0; i < 16; ++i) letters += static_cast<char>('A' + random() % 26);
  return name + letters;
}

// What torch_npu reads of each feature: objects with a virtual destructor, which it does not call.
struct FeatureInfo {
  const void* unused = nullptr;
  char compatibility[16] = "1";
  char version[16] = "1";
  char component[16] = "all";
  char component_version[16] = "all";
  char log[128] = "supported";
};
struct Feature {
  const void* unused = nullptr;
  char name[64] = "AICORE_SHAPE";
  FeatureInfo info;
};

aclError features(size_t* size, void** data) {
  return host_call("aclprofGetSupportedFeaturesV2", [&] {
    require_pointer(size, "featuresSize");
    require_pointer(data, "featuresDataPtr");
    static Feature all[1];
    *size = std::size(all);
    *data = all;
  });
}

}  // namespace
}  // namespace cann_cpu::profiler

using namespace cann_cpu;
using namespace cann_cpu::profiler;

aclError aclprofInit(const char* profilerResultPath, size_t length) {
  return printed_call(__func__, [&] {
    require_pointer(profilerResultPath, "profilerResultPath");
    Session& all = session();
    const std::lock_guard lock(all.mutex);
    if (all.is_initialized) fail(ACL_ERROR_REPEAT_INITIALIZE, "the profiler is initialized already");
    all.parent = std::string(profilerResultPath, strnlen(profilerResultPath, length));
    std::error_code failure;
    std::filesystem::create_directories(all.parent, failure);
    if (failure) {
      fail(ACL_ERROR_INVALID_FILE, "cannot make the folder %s: %s", all.parent.c_str(), failure.message().c_str());
    }
    all.folder.clear();
    all.is_initialized = true;
  });
}

aclError aclprofFinalize() {
  return printed_call(__func__, [&] {
    Session& all = session();
    const std::lock_guard lock(all.mutex);
    if (!all.is_initialized) fail(ACL_ERROR_UNINITIALIZE, "the profiler is not initialized");
    if (is_profiling()) fail(ACL_ERROR_PROFILING_FAILURE, "the profiler still runs; aclprofStop comes first");
    all.is_initialized = false;
  });
}

aclprofConfig* aclprofCreateConfig(uint32_t* deviceIdList, uint32_t deviceNums, aclprofAicoreMetrics aicoreMetrics,
                                   const aclprofAicoreEvents* aicoreEvents, uint64_t dataTypeConfig) {
  auto config = std::make_unique<aclprofConfig>();
  const aclError code = printed_call(__func__, [&] {
    require_pointer(deviceIdList, "deviceIdList");
    check_data_types(dataTypeConfig);
    if (aicoreEvents != nullptr) fail(ACL_ERROR_INVALID_PROFILING_CONFIG, "aicoreEvents are not implemented; null");
    // torch_npu requests PIPE_UTILIZATION by default at Level1.
    if (aicoreMetrics != ACL_AICORE_NONE && aicoreMetrics != ACL_AICORE_PIPE_UTILIZATION) {
      fail(ACL_ERROR_INVALID_PROFILING_CONFIG,
           "aicoreMetrics %d (aic_metrics) are not implemented: a CPU has no counters of an AI core; AiCoreNone",
           aicoreMetrics);
    }
    for (uint32_t i = 0; i < deviceNums; ++i) {
      config->selection.devices.insert(find_device(static_cast<int32_t>(deviceIdList[i])).id);
    }
    config->selection.calls = (dataTypeConfig & (ACL_PROF_ACL_API | ACL_PROF_RUNTIME_API)) != 0;
    config->selection.operands = (dataTypeConfig & (ACL_PROF_TASK_TIME | kAicoreShape)) != 0;
    config->data_types = dataTypeConfig;
  });
  return code == ACL_SUCCESS ? config.release() : nullptr;
}

aclError aclprofDestroyConfig(const aclprofConfig* profilerConfig) {
  return host_call(__func__, [&] {
    require_pointer(profilerConfig, "profilerConfig");
    delete profilerConfig;
  });
}

aclError aclprofSetConfig(aclprofConfigType configType, const char*, size_t) {
  // torch_npu asks for it with profile_memory, and takes this answer: its own records of memory are all there are.
  if (configType == ACL_PROF_SYS_HARDWARE_MEM_FREQ) return ACL_ERROR_PROF_MODULES_UNSUPPORTED;
  return printed_call(__func__, [&] {
    fail(ACL_ERROR_PROF_MODULES_UNSUPPORTED,
         "option %d is not implemented: nothing is sampled of the host (host_sys), of its network (sys_io) nor of the "
         "links between devices (sys_interconnection)",
         configType);
  });
}

aclError aclprofStart(const aclprofConfig* profilerConfig) {
  return printed_call(__func__, [&] {
    require_pointer(profilerConfig, "profilerConfig");
    Session& all = session();
    const std::lock_guard lock(all.mutex);
    if (!all.is_initialized) fail(ACL_ERROR_UNINITIALIZE, "the profiler is not initialized");
    if (!start(profilerConfig->selection)) fail(ACL_ERROR_PROF_ALREADY_RUN, "the profiler runs already");
    if (all.folder.empty()) all.folder = all.parent / folder_name();
  });
}

aclError aclprofStop(const aclprofConfig* profilerConfig) {
  return printed_call(__func__, [&] {
    require_pointer(profilerConfig, "profilerConfig");
    Session& all = session();
    const std::lock_guard lock(all.mutex);
    if (!stop(all.folder, profilerConfig->data_types)) fail(ACL_ERROR_PROF_NOT_RUN, "the profiler does not run");
  });
}

// CANN's headers of these are not public, or newer than torch_npu's copy.
extern "C" {

CANN_EXPORT aclError aclprofWarmup(const aclprofConfig* profilerConfig) {
  return printed_call(__func__, [&] { require_pointer(profilerConfig, "profilerConfig"); });  // a start takes no time
}

CANN_EXPORT aclError aclprofGetSupportedFeatures(size_t* size, void** data) { return features(size, data); }
CANN_EXPORT aclError aclprofGetSupportedFeaturesV2(size_t* size, void** data) { return features(size, data); }

// torch_npu calls it for devices that are first used after the start. Only the devices of the config are recorded.
CANN_EXPORT aclError aclprofRegisterDeviceCallback() { return ACL_ERROR_PROF_MODULES_UNSUPPORTED; }

// The driver's version: too old for torch_npu to take the processor's counter of cycles for its clock.
CANN_EXPORT int32_t halGetAPIVersion(int32_t* version) {
  if (version == nullptr) return -1;
  *version = 0;
  return 0;
}

// What torch_npu asks for with record_op_args, and torchair before it compiles static kernels, which are hardware's.
CANN_EXPORT aclError aclopStartDumpArgs(uint32_t, const char*) {
  return printed_call(__func__, [] {
    fail(ACL_ERROR_FEATURE_UNSUPPORTED,
         "record_op_args and static kernels (_aclnn_static_shape_kernel) are not implemented: arguments of operators "
         "are not dumped, and there is no op_compiler");
  });
}

// Libraries that launch past CANN report their own kernels by these. Here every launch passes the runtime, which
// records it: callbacks are taken and never called, reports are dropped.
using ProfCommandHandle = int32_t (*)(uint32_t type, void* data, uint32_t length);

CANN_EXPORT int32_t MsprofRegisterCallback(uint32_t, ProfCommandHandle handle) { return handle == nullptr ? -1 : 0; }

CANN_EXPORT int32_t MsprofReportApi(uint32_t, const void*) { return 0; }

CANN_EXPORT int32_t MsprofReportCompactInfo(uint32_t, const void*, uint32_t) { return 0; }

CANN_EXPORT int32_t MsprofReportAdditionalInfo(uint32_t, const void*, uint32_t) { return 0; }

CANN_EXPORT uint64_t MsprofGetHashId(const char* text, size_t length) {
  return text == nullptr ? 0 : std::hash<std::string_view>{}({text, length});
}

CANN_EXPORT uint64_t MsprofStr2Id(const char* text, size_t length) { return MsprofGetHashId(text, length); }

CANN_EXPORT uint64_t MsprofSysCycleTime() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // extern "C"
