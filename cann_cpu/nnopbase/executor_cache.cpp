// SPDX-License-Identifier: Apache-2.0
// The executor cache as torch_npu drives it: it writes all that determines a call but the addresses into a key, lists
// the tensors' addresses, and asks for an executor; where there is none, phase one that follows stores its call.
#include "executor_cache.h"

#include <cstdint>
#include <cstring>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "aclnn/aclnn_base.h"
#include "cann_cpu/core_limits.h"
#include "cann_cpu/runtime.h"
#include "executor.h"

namespace cann_cpu {
namespace {

constexpr size_t kCapacity = 10000;

struct Stored {
  std::shared_ptr<const Call> call;
  std::shared_ptr<const TaskTensors> operands;
};

// The least recently used calls leave when it is full.
class ExecutorCache {
 public:
  Stored find(const std::string& key) {
    std::lock_guard lock(mutex_);
    auto found = index_.find(key);
    if (found == index_.end()) return {};
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->second;
  }

  void store(const std::string& key, Stored call) {
    std::lock_guard lock(mutex_);
    if (auto found = index_.find(key); found != index_.end()) {
      found->second->second = std::move(call);
      return;
    }
    entries_.emplace_front(key, std::move(call));
    index_.emplace(key, entries_.begin());
    if (entries_.size() > kCapacity) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
  }

  void clear() {
    std::lock_guard lock(mutex_);
    index_.clear();
    entries_.clear();
  }

 private:
  using Entries = std::list<std::pair<std::string, Stored>>;
  std::mutex mutex_;
  Entries entries_;
  std::unordered_map<std::string, Entries::iterator> index_;
};

ExecutorCache& cache() {
  static auto* instance = new ExecutorCache;  // never destroyed: queue threads may still use it at exit
  return *instance;
}

thread_local std::string this_key;  // empty: this call is not cached
thread_local std::vector<void*> this_addresses;

aclOpExecutor* find_executor(const std::string& key, uint64_t* workspace_size) {
  if (key.empty() || workspace_size == nullptr) return nullptr;
  auto [call, operands] = cache().find(key);
  if (call == nullptr || call->operands.addresses.size() != this_addresses.size()) return nullptr;
  if (operands == nullptr && operands_are_wanted()) return nullptr;  // phase one finds out
  *workspace_size = call->workspace_size;
  return new aclOpExecutor{std::move(call), std::move(this_addresses), std::move(operands)};
}

// A tiling also depends on how many cores the thread may use.
std::string with_cores(std::string key) {
  const Cores cores = cores_of_thread();
  return key.append(reinterpret_cast<const char*>(&cores), sizeof(cores));
}

std::string key_of_hash(uint64_t hash) {
  return hash == 0 ? std::string() : with_cores({reinterpret_cast<const char*>(&hash), sizeof(hash)});
}

std::string key_of_bytes(const uint8_t* bytes, size_t length) {
  if (bytes == nullptr) return {};
  return with_cores("key:" + std::string(reinterpret_cast<const char*>(bytes), length));
}

void forget_this_call() {
  this_key.clear();
  this_addresses.clear();
}

}  // namespace

void store_in_executor_cache(const std::shared_ptr<const Call>& call, std::shared_ptr<const TaskTensors> operands) {
  if (this_key.empty() || call->operands.addresses.size() != this_addresses.size()) return;
  cache().store(this_key, {call, std::move(operands)});
  forget_this_call();
}

}  // namespace cann_cpu

aclnnStatus aclnnInit(const char* config_path) {
  return cann_cpu::check_configuration("aclnnInit", config_path) == ACL_SUCCESS ? ACLNN_SUCCESS
                                                                                : ACLNN_ERR_PARAM_INVALID;
}

aclnnStatus aclnnFinalize() {
  cann_cpu::cache().clear();
  return ACLNN_SUCCESS;
}

extern "C" {

CANN_EXPORT bool CanUsePTACache(const char*) { return true; }
CANN_EXPORT void InitPTACacheThreadLocal() { cann_cpu::forget_this_call(); }
CANN_EXPORT void UnInitPTACacheThreadLocal() { cann_cpu::forget_this_call(); }
CANN_EXPORT void AddTensorAddrToCachedList(void* address) { cann_cpu::this_addresses.push_back(address); }

CANN_EXPORT void SetPTAHashKey(uint64_t hash) { cann_cpu::this_key = cann_cpu::key_of_hash(hash); }
CANN_EXPORT aclOpExecutor* PTAGetExecCache(uint64_t hash, uint64_t* workspace_size) {
  return cann_cpu::find_executor(cann_cpu::key_of_hash(hash), workspace_size);
}

CANN_EXPORT void SetPTACacheHashKey(uint8_t* key, size_t length) {
  cann_cpu::this_key = cann_cpu::key_of_bytes(key, length);
}
CANN_EXPORT aclOpExecutor* PTAFindExecCache(uint8_t* key, size_t length, uint64_t* workspace_size) {
  return cann_cpu::find_executor(cann_cpu::key_of_bytes(key, length), workspace_size);
}
}
