// SPDX-License-Identifier: Apache-2.0
// What an installed operator package has on the disk: vendors/config.ini, what the build wrote into a kernel, and the
// kernel as a file that the loader can have.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cann_cpu/open_library.h"
#include "cann_cpu/operator_packages.h"
#include "nnopbase/kernel_file.h"
#include "reader.h"

using namespace cann_cpu;

namespace {

struct Home {
  Home() {
    std::string name = std::filesystem::temp_directory_path() / "fuzzed_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    folder = name;
    std::filesystem::create_directory(folder / "vendors");
    setenv("ASCEND_OPP_PATH", name.c_str(), 1);
    unsetenv("ASCEND_CUSTOM_OPP_PATH");
  }
  ~Home() { std::filesystem::remove_all(folder); }
  std::filesystem::path folder;
};

}  // namespace

bool is_valid(const std::string& contents) {
  static const Home home;
  const auto file = home.folder / "vendors/config.ini";
  if (!std::ofstream(file, std::ios::binary).write(contents.data(), static_cast<std::streamsize>(contents.size()))) {
    std::abort();
  }
  const bool has_packages = !operator_packages().empty();
  const bool is_library = contents.starts_with("\177ELF") && !is_cut_off(file);
  return read_kernel_description(contents).has_value() || has_packages || is_library;
}
