// SPDX-License-Identifier: Apache-2.0
// The functions of the bounds-checked C library (libc_sec) that programs call besides ACL.
#pragma once

#include <stdarg.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int errno_t;
#define EOK 0

// 0, or an error: then nothing was copied, and `to` is zero where it is known.
errno_t memcpy_s(void* to, size_t size, const void* from, size_t count);
errno_t memset_s(void* to, size_t size, int value, size_t count);
errno_t strcpy_s(char* to, size_t size, const char* from);
// Characters written without the closing zero; -1 and an empty text when they do not fit or something is wrong.
int snprintf_s(char* to, size_t size, size_t count, const char* format, ...);
int vsnprintf_s(char* to, size_t size, size_t count, const char* format, va_list arguments);

#ifdef __cplusplus
}
#endif
