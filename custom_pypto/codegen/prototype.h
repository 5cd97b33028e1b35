// SPDX-License-Identifier: Apache-2.0
// The generator's representation of a prototype, and the builder that the collecting operator_reg.h fills it with.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/types.h"

namespace ge::codegen {

enum class Presence { kRequired, kOptional, kDynamic };

struct Input {
  std::string name;
  std::string types;  // "DT_FLOAT16, DT_BF16", or a symbol that DATATYPE explains
  Presence presence;
};

struct Output {
  std::string name;
  std::string types;
  bool dynamic;
};

struct Attribute {
  std::string name;
  const char* kind;        // of torchair.ge.attr: Int, ListFloat, ...
  const char* hint;        // the Python type
  const char* aclnn_type;  // of the aclnn function's parameter; null: it takes none
  std::string value;       // the default as a Python literal; empty when required
};

struct Prototype {
  std::string type;
  std::string file;
  int line = 0;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<Attribute> attributes;
  std::map<std::string, std::string> type_symbols;
  std::vector<std::string> errors;
};

inline std::vector<Prototype>& prototypes() {
  static std::vector<Prototype> all;
  return all;
}

// A C++ value as a Python literal.
inline std::string literal(int64_t value) { return std::to_string(value); }
inline std::string literal(bool value) { return value ? "True" : "False"; }

inline std::string literal(float value) {
  if (!std::isfinite(value)) {
    return std::isnan(value) ? "float(\"nan\")" : value > 0 ? "float(\"inf\")" : "float(\"-inf\")";
  }
  char text[32];
  std::string digits(text, std::to_chars(text, text + sizeof(text), value).ptr);  // the shortest that reads back equal
  return digits.find_first_of(".e") == std::string::npos ? digits + ".0" : digits;
}

inline std::string literal(const std::string& value) {
  static const char kHex[] = "0123456789abcdef";
  std::string text = "\"";
  for (unsigned char c : value) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += static_cast<char>(c);
    } else if (c == '\n') {
      text += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      text += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
    } else {
      text += static_cast<char>(c);
    }
  }
  return text + "\"";
}

inline std::string literal(DataType value) { return std::string("DataType.") + data_type_name(value); }

// A list is printed as a tuple: it is a parameter's default.
template <typename T>
std::string literal(const std::vector<T>& values) {
  std::string text = "(";
  for (size_t i = 0; i < values.size(); ++i) {
    text += (i ? ", " : "") + literal(static_cast<T>(values[i]));
  }
  return text + (values.size() == 1 ? ",)" : ")");
}

// torchair's name, Python's type and aclnn's type of each attribute type.
struct AttributeType {
  const char* kind;
  const char* hint;
  const char* aclnn_type;
};
inline AttributeType attribute_type(const int64_t*) { return {"Int", "int", "int64_t"}; }
inline AttributeType attribute_type(const float*) { return {"Float", "float", "double"}; }
inline AttributeType attribute_type(const bool*) { return {"Bool", "bool", "bool"}; }
inline AttributeType attribute_type(const std::string*) { return {"Str", "str", "char*"}; }
inline AttributeType attribute_type(const DataType*) { return {"DataType", "int", "aclDataType"}; }
inline AttributeType attribute_type(const std::vector<int64_t>*) {
  return {"ListInt", "Sequence[int]", "const aclIntArray*"};
}
inline AttributeType attribute_type(const std::vector<float>*) {
  return {"ListFloat", "Sequence[float]", "const aclFloatArray*"};
}
inline AttributeType attribute_type(const std::vector<bool>*) {
  return {"ListBool", "Sequence[bool]", "const aclBoolArray*"};
}
inline AttributeType attribute_type(const std::vector<std::string>*) { return {"ListStr", "Sequence[str]", nullptr}; }
inline AttributeType attribute_type(const std::vector<DataType>*) { return {"ListDataType", "Sequence[int]", nullptr}; }
inline AttributeType attribute_type(const std::vector<std::vector<int64_t>>*) {
  return {"ListListInt", "Sequence[Sequence[int]]", nullptr};
}
inline AttributeType attribute_type(const std::vector<std::vector<float>>*) {
  return {"ListListFloat", "Sequence[Sequence[float]]", nullptr};
}

