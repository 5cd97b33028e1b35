// SPDX-License-Identifier: Apache-2.0
// `generate FILE` writes the Python GE API of the prototypes that op_proto.cpp registers. What is wrong with a
// prototype is a line each, and nothing is written.
#include <fstream>
#include <iostream>

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

}  // namespace
}  // namespace ge::codegen

int main(int argc, char** argv) {
  using namespace ge::codegen;
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " FILE\n";
    return 2;
  }
  if (report_errors()) {
    return 1;
  }
  std::ofstream file(argv[1]);
  file << python_module(prototypes()) << std::flush;
  if (!file) {
    std::cerr << "generate: cannot write " << argv[1] << "\n";
    return 1;
  }
}
