// SPDX-License-Identifier: Apache-2.0
// Reads models of single operators, and finds the one for a call. A model is lines of words:
//
//     cann_cpu single operator 1
//     soc Ascend910B3
//     op AddCustom
//     input DTYPE FORMAT DIM...        by ACL's numbers; a DIM is -1, or -1:FIRST:LAST, if it may be any
//     output DTYPE FORMAT DIM...
//     attr NAME VALUE                  as text_of() writes it
#include "cann_cpu/operator_models.h"

#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>
#include <string_view>

#include "cann_cpu/call.h"
#include "cann_cpu/dtypes.h"
#include "cann_cpu/read_number.h"
#include "cann_cpu/soc.h"

namespace cann_cpu {
namespace {

constexpr const char* kFirstLine = "cann_cpu single operator 1";

using Description = OperatorModel::Description;

struct Models {
  std::mutex mutex;
  std::vector<OperatorModel> all;
};
Models& models() {
  static auto* const instance = new Models;
  return *instance;
}

std::string text_of(bool value) { return value ? "1" : "0"; }
std::string text_of(int64_t value) { return std::to_string(value); }
std::string text_of(aclDataType value) { return std::to_string(static_cast<int>(value)); }
std::string text_of(const std::string& value) { return value; }
std::string text_of(float value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.9g", static_cast<double>(value));
  return text;
}
template <class T>
std::string text_of(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& value : values) {
    if (text.size() > 1) text += ',';
    text += text_of(value);
  }
  return text += ']';
}

std::string text_of(const aclTensorDesc& desc) { return dtype_name(desc.type) + text_of(desc.dims); }
std::string text_of(const Description& description) {
  std::vector<int64_t> dims;
  for (const OperatorModel::Dim& dim : description.dims) dims.push_back(dim.first == dim.last ? dim.first : -1);
  return dtype_name(static_cast<aclDataType>(description.type)) + text_of(dims);
}

// DIM, -1 or -1:FIRST:LAST.
std::optional<OperatorModel::Dim> read_dim(std::string_view text) {
  const size_t first = text.find(':'), last = text.rfind(':');
  const auto size = read_number<int64_t>(text.substr(0, first));
  if (!size || *size < -1) return std::nullopt;
  if (first == std::string_view::npos) return *size < 0 ? OperatorModel::Dim{0, -1} : OperatorModel::Dim{*size, *size};
  const auto min = read_number<int64_t>(text.substr(first + 1, last - first - 1));
  const auto max = read_number<int64_t>(text.substr(last + 1));
  if (*size != -1 || first == last || !min || !max || *min < 0 || *max < -1) return std::nullopt;
  return OperatorModel::Dim{*min, *max};
}

// DTYPE FORMAT DIM...
std::optional<Description> read_description(std::istream& words) {
  std::string type, format, dim;
  words >> type >> format;
  const auto type_number = read_number<int>(type), format_number = read_number<int>(format);
  if (!type_number || !format_number) return std::nullopt;
  Description description{*type_number, *format_number, {}};
  while (words >> dim) {
    const auto read = read_dim(dim);
    if (!read) return std::nullopt;
    description.dims.push_back(*read);
  }
  return description;
}

bool fits(const aclTensorDesc& desc, const Description& model) {
  if (desc.type != model.type || desc.format != model.format || desc.dims.size() != model.dims.size()) return false;
  for (size_t i = 0; i < desc.dims.size(); ++i) {
    const OperatorModel::Dim& dim = model.dims[i];
    if (desc.dims[i] < dim.first || (dim.last >= 0 && desc.dims[i] > dim.last)) return false;
  }
  return true;
}

// What does not fit; empty if all does.
std::string mismatch(const char* kind, const std::vector<Operand>& given, const std::vector<Description>& model) {
  if (given.size() != model.size()) {
    return std::to_string(given.size()) + " " + kind + "s are given, and the model has " + std::to_string(model.size());
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (!fits(given[i].desc, model[i])) {
      return std::string(kind) + " " + std::to_string(i) + " is " + text_of(given[i].desc) + " in format " +
             std::to_string(given[i].desc.format) + ", and that of the model " + text_of(model[i]) + " in format " +
             std::to_string(model[i].format);
    }
  }
  return "";
}

std::string mismatch(const aclopAttr& given, const std::map<std::string, std::string>& model) {
  for (const auto& [name, value] : model) {
    const auto found = given.values.find(name);
    const std::string text = found == given.values.end()
                                 ? "not set"
                                 : std::visit([](const auto& each) { return text_of(each); }, found->second);
    if (text != value) return "the attribute " + name + " is " + text + ", and that of the model " + value;
  }
  for (const auto& each : given.values) {
    if (model.count(each.first) == 0) return "the model has no attribute " + each.first;
  }
  return "";
}

}  // namespace

