// SPDX-License-Identifier: Apache-2.0
// Generates from the prototypes that op_proto.cpp registers: `generate python FILE` the Python GE API, `generate aclnn
// FOLDER` the headers of the aclnn functions. What is wrong with a prototype is a line each, and nothing is written.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "printers.h"

namespace ge::codegen {
namespace {

// Prints what is wrong with the prototypes, and says whether something is.
bool report_errors() {
  bool any = false;
  for (const Prototype& prototype : prototypes()) {
    for (const std::string& error : prototype.errors) {
      std::cerr << prototype.file << ":" << prototype.line << ": error: operator " << prototype.type << ": " << error
                << "\n";
      any = true;
    }
  }
  return any;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Writes a file unless it says that already: what is compiled with it is then compiled again.
bool write(const std::filesystem::path& path, const std::string& text) {
  if (std::filesystem::exists(path) && read(path) == text) {
    return true;
  }
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) {
    std::cerr << "generate: cannot write " << path.string() << "\n";
  }
  return static_cast<bool>(file);
}

bool write_headers(const std::filesystem::path& folder, const std::map<std::string, std::string>& headers) {
  std::filesystem::create_directories(folder);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!headers.count(entry.path().filename())) {
      std::filesystem::remove(entry.path());  // of a prototype that is no more
    }
  }
  bool written = true;
  for (const auto& [name, text] : headers) {
    written = write(folder / name, text) && written;
  }
  return written;
}

}  // namespace
}  // namespace ge::codegen

int main(int argc, char** argv) {
  using namespace ge::codegen;
  const std::string what = argc == 3 ? argv[1] : "";
  if (what != "python" && what != "aclnn") {
    std::cerr << "usage: " << argv[0] << " python FILE | aclnn FOLDER\n";
    return 2;
  }
  const auto headers = what == "aclnn" ? aclnn_headers(prototypes()) : std::map<std::string, std::string>();
  if (report_errors()) {
    return 1;
  }
  const bool written = what == "aclnn" ? write_headers(argv[2], headers) : write(argv[2], python_module(prototypes()));
  return written ? 0 : 1;
}
