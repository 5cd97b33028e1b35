// SPDX-License-Identifier: Apache-2.0
// The log by its names of CANN 9. `type` names a file of CANN's; here all lines go to one.
#pragma once

#include <stdint.h>

#include "base/log_types.h"

#ifdef __cplusplus
extern "C" {
#endif

int32_t AlogCheckDebugLevel(uint32_t moduleId, int32_t level);
__attribute__((format(printf, 4, 5))) void AlogRecord(uint32_t moduleId, uint32_t type, int32_t level, const char* fmt,
                                                      ...);

#ifdef __cplusplus
}
#endif