OperatorModel read_operator_model(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kFirstLine) {
    fail(ACL_ERROR_OP_LOAD_FAILED,
         "%s is not a model of cann_cpu: its atc --singleop writes them, and no others are read", name.c_str());
  }
  OperatorModel model;
  model.name = name;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string what, soc_name;
    words >> what >> std::ws;
    if (what == "soc") {
      words >> soc_name;
      if (soc_name != soc().name) {
        fail(ACL_ERROR_OP_LOAD_FAILED, "%s was made for %s, and this is %s: --soc_version of atc, or CANN_CPU_SOC",
             name.c_str(), soc_name.c_str(), soc().name);
      }
    } else if (what == "op") {
      words >> model.type;
    } else if (what == "input" || what == "output") {
      const auto description = read_description(words);
      if (!description) {
        fail(ACL_ERROR_OP_LOAD_FAILED, "%s: '%s' is not %s DTYPE FORMAT DIM...", name.c_str(), line.c_str(),
             what.c_str());
      }
      (what == "input" ? model.inputs : model.outputs).push_back(*description);
    } else if (what == "attr") {
      std::string attribute;
      words >> attribute >> std::ws;
      std::getline(words, model.attributes[attribute]);
    } else {
      fail(ACL_ERROR_OP_LOAD_FAILED, "%s: a line begins with %s", name.c_str(), what.c_str());
    }
  }
  if (model.type.empty()) fail(ACL_ERROR_OP_LOAD_FAILED, "%s names no operator", name.c_str());
  return model;
}

void load_model(const std::string& text, const std::string& name) {
  OperatorModel model = read_operator_model(text, name);
  Models& known = models();
  const std::lock_guard lock(known.mutex);
  known.all.push_back(std::move(model));
}

void load_models(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder)) {
    fail(ACL_ERROR_INVALID_PARAM, "%s is not a folder", folder.c_str());
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".om") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    load_model({std::istreambuf_iterator<char>(file), {}}, entry.path());
  }
}

void require_model(const SingleOperator& op) {
  aclError code = ACL_ERROR_OP_TYPE_NOT_MATCH;
  std::string reason = "no model is of this operator; atc --singleop makes one, and aclopSetModelDir loads it";
  Models& known = models();
  const std::lock_guard lock(known.mutex);
  for (const OperatorModel& model : known.all) {
    if (model.type != op.type) continue;
    const std::string mismatches[] = {mismatch("input", op.inputs, model.inputs),
                                      mismatch("output", op.outputs, model.outputs),
                                      mismatch(op.attributes, model.attributes)};
    aclError first = ACL_ERROR_OP_INPUT_NOT_MATCH;  // the codes follow each other
    for (const std::string& each : mismatches) {
      if (!each.empty()) {
        code = first;
        reason = each + " (" + model.name + ")";
        break;
      }
      ++first;
    }
    if (first > ACL_ERROR_OP_ATTR_NOT_MATCH) return;
  }
  fail(code, "%s: %s", op.type.c_str(), reason.c_str());
}

}  // namespace cann_cpu
