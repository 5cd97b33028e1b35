// SPDX-License-Identifier: Apache-2.0
// The costs of instructions in cycles of the core, from published throughputs of Atlas A2 and A3, and from assumptions
// where nothing is published. The table has all numbers and their sources. docs/ascendc_cost.md explains their use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace AscendC::cpu {

struct Cost {
  double start = 0;    // of the pipe, before the first repeat, product or byte
  double cycles = 0;   // of the pipe, at the throughput of its unit
  double latency = 0;  // then, until others have the result; the pipe continues meanwhile
};

// The ways of bytes between memories. Those of device memory come first: they share its bandwidth and that of L2.
enum class Path : uint8_t {
  GmToUb,
  UbToGm,
  GmToL1,
  GmToL0,
  L0CToGm,
  L1ToL0A,
  L1ToL0B,
  L1ToTable,
  L0CToL1,
  FillL1,
  UbToL1,
};
inline constexpr size_t kPaths = static_cast<size_t>(Path::UbToL1) + 1;
inline constexpr size_t kDevicePaths = static_cast<size_t>(Path::L0CToGm) + 1;

struct PathCost {
  const char* name;
  bool of_cube;  // whether it is of a cube core
  double bytes_per_cycle;
  double start, latency;
};
const PathCost& cost_of(Path path);
Cost copy_cost(Path path, uint64_t bytes);

// The cost of a vector instruction with `per_repeat` elements in each repeat of 256 bytes.
Cost vector_cost(std::string_view name, uint64_t repeats, uint32_t per_repeat);

// The cost of products of fractals, 16 rows and columns by 32 bytes in depth. For float without HF32 each takes two
// steps.
Cost product_cost(uint64_t fractals, bool whole_float);

// The scalar unit: to issue an instruction or a flag of another pipe, and to read or write an element.
inline constexpr double kIssueCycles = 5;
Cost scalar_cost(bool is_cached);

// The time between the starts of two blocks while cores are free. It is assumed: if all blocks started at once, they
// would always copy and compute at the same time, and device memory would be idle in between.
inline constexpr double kBeginCycles = 20;

// From a core's CrossCoreSetFlag, SyncAll and the like to those that wait for it. Assumed.
inline constexpr double kMessageCycles = 300;

// What all cores share, in bytes a second: the part of the device memory's bandwidth that copies have reached, and L2.
inline constexpr double kReachedOfDeviceMemory = 0.953;
inline constexpr double kL2BytesPerSecond = 7e12;
inline constexpr uint32_t kL2LineBytes = 512;  // in which device memory is asked

}  // namespace AscendC::cpu
