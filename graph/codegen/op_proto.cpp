// SPDX-License-Identifier: Apache-2.0
// Registers every prototype of the header PROTOTYPES: with Graph Engine, which opens this as a library, and, compiled
// with the operator_reg.h beside it, with the generator.
#include PROTOTYPES
