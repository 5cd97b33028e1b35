// SPDX-License-Identifier: Apache-2.0
// Finds operator packages through ASCEND_CUSTOM_OPP_PATH and ASCEND_OPP_PATH.
#include "cann_cpu/operator_packages.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace cann_cpu {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    if (!part.empty()) {
      parts.push_back(part);
    }
  }
  return parts;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> load_priority(const std::filesystem::path& config) {
  static const std::string key = "load_priority=";
  std::ifstream file(config);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) == 0) {
      line.erase(line.find_last_not_of(" \t\r") + 1);
      return split(line.substr(key.size()), ',');
    }
  }
  return {};
}

}  // namespace

std::vector<std::filesystem::path> operator_packages() {
  namespace fs = std::filesystem;
  std::vector<fs::path> libraries, packages;
  for (const auto& entry : split(environment("ASCEND_CUSTOM_OPP_PATH"), ':')) {
    const fs::path folder = (fs::path(entry) / "").lexically_normal().parent_path();  // without a slash at its end
    const bool is_library = folder.filename() == "lib" && folder.parent_path().filename() == "op_api";
    (is_library ? libraries : packages).push_back(is_library ? folder.parent_path().parent_path() : folder);
  }
  packages.insert(packages.begin(), libraries.begin(), libraries.end());
  const std::string opp = environment("ASCEND_OPP_PATH");
  if (!opp.empty()) {
    const auto vendors = std::filesystem::path(opp) / "vendors";
    for (const auto& vendor : load_priority(vendors / "config.ini")) {
      packages.push_back(vendors / vendor);
    }
  }
  return packages;
}

}  // namespace cann_cpu
