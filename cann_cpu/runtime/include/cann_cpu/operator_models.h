// SPDX-License-Identifier: Apache-2.0
// Models of single operators, which cann_cpu.toolkit.atc writes: for which descriptions aclopExecute runs an operator.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cann_cpu/aclop.h"
#include "cann_cpu/export.h"

namespace cann_cpu {

struct OperatorModel {
  struct Dim {
    int64_t first, last;  // last: -1 is no limit
  };
  struct Description {
    int type, format;
    std::vector<Dim> dims;
  };
  std::string name, type;
  std::vector<Description> inputs, outputs;
  std::map<std::string, std::string> attributes;
};

// Throws Failure for what is no model, by its name.
OperatorModel read_operator_model(const std::string& text, const std::string& name);

// Adds the models of a folder, or one that is read already. Throws Failure.
void load_models(const std::filesystem::path& folder);
void load_model(const std::string& text, const std::string& name);

// Throws Failure, with the code of what does not match, unless a model is of this operator and these descriptions.
CANN_EXPORT void require_model(const SingleOperator& op);

}  // namespace cann_cpu
