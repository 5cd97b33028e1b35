// SPDX-License-Identifier: Apache-2.0
// Writes the files of a profiled launch: a summary, and a trace for Chrome's viewer and Perfetto.
#pragma once

#include <string>
#include <vector>

#include "ascendc/launch.h"
#include "ascendc/profile.h"
#include "recorder.h"
#include "team.h"

namespace AscendC::cpu {

// The folder that ASCENDC_CPU_PROFILE names, in which each launch writes its files; null if it names none.
const char* profile_folder();

struct Launched {
  const char* kernel;
  uint32_t blocks;
  uint64_t buffer_bytes;  // of the unified buffer, of the core that takes most
  const Team& team;
  const std::vector<Recorder>& programs;
};

// To the files of a profile, or to new ones in profile_folder(); KernelError if they cannot be written.
void write_profile(const Launched& launched, const Profile* profile);

}  // namespace AscendC::cpu
