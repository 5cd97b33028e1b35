// SPDX-License-Identifier: Apache-2.0
// The live objects of one kind by their handles. A handle is looked up before it is used, and is never issued twice.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "cann_cpu/call.h"

namespace cann_cpu {

// Not an address, so that a program that uses it as one fails there, and a multiple of 16, as pointers are.
inline void* new_handle() {
  static std::atomic<uint64_t> last{uint64_t{1} << 52};
  return reinterpret_cast<void*>(last += 16);
}

// What programs know by a handle.
struct HasHandle {
  void* const handle = new_handle();
};

// T is a HasHandle.
template <class T>
class Registry {
 public:
  explicit Registry(const char* kind) : kind_(kind) {}
  // For objects that the program must release: the check `fault` counts what is left. Such a registry is never
  // destroyed. `plural` names the objects in the check's report.
  Registry(const char* kind, const char* plural) : kind_(kind) {
    count_living(plural, [this] { return size(); });
  }

  void* add(std::shared_ptr<T> object) {
    void* const handle = object->handle;
    std::unique_lock lock(mutex_);
    objects_[handle] = std::move(object);
    return handle;
  }

  std::shared_ptr<T> find(const void* handle) const {
    std::shared_lock lock(mutex_);
    auto found = objects_.find(handle);
    if (found == objects_.end()) fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a valid %s", handle, kind_);
    return found->second;
  }

  std::shared_ptr<T> remove(const void* handle) {
    std::unique_lock lock(mutex_);
    auto found = objects_.extract(handle);
    if (found.empty()) fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a valid %s", handle, kind_);
    return found.mapped();
  }

  size_t size() const {
    std::shared_lock lock(mutex_);
    return objects_.size();
  }

  // Takes out what the predicate picks.
  template <class Predicate>
  std::vector<std::shared_ptr<T>> remove_if(Predicate&& pick) {
    std::vector<std::shared_ptr<T>> removed;
    std::unique_lock lock(mutex_);
    for (auto it = objects_.begin(); it != objects_.end();) {
      if (pick(*it->second)) {
        removed.push_back(std::move(it->second));
        it = objects_.erase(it);
      } else {
        ++it;
      }
    }
    return removed;
  }

  template <class Predicate>
  std::vector<std::shared_ptr<T>> find_if(Predicate&& pick) const {
    std::vector<std::shared_ptr<T>> picked;
    std::shared_lock lock(mutex_);
    for (const auto& [handle, object] : objects_) {
      if (pick(*object)) picked.push_back(object);
    }
    return picked;
  }

 private:
  const char* kind_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<const void*, std::shared_ptr<T>> objects_;
};

}  // namespace cann_cpu
