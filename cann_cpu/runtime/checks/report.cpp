// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>

#include "../call.h"
#include "../json_text.h"
#include "cann_cpu/accesses.h"

namespace cann_cpu {
namespace {

constexpr std::array<std::string_view, 2> kNames = {"race", "memory"};  // in the order of Check

std::set<std::string, std::less<>> given_names() {
  const char* variable = std::getenv("CANN_CPU_CHECK");
  std::istringstream list(variable == nullptr ? "" : variable);
  std::set<std::string, std::less<>> names;
  for (std::string name; std::getline(list, name, ',');) names.insert(name);
  return names;
}

}  // namespace

bool is_on(Check check) {
  static const auto on = [] {
    const auto given = given_names();
    std::array<bool, kNames.size()> each;
    std::ranges::transform(kNames, each.begin(), [&](std::string_view name) { return given.contains(name); });
    return each;
  }();
  return on[static_cast<size_t>(check)];
}

void require_known_checks() {
  for (const std::string& name : given_names()) {
    if (std::ranges::find(kNames, name) != kNames.end()) continue;
    std::string known;
    for (const std::string_view each : kNames) known += (known.empty() ? "" : ", ") + std::string(each);
    fail(ACL_ERROR_INVALID_PARAM, "CANN_CPU_CHECK has '%s', which is no check; there are: %s", name.c_str(),
         known.c_str());
  }
}

bool accesses_are_checked() { return is_on(Check::kRace) || is_on(Check::kMemory); }

void report(Check check, const std::string& key, const std::string& text,
            const std::map<std::string, std::string>& fields) {
  static auto* const mutex = new std::mutex;
  static auto* const told = new std::set<std::string>;
  const std::lock_guard lock(*mutex);
  if (!told->insert(key).second) return;
  const std::string name(kNames[static_cast<size_t>(check)]);
  std::fprintf(stderr, "cann_cpu %s: %s\n", name.c_str(), text.c_str());
  const char* file = std::getenv("CANN_CPU_CHECK_REPORT");
  if (file == nullptr) return;
  std::string line = "{\"check\": " + quote(name);
  for (const auto& [field, value] : fields) line += ", " + quote(field) + ": " + quote(value);
  line += "}\n";
  const int descriptor = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  const bool written =
      descriptor >= 0 && write(descriptor, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (!written) std::fprintf(stderr, "cann_cpu %s: cannot write to %s\n", name.c_str(), file);
  if (descriptor >= 0) close(descriptor);
}

}  // namespace cann_cpu
