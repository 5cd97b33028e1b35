// SPDX-License-Identifier: Apache-2.0
// The C interface that starts and ends what aclnn functions share in a process.
#pragma once

#include "aclnn/acl_meta.h"

extern "C" {
// Reads the file, as aclInit does; null or empty where there is none. It is not needed beside aclInit.
CANN_EXPORT aclnnStatus aclnnInit(const char* config_path);
// Forgets the calls that are kept to be repeated without phase one.
CANN_EXPORT aclnnStatus aclnnFinalize();
}
