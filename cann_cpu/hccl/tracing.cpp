// SPDX-License-Identifier: Apache-2.0
#include "tracing.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace cann_cpu {
namespace {

// The process and its ancestors but the first of all.
std::vector<int> line_of(int process) {
  std::vector<int> line;
  while (process > 1) {
    line.push_back(process);
    std::ifstream status("/proc/" + std::to_string(process) + "/status");
    process = 0;
    for (std::string word; status >> word;) {
      if (word == "PPid:") status >> process;
    }
  }
  return line;
}

// 0: there is none.
int nearest_common_ancestor(const std::multiset<int>& processes) {
  std::vector<int> common = line_of(*processes.begin());
  for (const int process : processes) {
    const std::vector<int> line = line_of(process);
    std::erase_if(common, [&](int one) { return std::find(line.begin(), line.end(), one) == line.end(); });
  }
  return common.empty() ? 0 : common.front();
}

class Permissions {
 public:
  void add(int process) {
    std::lock_guard lock(mutex_);
    readers_.insert(process);
    declare();
  }
  void remove(int process) {
    std::lock_guard lock(mutex_);
    readers_.erase(readers_.find(process));
    declare();
  }

 private:
  void declare() {
    int reader = readers_.empty() ? 0 : nearest_common_ancestor(readers_);
    if (reader == 0 && !readers_.empty()) reader = declared_;
    if (reader == std::exchange(declared_, reader)) return;
    prctl(PR_SET_PTRACER, reader, 0, 0, 0);  // an error where there is no Yama, which forbids nothing then
  }

  std::mutex mutex_;
  std::multiset<int> readers_;
  int declared_ = 0;
};

}  // namespace

std::shared_ptr<void> permit_reading_by(int process) {
  static auto* const permissions = new Permissions;
  if (process == getpid()) return nullptr;
  permissions->add(process);
  return {permissions, [process](void*) { permissions->remove(process); }};
}

}  // namespace cann_cpu
