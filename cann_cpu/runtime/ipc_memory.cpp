// SPDX-License-Identifier: Apache-2.0
// aclrtIpcMem*: allocations that other processes map by a key.
//
// An export turns the pages of an allocation into those of an anonymous file. The key names the file by process and
// descriptor, and by a token. The kernel lets processes of the same user open the file, and nothing remains when the
// exporting process ends. After the pages, the file has a header with the processes that may import it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>

#include "memory.h"
#include "stream.h"

namespace cann_cpu {
namespace {

constexpr size_t kKeySize = 65;  // with its end
constexpr size_t kPage = 4096;   // divides every machine's
constexpr size_t kShared = 2 << 20;
constexpr size_t kMostPids = 512;

struct Header {
  uint64_t token;  // 0: no longer exported
  uint64_t size;
  int32_t device;
  uint32_t is_for_all;  // processes of the user
  uint32_t pid_count;
  int32_t pids[kMostPids];
};
static_assert(sizeof(Header) <= kPage);

// Closes what it opened.
struct File {
  explicit File(int number) : number(number) {}
  ~File() {
    if (number >= 0) close(number);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int number;
};

// Pages of a file.
struct Pages {
  Pages(int file, size_t offset, size_t size, int access)
      : address(mmap(nullptr, size, access, MAP_SHARED, file, static_cast<off_t>(offset))), size(size) {
    if (address == MAP_FAILED) fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "cannot map %zu bytes: %s", size, strerror(errno));
  }
  ~Pages() {
    if (address != nullptr) munmap(address, size);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  void* address;
  const size_t size;
};

struct Export {
  Export(int file, size_t size) : file(file), header_page(file, size, kPage, PROT_READ | PROT_WRITE) {}
  Header& header() const { return *static_cast<Header*>(header_page.address); }
  File file;
  Pages header_page;
};

struct Import {
  void* address;
  size_t size;  // without the page after it, which separates mappings
  int uses;
};

struct Ipc {
  std::mutex mutex;
  std::map<void*, std::unique_ptr<Export>> exports;  // by the allocation's address
  std::map<std::string, Import> imports;             // by key
};

Ipc& ipc() {
  static auto* const all = new Ipc;
  return *all;
}

struct Key {
  int pid;
  int file;
  uint64_t token;

