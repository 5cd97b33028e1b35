// SPDX-License-Identifier: Apache-2.0
// Reads the comment above a prototype, and breaks lines.
#include "text.h"

#include <fstream>
#include <sstream>

namespace ge::codegen {

std::vector<std::string> comment_above(const Prototype& prototype) {
  std::ifstream file(prototype.file);
  std::vector<std::string> comment;
  std::string line;
  for (int number = 1; number < prototype.line && std::getline(file, line); ++number) {
    if (line.rfind("//", 0) == 0) {
      comment.push_back(line.substr(line.rfind("// ", 0) == 0 ? 3 : 2));
    } else {
      comment.clear();
    }
  }
  return comment;
}

std::string wrap(const std::string& text, const std::string& indent, const std::string& next_indent) {
  std::istringstream words(text);
  std::string lines, line = indent, word;
  for (bool first = true; words >> word; first = false) {
    if (!first && line.size() + 1 + word.size() > kLineWidth) {
      lines += line + "\n";
      line = next_indent;
      first = true;
    }
    line += (first ? "" : " ") + word;
  }
  return lines + line + "\n";
}

}  // namespace ge::codegen
