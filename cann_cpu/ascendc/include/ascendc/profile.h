// SPDX-License-Identifier: Apache-2.0
// The profile of a checked launch: its operations on the device, and their time by the cost model.
#pragma once

namespace AscendC::cpu {

struct Profile {
  const char* summary;   // a file of JSON
  const char* timeline;  // a Chrome trace; null: none
};

}  // namespace AscendC::cpu
