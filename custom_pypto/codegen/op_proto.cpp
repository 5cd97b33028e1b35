// SPDX-License-Identifier: Apache-2.0
// Registers every prototype of the header PROTOTYPES with the generator, by the operator_reg.h beside it.
#include PROTOTYPES
