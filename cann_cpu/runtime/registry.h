// SPDX-License-Identifier: Apache-2.0
// The live objects behind the handles of one kind: a handle is the object's address, and is looked up before it is
// used.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "call.h"

namespace cann_cpu {

template <class T>
class Registry {
 public:
  explicit Registry(const char* kind) : kind_(kind) {}
  // Of objects that a program is to give back: the check `fault` counts what is left. Such a registry stays.
  Registry(const char* kind, const char* living) : kind_(kind) {
    count_living(living, [this] { return size(); });
  }

  void* add(std::shared_ptr<T> object) {
    void* handle = object.get();
    std::unique_lock lock(mutex_);
    objects_[handle] = std::move(object);
    return handle;
  }

  std::shared_ptr<T> find(const void* handle) const {
    std::shared_lock lock(mutex_);
    auto found = objects_.find(handle);
    if (found == objects_.end()) fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is no living %s", handle, kind_);
    return found->second;
  }

  std::shared_ptr<T> remove(const void* handle) {
    std::unique_lock lock(mutex_);
    auto found = objects_.extract(handle);
    if (found.empty()) fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is no living %s", handle, kind_);
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
