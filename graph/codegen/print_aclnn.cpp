// SPDX-License-Identifier: Apache-2.0
// Prints the C headers of aclnn functions, named as CANN's own generator names files, functions and parameters.
#include <cctype>

#include "printers.h"
#include "text.h"

namespace ge::codegen {
namespace {

bool is_lower(char c) { return std::islower(static_cast<unsigned char>(c)) != 0; }
bool is_upper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }

// Conv2DCustom -> conv2_d_custom, GRUCell -> gru_cell.
std::string snake_case(const std::string& name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool after_word = i > 0 && !is_upper(name[i - 1]);
    const bool begins_word = i > 0 && i + 1 < name.size() && is_lower(name[i + 1]);
    text += is_upper(name[i]) && (after_word || begins_word) ? "_" : "";
    text += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return text;
}

// block_table -> blockTable
std::string lower_camel(const std::string& name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '_') {
      const bool begins_word = i > 0 && name[i - 1] == '_' && !text.empty();
      text += begins_word ? static_cast<char>(std::toupper(static_cast<unsigned char>(name[i]))) : name[i];
    }
  }
  return text;
}

struct Parameter {
  std::string name;       // in C
  std::string prototype;  // what the prototype calls it
  std::string type;
  std::string note;
};

template <typename T>
const T* find(const std::vector<T>& entries, const std::string& name) {
  for (const T& entry : entries) {
    if (entry.name == name) {
      return &entry;
    }
  }
  return nullptr;
}

Parameter parameter(const Input& input, const Prototype& prototype) {
  const bool written = find(prototype.outputs, input.name) != nullptr;
  const bool optional = input.presence == Presence::kOptional;
  const std::string object = input.presence == Presence::kDynamic ? "aclTensorList*" : "aclTensor*";
  return {lower_camel(input.name) + (written ? "Ref" : "") + (optional ? "Optional" : ""), input.name,
          (written ? "" : "const ") + object,
          input.types + (optional ? "; may be null" : "") + (written ? "; read and written" : "")};
}

Parameter parameter(const Attribute& attribute) {
  const std::string type = attribute.aclnn_type == nullptr ? "" : attribute.aclnn_type;
  const bool optional = !attribute.value.empty() && type.rfind('*') != std::string::npos;
  return {lower_camel(attribute.name) + (optional ? "Optional" : ""), attribute.name, type,
          attribute.value.empty() ? "no default in a graph" : "in a graph by default " + attribute.value};
}

Parameter parameter(const Output& output, const Prototype& prototype) {
  return {prototype.outputs.size() == 1 ? "out" : lower_camel(output.name) + "Out", output.name,
          output.dynamic ? "const aclTensorList*" : "const aclTensor*", output.types + "; written"};
}

// Inputs, attributes, outputs; an output that bears an input's name is that input's parameter.
std::vector<Parameter> parameters(Prototype& prototype) {
  std::vector<Parameter> all;
  for (const Input& input : prototype.inputs) {
    all.push_back(parameter(input, prototype));
  }
  for (const Attribute& attribute : prototype.attributes) {
    if (attribute.aclnn_type == nullptr) {
      prototype.errors.push_back("attribute '" + attribute.name + "' is a " + attribute.kind +
                                 ", which no aclnn function takes");
    }
    all.push_back(parameter(attribute));
  }
  for (const Output& output : prototype.outputs) {
    if (find(prototype.inputs, output.name) == nullptr) {
      all.push_back(parameter(output, prototype));
    }
  }
  return all;
}

std::string comment(const Prototype& prototype) {
  std::string text;
  for (const std::string& line : comment_above(prototype)) {
    text += line.empty() ? "//\n" : "// " + line + "\n";
  }
  return text.empty() ? "// GE operator " + prototype.type + ".\n" : text;
}

std::string phase_one(const Prototype& prototype, const std::vector<Parameter>& parameters) {
  std::string text = "// Phase one: checks the arguments and stores the call.\n";
  std::string declaration =
      "__attribute__((visibility(\"default\"))) aclnnStatus aclnn" + prototype.type + "GetWorkspaceSize(\n";
  for (const Parameter& parameter : parameters) {
    const std::string in_prototype = parameter.prototype == parameter.name ? "" : parameter.prototype + ", ";
    text += wrap(parameter.name + ": " + in_prototype + parameter.note, "//   ", "//       ");
    declaration += "    " + parameter.type + " " + parameter.name + ",\n";
  }
  return text +
         "//   workspaceSize, executor: set for phase two\n"
         "// Returns 0, or 161001 for a null pointer, or 161002 for an argument that does not fit; aclGetRecentErrMsg "
         "says which.\n" +
         declaration + "    uint64_t* workspaceSize,\n    aclOpExecutor** executor);\n";
}

std::string header(Prototype& prototype) {
  const std::vector<Parameter> all = parameters(prototype);
  return "// Generated from the prototype of " + prototype.type + ": edit that.\n//\n" + comment(prototype) +
         R"(#pragma once

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

)" + phase_one(prototype, all) +
         R"(
// Phase two: enqueues the call on the stream. A value that only the device can see and that does not fit is an error of
// the stream.
__attribute__((visibility("default"))) aclnnStatus aclnn)" +
         prototype.type + R"((
    void* workspace,
    uint64_t workspaceSize,
    aclOpExecutor* executor,
    aclrtStream stream);

#ifdef __cplusplus
}
#endif
)";
}

}  // namespace

std::map<std::string, std::string> aclnn_headers(std::vector<Prototype>& prototypes) {
  std::map<std::string, std::string> headers;
  for (Prototype& prototype : prototypes) {
    headers.emplace("aclnn_" + snake_case(prototype.type) + ".h", header(prototype));
  }
  return headers;
}

}  // namespace ge::codegen
