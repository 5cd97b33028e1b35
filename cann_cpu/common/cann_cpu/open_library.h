// SPDX-License-Identifier: Apache-2.0
// dlopen() of a package's file. The loader would end the process with SIGBUS when it reads one that has been cut off,
// by a full disk or a broken download.
#pragma once

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace cann_cpu {

// Whether an ELF file ends before what its header says that is to be loaded.
inline bool is_cut_off(const std::filesystem::path& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  const auto read = [&](uint64_t at, auto& into) {
    file.seekg(static_cast<std::streamoff>(at));
    return static_cast<bool>(file.read(reinterpret_cast<char*>(&into), sizeof(into)));
  };
  ElfW(Ehdr) header;
  if (error || !read(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) part;
    if (!read(header.e_phoff + i * sizeof(part), part)) return true;
    if (part.p_type == PT_LOAD && (part.p_offset > size || part.p_filesz > size - part.p_offset)) return true;
  }
  return false;
}

struct OpenedLibrary {
  void* handle;       // null: it does not load
  std::string error;  // with the file's name
};

inline OpenedLibrary open_library(const std::filesystem::path& path) {
  if (is_cut_off(path)) return {nullptr, path.string() + ": the file has been cut off: install it anew"};
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  return {handle, handle == nullptr ? dlerror() : ""};
}

}  // namespace cann_cpu
