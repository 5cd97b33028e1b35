// SPDX-License-Identifier: Apache-2.0
// The last message of the application log.
#pragma once

#include <string>

#include "cann_cpu/export.h"

namespace cann_cpu {

// The last error that this thread has logged with aclAppLog since this was last asked; empty if there is none.
CANN_EXPORT std::string take_logged_error();

}  // namespace cann_cpu
