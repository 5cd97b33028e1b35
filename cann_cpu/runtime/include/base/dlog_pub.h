// SPDX-License-Identifier: Apache-2.0
// CANN's log, as operators write to it. What is logged as an error is in the call's error.
#ifndef DLOG_PUB_H_
#define DLOG_PUB_H_

#include <stdint.h>

#include "base/log_types.h"

#ifdef __cplusplus
extern "C" {
#endif

// Whether lines of this level are logged.
int32_t CheckLogLevel(int32_t moduleId, int32_t logLevel);
__attribute__((format(printf, 3, 4))) void DlogRecord(int32_t moduleId, int32_t level, const char* fmt, ...);

#ifdef __cplusplus
}
#endif

#define CANN_CPU_DLOG(module, level, format, ...)                                                 \
  do {                                                                                            \
    if (CheckLogLevel(module, level) == 1)                                                        \
      DlogRecord(module, level, "[%s:%d]" format, __FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__); \
  } while (0)
#define dlog_error(module, ...) CANN_CPU_DLOG(module, DLOG_ERROR, __VA_ARGS__)
#define dlog_warn(module, ...) CANN_CPU_DLOG(module, DLOG_WARN, __VA_ARGS__)
#define dlog_info(module, ...) CANN_CPU_DLOG(module, DLOG_INFO, __VA_ARGS__)
#define dlog_debug(module, ...) CANN_CPU_DLOG(module, DLOG_DEBUG, __VA_ARGS__)

#endif
