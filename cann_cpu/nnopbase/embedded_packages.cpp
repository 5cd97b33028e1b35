// SPDX-License-Identifier: Apache-2.0
// Writes an embedded package to a separate folder when the first of its operators is called.
#include "embedded_packages.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <list>
#include <mutex>

#include "cann_cpu/fault.h"
#include "cann_cpu/operator_call.h"
#include "metadef/definition.h"
#include "package.h"

namespace cann_cpu {
namespace {

namespace fs = std::filesystem;

struct Embedded {
  const EmbeddedPackage* owner;
  std::string vendor;
  const EmbeddedFile* files;
  size_t count;
  fs::path folder;  // empty until it is written
  pid_t writer;     // a forked child leaves it to its parent
};

struct Packages {
  std::mutex mutex;
  std::list<Embedded> all;
};
Packages& packages() {
  static auto* const instance = new Packages;  // outlives the static objects of the libraries
  return *instance;
}

bool has_operator(const Embedded& package, const std::string& type) {
  const std::string kernels = std::string(1, '/').append(snake_case(type)).append(1, '/');
  return std::any_of(package.files, package.files + package.count, [&](const EmbeddedFile& file) {
    return std::string(file.path).find(kernels) != std::string::npos;
  });
}

// A folder with the package's files. If one of them cannot be written, no folder remains.
fs::path write(const Embedded& package) {
  std::string folder = fs::temp_directory_path() / ("cann_cpu_" + package.vendor + "_XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) {
    throw CallError(kPackageNotFound, "there is no folder " + folder + " for its package: TMPDIR names another place");
  }
  for (const EmbeddedFile* file = package.files; file != package.files + package.count; ++file) {
    const fs::path path = fs::path(folder) / file->path;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    std::ofstream out(path, std::ios::binary);
    if (fault_of("disk", ACL_ERROR_WRITE_FILE) == 0 && out.write(file->begin, file->end - file->begin).flush())
      continue;
    fs::remove_all(folder, error);
    throw CallError(kPackageNotFound, "its package cannot be written to " + path.string());
  }
  return folder;
}

}  // namespace

EmbeddedPackage::EmbeddedPackage(const char* vendor, const EmbeddedFile* files, size_t count) {
  const std::lock_guard lock(packages().mutex);
  packages().all.push_back({this, vendor, files, count, {}, 0});
}

EmbeddedPackage::~EmbeddedPackage() {
  const std::lock_guard lock(packages().mutex);
  packages().all.remove_if([&](const Embedded& package) {
    std::error_code ignored;
    if (package.owner == this && package.writer == getpid()) fs::remove_all(package.folder, ignored);
    return package.owner == this;
  });
}

fs::path embedded_package_of(const std::string& type) {
  const std::lock_guard lock(packages().mutex);
  Embedded* found = nullptr;
  for (Embedded& package : packages().all) {
    if (!has_operator(package, type)) continue;
    if (found != nullptr) {
      throw CallError(kPackageNotFound, "two libraries carry it, of the vendors " + found->vendor + " and " +
                                            package.vendor + ": link one of them");
    }
    found = &package;
  }
  if (found == nullptr) return {};
  if (found->folder.empty()) {
    found->folder = write(*found);
    found->writer = getpid();
  }
  return found->folder;
}

}  // namespace cann_cpu
