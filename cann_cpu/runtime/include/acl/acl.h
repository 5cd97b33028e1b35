// SPDX-License-Identifier: Apache-2.0
// All of ACL that cann_cpu declares.
#ifndef INC_EXTERNAL_ACL_ACL_H_  // as in torch_npu's copy: a file may include both
#define INC_EXTERNAL_ACL_ACL_H_

#include "acl/acl_base.h"
#include "acl/acl_op.h"
#include "acl/acl_op_compiler.h"
#include "acl/acl_prof.h"
#include "acl/acl_rt.h"
#include "acl/acl_rt_allocator.h"
#include "acl/acl_tdt.h"

#endif
