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

#include "cann_cpu/call.h"

namespace cann_cpu {
namespace {

// In the order of Check.
constexpr std::array<std::string_view, 5> kCheckNames = {"cost", "fault", "memory", "race", "schedule"};

// The text after the first colon of each name.
std::multimap<std::string, std::string, std::less<>> given_names() {
  const char* variable = std::getenv("CANN_CPU_CHECK");
  std::istringstream list(variable == nullptr ? "" : variable);
  std::multimap<std::string, std::string, std::less<>> names;
  for (std::string name; std::getline(list, name, ',');) {
    const size_t colon = std::min(name.find(':'), name.size());
    names.emplace(name.substr(0, colon), name.substr(std::min(colon + 1, name.size())));
  }
  return names;
}

}  // namespace

bool is_on(Check check) {
  static const auto on = [] {
    const auto given = given_names();
    std::array<bool, kCheckNames.size()> each;
    std::ranges::transform(kCheckNames, each.begin(), [&](std::string_view name) { return given.contains(name); });
    return each;
  }();
  return on[static_cast<size_t>(check)];
}

std::vector<std::string> given_to(Check check) {
  const auto names = given_names();
  const auto [begin, end] = names.equal_range(kCheckNames[static_cast<size_t>(check)]);
  std::vector<std::string> given;
  for (auto name = begin; name != end; ++name) {
    if (!name->second.empty()) given.push_back(name->second);
  }
  return given;
}

void require_known_checks() {
  for (const auto& [name, rest] : given_names()) {
    if (std::ranges::find(kCheckNames, name) != kCheckNames.end()) {
      const bool is_memory = name == kCheckNames[static_cast<size_t>(Check::kMemory)];
      if (rest.empty() || name == kCheckNames[static_cast<size_t>(Check::kFault)] || (is_memory && rest == "pages"))
        continue;
      fail(ACL_ERROR_INVALID_PARAM, "CANN_CPU_CHECK has '%s:%s', and %s takes %s after a colon", name.c_str(),
           rest.c_str(), name.c_str(), is_memory ? "only 'pages'" : "nothing");
    }
    std::string known;
    for (const std::string_view each : kCheckNames) known += (known.empty() ? "" : ", ") + std::string(each);
    fail(ACL_ERROR_INVALID_PARAM, "CANN_CPU_CHECK has '%s', which is not a check; the checks are: %s", name.c_str(),
         known.c_str());
  }
}

void report(Check check, const std::string& key, const std::string& text,
            const std::map<std::string, std::string>& fields) {
  static auto* const mutex = new std::mutex;
  static auto* const reported = new std::set<std::string>;
  const std::lock_guard lock(*mutex);
  if (!reported->insert(key).second) return;
  const std::string name(kCheckNames[static_cast<size_t>(check)]);
  std::fprintf(stderr, "cann_cpu %s: %s\n", name.c_str(), text.c_str());
  Json::Object line{{"check", name}};
  for (const auto& [field, value] : fields) line.emplace_back(field, value);
  report_line(line);
}

void report_line(const Json& json) {
  const char* file = std::getenv("CANN_CPU_CHECK_REPORT");
  if (file == nullptr) return;
  const std::string line = to_text(json) + "\n";
  const int descriptor = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  const bool written =
      descriptor >= 0 && ::write(descriptor, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (!written) std::fprintf(stderr, "cann_cpu: cannot write to %s, which CANN_CPU_CHECK_REPORT names\n", file);
  if (descriptor >= 0) close(descriptor);
}

}  // namespace cann_cpu
