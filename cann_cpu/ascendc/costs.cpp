// SPDX-License-Identifier: Apache-2.0
#include "costs.h"

#include <algorithm>

namespace AscendC::cpu {
namespace {

// Where numbers come from.
// [vector], [cube]: asc-devkit, docs/zh/api, the appendices with the theoretical performance of vector and of cube
//   instructions on NPU architecture 2201.
// [platform]: CANN runtime, src/platform/platform_config/Ascend910B3.ini, AICoreMemoryRates; all chips have the same.
// [add]: asc-devkit, docs/zh/guide, the tuning of Add on 8192 x 8192 halves at 48 cores of 1850 MHz. On one core a tile
//   of 8 KB takes MTE2 680 cycles for two copies and MTE3 294 for one; Add takes 85.8 cycles for 32 repeats, 278.5 for
//   128 repeats with bank conflicts (two cycles each), 149.6 for 127 without: 22 to start. The scalar unit is busy
//   for 60 cycles a tile of 4 instructions and 8 flags; element by element it takes 34 cycles for two reads, a write,
//   conversions and an addition. 402.7 MB by L2 take 264.0 us, 268.4 MB past it 176.0 us: 1525 GB/s of 1600.
// [l2]: asc-devkit, docs/zh/guide, the division of data for L2: 192 MB, about 7 TB/s of reads and writes together.
// [512]: the same guide: requests to device memory are handled in 512 bytes.

constexpr double kLocalStart = 16;     // assumed: copies between memories of a cube core, and products
constexpr double kVectorStart = 22;    // [add]
constexpr double kDeviceStart = 30;    // assumed: the pipe's part of the 424 cycles in [add]
constexpr double kLatencyIn = 364;     // [add]: 680 = 2 * (30 + 128) + 364
constexpr double kLatencyOut = 136;    // [add]: 294 = 30 + 128 + 136
constexpr double kScalarCycles = 10;   // [add]: of the 34 cycles for three elements
constexpr double kL2ToCube = 110;      // [platform] l2_read_rate; a matmul in asc-devkit's guide reaches 95
constexpr double kCubeToL2 = 86;       // [platform] l2_write_rate
constexpr double kUnifiedBuffer = 64;  // [platform] ub_to_ddr_rate, ub_to_l2_rate; assumed for reads as well

constexpr PathCost kPathCosts[kPaths] = {
    {"GM to UB", false, kUnifiedBuffer, kDeviceStart, kLatencyIn},
    {"UB to GM", false, kUnifiedBuffer, kDeviceStart, kLatencyOut},
    {"GM to L1", true, kL2ToCube, kDeviceStart, kLatencyIn},
    {"GM to L0", true, kL2ToCube, kDeviceStart, kLatencyIn},
    {"L0C to GM", true, kCubeToL2, kDeviceStart, kLatencyOut},
    {"L1 to L0A", true, 256, kLocalStart, 0},     // [cube]
    {"L1 to L0B", true, 128, kLocalStart, 0},     // [cube]
    {"L1 to tables", true, 32, kLocalStart, 0},   // [cube]: the bias table, the fixpipe buffer
    {"L0C to L1", true, 128, kLocalStart, 0},     // [cube], of 16 bits; assumed of others
    {"filled in L1", true, 128, kLocalStart, 0},  // assumed
    // The Matmul library takes matrices out of the unified buffer through L2.
    {"UB to L1", false, kUnifiedBuffer, kDeviceStart, kLatencyIn},
};

// Instructions that take another time than a cycle for 256 bytes, by the size of their elements. [vector]
struct VectorRate {
  std::string_view name;
  double of_16_bits, of_32_bits;  // cycles of a repeat
};
constexpr VectorRate kVectorRates[] = {
    {"BlockReduceMax", 7, 1},
    {"BlockReduceMin", 7, 1},
    {"BlockReduceSum", 7, 1},
    {"Div", 4, 2},
    {"Exp", 4, 2},
    {"Gather", 128 / 5., 64 / 5.},
    {"GatherMask", 2, 2},
    {"Gatherb", 128 / 42., 64 / 21.},
    {"Ln", 4, 2},
    {"MrgSort", 16, 16},  // 2 pairs a cycle, 32 in a repeat
    {"MulAddDst", 2, 2},
    {"ReduceMax", 7, 7},  // assumed: reduces each repeat
    {"ReduceMin", 7, 7},
    {"ReduceSum", 7, 7},
    {"RepeatReduceSum", 7, 7},
    {"Sort32", 16, 16},
    {"Sqrt", 4, 2},
    {"WholeReduceMax", 7, 7},
    {"WholeReduceMin", 7, 7},
    {"WholeReduceSum", 7, 7},
};
static_assert(std::ranges::is_sorted(kVectorRates, {}, &VectorRate::name));

}  // namespace

const PathCost& cost_of(Path path) { return kPathCosts[static_cast<size_t>(path)]; }

Cost copy_cost(Path path, uint64_t bytes) {
  const PathCost& of = cost_of(path);
  return {of.start, static_cast<double>(bytes) / of.bytes_per_cycle, of.latency};
}

Cost vector_cost(std::string_view name, uint64_t repeats, uint32_t per_repeat) {
  const auto* found = std::ranges::lower_bound(kVectorRates, name, {}, &VectorRate::name);
  double cycles = 1;
  if (found != std::end(kVectorRates) && found->name == name) {
    cycles = per_repeat > 64 ? found->of_16_bits : found->of_32_bits;
  }
  return {kVectorStart, static_cast<double>(repeats) * cycles, 0};
}

Cost product_cost(uint64_t fractals, bool whole_float) {
  return {kLocalStart, static_cast<double>(fractals) * (whole_float ? 2 : 1), 0};  // [cube]: 16 x 16 x 4 floats a cycle
}

Cost scalar_cost(bool is_cached) { return {0, kScalarCycles, is_cached ? 0 : kLatencyIn}; }

}  // namespace AscendC::cpu
