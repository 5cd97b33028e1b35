// SPDX-License-Identifier: Apache-2.0
// Hands out executors at the end of phase one and enqueues them in phase two.
#include "executor.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "cann_cpu/acl_objects.h"
#include "cann_cpu/deterministic.h"
#include "cann_cpu/dtypes.h"
#include "cann_cpu/fault.h"
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

// The tensors that this thread's phase one has read, while they are wanted.
struct Read {
  TaskTensors operands;
  size_t last_address = 0;
};
thread_local Read this_read;

void read_operand(const aclTensor& tensor, const Extent& of) {
  const bool is_next = !this_read.operands.empty() && of.address > this_read.last_address;
  if (!is_next) this_read.operands.clear();  // what a phase one that failed has left
  this_read.operands.push_back({tensor.dtype, tensor.format, tensor.shape, of.is_write});
  this_read.last_address = of.address;
}

Accesses accesses_of(const Call& call, const std::vector<void*>& addresses) {
  Accesses accesses;
  for (const Extent& extent : call.operands.extents) {
    const auto base = reinterpret_cast<uintptr_t>(addresses[extent.address]);
    accesses.push_back({base + extent.begin, base + extent.end, extent.is_write, extent.argument});
  }
  if (accesses_are_checked() && addresses.size() > call.operands.addresses.size()) {
    const auto workspace = reinterpret_cast<uintptr_t>(addresses.back());
    accesses.push_back({workspace, workspace + call.workspace_size, true, 0});
  }
  return accesses;
}

// The name of a parameter whose tensor has elements and no address.
std::optional<std::string> without_data(const Call& call, const std::vector<void*>& addresses) {
  const Operands& operands = call.operands;
  for (size_t p = 0; p < operands.parameters.size(); ++p) {
    const TensorParameter& parameter = operands.parameters[p];
    for (size_t i = parameter.first; i < parameter.first + parameter.count; ++i) {
      if (addresses[i] == nullptr && !operands.is_empty[i]) return call.name_of(p);
    }
  }
  return std::nullopt;
}

enum class Of { All, Inputs, Outputs };

bool is_counted(const TensorParameter& parameter, Of of) {
  return of == Of::All || (of == Of::Inputs ? parameter.is_input : parameter.is_output);
}

// Gives the tensor another address, and the executor as well if it knows the tensor. False if it does not.
bool move_tensor(aclOpExecutor& executor, aclTensor& tensor, void* address) {
  tensor.data = address;
  bool is_known = false;
  const auto& given = executor.call->operands.given;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] != &tensor) continue;
    executor.addresses[i] = address;
    is_known = true;
  }
  return is_known;
}

aclnnStatus set_address(const char* function, Of of, aclOpExecutor* executor, size_t index, aclTensor* tensor,
                        void* address) {
  if (executor == nullptr || tensor == nullptr) {
    return error(ACLNN_ERR_INNER_NULLPTR, "%s: executor or tensor is null", function);
  }
  if (move_tensor(*executor, *tensor, address)) return ACLNN_SUCCESS;
  size_t before = 0;
  for (const TensorParameter& parameter : executor->call->operands.parameters) {
    if (!is_counted(parameter, of)) continue;
    const size_t tensors = parameter.is_list ? parameter.count : 1;
    if (index >= before + tensors) {
      before += tensors;
      continue;
    }
    if (parameter.count == 0) {
      return error(ACLNN_ERR_PARAM_INVALID,
                   "%s: tensor %zu is argument %u of %s, which has no device memory: phase one was given null, or an "
                   "array of the host",
                   function, index, parameter.argument, executor->call->name);
    }
    executor->addresses[parameter.first + index - before] = address;
    return ACLNN_SUCCESS;
  }
  return error(ACLNN_ERR_PARAM_INVALID, "%s: index is %zu; expected less than %zu, which is how many tensors %s has",
               function, index, before, executor->call->name);
}

aclnnStatus set_list_address(const char* function, Of of, aclOpExecutor* executor, size_t ir_index,
                             size_t relative_index, aclTensorList* list, void* address) {
  if (executor == nullptr || list == nullptr) {
    return error(ACLNN_ERR_INNER_NULLPTR, "%s: executor or tensors is null", function);
  }
  if (relative_index >= list->tensors.size()) {
    return error(ACLNN_ERR_PARAM_INVALID,
                 "%s: relativeIndex is %zu; expected less than %zu, which is how many tensors the list has", function,
                 relative_index, list->tensors.size());
  }
  if (move_tensor(*executor, *list->tensors[relative_index], address)) return ACLNN_SUCCESS;
  size_t before = 0;
  for (const TensorParameter& parameter : executor->call->operands.parameters) {
    if (!is_counted(parameter, of) || before++ != ir_index) continue;
    if (relative_index >= parameter.count) {
      return error(ACLNN_ERR_PARAM_INVALID, "%s: relativeIndex is %zu; argument %u of %s had %zu tensors in phase one",
                   function, relative_index, parameter.argument, executor->call->name, parameter.count);
    }
    executor->addresses[parameter.first + relative_index] = address;
    return ACLNN_SUCCESS;
  }
  return error(ACLNN_ERR_PARAM_INVALID, "%s: irIndex is %zu; expected less than %zu, which is how many of them %s has",
               function, ir_index, before, executor->call->name);
}

std::atomic<size_t>& live_executors() {
  static auto* const count = [] {
    auto* made = new std::atomic<size_t>(0);
    count_living("executors", [made] { return made->load(); });
    return made;
  }();
  return *count;
}

}  // namespace

LiveExecutor::LiveExecutor() { ++live_executors(); }
LiveExecutor::~LiveExecutor() { --live_executors(); }

