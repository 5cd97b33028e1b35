// SPDX-License-Identifier: Apache-2.0
// Each file of operators adds its functions to the one Python module of the library.
#pragma once

#include <pybind11/pybind11.h>

void add_advance_step_flashattn(pybind11::module_& module);
void add_reshape_and_cache(pybind11::module_& module);
