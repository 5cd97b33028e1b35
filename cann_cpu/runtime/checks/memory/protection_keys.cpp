// SPDX-License-Identifier: Apache-2.0
#include "protection_keys.h"

#include <sys/mman.h>

#include <algorithm>

#include "runtime/checks/report.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <ucontext.h>

#include <cstring>
#endif

namespace cann_cpu::protection_keys {
#if defined(__x86_64__)
namespace {

constexpr int kKeyless = -1;

// Threads have no access by a key that they have not been granted.
int key() {
  static const int only = [] {
    if (std::ranges::count(given_to(Check::kMemory), "pages") > 0) return kKeyless;
    return std::max(pkey_alloc(0, PKEY_DISABLE_ACCESS), kKeyless);
  }();
  return only;
}

// Where PKRU lies in what XSAVE writes, which is part of a signal's frame.
constexpr unsigned kXsaveLeaf = 0xD, kPkruComponent = 9;
constexpr size_t kXsaveHeader = 512;

size_t offset_of_pkru() {
  static const size_t offset = [] {
    unsigned size = 0, from = 0, c = 0, d = 0;
    __get_cpuid_count(kXsaveLeaf, kPkruComponent, &size, &from, &c, &d);
    return from;
  }();
  return offset;
}

}  // namespace

bool are_used() { return key() != kKeyless; }

bool protect(void* pages, size_t size) { return pkey_mprotect(pages, size, PROT_READ | PROT_WRITE, key()) == 0; }

ThreadAccess::ThreadAccess(bool is_granted) {
  if (!are_used()) return;
  before_ = pkey_get(key());
  pkey_set(key(), is_granted ? 0 : PKEY_DISABLE_ACCESS);
}

ThreadAccess::~ThreadAccess() {
  if (are_used()) pkey_set(key(), before_);
}

void grant_to_interrupted(void* context) {
  auto* const saved = reinterpret_cast<unsigned char*>(static_cast<ucontext_t*>(context)->uc_mcontext.fpregs);
  uint64_t components;
  std::memcpy(&components, saved + kXsaveHeader, sizeof(components));
  uint32_t rights = 0;  // two bits for each key
  if ((components >> kPkruComponent & 1) != 0) std::memcpy(&rights, saved + offset_of_pkru(), sizeof(rights));
  rights &= ~(3U << (2 * key()));
  components |= uint64_t{1} << kPkruComponent;
  std::memcpy(saved + kXsaveHeader, &components, sizeof(components));
  std::memcpy(saved + offset_of_pkru(), &rights, sizeof(rights));
}
#else
bool are_used() { return false; }
bool protect(void*, size_t) { return false; }
ThreadAccess::ThreadAccess(bool) {}
ThreadAccess::~ThreadAccess() = default;
void grant_to_interrupted(void*) {}
#endif

}  // namespace cann_cpu::protection_keys
