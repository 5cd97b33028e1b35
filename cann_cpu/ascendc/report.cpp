// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "cann_cpu/json.h"
#include "checker.h"
#include "timeline.h"

namespace AscendC::cpu {
namespace {

using cann_cpu::Json;

constexpr const char* kUnits[kPipes] = {
    "elements", "repeats", "bytes in", "bytes out", "products of fractals", "bytes from L1", "bytes out of L0C"};

// A file of JSON; what cannot be written is an error of the launch.
class File {
 public:
  File(const std::string& path, const char* mode) : path_(path), file_(std::fopen(path.c_str(), mode)) {
    if (file_ == nullptr) fail();
  }
  ~File() {
    if (file_ != nullptr) std::fclose(file_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void print(const Json& json, const char* end = "\n") { std::fputs((to_text(json) + end).c_str(), file_); }
  void print(const char* text) { std::fputs(text, file_); }
  void close() {
    const bool failed = std::ferror(file_) != 0;
    if (std::fclose(std::exchange(file_, nullptr)) != 0 || failed) fail();
  }

 private:
  [[noreturn]] void fail() const { throw KernelError(path_ + ": " + std::strerror(errno)); }

  const std::string path_;
  std::FILE* file_;
};

struct Sums {
  uint64_t instructions = 0, work = 0;
  double busy = 0, busiest = 0;  // cycles of all cores, and of one
  double ideal = 0;              // at the throughput of the unit, without what starting costs
};

// What bounds the launch: the cycles that the whole chip would take for it, if nothing else did.
using Bounds = std::vector<std::pair<std::string, double>>;

class Summary {
 public:
  Summary(const Launched& launched, const Timeline& timeline, const cann_cpu::Soc& soc)
      : launched_(launched), timeline_(timeline), soc_(soc) {
    for (uint32_t core = 0; core < launched.team.cores(); ++core) add(core);
  }

  void write(File file) const {
    const Bounds bounds = this->bounds();
    const auto greatest = std::ranges::max_element(bounds, {}, &Bounds::value_type::second);
    Json::Object paths, bounded;
    for (size_t i = 0; i < kPaths; ++i) {
      if (paths_[i].instructions == 0) continue;
      paths.emplace_back(cost_of(static_cast<Path>(i)).name,
                         Json::Object{{"instructions", paths_[i].instructions}, {"bytes", paths_[i].work}});
    }
    for (const auto& [name, cycles] : bounds) bounded.emplace_back(name, Json::rounded(cycles, 1));
    const double share = timeline_.cycles > 0 ? greatest->second / timeline_.cycles : 0;
    file.print(Json::Object{
        {"kernel", launched_.kernel},
        {"soc", soc_.name},
        {"clock_mhz", soc_.clock_mhz},
        {"blocks", launched_.blocks},
        {"cube_cores", cubes_},
        {"vector_cores", launched_.team.cores() - cubes_},
        {"cycles", Json::rounded(timeline_.cycles, 1)},
        {"microseconds", Json::rounded(timeline_.cycles / soc_.clock_mhz, 3)},
        {"one_by_one_cycles", Json::rounded(timeline_.one_by_one, 1)},
        {"roofline", Json::Object{{"cycles", Json::rounded(greatest->second, 1)},
                                  {"microseconds", Json::rounded(greatest->second / soc_.clock_mhz, 3)},
                                  {"bound", greatest->first},
                                  {"share", Json::rounded(share, 4)}}},
        {"device_memory_bytes", Json::rounded(timeline_.device_memory_bytes, 0)},
        {"l2_bytes", Json::rounded(timeline_.l2_bytes, 0)},
        {"unified_buffer_bytes", launched_.buffer_bytes},
        {"unified_buffer_limit", soc_.architecture().unified_buffer},
        {"pipes", pipes()},
        {"paths", std::move(paths)},
        {"bounds", std::move(bounded)},
    });
    file.close();
  }

 private:
  void add(uint32_t core) {
    const auto& operations = launched_.programs[core].operations();
    const bool is_cube = launched_.team.core(core).cube;
    cubes_ += is_cube;
    std::array<double, kPipes> busy = {};
    for (size_t i = 0; i < operations.size(); ++i) {
      const Recorder::Operation& operation = operations[i];
      const Span& span = timeline_.operations[core][i];
      Sums& pipe = pipes_[operation.by.pipe];
      ++pipe.instructions;
      pipe.work += operation.work;
      pipe.ideal += operation.cost.cycles;
      busy[operation.by.pipe] += span.end - span.begin;
      if (!operation.has_path) continue;
      Sums& path = paths_[static_cast<size_t>(operation.path)];
      ++path.instructions;
      path.work += operation.work;
      path.ideal += operation.cost.cycles;
    }
    for (uint32_t pipe = 0; pipe < kPipes; ++pipe) {
      pipes_[pipe].busy += busy[pipe];
      pipes_[pipe].busiest = std::max(pipes_[pipe].busiest, busy[pipe]);
    }
  }

  Bounds bounds() const {
    Bounds all = {{"device memory", timeline_.device_memory_bytes / device_memory_rate(soc_)},
                  {"L2", timeline_.l2_bytes / l2_rate(soc_)},
                  {"M", pipes_[PIPE_M].ideal / soc_.cube_cores},
                  {"V", pipes_[PIPE_V].ideal / soc_.vector_cores}};
    for (size_t i = 0; i < kPaths; ++i) {
      const PathCost& path = cost_of(static_cast<Path>(i));
      if (paths_[i].instructions == 0) continue;
      all.emplace_back(path.name, paths_[i].ideal / (path.of_cube ? soc_.cube_cores : soc_.vector_cores));
    }
    return all;
  }

  Json pipes() const {
    Json::Object pipes;
    for (uint32_t pipe = 0; pipe < kPipes; ++pipe) {
      const Sums& sums = pipes_[pipe];
      if (sums.instructions == 0) continue;
      pipes.emplace_back(name_of(static_cast<pipe_t>(pipe)),
                         Json::Object{{"instructions", sums.instructions},
                                      {"work", sums.work},
                                      {"unit", kUnits[pipe]},
                                      {"busy_cycles", Json::rounded(sums.busy, 1)},
                                      {"busiest_core_cycles", Json::rounded(sums.busiest, 1)}});
    }
    return pipes;
  }

  const Launched& launched_;
  const Timeline& timeline_;
  const cann_cpu::Soc& soc_;
  uint32_t cubes_ = 0;
  std::array<Sums, kPipes> pipes_ = {};
  std::array<Sums, kPaths> paths_ = {};
};

// A process for each core, a thread for each of its pipes, an event for each instruction.
void write_timeline(File file, const Launched& launched, const Timeline& timeline, const cann_cpu::Soc& soc) {
  file.print("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n");
  for (uint32_t core = 0; core < launched.team.cores(); ++core) {
    const auto& operations = launched.programs[core].operations();
    if (core > 0) file.print(",\n");
    file.print(Json::Object{{"ph", "M"},
                            {"name", "process_name"},
                            {"pid", core},
                            {"args", Json::Object{{"name", launched.team.name(core)}}}},
               "");
    std::set<pipe_t> pipes;
    for (const Recorder::Operation& operation : operations) pipes.insert(operation.by.pipe);
    for (const pipe_t pipe : pipes) {
      file.print(",\n");
      file.print(Json::Object{{"ph", "M"},
                              {"name", "thread_name"},
                              {"pid", core},
                              {"tid", static_cast<int>(pipe)},
                              {"args", Json::Object{{"name", name_of(pipe)}}}},
                 "");
    }
    for (size_t i = 0; i < operations.size(); ++i) {
      const Recorder::Operation& operation = operations[i];
      const Span& span = timeline.operations[core][i];
      file.print(",\n");
      file.print(Json::Object{{"ph", "X"},
                              {"name", operation.by.name},
                              {"pid", core},
                              {"tid", static_cast<int>(operation.by.pipe)},
                              {"ts", Json::rounded(span.begin / soc.clock_mhz, 6)},
                              {"dur", Json::rounded((span.end - span.begin) / soc.clock_mhz, 6)},
                              {"args", Json::Object{{"line", operation.by.where.line()},
                                                    {"work", operation.work},
                                                    {"begin", Json::rounded(span.begin, 3)},
                                                    {"end", Json::rounded(span.end, 3)},
                                                    {"latency", Json::rounded(operation.cost.latency, 1)}}}},
                 "");
    }
  }
  file.print("\n]}\n");
  file.close();
}

// Files in the folder that no other launch has, of this process or another: their path without what it ends with.
std::string new_files(const char* kernel) {
  std::error_code error;
  std::filesystem::create_directories(profile_folder(), error);
  std::string name = kernel;
  std::ranges::replace_if(name, [](char letter) { return std::strchr("/<>:, ()", letter) != nullptr; }, '_');
  static std::atomic<uint32_t> launches = 0;
  while (true) {
    char number[16];
    std::snprintf(number, sizeof(number), "/%06u-", ++launches);
    const std::string path = profile_folder() + (number + name);
    if (std::FILE* file = std::fopen((path + ".json").c_str(), "wx")) {
      std::fclose(file);
      return path;
    }
    if (errno != EEXIST) throw KernelError("ASCENDC_CPU_PROFILE: " + path + ".json: " + std::strerror(errno));
  }
}

}  // namespace

const char* profile_folder() {
  const char* folder = std::getenv("ASCENDC_CPU_PROFILE");
  return folder != nullptr && *folder != '\0' ? folder : nullptr;
}

void write_profile(const Launched& launched, const Profile* profile) {
  std::vector<Core> cores;
  for (uint32_t core = 0; core < launched.team.cores(); ++core) cores.push_back(launched.team.core(core));
  const cann_cpu::Soc& soc = cann_cpu::soc();
  if (soc.device_memory_gb_per_second == 0) {
    throw KernelError(std::string(launched.kernel) + ": the model of costs knows Ascend910B and Ascend910_93, not " +
                      soc.name);
  }
  const Timeline timeline = timeline_of(launched.programs, cores, soc);
  const auto write = [&](const std::string& summary, const std::string& trace) {
    Summary(launched, timeline, soc).write(File(summary, "w"));
    if (!trace.empty()) write_timeline(File(trace, "w"), launched, timeline, soc);
  };
  if (profile != nullptr) {
    write(profile->summary, profile->timeline != nullptr ? profile->timeline : "");
  } else {
    const std::string files = new_files(launched.kernel);
    write(files + ".json", files + ".trace.json");
  }
}

}  // namespace AscendC::cpu
