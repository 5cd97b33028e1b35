// SPDX-License-Identifier: Apache-2.0
// Opens the tiling library and the kernels of a package.
#include "package.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cann_cpu/open_library.h"
#include "cann_cpu/operator_packages.h"
#include "cann_cpu/soc.h"
#include "embedded_packages.h"
#include "exe_graph/runtime/tiling_parse_context.h"
#include "metadef/context.h"

namespace cann_cpu {
namespace {

namespace fs = std::filesystem;

#if defined(__aarch64__)
constexpr const char* kArchitecture = "aarch64";
#elif defined(__x86_64__)
constexpr const char* kArchitecture = "x86_64";
#endif
constexpr size_t kMaxTiled = 10000;

const fs::path kImplementation = "op_impl/ai_core/tbe";
const fs::path kCpuKernels = "op_impl/cann_cpu/libcust_cpu_kernels.so";

// The chips for which a package has the operator's kernels.
std::vector<std::string> families(const fs::path& package, const std::string& type) {
  std::vector<std::string> found;
  const fs::path kernels = package / kImplementation / "kernel";
  if (!fs::exists(kernels)) return found;
  for (const auto& family : fs::directory_iterator(kernels)) {
    if (fs::exists(family.path() / snake_case(type))) found.push_back(family.path().filename());
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool has_operator(const fs::path& package, const std::string& type) {
  return fs::exists(package / "op_api/include" / ("aclnn_" + snake_case(type) + ".h")) ||
         !families(package, type).empty();
}

// PACKAGE/op_api/lib/libcust_opapi.so; a library that lies elsewhere carries its package, or is of the first package
// that has the operator.
fs::path package_of(const void* in_library, const std::string& type) {
  Dl_info info;
  if (dladdr(in_library, &info) != 0) {
    const fs::path package = fs::weakly_canonical(info.dli_fname).parent_path().parent_path().parent_path();
    if (fs::exists(package / kImplementation)) return package;
  }
  if (const fs::path package = embedded_package_of(type); !package.empty()) return fs::weakly_canonical(package);
  for (const auto& package : operator_packages()) {
    if (has_operator(package, type)) return fs::weakly_canonical(package);
  }
  throw CallError(kPackageNotFound,
                  "no operator package has it: install the .run file that its build makes, and name the folder in "
                  "ASCEND_CUSTOM_OPP_PATH unless it is ASCEND_OPP_PATH");
}

std::string tiling_library(const fs::path& package) {
  const fs::path folder = package / kImplementation / "op_tiling";
  const fs::path library = folder / "lib/linux" / kArchitecture / "libcust_opmaster_rt2.0.so";
  if (fs::exists(library)) return library;
  return folder / "liboptiling.so";
}

// Nothing if it is of another operator.
std::optional<OperatorKernel> open_kernel(const fs::path& file, const std::string& type) {
  const OpenedLibrary library = open_library(file);
  if (library.handle == nullptr) throw CallError(kFindKernelError, "its kernel does not load: " + library.error);
  const auto described = reinterpret_cast<const char* (*)()>(dlsym(library.handle, "ascendc_cpu_operator"));
  if (described == nullptr) return std::nullopt;
  auto description = read_kernel_description(described());
  if (!description) {
    throw CallError(kFindKernelError,
                    file.string() + " was made by another version of cann_cpu: build its package anew");
  }
  if (description->type != type) return std::nullopt;
  OperatorKernel kernel{std::move(*description), file, nullptr};
  kernel.call =
      reinterpret_cast<OperatorKernel::Call>(dlsym(library.handle, ("ascendc_cpu_call_" + kernel.name).c_str()));
  if (kernel.call == nullptr) {
    throw CallError(kFindKernelError, file.string() + " has no kernel " + kernel.name);
  }
  return kernel;
}

std::vector<OperatorKernel> open_kernels(const fs::path& package, const std::string& type) {
  const std::string name = snake_case(type);
  const fs::path folder = package / kImplementation / "kernel" / soc().family / name;
  std::vector<OperatorKernel> kernels;
  if (fs::exists(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".o") continue;
      if (auto kernel = open_kernel(entry.path(), type)) kernels.push_back(std::move(*kernel));
    }
  }
  if (kernels.empty()) {
    std::string others, chip = "CANN_CPU_SOC";
    for (const std::string& family : families(package, type)) {
      const Soc* first = soc_of_family(family.c_str());
      if (others.empty() && first != nullptr) chip += std::string("=") + first->name;
      others += (others.empty() ? "" : ", ") + family;
    }
    throw CallError(kFindKernelError, package.string() + " has no kernel for " + soc().family + ", the family of " +
                                          soc().name + (others.empty() ? "" : "; it is for " + others) +
                                          ": build it with this one in ASCEND_COMPUTE_UNIT, or set " + chip);
  }
  return kernels;
}

// Null if the package has none.
const CpuKernel* open_cpu_kernel(const fs::path& package, const std::string& type, size_t arguments) {
  const fs::path library = package / kCpuKernels;
  if (!fs::exists(library)) return nullptr;
  const OpenedLibrary opened = open_library(library);
  if (opened.handle == nullptr) throw CallError(kFindKernelError, "its CPU kernel does not load: " + opened.error);
  const auto* kernel = static_cast<const CpuKernel*>(dlsym(opened.handle, ("ascendc_cpu_kernel_" + type).c_str()));
  if (kernel != nullptr && kernel->arguments != arguments) {
    throw CallError(kFindKernelError, "CPU_KERNEL(" + type + ", ...) takes " + std::to_string(kernel->arguments) +
                                          " arguments; the definition has " + std::to_string(arguments));
  }
  return kernel;
}

// Inputs, attributes, and outputs without an input's name.
size_t count_arguments(const ops::Definition& definition) {
  size_t count = definition.inputs.size() + definition.attributes.size();
  for (const auto& output : definition.outputs) {
    count += std::none_of(definition.inputs.begin(), definition.inputs.end(),
                          [&](const auto& input) { return input.name == output.name; });
  }
  return count;
}

// CANN fills the struct once for each operator, when its first node is compiled.
void* parse(const std::string& type, const ops::Definition& definition) {
  if (definition.make_compile_info == nullptr) return nullptr;
  OperatorCall call;
  call.type = type;
  call.compile_info = definition.make_compile_info();
  gert::TilingParseContext context(&call);
  if (definition.parse != nullptr && definition.parse(&context) != ge::GRAPH_SUCCESS) {
    throw CallError(kTilingError, "tiling failed: the function of TilingParse did");
  }
  return call.compile_info;
}

std::unique_ptr<DefinedOperator> open_operator(const std::string& type, const fs::path& package) {
  auto op = std::make_unique<DefinedOperator>();
  op->type = type;
  op->function = "aclnn" + type;
  op->package = package;
  const std::string library = tiling_library(package);
  try {
    load_definitions(library);
  } catch (const std::runtime_error& e) {
    throw CallError(kPackageNotFound, std::string("its tiling library does not load: ") + e.what());
  }
  op->definition = find_definition(library, type);
  if (op->definition == nullptr) {
    throw CallError(kPackageNotFound, library + " has no OP_ADD(" + type + ")");
  }
  op->parameters = op->definition->on(soc().family);
  op->combinations = ops::combinations(type, op->parameters);
  op->compile_info = parse(type, *op->definition);
  if (!op->definition->core.defined) {
    op->cpu_kernel = open_cpu_kernel(package, type, count_arguments(*op->definition));
    if (op->cpu_kernel != nullptr) return op;
    throw CallError(kFindKernelError,
                    "it has no kernel: its definition has no AICore(), and the package no CPU_KERNEL of it");
  }
  if (op->definition->core.tiler() == nullptr) {
    throw CallError(kTilingError, "its definition has no tiling function: AICore().SetTiling(...)");
  }
  op->kernels = open_kernels(package, type);
  const size_t expected = op->parameters.inputs.size() + op->parameters.outputs.size() + 2;
  for (const OperatorKernel& kernel : op->kernels) {
    if (kernel.parameters != expected) {
      throw CallError(kFindKernelError, "its kernel " + kernel.name + " has " + std::to_string(kernel.parameters) +
                                            " parameters; inputs, outputs, workspace and tiling are " +
                                            std::to_string(expected));
    }
  }
  return op;
}

}  // namespace

std::shared_ptr<const Tiled> DefinedOperator::find_tiled(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = tiled_.find(key);
  return found == tiled_.end() ? nullptr : found->second;
}

void DefinedOperator::store_tiled(const std::string& key, std::shared_ptr<const Tiled> tiled) const {
  const std::lock_guard lock(mutex_);
  if (tiled_.size() >= kMaxTiled) tiled_.clear();
  tiled_[key] = std::move(tiled);
}

const DefinedOperator& find_operator(const char* type, const void* in_library) {
  static std::mutex mutex;
  // By an address in each function, which is its own.
  static auto* const known = new std::map<const void*, std::unique_ptr<DefinedOperator>>;
  const std::lock_guard lock(mutex);
  auto& found = (*known)[in_library];
  if (found == nullptr) found = open_operator(type, package_of(in_library, type));
  return *found;
}

}  // namespace cann_cpu
