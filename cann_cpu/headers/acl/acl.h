// SPDX-License-Identifier: Apache-2.0
// All of ACL that cann_cpu declares.
#pragma once

#include "acl/acl_base.h"
#include "acl/acl_op.h"
#include "acl/acl_op_compiler.h"
#include "acl/acl_rt.h"
#include "acl/acl_tdt.h"
