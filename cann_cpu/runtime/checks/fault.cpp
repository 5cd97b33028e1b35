// SPDX-License-Identifier: Apache-2.0
#include "cann_cpu/fault.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "call_site.h"
#include "cann_cpu/call.h"
#include "observers.h"
#include "report.h"

namespace cann_cpu {
namespace {

struct Fault {
  std::string function;
  std::string place;  // "train.py:12", the end of a path; empty: any
  uint64_t number;    // of the call that fails, from 1
  int code;           // 0: the function's own
  uint64_t calls = 0;
};

Fault parse(const std::string& text) {
  static const std::regex form(R"(([A-Za-z_]\w*)(?:@(.+?:\d+))?(?::(\d{1,9})(?::(\d{1,9}))?)?)");
  std::smatch match;
  if (!std::regex_match(text, match, form)) {
    fail(ACL_ERROR_INVALID_PARAM, "CANN_CPU_CHECK has 'fault:%s'; fault:FUNCTION[@FILE:LINE][:n[:code]]", text.c_str());
  }
  const uint64_t number = match[3].matched ? std::stoull(match[3]) : 1;
  if (number == 0) fail(ACL_ERROR_INVALID_PARAM, "CANN_CPU_CHECK has 'fault:%s'; calls count from 1", text.c_str());
  return {match[1], match[2], number, match[4].matched ? std::stoi(match[4]) : 0};
}

struct State {
  std::mutex mutex;
  std::vector<Fault> faults;
  std::set<std::pair<std::string, std::string>> calls;  // functions and places
  std::map<std::string, std::function<size_t()>> live;
};

State& state() {
  static auto* const only = [] {
    auto* made = new State;
    for (const std::string& text : given_to(Check::kFault)) {
      try {
        made->faults.push_back(parse(text));
      } catch (const Failure&) {  // on_start() reports it
      }
    }
    return made;
  }();
  return *only;
}

void log(const std::vector<std::string>& fields) {
  static const char* const name = std::getenv("CANN_CPU_FAULT_LOG");
  if (name == nullptr) return;
  static const int file = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  std::string line;
  for (const std::string& field : fields) line += (line.empty() ? "" : "\t") + field;
  line += "\n";
  if (::write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    std::fprintf(stderr, "cann_cpu fault: cannot write to %s\n", name);
  }
}

bool is_at(const std::string& place, const std::string& asked) {
  if (asked.empty()) return true;
  const std::string line = place.substr(0, place.rfind(" in "));
  if (!line.ends_with(asked)) return false;
  return line.size() == asked.size() || line[line.size() - asked.size() - 1] == '/';
}

// Reports once which objects are still alive.
void report_left() {
  static std::once_flag once;
  std::call_once(once, [] {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    for (const auto& [kind, count] : all.live) log({"left", kind, std::to_string(count())});
    for (const Fault& each : all.faults) log({"calls", each.function, std::to_string(each.calls)});
  });
}

struct FaultObserver final : Observer {
  void on_start() override {
    for (const std::string& text : given_to(Check::kFault)) parse(text);
    static std::once_flag once;
    std::call_once(once, [] { std::atexit(report_left); });
  }
  void on_end() override { report_left(); }
} fault_observer;

}  // namespace

Observer& faults = fault_observer;

int fault_of(const char* function, int code) {
  if (!is_on(Check::kFault)) return 0;
  State& all = state();
  const auto is_meant = [&](const Fault& fault) { return fault.function == function; };
  if (!all.faults.empty() && std::ranges::none_of(all.faults, is_meant)) return 0;
  const std::string place = python_call_site_nonblocking();
  const std::lock_guard lock(all.mutex);
  if (all.faults.empty() && all.calls.emplace(function, place).second) log({"call", function, place});
  for (Fault& fault : all.faults) {
    if (!is_meant(fault) || !is_at(place, fault.place) || ++fault.calls != fault.number) continue;
    if (fault.code != 0) code = fault.code;
    log({"failed", function, place, std::to_string(code)});
    return error(code, "%s: fails because CANN_CPU_CHECK asks for it (fault:%s)", function, function);
  }
  return 0;
}

void count_living(const char* kind, std::function<size_t()> count) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  all.live[kind] = std::move(count);
}

}  // namespace cann_cpu
