// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <span>
#include <tuple>
#include <vector>

#include "call_site.h"
#include "observers.h"
#include "report.h"

namespace cann_cpu::cost {
namespace {

constexpr size_t kOften = 8;    // in steady state: something a line does again and again
constexpr size_t kSeries = 16;  // launches of one function in a row, for tensors that could be a list
constexpr size_t kRows = 30;    // of the table; the report has all

enum Counted { kToDevice, kPageableToDevice, kToHost, kPageableToHost, kWaits, kAllocations, kFrees, kCounted };
constexpr std::array<const char*, kCounted> kCountedNames = {
    "to_device", "pageable_to_device", "to_host", "pageable_to_host", "waits", "allocations", "frees"};

struct Count {
  uint64_t times = 0;
  uint64_t bytes = 0;
  std::vector<uint64_t> tasks;  // that had been launched before, each time

  // The count in the steady state of a program of `all` tasks: in its second half, up to its last task.
  uint64_t steady(uint64_t all) const {
    return std::ranges::lower_bound(tasks, all) - std::ranges::lower_bound(tasks, (all + 1) / 2);
  }
};

// What one line asked for.
struct Line {
  uint64_t launches = 0;
  Count series;  // that were long, of one in-place function
  std::string in_series;
  std::array<Count, kCounted> counts;
  std::chrono::nanoseconds waited{0};
};

// Launches of one function, one after the other at one line.
struct Series {
  Line* line = nullptr;
  std::map<std::string, uint64_t, std::less<>> launches;
};

struct State {
  std::mutex mutex;
  uint64_t tasks = 0;
  std::map<const std::string*, Line> lines;  // by place
  Series series;
};

void report_costs();

State& state() {
  static auto* const only = [] {
    static const pid_t owner = getpid();
    std::atexit([] {
      if (getpid() == owner) report_costs();
    });
    return new State;
  }();
  return *only;
}

void end_series(State& all, Line* next) {
  for (const auto& [name, launches] : all.series.launches) {
    if (launches < kSeries) continue;
    all.series.line->series.tasks.push_back(all.tasks - 1);
    all.series.line->in_series = name;
  }
  all.series = {next, {}};
}

void count(Counted what, size_t bytes, const std::string& place) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  Count& counted = all.lines[&place].counts[what];
  ++counted.times;
  counted.bytes += bytes;
  counted.tasks.push_back(all.tasks);
}

// What to do about what a line does again and again in steady state; empty where it does nothing of the kind.
std::string habit(const Line& line, uint64_t all) {
  const auto times = [&](Counted what) { return line.counts[what].steady(all); };
  const auto often = [&](Counted what) { return times(what) >= kOften; };
  const auto say = [&](uint64_t times, const char* what) { return std::to_string(times) + what; };
  if (often(kFrees)) return say(times(kFrees), " times memory given back to the driver: leave out empty_cache()");
  if (often(kAllocations)) {
    return say(times(kAllocations),
               " allocations by the driver: allocate the largest size once, or set "
               "PYTORCH_NPU_ALLOC_CONF=expandable_segments:True");
  }
  if (often(kPageableToHost)) {
    return say(times(kPageableToHost),
               " copies to the host, each waited for: keep the values on the device, or copy them together, "
               "into pinned memory with non_blocking=True");
  }
  if (often(kPageableToDevice)) {
    return say(times(kPageableToDevice),
               " copies from pageable memory, each waited for: make the tensor on the device or ahead of the loop, or "
               "pin_memory() and non_blocking=True");
  }
  if (often(kWaits)) {
    return say(times(kWaits),
               " times the host waits: let streams wait for events (stream.wait_event), and synchronise once at the "
               "end; sizes that depend on values (nonzero, masks) also make the host wait (torch.where does not)");
  }
  if (line.series.steady(all) >= kOften) {
    return std::to_string(line.series.steady(all)) + " series of " + std::to_string(kSeries) + " or more " +
           line.in_series + ": torch._foreach_*, foreach=True or fused=True launch a list of tensors at once";
  }
  return "";
}

Json json(const std::string& place, const Line& line, uint64_t all) {
  Json::Object described{{"check", "cost"}, {"pid", getpid()}, {"where", place}, {"launches", line.launches}};
  for (size_t i = 0; i < kCounted; ++i) {
    const Count& count = line.counts[i];
    described.emplace_back(
        kCountedNames[i],
        Json::Object{{"times", count.times}, {"bytes", count.bytes}, {"in_steady_state", count.steady(all)}});
  }
  described.emplace_back("waited_ms", Json::rounded(static_cast<double>(line.waited.count()) * 1e-6, 3));
  described.emplace_back("habit", habit(line, all));
  return described;
}

std::string bytes_text(uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string copies_text(const Line& line, Counted pinned, Counted pageable) {
  const Count &a = line.counts[pinned], &b = line.counts[pageable];
  return a.times + b.times == 0 ? "" : std::to_string(a.times + b.times) + ", " + bytes_text(a.bytes + b.bytes);
}

void report_costs() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  end_series(all, nullptr);
  using Row = std::pair<const std::string*, const Line*>;
  std::vector<Row> rows;
  for (const auto& [place, line] : all.lines) rows.emplace_back(place, &line);
  std::ranges::sort(rows, [](const Row& a, const Row& b) {
    return std::tie(b.second->waited, b.second->launches, *a.first) <
           std::tie(a.second->waited, a.second->launches, *b.first);
  });
  constexpr const char* kRow = "  %8s %16s %16s %14s %12s  %s\n";
  std::fprintf(stderr, "cann_cpu cost: %zu tasks of process %d; steady state is their second half\n", all.tasks,
               getpid());
  std::fprintf(stderr, kRow, "launches", "to the device", "to the host", "waits", "allocations", "line");
  size_t shown = 0, left = 0;
  for (const auto& [place, line] : rows) {
    const std::string where = place->empty() ? "(no line known)" : *place;
    report_line(json(where, *line, all.tasks));
    const bool is_empty = line->launches == 0 && line->counts[kAllocations].steady(all.tasks) == 0 &&
                          std::ranges::all_of(std::span(line->counts).first(kAllocations),
                                              [](const Count& count) { return count.times == 0; });
    if (is_empty) continue;
    if (++shown > kRows) {
      ++left;
      continue;
    }
    const auto number = [](uint64_t n) { return n == 0 ? "" : std::to_string(n); };
    char waits[40] = "";
    if (line->counts[kWaits].times > 0 || line->waited.count() > 0) {
      std::snprintf(waits, sizeof(waits), "%zu, %.1f ms", line->counts[kWaits].times,
                    static_cast<double>(line->waited.count()) * 1e-6);
    }
    std::fprintf(stderr, kRow, number(line->launches).c_str(), copies_text(*line, kToDevice, kPageableToDevice).c_str(),
                 copies_text(*line, kToHost, kPageableToHost).c_str(), waits,
                 number(line->counts[kAllocations].steady(all.tasks)).c_str(), where.c_str());
    const std::string advice = habit(*line, all.tasks);
    if (!advice.empty()) std::fprintf(stderr, "           %s\n", advice.c_str());
  }
  if (left > 0) std::fprintf(stderr, "  and %zu lines more (--report has all)\n", left);
}

// The host waits as long as it lives. PyTorch's allocators wait with their locks held, as they allocate.
class Wait {
 public:
  explicit Wait(bool is_for_copy) : is_for_copy_(is_for_copy) {}
  ~Wait() {
    const auto waited = std::chrono::steady_clock::now() - begin_;
    State& all = state();
    const std::lock_guard lock(all.mutex);
    Line& line = all.lines[place_];
    line.waited += waited;
    if (is_for_copy_) return;
    Count& waits = line.counts[kWaits];
    ++waits.times;
    waits.tasks.push_back(all.tasks);
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

 private:
  const bool is_for_copy_;  // which has been counted
  const std::string* const place_ = &python_call_site_nonblocking();
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

struct CostObserver final : Observer {
  void on_request(const char* name) override {
    const std::string* const place = &python_call_site();
    State& all = state();
    const std::lock_guard lock(all.mutex);
    ++all.tasks;
    Line& line = all.lines[place];
    ++line.launches;
    if (all.series.line != &line) end_series(all, &line);
    const std::string_view function = name;
    if (!function.starts_with("aclnnInplace")) return;
    const auto found = all.series.launches.find(function);
    if (found != all.series.launches.end()) {
      ++found->second;
    } else {
      all.series.launches.emplace(function, 1);
    }
  }

  void on_copy(size_t bytes, Space to, Space from) override {
    const bool to_device = to == Space::kDevice;
    if (to_device == (from == Space::kDevice)) return;
    const bool is_pageable = (to_device ? from : to) == Space::kPageable;
    const Counted to_it = is_pageable ? kPageableToDevice : kToDevice,
                  from_it = is_pageable ? kPageableToHost : kToHost;
    count(to_device ? to_it : from_it, bytes, python_call_site());
  }

  void on_wait(bool is_for_copy, Scope& scope) override { scope.push_back(std::make_shared<Wait>(is_for_copy)); }
  // PyTorch's allocators ask for memory when they have none left.
  void on_allocated(size_t bytes) override { count(kAllocations, bytes, python_call_site_nonblocking()); }
  void on_freed(size_t bytes) override { count(kFrees, bytes, python_call_site_nonblocking()); }
} cost_observer;

}  // namespace
}  // namespace cann_cpu::cost

cann_cpu::Observer& cann_cpu::costs = cost::cost_observer;
