// SPDX-License-Identifier: Apache-2.0
// Prints the Python GE API of the prototypes.
#include <set>

#include "printers.h"
#include "text.h"

namespace ge::codegen {
namespace {

// A C++ name as a Python parameter: a keyword, or what the function's body uses, gets an underscore.
std::string parameter(const std::string& name) {
  static const std::set<std::string> kTaken = {
      "IR",      "attr",  "ge_op", "list",   "False",    "None",   "True",  "and",  "as",     "assert",
      "async",   "await", "break", "class",  "continue", "def",    "del",   "elif", "else",   "except",
      "finally", "for",   "from",  "global", "if",       "import", "in",    "is",   "lambda", "nonlocal",
      "not",     "or",    "pass",  "raise",  "return",   "try",    "while", "with", "yield"};
  return kTaken.count(name) ? name + "_" : name;
}

std::string in_docstring(const std::string& text) {
  std::string escaped;
  for (size_t i = 0; i < text.size(); ++i) {
    escaped += text[i] == '\\' || text.compare(i, 3, "\"\"\"") == 0 ? "\\" : "";
    escaped += text[i];
  }
  return escaped;
}

// How IrDef, a type hint and a docstring call an input.
struct InputWords {
  const char* method;
  const char* hint;
  const char* note;
};

InputWords words(Presence presence) {
  switch (presence) {
    case Presence::kOptional:
      return {"optional_input", "Tensor | None", "optional, "};
    case Presence::kDynamic:
      return {"dynamic_input", "list[Tensor]", "any number, "};
    default:
      return {"input", "Tensor", ""};
  }
}

// `heading` and a line per entry, or nothing.
template <typename T, typename Describe>
std::string section(const char* heading, const std::vector<T>& entries, Describe describe) {
  std::string text;
  for (const T& entry : entries) {
    text += wrap(in_docstring(describe(entry)), "        ", "            ");
  }
  return text.empty() ? "" : std::string("    ") + heading + ":\n" + text;
}

std::string docstring(const Prototype& prototype) {
  std::string text;
  for (const std::string& line : comment_above(prototype)) {
    text += text.empty() ? in_docstring(line) : "\n" + (line.empty() ? "" : "    " + in_docstring(line));
  }
  if (text.empty()) {
    text = "GE operator " + prototype.type + ".";
  }
  std::string parameters = section("Inputs", prototype.inputs,
                                   [](const Input& input) {
                                     return parameter(input.name) + ": " + words(input.presence).note + input.types;
                                   }) +
                           section("Attributes", prototype.attributes,
                                   [](const Attribute& attribute) {
                                     return parameter(attribute.name) + ": " +
                                            (attribute.value.empty() ? "required" : "default " + attribute.value);
                                   }) +
                           section("Outputs", prototype.outputs, [](const Output& output) {
                             return output.name + ": " + (output.dynamic ? "any number, " : "") + output.types;
                           });
  if (!parameters.empty()) {
    text += "\n\n" + parameters + "    ";
  } else if (text.find('\n') != std::string::npos) {
    text += "\n    ";
  }
  return "    \"\"\"" + text + "\"\"\"\n";
}

std::string returned(const std::vector<Output>& outputs) {
  if (outputs.empty()) {
    return "None";
  }
  std::string hints;
  for (const Output& output : outputs) {
    hints += (hints.empty() ? "" : ", ") + std::string(output.dynamic ? "list[Tensor]" : "Tensor");
  }
  return outputs.size() == 1 ? hints : "tuple[" + hints + "]";
}

std::string size_parameter(const Output& output) { return "size_of_" + output.name; }

std::string signature(const Prototype& prototype) {
  std::string text = "def " + prototype.type + "(\n";
  for (const Input& input : prototype.inputs) {
    text += "    " + parameter(input.name) + ": " + words(input.presence).hint + ",\n";
  }
  text += "    *,\n";
  for (const Output& output : prototype.outputs) {
    text += output.dynamic ? "    " + size_parameter(output) + ": int,\n" : "";
  }
  for (const Attribute& attribute : prototype.attributes) {
    text += "    " + parameter(attribute.name) + ": " + attribute.hint +
            (attribute.value.empty() ? "" : " = " + attribute.value) + ",\n";
  }
  return text +
         "    dependencies: list[Tensor] | None = None,\n"
         "    node_name: str | None = None,\n"
         ") -> " +
         returned(prototype.outputs) + ":\n";
}

// A list of names as the value of a Python keyword argument: on a line each, or the empty brackets.
template <typename T, typename Describe>
std::string bracketed(const std::string& name, const char* brackets, const std::vector<T>& entries, Describe describe) {
  std::string text;
  for (const T& entry : entries) {
    text += "            " + describe(entry) + ",\n";
  }
  return "        " + name + "=" + brackets[0] + (text.empty() ? "" : "\n" + text + "        ") + brackets[1] + ",\n";
}

// Tuples become the lists that IrDef's defaults are compared with.
std::string as_attribute(const Attribute& attribute, const std::string& value) {
  std::string kind = attribute.kind, argument = value;
  if (kind.rfind("ListList", 0) == 0) {
    argument = "[list(row) for row in " + value + "]";
  } else if (kind.rfind("List", 0) == 0) {
    argument = "list(" + value + ")";
  }
  return "attr." + kind + "(" + argument + ")";
}

std::string body(const Prototype& prototype) {
  return "    return ge_op(\n        op_type=" + literal(prototype.type) + ",\n" +
         bracketed("inputs", "{}", prototype.inputs,
                   [](const Input& input) { return literal(input.name) + ": " + parameter(input.name); }) +
         bracketed("attrs", "{}", prototype.attributes,
                   [](const Attribute& attribute) {
                     return literal(attribute.name) + ": " + as_attribute(attribute, parameter(attribute.name));
                   }) +
         bracketed("outputs", "[]", prototype.outputs,
                   [](const Output& output) {
                     return output.dynamic ? "(" + literal(output.name) + ", " + size_parameter(output) + ")"
                                           : literal(output.name);
                   }) +
         "        dependencies=dependencies,\n"
         "        node_name=node_name,\n"
         "        ir=IR[" +
         literal(prototype.type) + "],\n    )\n";
}

std::string flags(const std::vector<Input>& inputs, Presence presence) {
  std::string text;
  for (const Input& input : inputs) {
    text += (text.empty() ? "" : ", ") + literal(input.presence == presence);
  }
  return "[" + text + "]";
}

std::string decorator(const Prototype& prototype) {
  const std::string dynamic = flags(prototype.inputs, Presence::kDynamic);
  const std::string optional = flags(prototype.inputs, Presence::kOptional);
  std::string line = "@auto_convert_to_tensor(" + dynamic + ", " + optional + ")\n";
  if (line.size() <= kLineWidth + 1) {
    return line;
  }
  line = "    " + dynamic + ", " + optional + "\n";
  if (line.size() > kLineWidth + 1) {
    line = wrap(dynamic + ",", "    ", "        ") + wrap(optional + ",", "    ", "        ");
  }
  return "@auto_convert_to_tensor(\n" + line + ")\n";
}

std::string function(const Prototype& prototype) {
  return decorator(prototype) + signature(prototype) + docstring(prototype) + body(prototype);
}

// A call in the chain that makes an IrDef, on as many lines as it needs.
std::string chained(const std::string& method, const std::string& name, const std::string& value) {
  std::string arguments = literal(name) + ", " + value;
  std::string line = "    ." + method + "(" + arguments + ")\n";
  if (line.size() <= kLineWidth + 1) {
    return line;
  }
  if (arguments.size() + 8 > kLineWidth) {
    arguments = literal(name) + ",\n        " + value + ",";
  }
  return "    ." + method + "(\n        " + arguments + "\n    )\n";
}

std::string ir_definition(const Prototype& prototype) {
  std::string text;
  for (const Input& input : prototype.inputs) {
    text += chained(words(input.presence).method, input.name, literal(input.types));
  }
  for (const Attribute& attribute : prototype.attributes) {
    text += attribute.value.empty() ? chained("required_attr", attribute.name, std::string("attr.") + attribute.kind)
                                    : chained("attr", attribute.name, as_attribute(attribute, attribute.value));
  }
  for (const Output& output : prototype.outputs) {
    text += chained(output.dynamic ? "dynamic_output" : "output", output.name, literal(output.types));
  }
  std::string key = literal(prototype.type);
  return "IR[" + key + "] = " + (text.empty() ? "IrDef(" + key + ")\n" : "(\n    IrDef(" + key + ")\n" + text + ")\n");
}

}  // namespace

std::string python_module(const std::vector<Prototype>& prototypes) {
  std::string functions;
  for (const Prototype& prototype : prototypes) {
    functions += (functions.empty() ? "\n" : "\n\n") + ir_definition(prototype) + "\n\n" + function(prototype);
  }
  auto when_used = [&](const char* name, const char* text) {
    return functions.find(name) == std::string::npos ? "" : text;
  };
  return std::string(
             R"("""The Graph Engine API of the custom operators: a function per prototype adds its node to the graph.

Generated of the operators' definitions in opp/op_host: edit those.
"""

)") + when_used("Sequence[", "from collections.abc import Sequence\n\n") +
         "from torchair._ge_concrete_graph.compat_ir import IrDef, ge_op\nfrom torchair.ge import " +
         when_used("DataType.", "DataType, ") + R"(Tensor, attr
from torchair.ge._ge_graph import auto_convert_to_tensor

# What each operator type takes and gives.
IR: dict[str, IrDef] = {}
)" + functions;
}

}  // namespace ge::codegen
