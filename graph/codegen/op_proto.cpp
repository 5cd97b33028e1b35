// SPDX-License-Identifier: Apache-2.0
// Registers every prototype with Graph Engine when it opens this library.
#include PROTOTYPES
