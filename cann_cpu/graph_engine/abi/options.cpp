// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "errors.h"

namespace cann_cpu::graph {
namespace {

constexpr std::string_view kCores = "ge.aicoreNum";

// An option that is known. The comment above each group says why nothing has to be done for it.
struct Known {
  std::string_view name;
  std::string_view only = {};  // the value that is served; empty: any
};
constexpr Known kKnown[] = {
    // Served.
    {kCores},
    {"ge.exec.outputReuseInputMemIndexes"},
    // Where memory for intermediates comes from: each node's outputs are allocated when it runs.
    {"ge.exec.staticMemoryPolicy"},
    {"ge.exec.memoryOptimizationPolicy"},
    {"ge.exec.disableReuseMemory"},
    {"ge.exec.reuseZeroCopyMemory"},
    {"ge.exec.outputReuseMemIndexes"},
    {"ge.exec.atomicCleanPolicy"},
    {"ge.featureBaseRefreshable"},
    {"ge.constLifecycle", "graph"},
    // What is known of inputs ahead: they are looked at in every run.
    {"ge.exec.allTensorNotEmpty"},
    {"ge.exec.frozenInputIndexes"},
    {"ge.exec.hostInputIndexes"},
    {"ge.inputHintShape"},
    // Shapes to compile for: a graph takes every shape that its nodes take.
    {"ge.inputShape"},
    {"ge.dynamicDims"},
    {"ge.dynamicNodeType"},
    {"ge.jit_compile"},
    {"ge.shape_generalized_build_mode"},
    {"ge.exec.static_model_ops_lower_limit"},
    // How fast, in which order and on how many streams: nodes run one by one, and give the bits of eager.
    {"ge.deterministic"},
    {"ge.deterministicLevel"},
    {"ge.opSelectImplmode"},
    {"ge.optypelistForImplmode"},
    {"ge.exec.enableEngineParallel"},
    {"ge.tiling_schedule_optimize"},
    {"ge.enableSingleStream"},
    {"ge.autoMultistreamParallelMode"},
    {"ge.topoSortingMode"},
    {"ge.oo.level"},
    {"ge.oo.constantFolding"},
    {"ge.oo.deadCodeElimination"},
    {"ge.optimizationSwitch"},
    {"ge.disableOptimizations"},
    {"ge.fusionSwitchFile"},
    {"ge.graphRunMode"},
    {"ge.exec.allow_hf32"},  // a permission: products of float32 stay such
    // Files of the compiler: there is nothing to keep or to count.
    {"ge.exportCompileStat"},
    {"ge.graph_key"},
    {"ge.graph_compiler_cache_dir"},
    // The device is that of the stream.
    {"ge.exec.deviceId"},
    {"ge.session_device_id"},
    {"ge.socVersion"},
    // MindSpore's name of the job, the accumulation of variables that it turns off, and its mode of overflow: results
    // hold infinities and NaN.
    {"ge.exec.jobId"},
    {"ge.exec.variable_acc", "0"},
    {"ge.exec.overflow", "1"},
    // The dtypes are the graph's.
    {"ge.exec.precision_mode", "must_keep_origin_dtype"},
    {"ge.exec.precision_mode_v2", "origin"},
    // Tensors keep the format that the program gives them.
    {"ge.exec.formatMode", "1"},
    // Nothing is dumped or printed.
    {"ge.enablePrintOpPass", "0"},
    {"ge.exec.enableDump", "0"},
    {"ge.quant_dumpable", "0"},
};

// torchair passes its own settings as well; only names with this prefix are the engine's.
constexpr std::string_view kPrefix = "ge.";

void check(const std::string& name, const std::string& value) {
  if (!name.starts_with(kPrefix)) return;
  const auto known = std::ranges::find(kKnown, name, &Known::name);
  if (known == std::end(kKnown)) throw GraphError("option " + name + " of '" + value + "' is not supported; remove it");
  if (known->only.empty() || known->only == value) return;
  throw GraphError("option " + name + " of '" + value + "' is not supported; it may be '" + std::string(known->only) +
                   "'");
}

}  // namespace

Options checked_options(const std::map<ge::AscendString, ge::AscendString>& options) {
  Options checked;
  for (const auto& [name, value] : options) {
    check(name.GetString(), value.GetString());
    checked[name.GetString()] = value.GetString();
  }
  cores_of(checked);
  return checked;
}

std::optional<Cores> cores_of(const Options& options) {
  const auto option = options.find(std::string(kCores));
  if (option == options.end() || option->second.empty()) return std::nullopt;
  const std::string& text = option->second;
  const char* const end = text.data() + text.size();
  Cores cores{};
  const auto cube = std::from_chars(text.data(), end, cores.cube);
  const bool has_both = cube.ec == std::errc() && cube.ptr != end && *cube.ptr == '|';
  const auto vector = has_both ? std::from_chars(cube.ptr + 1, end, cores.vector) : cube;
  const Cores all = cores_of_chip();
  if (!has_both || vector.ec != std::errc() || vector.ptr != end || cores.cube == 0 || cores.cube > all.cube ||
      cores.vector == 0 || cores.vector > all.vector) {
    throw GraphError("option " + option->first + " is '" + text + "'; AI cores and vector cores, at most '" +
                     std::to_string(all.cube) + "|" + std::to_string(all.vector) + "'");
  }
  return cores;
}

}  // namespace cann_cpu::graph
