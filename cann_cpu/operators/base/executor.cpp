// SPDX-License-Identifier: Apache-2.0
// Hands out executors at the end of phase one and enqueues them in phase two.
#include "executor.h"

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "cann_cpu/runtime.h"
#include "executor_cache.h"

namespace cann_cpu {
namespace {

// Appends to the file that CANN_CPU_CALLS names, at a function's first call. A line goes into the file as a whole, so
// that processes can share it.
void list_call(const char* name) {
  static const char* const file = std::getenv("CANN_CPU_CALLS");
  if (file == nullptr) return;
  static std::mutex mutex;
  static auto* const listed = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (listed->insert(name).second) std::ofstream(file, std::ios::app) << std::string(name) + "\n";
}

}  // namespace

aclnnStatus finish_phase_one(std::shared_ptr<const Call> call, uint64_t* workspace_size, aclOpExecutor** executor) {
  list_call(call->name);
  store_in_executor_cache(call);
  auto addresses = call->addresses;
  *workspace_size = call->workspace_size;
  *executor = new aclOpExecutor{std::move(call), std::move(addresses)};
  return ACLNN_SUCCESS;
}

aclnnStatus run_phase_two(aclOpExecutor* executor, aclrtStream stream, void* workspace) {
  if (executor == nullptr) {
    return error(ACLNN_ERR_PARAM_NULLPTR, "aclnn phase two: executor is null; has phase one failed?");
  }
  const char* name = executor->call->name;
  std::unique_ptr<aclOpExecutor> once(executor->repeatable ? nullptr : executor);
  auto addresses = executor->addresses;
  if (workspace != nullptr) addresses.push_back(workspace);
  return launch(stream, name,
                [call = executor->call, addresses = std::move(addresses)] { return call->run(addresses); });
}

}  // namespace cann_cpu

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  if (executor == nullptr) {
    return cann_cpu::error(ACLNN_ERR_PARAM_NULLPTR, "aclSetAclOpExecutorRepeatable: executor is null");
  }
  executor->repeatable = true;
  return ACLNN_SUCCESS;
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  delete executor;
  return ACLNN_SUCCESS;
}

extern "C" {

// CANN's arena for host memory of executors; here an executor owns what it needs.
CANN_EXPORT int InitHugeMemThreadLocal(void*, bool) { return ACLNN_SUCCESS; }
CANN_EXPORT void UnInitHugeMemThreadLocal(void*, bool) {}
CANN_EXPORT void ReleaseHugeMem(void*, bool) {}
}
