// SPDX-License-Identifier: Apache-2.0
#include "recorder.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <mutex>

#include "cann_cpu/json.h"
#include "runtime/device_call.h"

namespace cann_cpu {

std::atomic<bool> profiling{false};

namespace profiler {
namespace {

struct Recorder {
  std::mutex mutex;
  Selection selection;
  uint64_t wall_begin = 0;
  uint64_t begin = 0;
  std::vector<CallRecord> calls;
  std::vector<RowRecord> rows;
};

Recorder& recorder() {
  static auto* const only = new Recorder;
  return *only;
}

std::atomic<uint64_t> runs{0};  // of the profiler, the latest included
std::atomic<int> who_wants{0};  // operands
std::atomic<bool> calls_are_wanted{false};
std::atomic<uint64_t> next_call{1};
thread_local uint64_t this_call = 0;
thread_local Row* this_row = nullptr;
thread_local int external_kind = 0;
thread_local uint64_t external = 0;

uint64_t nanoseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// The clock of torch_npu's own records.
uint64_t now() { return nanoseconds(CLOCK_MONOTONIC_RAW); }

Json json(const TaskTensors& operands) {
  Json::Array all;
  for (const TaskTensor& each : operands) {
    all.push_back(Json::Object{{"dtype", static_cast<int>(each.dtype)},
                               {"format", static_cast<int>(each.format)},
                               {"is_output", static_cast<bool>(each.is_output)},
                               {"shape", Json::Array(each.shape.begin(), each.shape.end())}});
  }
  return all;
}

// Writes lines to a file of a folder that it makes; throws Failure when that fails.
void write(const std::filesystem::path& file, const std::string& text, bool append) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream stream(file, append ? std::ios::app : std::ios::trunc);
  if (!(stream << text).flush()) fail(ACL_ERROR_WRITE_FILE, "cannot write %s", file.c_str());
}

// False when nothing records; under the mutex.
bool end(Recorder& all) {
  if (!profiling) return false;
  profiling = false;
  if (all.selection.operands) --who_wants;
  return true;
}

}  // namespace

bool start(Selection selection) {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  if (profiling) return false;
  if (selection.operands) ++who_wants;
  calls_are_wanted = selection.calls;
  all.selection = std::move(selection);
  all.calls.clear();
  all.rows.clear();
  all.begin = now();
  all.wall_begin = nanoseconds(CLOCK_REALTIME);
  ++runs;
  profiling = true;
  return true;
}

bool stop(const std::filesystem::path& folder, uint64_t data_types) {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  if (!end(all)) return false;
  // As torch_npu reads it: microseconds of the day, nanoseconds of the clock, at one moment.
  const Json info = Json::Object{{"collectionTimeBegin", std::to_string(all.wall_begin / 1000)},
                                 {"clockMonotonicRaw", std::to_string(all.begin - all.wall_begin % 1000)},
                                 {"collectionTimeEnd", std::to_string(nanoseconds(CLOCK_REALTIME) / 1000)},
                                 {"pid", std::to_string(getpid())},
                                 {"dataTypeConfig", std::to_string(data_types)}};
  write(folder / "host" / "start_info", to_text(info) + "\n", false);
  std::string text;
  for (const CallRecord& call : all.calls) {
    const Json line = Json::Object{
        {"id", call.id}, {"name", call.function}, {"thread", call.thread}, {"begin", call.begin}, {"end", call.end}};
    text += to_text(line) + "\n";
  }
  write(folder / "host" / "data" / "calls.jsonl", text, true);
  std::map<int32_t, std::string> texts;
  for (const int32_t device : all.selection.devices) texts[device];
  for (const RowRecord& row : all.rows) {
    const Json line = Json::Object{
        {"name", row.of.name},        {"type", row.of.type},
        {"stream", row.of.stream},    {"call", row.of.call},
        {"begin", row.begin},         {"end", row.end},
        {"is_kernel", row.is_kernel}, {"operands", row.of.operands ? json(*row.of.operands) : Json::Array()}};
    texts[row.of.device] += to_text(line) + "\n";
  }
  for (const auto& [device, lines] : texts) {
    write(folder / ("device_" + std::to_string(device)) / "data" / "tasks.jsonl", lines, true);
  }
  return true;
}

void end() {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  end(all);
}

Records take() {
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  Records taken{std::exchange(all.calls, {}), std::exchange(all.rows, {})};
  const uint64_t since = all.wall_begin - all.begin;
  for (CallRecord& call : taken.calls) call.begin += since, call.end += since;
  for (RowRecord& row : taken.rows) row.begin += since, row.end += since;
  return taken;
}

void set_external(int kind, uint64_t id) {
  external_kind = kind;
  external = id;
}

void begin_capture() { ++who_wants; }
void end_capture() { --who_wants; }

void Call::begin(const char* function) {
  if (this_row != nullptr || !calls_are_wanted) return;  // else made by a task
  function_ = function;
  outer_ = std::exchange(this_call, next_call++);
  begin_ = now();
}

void Call::end() {
  const uint64_t id = std::exchange(this_call, outer_);
  static thread_local const auto thread = static_cast<pid_t>(syscall(SYS_gettid));
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  if (is_profiling()) all.calls.push_back({id, function_, thread, begin_, now(), external_kind, external});
}

uint64_t current_call() { return this_call; }

Row::Row(Of of)
    : of(std::move(of)), run_(is_profiling() ? runs.load() : 0), begin_(now()), outer_(std::exchange(this_row, this)) {
  if (outer_ != nullptr) outer_->has_inner_ = true;
}

std::optional<Row::Of> Row::within(std::string name, std::string type, std::shared_ptr<const TaskTensors> operands) {
  if (this_row == nullptr || this_row->of.is_whole) return std::nullopt;
  const Of& outer = this_row->of;
  return Of{std::move(name), std::move(type), std::move(operands), outer.device, outer.stream, outer.call};
}

Row::~Row() {
  const uint64_t end = now();
  this_row = outer_;
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  if (!is_profiling() || run_ != runs || !all.selection.devices.contains(of.device)) return;
  all.rows.push_back({std::move(of), begin_, end, !has_inner_});
}

}  // namespace profiler

bool operands_are_wanted() { return profiler::who_wants.load(std::memory_order_relaxed) > 0; }

ProfiledNode::ProfiledNode(std::string name, std::string type) {
  if (!is_profiling()) return;
  auto of = profiler::Row::within(std::move(name), std::move(type), nullptr);
  if (!of) return;
  of->is_whole = true;
  row_ = std::make_unique<profiler::Row>(*std::move(of));
}

ProfiledNode::~ProfiledNode() = default;

void ProfiledNode::set_operands(TaskTensors operands) {
  if (row_) row_->of.operands = std::make_shared<const TaskTensors>(std::move(operands));
}

}  // namespace cann_cpu