  std::string text() const {
    char text[kKeySize];
    std::snprintf(text, sizeof(text), "cann_cpu:%d:%d:%016" PRIx64, pid, file, token);
    return text;
  }
};

Key parse_key(const char* text) {
  require_pointer(text, "key");
  const std::string given(text, strnlen(text, kKeySize));
  Key key{};
  if (std::sscanf(given.c_str(), "cann_cpu:%9d:%9d:%16" SCNx64, &key.pid, &key.file, &key.token) != 3 ||
      key.text() != given) {
    fail(ACL_ERROR_INVALID_PARAM, "key \"%s\" is not a key of aclrtIpcMemGetExportKey", given.c_str());
  }
  return key;
}

void require_idle(const char* what) {
  if (!is_worker() && drain()) return;
  fail(ACL_ERROR_RT_STREAM_CONTEXT, "%s may be in use: a task calls this, or one that does not end uses it", what);
}

// Moves the pages of an allocation to a file. Tasks have ended; other threads are not to write there now.
std::unique_ptr<Export> share(void* address, size_t size) {
  const int file = memfd_create("cann_cpu-ipc", MFD_CLOEXEC);
  if (file < 0) fail(ACL_ERROR_INTERNAL_ERROR, "memfd_create: %s", std::strerror(errno));
  if (ftruncate(file, static_cast<off_t>(size + kPage)) != 0) {
    const int reason = errno;
    close(file);
    fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "Failed to allocate %zu bytes to share: %s", size, std::strerror(reason));
  }
  auto made = std::make_unique<Export>(file, size);
  Pages pages(file, 0, size, PROT_READ | PROT_WRITE);
  std::memcpy(pages.address, address, size);
  if (mremap(pages.address, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, address) == MAP_FAILED) {
    fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "cannot map %zu bytes to share: %s", size, std::strerror(errno));
  }
  pages.address = nullptr;
  return made;
}

void export_memory(void* address, size_t size, char* key, size_t length, uint64_t flags) {
  require_pointer(key, "key");
  if (length < kKeySize) fail(ACL_ERROR_INVALID_PARAM, "len is %zu; a key has %zu bytes", length, kKeySize);
  if (flags & ~ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION) {
    fail(ACL_ERROR_INVALID_PARAM, "flags is %#lx; expected 0 or 1", flags);
  }
  if (device_allocator != nullptr) {
    fail(ACL_ERROR_FEATURE_UNSUPPORTED, "memory is not shared between processes while the check memory is on");
  }
  const Range range = check_range("devPtr", address, size, /*on_device=*/true);
  const size_t all = range.end - range.begin;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (range.begin != begin || all < kShared || begin % kShared != 0) {
    fail(ACL_ERROR_FEATURE_UNSUPPORTED,
         "devPtr %p is not shared: it has to be what aclrtMalloc returned for 2 MiB or more", address);
  }
  require_idle("devPtr");  // without the lock, which a task that frees takes
  const size_t pages = (all + kShared - 1) / kShared * kShared;
  Ipc& shared = ipc();
  const std::lock_guard lock(shared.mutex);
  auto& made = shared.exports[address];
  if (made == nullptr) {
    try {
      made = share(address, pages);
    } catch (...) {
      shared.exports.erase(address);
      throw;
    }
  }
  Header& header = made->header();
  uint64_t token = header.token;
  if (token == 0) {  // otherwise others have the key already
    while (token == 0) {
      if (getrandom(&token, sizeof(token), 0) != sizeof(token))
        fail(ACL_ERROR_INTERNAL_ERROR, "there is no random number");
    }
    header.size = pages;
    header.device = range.device;
    header.is_for_all = header.pid_count = 0;
    header.token = token;
  }
  if (flags & ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION) header.is_for_all = 1;
  std::strcpy(key, Key{getpid(), made->file.number, token}.text().c_str());
}

// The export of a key of this process's.
Export* find_export(Ipc& shared, const Key& key) {
  if (key.pid != getpid()) return nullptr;
  for (const auto& [address, made] : shared.exports) {
    if (made->file.number == key.file && made->header().token == key.token) return made.get();
  }
  return nullptr;
}

void allow(const char* text, const int32_t* pids, size_t count) {
  const Key key = parse_key(text);
  require_pointer(pids, "pid");
  Ipc& shared = ipc();
  const std::lock_guard lock(shared.mutex);
  Export* const made = find_export(shared, key);
  if (made == nullptr) fail(ACL_ERROR_INVALID_PARAM, "key \"%s\" is not exported by this process", text);
  Header& header = made->header();
  if (count > kMostPids - header.pid_count) {
    fail(ACL_ERROR_INVALID_PARAM, "num is %zu; a key is for %zu processes at most, and has %u", count, kMostPids,
         header.pid_count);
  }
  std::copy_n(pids, count, header.pids + header.pid_count);
  header.pid_count += static_cast<uint32_t>(count);
}

void require_allowed(const Header& header, const std::string& key) {
  if (header.is_for_all != 0) return;
  const auto count = std::min<size_t>(header.pid_count, kMostPids);
  if (std::find(header.pids, header.pids + count, getpid()) != header.pids + count) return;
  fail(ACL_ERROR_INVALID_PARAM, "key \"%s\" is not for process %d; aclrtIpcMemSetImportPid allows it", key.c_str(),
       getpid());
}

// Maps the pages of a key's file; its first address.
Import map_pages(const Key& key) {
  const std::string path = "/proc/" + std::to_string(key.pid) + "/fd/" + std::to_string(key.file);
  const File file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status{};
  if (file.number < 0 || fstat(file.number, &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size <= static_cast<off_t>(kPage)) {
    fail(ACL_ERROR_INVALID_PARAM, "key \"%s\": process %d does not share it, or not with this user", key.text().c_str(),
         key.pid);
  }
  const size_t size = static_cast<size_t>(status.st_size) - kPage;
  const Pages header_page(file.number, size, kPage, PROT_READ);
  const Header& header = *static_cast<const Header*>(header_page.address);
  if (header.token != key.token || header.size != size) {
    fail(ACL_ERROR_INVALID_PARAM, "key \"%s\" is no longer exported", key.text().c_str());
  }
  require_allowed(header, key.text());
  find_device(header.device);
  void* const address = mmap(nullptr, size + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED ||
      mmap(address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.number, 0) == MAP_FAILED) {
    const int reason = errno;
    if (address != MAP_FAILED) munmap(address, size + kPage);
    fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "cannot map %zu bytes: %s", size, std::strerror(reason));
  }
  add_mapping(address, size, header.device);
  return {address, size, 0};
}

void import_memory(void** address, const char* text, uint64_t flags) {
  require_pointer(address, "devPtr");
  if (flags & ~ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS) {
    fail(ACL_ERROR_INVALID_PARAM, "flags is %#lx; expected 0 or 1", flags);
  }
  const Key key = parse_key(text);
  current_context();
  Ipc& shared = ipc();
  const std::lock_guard lock(shared.mutex);
  auto found = shared.imports.find(key.text());
  if (found == shared.imports.end()) found = shared.imports.emplace(key.text(), map_pages(key)).first;
  ++found->second.uses;
  *address = found->second.address;
}

// Ends the mapping of an import. After an export is closed, it cannot be imported any more.
void close_key(const char* text) {
  const Key key = parse_key(text);
  if (key.pid != getpid()) require_idle("the memory");
  Ipc& shared = ipc();
  const std::lock_guard lock(shared.mutex);
  const auto import = shared.imports.find(key.text());
  if (import != shared.imports.end()) {
    if (--import->second.uses > 0) return;
    remove_mapping(import->second.address);
    munmap(import->second.address, import->second.size + kPage);
    shared.imports.erase(import);
    return;
  }
  Export* const made = find_export(shared, key);
  if (made == nullptr) fail(ACL_ERROR_INVALID_PARAM, "key \"%s\" is not imported or exported by this process", text);
  made->header().token = 0;
}

}  // namespace

void end_export(void* address) {
  Ipc& shared = ipc();
  const std::lock_guard lock(shared.mutex);
  const auto found = shared.exports.find(address);
  if (found == shared.exports.end()) return;
  found->second->header().token = 0;
  const size_t size = found->second->header().size;
  mmap(address, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  shared.exports.erase(found);
}

}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclrtIpcMemGetExportKey(void* devPtr, size_t size, char* key, size_t len, uint64_t flags) {
  return call(__func__, [&] { export_memory(devPtr, size, key, len, flags); });
}

aclError aclrtIpcMemSetImportPid(const char* key, int32_t* pid, size_t num) {
  return call(__func__, [&] { allow(key, pid, num); });
}

aclError aclrtIpcMemImportByKey(void** devPtr, const char* key, uint64_t flags) {
  return call(__func__, [&] { import_memory(devPtr, key, flags); });
}

aclError aclrtIpcMemClose(const char* key) {
  return call(__func__, [&] { close_key(key); });
}
