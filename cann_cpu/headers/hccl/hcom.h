// SPDX-License-Identifier: Apache-2.0
// What graphs ask of the collective library: the communicator that a node names.
#ifndef HCOM_H_
#define HCOM_H_

#include "hccl/hccl_types.h"

#pragma GCC visibility push(default)
extern "C" {

// The living communicator of that name; where the process has several, that of the current device.
HcclResult HcomGetCommHandleByGroup(const char* group, HcclComm* commHandle);

}  // extern "C"
#pragma GCC visibility pop

#endif
