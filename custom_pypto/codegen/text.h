// SPDX-License-Identifier: Apache-2.0
// Helpers for the printers of prototypes: the comment above a prototype, and lines of a limited width.
#pragma once

#include <string>
#include <vector>

#include "prototype.h"

namespace ge::codegen {

inline constexpr size_t kLineWidth = 120;

// The comment directly above the prototype, without its slashes; what is read is the file that the compiler read.
std::vector<std::string> comment_above(const Prototype& prototype);

// Breaks `text` at blanks; the lines after the first begin with `next_indent`.
std::string wrap(const std::string& text, const std::string& indent, const std::string& next_indent);

}  // namespace ge::codegen
