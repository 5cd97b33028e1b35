// SPDX-License-Identifier: Apache-2.0
// The functions of the bounds-checked C library (libc_sec) that torch_npu, torchair and operator projects import.
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "cann_cpu/export.h"
#include "securec.h"

namespace {

// An error that has cleared the target is its code and this.
constexpr int kCleared = 128;
constexpr int kOverlap = 54;
constexpr size_t kMaxSize = 0x7fffffff;

bool overlap(const void* to, const void* from, size_t count) {
  const auto first = reinterpret_cast<uintptr_t>(to), second = reinterpret_cast<uintptr_t>(from);
  return first < second + count && second < first + count;
}

}  // namespace

extern "C" {

// Characters written without the closing zero; -1 and an empty text when they do not fit or something is wrong.
CANN_EXPORT int vsnprintf_s(char* to, size_t size, size_t count, const char* format, va_list arguments) {
  if (to == nullptr || format == nullptr || size == 0) return -1;
  int length = std::vsnprintf(to, size, format, arguments);
  if (length >= 0 && static_cast<size_t>(length) <= count && static_cast<size_t>(length) < size) return length;
  if (length >= 0 && count < size) {  // cut at count, which is allowed, but reported
    to[count] = '\0';
    return -1;
  }
  to[0] = '\0';
  return -1;
}

CANN_EXPORT int snprintf_s(char* to, size_t size, size_t count, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf_s(to, size, count, format, arguments);
  va_end(arguments);
  return length;
}

CANN_EXPORT int strcpy_s(char* to, size_t size, const char* from) {
  if (size == 0 || size > kMaxSize) return ERANGE;
  if (to == nullptr) return EINVAL;
  if (from == nullptr) {
    to[0] = '\0';
    return EINVAL + kCleared;
  }
  if (from == to) return 0;
  const size_t length = std::strlen(from);
  const int error = length >= size ? ERANGE : overlap(to, from, length + 1) ? kOverlap : 0;
  if (error != 0) {
    to[0] = '\0';
    return error + kCleared;
  }
  std::memcpy(to, from, length + 1);
  return 0;
}

CANN_EXPORT int memcpy_s(void* to, size_t size, const void* from, size_t count) {
  if (size == 0 || size > kMaxSize) return ERANGE;
  if (to == nullptr) return EINVAL;
  const bool has_overlap = from != nullptr && from != to && count <= size && overlap(to, from, count);
  if (from == nullptr || count > size || has_overlap) {
    std::memset(to, 0, size);
    return (from == nullptr ? EINVAL : count > size ? ERANGE : kOverlap) + kCleared;
  }
  std::memmove(to, from, count);  // which takes from == to
  return 0;
}

CANN_EXPORT int memset_s(void* to, size_t size, int value, size_t count) {
  if (size == 0 || size > kMaxSize) return ERANGE;
  if (to == nullptr) return EINVAL;
  std::memset(to, value, count > size ? size : count);
  return count > size ? ERANGE + kCleared : 0;
}

}  // extern "C"
