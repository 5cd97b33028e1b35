// SPDX-License-Identifier: Apache-2.0
// Reads a model, then all its prefixes and many mutations of it: each must be read or rejected, never crash.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>

#include "model/model.h"

namespace {

// Reads from memory of exactly that size, so that the sanitizer sees the first byte behind it.
bool is_model(const std::string& bytes) {
  const std::unique_ptr<char[]> exact(new char[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), exact.get());
  try {
    cann_cpu::graph::read_model(exact.get(), bytes.size());
    return true;
  } catch (const cann_cpu::graph::GraphError&) {
    return false;
  }
}

std::string mutated(std::string bytes, std::mt19937& random) {
  for (unsigned i = random() % 4 + 1; i > 0 && !bytes.empty(); --i) {
    const size_t at = random() % bytes.size();
    switch (random() % 4) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
        break;
      case 2:
        bytes.erase(at, random() % 16);
        break;
      case 3:
        bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 16));
        break;
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  std::ifstream file(argv[1], std::ios::binary);
  const std::string model{std::istreambuf_iterator<char>(file), {}};
  if (argc < 3 || !is_model(model)) {
    return 2;
  }
  std::mt19937 random(7);
  int read = 0, rejected = 0;
  for (size_t size = 0; size < model.size(); ++size) {
    ++(is_model(model.substr(0, size)) ? read : rejected);
  }
  for (int i = std::atoi(argv[2]); i > 0; --i) {
    ++(is_model(mutated(model, random)) ? read : rejected);
  }
  std::printf("%d %d\n", read, rejected);
}
