// SPDX-License-Identifier: Apache-2.0
// The checks of whole programs, and how they report their findings.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cann_cpu/json.h"

namespace cann_cpu {

enum class Check { kCost, kFault, kMemory, kRace, kSchedule };

// Whether CANN_CPU_CHECK, a comma-separated list of names, has the check. Some names have more text after a colon.
bool is_on(Check check);
// The texts after the colons of that check's names.
std::vector<std::string> given_to(Check check);
// Throws Failure for a name that no check has.
void require_known_checks();

// Reports a finding once per `key`: in a few lines on standard error and, for CI, as a line of JSON in the file that
// CANN_CPU_CHECK_REPORT names.
void report(Check check, const std::string& key, const std::string& text,
            const std::map<std::string, std::string>& fields);

// Appends a line to the file for CI alone.
void report_line(const Json& json);

}  // namespace cann_cpu
