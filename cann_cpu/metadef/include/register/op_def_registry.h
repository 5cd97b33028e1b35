// SPDX-License-Identifier: Apache-2.0
// OP_ADD: makes a definition known, to the build of its package and, when the package's library is loaded, to calls.
#pragma once

#include "register/op_def.h"
#include "register/op_impl_registry.h"
#include "register/tilingdata_base.h"
#include "tiling/platform/platform_ascendc.h"

// CANN takes the type that TilingParse fills as a second argument. Here it comes from IMPL_OP_OPTILING.
#define OP_ADD(Type, ...) static const ::ops::OpDefRegistration CANN_CPU_JOIN(g_definition_, Type)(#Type, Type(#Type))
