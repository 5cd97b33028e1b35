// SPDX-License-Identifier: Apache-2.0
// What programs with the string ABI of before C++11 call (torchair, MindSpore): CMake compiles this file so. Each
// function passes its strings on as const char* or AscendString; objects with a std::string in them stay on one side.
#include <cstdint>
#include <map>
#include <string>

#include "cann_cpu/export.h"
#include "ge/ge_api.h"
#include "graph/operator.h"
#include "graph/operator_factory.h"

static_assert(_GLIBCXX_USE_CXX11_ABI == 0, "this file needs -D_GLIBCXX_USE_CXX11_ABI=0");

namespace cann_cpu::graph {
const char* last_error();
}

namespace ge {
namespace {

std::string string_of(const AscendString& text) { return {text.GetString(), text.GetLength()}; }

std::map<AscendString, AscendString> ascend_strings(const std::map<std::string, std::string>& options) {
  std::map<AscendString, AscendString> copies;
  for (const auto& [name, value] : options) copies.emplace(name.c_str(), value.c_str());
  return copies;
}

}  // namespace

CANN_EXPORT std::string GEGetErrorMsg() { return cann_cpu::graph::last_error(); }

CANN_EXPORT Status GEInitialize(const std::map<std::string, std::string>& options) {
  return GEInitialize(ascend_strings(options));
}

Operator::Operator(const std::string& type) : Operator(type.c_str()) {}
Operator::Operator(const std::string& name, const std::string& type) : Operator(name.c_str(), type.c_str()) {}

std::string Operator::GetName() const {
  AscendString name;
  GetName(name);
  return string_of(name);
}

std::string Operator::GetOpType() const {
  AscendString type;
  GetOpType(type);
  return string_of(type);
}

graphStatus Operator::UpdateInputDesc(const std::string& name, const TensorDesc& tensor_desc) {
  return UpdateInputDesc(name.c_str(), tensor_desc);
}

void Operator::InputRegister(const std::string& name) { InputRegister(name.c_str(), ""); }
void Operator::OptionalInputRegister(const std::string& name) { OptionalInputRegister(name.c_str(), ""); }
void Operator::OutputRegister(const std::string& name) { OutputRegister(name.c_str(), ""); }
void Operator::RequiredAttrRegister(const std::string& name) { RequiredAttrWithTypeRegister(name.c_str(), ""); }

graphStatus Operator::UpdateOutputDesc(const std::string& name, const TensorDesc& tensor_desc) {
  return UpdateOutputDesc(name.c_str(), tensor_desc);
}

Operator& Operator::SetInput(const std::string& dst_name, const Operator& src_oprt) {
  return SetInput(dst_name.c_str(), src_oprt);
}

Operator& Operator::SetInput(const std::string& dst_name, const Operator& src_oprt, const std::string& name) {
  return SetInput(dst_name.c_str(), src_oprt, name.c_str());
}

#define DEFINE_ATTRIBUTE(...)                                                    \
  Operator& Operator::SetAttr(const std::string& name, __VA_ARGS__ attr_value) { \
    return SetAttr(name.c_str(), attr_value);                                    \
  }
DEFINE_ATTRIBUTE(int64_t)
DEFINE_ATTRIBUTE(int32_t)
DEFINE_ATTRIBUTE(float32_t)
DEFINE_ATTRIBUTE(bool)
DEFINE_ATTRIBUTE(const std::vector<int64_t>&)
DEFINE_ATTRIBUTE(const std::vector<int32_t>&)
DEFINE_ATTRIBUTE(const std::vector<float32_t>&)
#undef DEFINE_ATTRIBUTE

Operator& Operator::SetAttr(const std::string& name, const std::string& attr_value) {
  return SetAttr(name.c_str(), attr_value.c_str());
}

Graph::Graph(const std::string& name) : Graph(name.c_str()) {}

Graph& Graph::SetOutputs(const std::vector<std::pair<Operator, std::string>>& outputs) {
  std::vector<std::pair<Operator, AscendString>> named;
  for (const auto& [op, name] : outputs) named.emplace_back(op, name.c_str());
  return SetOutputs(named);
}

const std::string& Graph::GetName() const {
  static thread_local std::string text;
  AscendString name;
  GetName(name);
  return text = string_of(name);
}

TensorDesc Operator::GetOutputDesc(const std::string& name) const { return GetOutputDescByName(name.c_str()); }

int Operator::GetDynamicOutputNum(const std::string& name) const { return GetDynamicOutputNum(name.c_str()); }

Status Session::RegisterCallBackFunc(const std::string& key, const Callback&) {
  return key == "Summary" || key == "Save" ? SUCCESS : FAILED;
}

Session::Session(const std::map<std::string, std::string>& options) : Session(ascend_strings(options)) {}

Status Session::AddGraph(uint32_t graph_id, const Graph& graph, const std::map<std::string, std::string>& options) {
  return AddGraph(graph_id, graph, ascend_strings(options));
}

Operator OperatorFactory::CreateOperator(const std::string& operator_name, const std::string& operator_type) {
  return CreateOperator(operator_name.c_str(), operator_type.c_str());
}

bool OperatorFactory::IsExistOp(const std::string& operator_type) { return IsExistOp(operator_type.c_str()); }

OperatorCreatorRegister::OperatorCreatorRegister(const std::string& operator_type,
                                                 const std::function<Operator(const std::string&)>& op_creator)
    : OperatorCreatorRegister(operator_type.c_str(),
                              [&](const AscendString& name) { return op_creator(string_of(name)); }) {}

InferShapeFuncRegister::InferShapeFuncRegister(const std::string&, const std::function<graphStatus(Operator&)>&) {}

}  // namespace ge