void add_extents(const aclTensor& tensor, const Extent& of, std::vector<Extent>& extents) {
  if (operands_are_wanted()) read_operand(tensor, of);
  constexpr size_t kMaxRuns = 1024;
  const auto size = static_cast<int64_t>(dtype_size(tensor.dtype));
  const bool by_strides = tensor.format != ACL_FORMAT_FRACTAL_NZ;
  std::vector<std::pair<int64_t, int64_t>> dims;  // strides and sizes
  int64_t run = 1;
  if (by_strides) {
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      if (tensor.shape[d] == 0) return;
      if (tensor.shape[d] > 1 && tensor.strides[d] != 0) dims.emplace_back(tensor.strides[d], tensor.shape[d]);
    }
    std::ranges::sort(dims);
    auto dim = dims.begin();
    for (; dim != dims.end() && dim->first <= run; ++dim) run = std::max(run, dim->first * (dim->second - 1) + run);
    dims.erase(dims.begin(), dim);
  } else {
    for (const int64_t each : tensor.storage_shape) run *= each;
  }
  std::vector<int64_t> begins{by_strides ? tensor.offset : 0};
  for (const auto& [stride, count] : dims) {
    if (begins.size() * count > kMaxRuns) return;
    const size_t known = begins.size();
    for (int64_t i = 1; i < count; ++i) {
      for (size_t k = 0; k < known; ++k) begins.push_back(begins[k] + i * stride);
    }
  }
  for (const int64_t begin : begins) {
    Extent extent = of;
    extent.begin = begin * size;
    extent.end = (begin + run) * size;
    extents.push_back(extent);
  }
}

aclnnStatus finish_phase_one(std::shared_ptr<const Call> call, uint64_t* workspace_size, aclOpExecutor** executor) {
  if (const int code = fault_of((std::string(call->name) + "GetWorkspaceSize").c_str(), ACLNN_ERR_PARAM_INVALID)) {
    return code;
  }
  list_call(call->name);
  std::shared_ptr<const TaskTensors> operands;
  if (operands_are_wanted()) operands = std::make_shared<const TaskTensors>(std::exchange(this_read.operands, {}));
  store_in_executor_cache(call, operands);
  auto addresses = call->operands.addresses;
  *workspace_size = call->workspace_size;
  *executor = new aclOpExecutor{std::move(call), std::move(addresses), std::move(operands)};
  return ACLNN_SUCCESS;
}

aclnnStatus run_phase_two(aclOpExecutor* executor, aclrtStream stream, void* workspace) {
  if (executor == nullptr) {
    return error(ACLNN_ERR_PARAM_NULLPTR, "aclnn phase two: executor is null; has phase one failed?");
  }
  const char* name = executor->call->name;
  std::unique_ptr<aclOpExecutor> once(executor->repeatable ? nullptr : executor);
  if (const int code = fault_of(name, ACLNN_ERR_INNER)) return code;
  if (const auto parameter = without_data(*executor->call, executor->addresses)) {
    return error(ACLNN_ERR_PARAM_NULLPTR, "%s: %s has no device memory; aclSetTensorAddr gives it some", name,
                 parameter->c_str());
  }
  auto addresses = executor->addresses;
  if (workspace != nullptr) addresses.push_back(workspace);
  const Accesses accesses = accesses_of(*executor->call, addresses);
  return launch(
      stream, name,
      [call = executor->call, addresses = std::move(addresses), is_deterministic = is_deterministic()] {
        const Deterministic of_call(is_deterministic);
        return call->run(addresses);
      },
      accesses, executor->operands);
}

}  // namespace cann_cpu

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  if (executor == nullptr) {
    return cann_cpu::error(ACLNN_ERR_INNER_NULLPTR, "aclSetAclOpExecutorRepeatable: executor is null");
  }
  executor->repeatable = true;
  return ACLNN_SUCCESS;
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  if (executor == nullptr) {
    return cann_cpu::error(ACLNN_ERR_INNER_NULLPTR, "aclDestroyAclOpExecutor: executor is null");
  }
  delete executor;
  return ACLNN_SUCCESS;
}

#define SET_ADDRESS(name, of)                                                                      \
  aclnnStatus acl##name(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address) { \
    return cann_cpu::set_address(__func__, cann_cpu::Of::of, executor, index, tensor, address);    \
  }                                                                                                \
  aclnnStatus Acl##name(aclOpExecutor*, size_t, aclTensor*, void*) __attribute__((alias("acl" #name)))
#define SET_LIST_ADDRESS(name, of)                                                                               \
  aclnnStatus acl##name(aclOpExecutor* executor, size_t ir_index, size_t relative_index, aclTensorList* tensors, \
                        void* address) {                                                                         \
    return cann_cpu::set_list_address(__func__, cann_cpu::Of::of, executor, ir_index, relative_index, tensors,   \
                                      address);                                                                  \
  }                                                                                                              \
  aclnnStatus Acl##name(aclOpExecutor*, size_t, size_t, aclTensorList*, void*) __attribute__((alias("acl" #name)))

SET_ADDRESS(SetTensorAddr, All);
SET_ADDRESS(SetInputTensorAddr, Inputs);
SET_ADDRESS(SetOutputTensorAddr, Outputs);
SET_LIST_ADDRESS(SetDynamicTensorAddr, All);
SET_LIST_ADDRESS(SetDynamicInputTensorAddr, Inputs);
SET_LIST_ADDRESS(SetDynamicOutputTensorAddr, Outputs);

extern "C" {

// CANN's arena for host memory of executors; here an executor owns what it needs.
CANN_EXPORT int InitHugeMemThreadLocal(void*, bool) { return ACLNN_SUCCESS; }
CANN_EXPORT void UnInitHugeMemThreadLocal(void*, bool) {}
CANN_EXPORT void ReleaseHugeMem(void*, bool) {}
}
