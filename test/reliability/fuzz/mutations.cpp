// SPDX-License-Identifier: Apache-2.0
// Reads files, their prefixes and mutations of them, with any compiler: mutations COUNT FILE...
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "reader.h"

namespace {

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

// Prints how many were valid, and how many were not.
int main(int argc, char** argv) {
  std::vector<std::string> files;
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (!is_valid(files.back())) {
      std::fprintf(stderr, "%s is not valid\n", argv[i]);
      return 2;
    }
  }
  if (files.empty()) return 2;
  std::mt19937 random(7);
  int count[2] = {0, 0};
  for (const std::string& file : files) {
    for (size_t size = 0; size < file.size() && size < 2000; ++size) ++count[is_valid(file.substr(0, size))];
  }
  for (int i = std::atoi(argv[1]); i > 0; --i) ++count[is_valid(mutated(files[i % files.size()], random))];
  std::printf("%d %d\n", count[true], count[false]);
}
