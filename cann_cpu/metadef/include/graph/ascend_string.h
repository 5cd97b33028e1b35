// SPDX-License-Identifier: Apache-2.0
// ge::AscendString: a string that crosses library borders whatever the string ABI of either side.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "graph/types.h"

namespace ge {

class CANN_EXPORT AscendString {
 public:
  AscendString() = default;
  ~AscendString() = default;
  AscendString(const char_t* name);  // implicit, as CANN's is
  AscendString(const char_t* name, size_t length);

  // Never a null pointer: an empty string reads "".
  const char_t* GetString() const;
  size_t GetLength() const;

  bool operator<(const AscendString& other) const;
  bool operator==(const AscendString& other) const;

 private:
  std::shared_ptr<std::string> name_;
};

}  // namespace ge
