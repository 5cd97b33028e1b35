// SPDX-License-Identifier: Apache-2.0
// The collective library's function for graphs: it finds the communicator that a node names.
#ifndef HCOM_H_
#define HCOM_H_

#include "hccl/hccl_types.h"

#pragma GCC visibility push(default)
extern "C" {

// The communicator with that name. If the process has several, returns the current device's.
HcclResult HcomGetCommHandleByGroup(const char* group, HcclComm* commHandle);

}  // extern "C"
#pragma GCC visibility pop

#endif
