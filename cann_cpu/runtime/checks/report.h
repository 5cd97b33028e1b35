// SPDX-License-Identifier: Apache-2.0
// What the checks of whole programs are, and how they tell what they found.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace cann_cpu {

enum class Check { kCost, kFault, kMemory, kRace, kSchedule };

// Whether CANN_CPU_CHECK has it: a list of names with commas, of which some have more behind a colon.
bool is_on(Check check);
// What is behind the colons of that check's names.
std::vector<std::string> given_to(Check check);
// Throws Failure for a name that no check has.
void require_known_checks();

// Tells it once of each `key`: in a few lines of standard error and, for CI, as a line of JSON in the file that
// CANN_CPU_CHECK_REPORT names.
void report(Check check, const std::string& key, const std::string& text,
            const std::map<std::string, std::string>& fields);

// The second half of that alone: appends a line, for CI.
void report_line(const std::string& json);

}  // namespace cann_cpu