// Each macro of the chain that begins with REG_OP is one call of these; End makes the prototype known.
class PrototypeBuilder {
 public:
  PrototypeBuilder(const char* type, const char* file, int line) {
    prototype_.type = type;
    prototype_.file = file;
    prototype_.line = line;
    for (const Prototype& other : prototypes()) {
      check(other.type != type, "is registered a second time");
    }
  }

  PrototypeBuilder& AddInput(const char* name, const char* types, Presence presence) {
    check_name("input", name);
    prototype_.inputs.push_back({name, plain_types(types), presence});
    return *this;
  }

  // An output may have an input's name: the operator then writes that input in place.
  PrototypeBuilder& AddOutput(const char* name, const char* types, bool dynamic) {
    check(!contains(prototype_.outputs, name), std::string("output '") + name + "' is declared twice");
    prototype_.outputs.push_back({name, plain_types(types), dynamic});
    return *this;
  }

  template <typename T>
  PrototypeBuilder& AddRequiredAttribute(const char* name) {
    check_name("attribute", name);
    AttributeType type = attribute_type(static_cast<const T*>(nullptr));
    prototype_.attributes.push_back({name, type.kind, type.hint, type.aclnn_type, ""});
    return *this;
  }

  template <typename T>
  PrototypeBuilder& AddAttribute(const char* name, const T& value) {
    AddRequiredAttribute<T>(name);
    prototype_.attributes.back().value = literal(value);
    return *this;
  }

  PrototypeBuilder& AddTypeSymbol(const char* symbol, const char* types) {
    check(prototype_.type_symbols.emplace(symbol, plain_types(types)).second,
          std::string("data type '") + symbol + "' is declared twice");
    return *this;
  }

  bool End(const char* type) {
    check(prototype_.type == type, std::string("ends as ") + type);
    resolve(prototype_.inputs);
    resolve(prototype_.outputs);
    prototypes().push_back(prototype_);
    return true;
  }

 private:
  void check(bool condition, const std::string& error) {
    if (!condition) {
      prototype_.errors.push_back(error);
    }
  }

  template <typename T>
  static bool contains(const std::vector<T>& entries, const std::string& name) {
    return std::any_of(entries.begin(), entries.end(), [&](const T& entry) { return entry.name == name; });
  }

  // Inputs and attributes are parameters of one Python function.
  void check_name(const char* what, const std::string& name) {
    check(!contains(prototype_.inputs, name) && !contains(prototype_.attributes, name),
          std::string(what) + " '" + name + "' is declared twice");
    check(name != "dependencies" && name != "node_name",
          std::string(what) + " '" + name + "' has the name of a parameter of every operator");
  }

  // ge::TensorType({ge::DT_A, ge::DT_B}) -> DT_A, DT_B; TensorType::ALL() -> ALL; "T" -> T.
  static std::string plain_types(std::string text) {
    constexpr std::string_view kNamespace = "ge::";
    for (size_t at; (at = text.find(kNamespace)) != std::string::npos;) text.erase(at, kNamespace.size());
    size_t open = text.find('{'), close = text.rfind('}');
    if (open != std::string::npos && close != std::string::npos) {
      return text.substr(open + 1, close - open - 1);
    }
    size_t begin = text.rfind(':') == std::string::npos ? 0 : text.rfind(':') + 1;
    std::string name;
    std::copy_if(text.begin() + begin, text.end(), std::back_inserter(name),
                 [](unsigned char c) { return std::isalnum(c) || c == '_'; });
    return name;
  }

  template <typename T>
  void resolve(std::vector<T>& entries) {
    for (T& entry : entries) {
      auto symbol = prototype_.type_symbols.find(entry.types);
      entry.types = symbol == prototype_.type_symbols.end() ? entry.types : symbol->second;
    }
  }

  Prototype prototype_;
};

}  // namespace ge::codegen
