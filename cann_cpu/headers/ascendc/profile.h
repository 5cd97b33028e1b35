// SPDX-License-Identifier: Apache-2.0
// Where a checked launch writes what it asked of the device, and how long that takes by the model of its cost.
#pragma once

namespace AscendC::cpu {

struct Profile {
  const char* summary;   // a file of JSON
  const char* timeline;  // a Chrome trace; null: none
};

}  // namespace AscendC::cpu
