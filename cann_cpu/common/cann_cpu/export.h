// SPDX-License-Identifier: Apache-2.0
// Marks what a library of cann_cpu exports; everything else is hidden.
#pragma once

#define CANN_EXPORT __attribute__((visibility("default")))
