// SPDX-License-Identifier: Apache-2.0
// What is fuzzed: one reader of files that others write; each reader has its own source file.
#pragma once

#include <string>

// Whether these are the contents of such a file. Anything but an answer is a fault: another exception than the reader's
// own, an error that a sanitizer sees, seconds of work.
bool is_valid(const std::string& contents);
