// SPDX-License-Identifier: Apache-2.0
// The functions of the bounds-checked C library (libc_sec) that torch_npu, torchair and operator projects import.
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "cann_cpu/export.h"
#include "securec.h"

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
  if (to == nullptr || size == 0) return EINVAL;
  to[0] = '\0';
  if (from == nullptr) return EINVAL;
  size_t length = std::strlen(from);
  if (length >= size) return ERANGE;
  std::memcpy(to, from, length + 1);
  return 0;
}

CANN_EXPORT int memcpy_s(void* to, size_t size, const void* from, size_t count) {
  if (to == nullptr || size == 0) return to == nullptr ? EINVAL : ERANGE;
  if (from == nullptr || count > size) {
    std::memset(to, 0, size);
    return from == nullptr ? EINVAL : ERANGE;
  }
  std::memcpy(to, from, count);
  return 0;
}

CANN_EXPORT int memset_s(void* to, size_t size, int value, size_t count) {
  if (to == nullptr || size == 0) return to == nullptr ? EINVAL : ERANGE;
  std::memset(to, value, count > size ? size : count);
  return count > size ? ERANGE : 0;
}

}  // extern "C"
