// SPDX-License-Identifier: Apache-2.0
// Loads the operator prototypes of the packages.
#include "prototypes.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>

#include "cann_cpu/operator_packages.h"
#include "metadef/definition.h"

namespace cann_cpu::graph {
namespace {

#if defined(__aarch64__)
constexpr const char* kArchitecture = "aarch64";
#elif defined(__x86_64__)
constexpr const char* kArchitecture = "x86_64";
#endif

struct Registry {
  std::recursive_mutex mutex;
  std::map<std::string, Prototype> prototypes;
  std::vector<std::string> added;  // by the library that is being loaded
  std::string errors;
  bool packages_loaded = false;
  bool loads_package = false;
};

Registry& registry() {
  static auto* instance = new Registry;  // outlives the static objects of the packages' libraries
  return *instance;
}

// Python loads libge_runner.so RTLD_LOCAL; a REG_OP library needs its symbols.
void export_own_symbols() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&export_own_symbols), &info) != 0) {
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  }
}

bool same_inputs(const Prototype& prototype, const ops::Definition& definition) {
  return std::equal(prototype.inputs.begin(), prototype.inputs.end(), definition.inputs.begin(),
                    definition.inputs.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
}

// The files of op_host/ are part of the library, and register OpDefs and the functions of inference beside REG_OP's.
void load(const std::string& library, Registry& r) {
  r.added.clear();
  r.loads_package = true;
  try {
    load_definitions(library);
  } catch (const std::runtime_error& error) {
    r.errors += std::string("operator prototypes not loaded: ") + error.what() + "\n";
  }
  r.loads_package = false;
  for (const std::string& type : r.added) {
    Prototype& prototype = r.prototypes.at(type);
    prototype.definition = find_definition(library, type);
    if (prototype.definition == nullptr) continue;
    if (!same_inputs(prototype, *prototype.definition)) {
      r.errors += library + ": the inputs of REG_OP(" + type + ") are not those of its OpDef\n";
      prototype.definition = nullptr;
      continue;
    }
    auto input = prototype.inputs.begin();
    for (const auto& declared : prototype.definition->inputs)
      (input++)->read = declared.value_depends ? &declared : nullptr;
  }
}

void load_packages(Registry& r) {
  if (r.packages_loaded) {
    return;
  }
  r.packages_loaded = true;
  export_own_symbols();
  for (const auto& package : operator_packages()) {
    const auto library = package / "op_proto/lib/linux" / kArchitecture / "libcust_opsproto_rt2.0.so";
    if (std::filesystem::exists(library)) {
      load(library, r);
    }
  }
  std::fputs(r.errors.c_str(), stderr);
}

}  // namespace

const Prototype* find_prototype(const std::string& type) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  load_packages(r);
  const auto found = r.prototypes.find(type);
  return found == r.prototypes.end() ? nullptr : &found->second;
}

const std::string& package_errors() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  load_packages(r);
  return r.errors;
}

void add_prototype(const std::string& type, Prototype prototype) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  prototype.of_package = r.loads_package;
  Prototype& known = r.prototypes[type];
  // Packages are loaded in order of priority: the first prototype of a type stands, but for one of the program itself.
  if (!known.type.empty() && known.of_package >= prototype.of_package) return;
  known = std::move(prototype);
  r.added.push_back(type);
}

}  // namespace cann_cpu::graph
