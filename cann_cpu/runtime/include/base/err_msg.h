// SPDX-License-Identifier: Apache-2.0
// Errors that operators report by a code; they are in the call's error.
#pragma once

#include "acl/acl_base.h"

#define REPORT_INNER_ERR_MSG(code, format, ...) \
  aclAppLog(ACL_ERROR, __func__, __FILE__, __LINE__, "%s: " format, code __VA_OPT__(, ) __VA_ARGS__)
