// SPDX-License-Identifier: Apache-2.0
#include "module.h"

// CustomOpBuilder defines MS_EXTENSION_NAME as the name that it is given.
PYBIND11_MODULE(MS_EXTENSION_NAME, m) {
  add_advance_step_flashattn(m);
  add_reshape_and_cache(m);
}
