// SPDX-License-Identifier: Apache-2.0
// The structs of tilings that a kernel file includes by this name; those of its own come with it.
#pragma once

#include "kernel_operator.h"
