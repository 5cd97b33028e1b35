// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "cann_cpu/json_text.h"
#include "checker.h"
#include "timeline.h"

namespace AscendC::cpu {
namespace {

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

  template <class... Arguments>
  void print(const char* format, Arguments... arguments) {
    std::fprintf(file_, format, arguments...);
  }
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
    file.print(
        "{\"kernel\": %s, \"soc\": \"%s\", \"clock_mhz\": %u, \"blocks\": %u, \"cube_cores\": %u, "
        "\"vector_cores\": %u,\n",
        cann_cpu::quote(launched_.kernel).c_str(), soc_.name, soc_.clock_mhz, launched_.blocks, cubes_,
        launched_.team.cores() - cubes_);
    file.print(" \"cycles\": %.1f, \"microseconds\": %.3f, \"one_by_one_cycles\": %.1f,\n", timeline_.cycles,
               timeline_.cycles / soc_.clock_mhz, timeline_.one_by_one);
    file.print(" \"roofline\": {\"cycles\": %.1f, \"microseconds\": %.3f, \"bound\": \"%s\", \"share\": %.4f},\n",
               greatest->second, greatest->second / soc_.clock_mhz, greatest->first.c_str(),
               timeline_.cycles > 0 ? greatest->second / timeline_.cycles : 0);
    file.print(" \"device_memory_bytes\": %.0f, \"l2_bytes\": %.0f, \"unified_buffer_bytes\": %" PRIu64
               ", \"unified_buffer_limit\": %u,\n",
               timeline_.device_memory_bytes, timeline_.l2_bytes, launched_.buffer_bytes, kKernelBufferBytes);
    write_pipes(file);
    file.print(" \"paths\": {");
    const char* separator = "";
    for (size_t i = 0; i < kPaths; ++i) {
      if (paths_[i].instructions == 0) continue;
      file.print("%s\"%s\": {\"instructions\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", separator,
                 cost_of(static_cast<Path>(i)).name, paths_[i].instructions, paths_[i].work);
      separator = ", ";
    }
    file.print("},\n \"bounds\": {");
    separator = "";
    for (const auto& [name, cycles] : bounds) {
      file.print("%s\"%s\": %.1f", separator, name.c_str(), cycles);
      separator = ", ";
    }
    file.print("}}\n");
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

  void write_pipes(File& file) const {
    file.print(" \"pipes\": {");
    const char* separator = "";
    for (uint32_t pipe = 0; pipe < kPipes; ++pipe) {
      const Sums& sums = pipes_[pipe];
      if (sums.instructions == 0) continue;
      file.print("%s\"%s\": {\"instructions\": %" PRIu64 ", \"work\": %" PRIu64
                 ", \"unit\": \"%s\", \"busy_cycles\": %.1f, \"busiest_core_cycles\": %.1f}",
                 separator, name_of(static_cast<pipe_t>(pipe)), sums.instructions, sums.work, kUnits[pipe], sums.busy,
                 sums.busiest);
      separator = ",\n  ";
    }
    file.print("},\n");
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
  file.print("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [");
  const char* separator = "\n";
  for (uint32_t core = 0; core < launched.team.cores(); ++core) {
    const auto& operations = launched.programs[core].operations();
    file.print("%s{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %u, \"args\": {\"name\": %s}}", separator, core,
               cann_cpu::quote(launched.team.name(core)).c_str());
    separator = ",\n";
    std::set<pipe_t> pipes;
    for (const Recorder::Operation& operation : operations) pipes.insert(operation.by.pipe);
    for (const pipe_t pipe : pipes) {
      file.print(
          ",\n{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %u, \"tid\": %u, \"args\": {\"name\": \"%s\"}}", core,
          pipe, name_of(pipe));
    }
    for (size_t i = 0; i < operations.size(); ++i) {
      const Recorder::Operation& operation = operations[i];
      const Span& span = timeline.operations[core][i];
      file.print(
          ",\n{\"ph\": \"X\", \"name\": %s, \"pid\": %u, \"tid\": %u, \"ts\": %.6f, \"dur\": %.6f, \"args\": "
          "{\"line\": %u, \"work\": %" PRIu64 ", \"begin\": %.3f, \"end\": %.3f, \"latency\": %.1f}}",
          cann_cpu::quote(operation.by.name).c_str(), core, operation.by.pipe, span.begin / soc.clock_mhz,
          (span.end - span.begin) / soc.clock_mhz, operation.by.where.line(), operation.work, span.begin, span.end,
          operation.cost.latency);
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
