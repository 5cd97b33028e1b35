// SPDX-License-Identifier: Apache-2.0
// ge::AscendString.
#include "graph/ascend_string.h"

namespace ge {

AscendString::AscendString(const char_t* name)
    : name_(name == nullptr ? nullptr : std::make_shared<std::string>(name)) {}

AscendString::AscendString(const char_t* name, size_t length)
    : name_(name == nullptr ? nullptr : std::make_shared<std::string>(name, length)) {}

const char_t* AscendString::GetString() const { return name_ == nullptr ? "" : name_->c_str(); }

size_t AscendString::GetLength() const { return name_ == nullptr ? 0 : name_->size(); }

bool AscendString::operator<(const AscendString& other) const {
  if (name_ == nullptr || other.name_ == nullptr) {
    return name_ == nullptr && other.name_ != nullptr;
  }
  return *name_ < *other.name_;
}

bool AscendString::operator==(const AscendString& other) const {
  if (name_ == nullptr || other.name_ == nullptr) {
    return name_ == other.name_;
  }
  return *name_ == *other.name_;
}

}  // namespace ge
