// SPDX-License-Identifier: Apache-2.0
#include "device_binary.h"

#include <elf.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>
#include <string_view>

#include "cann_cpu/call.h"

namespace cann_cpu {
namespace {

constexpr uint16_t kNpu = 0x1029;  // e_machine
constexpr std::string_view kMeta = ".ascend.meta.";
constexpr std::string_view kDescribes = "ascendc_cpu_kernel_";
constexpr size_t kLongestName = 4096;

// Reads no byte that lies outside of the file, whatever the file says.
class ElfFile {
 public:
  ElfFile(const std::string& name, const void* data, size_t size)
      : name_(name), bytes_(static_cast<const char*>(data), size), header_(read<Elf64_Ehdr>(bytes_, 0)) {
    if (header_.e_shoff == 0) return;
    for (uint64_t i = 0; i < header_.e_shnum; ++i) {
      sections_.push_back(read<Elf64_Shdr>(bytes_, header_.e_shoff + i * sizeof(Elf64_Shdr)));
    }
  }

  // What is in the tables of symbols of this type: functions that the file defines for others.
  std::vector<std::string_view> functions(uint32_t table_type) const {
    std::vector<std::string_view> found;
    for (const Elf64_Shdr& table : sections_) {
      if (table.sh_type != table_type) continue;
      const std::string_view symbols = content(table), names = content(section(table.sh_link));
      for (size_t at = 0; at + sizeof(Elf64_Sym) <= symbols.size(); at += sizeof(Elf64_Sym)) {
        const auto symbol = read<Elf64_Sym>(symbols, at);
        const bool is_function = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF;
        if (is_function && ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL) found.push_back(text(names, symbol.st_name));
      }
    }
    return found;
  }

  // Calls it with the name and the content of each section whose name begins so.
  template <class Use>
  void each_section(std::string_view begin, Use&& use) const {
    if (sections_.empty()) return;
    const std::string_view names = content(section(header_.e_shstrndx));
    for (const Elf64_Shdr& each : sections_) {
      const std::string_view name = text(names, each.sh_name);
      if (name.starts_with(begin)) use(name, content(each));
    }
  }

  template <class T>
  T read(std::string_view from, uint64_t at) const {
    if (from.size() < sizeof(T) || at > from.size() - sizeof(T)) fail_damaged();
    T value;
    std::memcpy(&value, from.data() + at, sizeof(T));
    return value;
  }

  std::string_view part(std::string_view of, uint64_t at, uint64_t size) const {
    if (at > of.size() || size > of.size() - at) fail_damaged();
    return of.substr(at, size);
  }

 private:
  [[noreturn]] void fail_damaged() const {
    fail(ACL_ERROR_INVALID_FILE, "%s: the file has been cut off, or is damaged", name_.c_str());
  }

  const Elf64_Shdr& section(uint64_t number) const {
    if (number >= sections_.size()) fail_damaged();
    return sections_[number];
  }

  std::string_view content(const Elf64_Shdr& section) const {
    return section.sh_type == SHT_NOBITS ? std::string_view() : part(bytes_, section.sh_offset, section.sh_size);
  }

  std::string_view text(std::string_view table, uint64_t at) const {
    const std::string_view rest = part(table, at, table.size() - std::min<uint64_t>(at, table.size()));
    const size_t length = rest.find('\0');
    if (length > kLongestName) fail_damaged();
    return rest.substr(0, length);
  }

  const std::string name_;
  const std::string_view bytes_;
  const Elf64_Ehdr header_;
  std::vector<Elf64_Shdr> sections_;
};

uint64_t entry_of(std::string_view name) {
  const std::string_view number = name.substr(name.rfind('_') + 1);
  uint64_t entry = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), entry);
  return error == std::errc() && end == number.data() + number.size() ? entry : 0;
}

// Of both of its parts.
std::string_view without_core(std::string_view name) {
  for (const std::string_view ending : {"_mix_aic", "_mix_aiv"}) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return name;
}

std::vector<KernelInfo> kernels_named(const std::vector<std::string_view>& names) {
  std::vector<KernelInfo> kernels;
  std::set<std::string_view> known;
  for (const std::string_view name : names) {
    if (known.insert(name).second) kernels.push_back({std::string(name), entry_of(name)});
  }
  return kernels;
}

}  // namespace

bool is_for_npus(const void* data, size_t size) {
  Elf64_Ehdr header;
  if (size < sizeof(header)) return false;
  std::memcpy(&header, data, sizeof(header));
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_machine == kNpu;
}

std::vector<KernelInfo> kernels_for_npus(const std::string& name, const void* data, size_t size) {
  const ElfFile file(name, data, size);
  std::vector<std::string_view> names = file.functions(SHT_SYMTAB);
  std::ranges::transform(names, names.begin(), without_core);
  std::vector<KernelInfo> kernels = kernels_named(names);
  // A section has types, lengths and values of that length.
  file.each_section(kMeta, [&](std::string_view section, std::string_view content) {
    const auto kernel = std::ranges::find(kernels, without_core(section.substr(kMeta.size())), &KernelInfo::name);
    if (kernel == kernels.end()) return;
    for (uint64_t at = 0; at < content.size();) {
      const auto type = file.read<uint16_t>(content, at);
      const std::string_view value = file.part(content, at + 4, file.read<uint16_t>(content, at + 2));
      const auto* begin = reinterpret_cast<const std::byte*>(value.data());
      kernel->meta.try_emplace(type, begin, begin + value.size());
      at += 4 + value.size();
    }
  });
  return kernels;
}

std::vector<KernelInfo> kernels_of_library(const std::string& name, const void* data, size_t size) {
  std::vector<std::string_view> names;
  for (const std::string_view function : ElfFile(name, data, size).functions(SHT_DYNSYM)) {
    if (function.starts_with(kDescribes)) names.push_back(function.substr(kDescribes.size()));
  }
  return kernels_named(names);
}

}  // namespace cann_cpu
