// SPDX-License-Identifier: Apache-2.0
// The operators of an installed package: their definitions, and their kernels for this chip.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cann_cpu/operator_call.h"
#include "kernel_file.h"
#include "metadef/call_error.h"
#include "metadef/definition.h"

namespace cann_cpu {

// What tiling said of calls of one kind.
struct Tiled {
  std::vector<char> data;
  uint64_t key;
  uint32_t blocks;
  uint64_t workspace;
};

struct DefinedOperator {
  std::string type;
  std::string function;  // "aclnnAddCustom"
  std::filesystem::path package;
  std::shared_ptr<const ops::Definition> definition;
  ops::Parameters parameters;  // on this chip
  std::vector<ops::Combination> combinations;
  const CpuKernel* cpu_kernel = nullptr;  // of an operator that has none in Ascend C
  std::vector<OperatorKernel> kernels;
  void* compile_info = nullptr;

  std::shared_ptr<const Tiled> find_tiled(const std::string& key) const;
  void store_tiled(const std::string& key, std::shared_ptr<const Tiled> tiled) const;

 private:
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, std::shared_ptr<const Tiled>> tiled_;
};

// The operator in the package of the library in which an address lies. Throws CallError.
const DefinedOperator& find_operator(const char* type, const void* in_library);

}  // namespace cann_cpu
