// SPDX-License-Identifier: Apache-2.0
// The log of errors, for programs that never ask for a message.
#pragma once

#include <string>

namespace cann_cpu {

// Writes a line to the log, and one on stderr where that is the only place in which anybody sees it.
void log_error(const std::string& text);

bool is_torch_npu_loaded();
// Whether stderr gets errors: not in a process with torch_npu, which raises them.
bool errors_are_printed();
// Set while the library is loaded, where it is tested whether the program itself reports them.
inline bool errors_are_hidden = false;

}  // namespace cann_cpu
