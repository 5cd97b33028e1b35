// SPDX-License-Identifier: Apache-2.0
// ge::Operator, ge::OperatorFactory and the registry that REG_OP fills.
#include "registry.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

#include "cann_cpu/operator_packages.h"
#include "graph/operator.h"
#include "graph/operator_factory.h"
#include "graph_engine/nodes/node_types.h"
#include "metadef/definition.h"

namespace ge {

class OperatorImpl {
 public:
  static OperatorImpl* of(const Operator& op) { return op.operator_impl_.get(); }
  static Operator make(const char* name, cann_cpu::graph::Prototype prototype) {
    Operator op;
    op.operator_impl_ = std::make_shared<OperatorImpl>(OperatorImpl{name, std::move(prototype)});
    return op;
  }

  std::string name;
  cann_cpu::graph::Prototype prototype;
};

}  // namespace ge

namespace cann_cpu::graph {
namespace {

#if defined(__aarch64__)
constexpr const char* kArchitecture = "aarch64";
#elif defined(__x86_64__)
constexpr const char* kArchitecture = "x86_64";
#endif

struct Registry {
  std::recursive_mutex mutex;
  std::map<std::string, Prototype> prototypes;
  std::vector<std::string> added;  // by the library that is being loaded
  std::string errors;
  bool packages_loaded = false;
};

Registry& registry() {
  static auto* instance = new Registry;  // outlives the static objects of the packages' libraries
  return *instance;
}

// Python loads libge_runner.so RTLD_LOCAL; a REG_OP library needs its symbols.
void export_own_symbols() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&export_own_symbols), &info) != 0) {
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  }
}

bool same_inputs(const Prototype& prototype, const ops::Definition& definition) {
  return std::equal(prototype.inputs.begin(), prototype.inputs.end(), definition.inputs.begin(),
                    definition.inputs.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
}

// The files of op_host/ are part of the library, and register OpDefs and the functions of inference beside REG_OP's.
void load(const std::string& library, Registry& r) {
  r.added.clear();
  try {
    load_definitions(library);
  } catch (const std::runtime_error& error) {
    r.errors += std::string("operator prototypes not loaded: ") + error.what() + "\n";
  }
  for (const std::string& type : r.added) {
    Prototype& prototype = r.prototypes.at(type);
    prototype.definition = find_definition(library, type);
    if (prototype.definition == nullptr) continue;
    if (!same_inputs(prototype, *prototype.definition)) {
      r.errors += library + ": the inputs of REG_OP(" + type + ") are not those of its OpDef\n";
      prototype.definition = nullptr;
      continue;
    }
    auto input = prototype.inputs.begin();
    for (const auto& declared : prototype.definition->inputs)
      (input++)->read = declared.value_depends ? &declared : nullptr;
  }
}

void load_packages(Registry& r) {
  if (r.packages_loaded) {
    return;
  }
  r.packages_loaded = true;
  export_own_symbols();
  for (const auto& package : operator_packages()) {
    const auto library = package / "op_proto/lib/linux" / kArchitecture / "libcust_opsproto_rt2.0.so";
    if (std::filesystem::exists(library)) {
      load(library, r);
    }
  }
  std::fputs(r.errors.c_str(), stderr);
}

// The engine's name of an attribute type that REG_OP writes, such as Int or ListFloat.
std::string value_type(const std::string& type) {
  static const std::map<std::string, std::string> names = {
      {"Int", "VT_INT"},
      {"Float", "VT_FLOAT"},
      {"Bool", "VT_BOOL"},
      {"String", "VT_STRING"},
      {"AscendString", "VT_STRING"},
      {"Type", "VT_DATA_TYPE"},
      {"Tensor", "VT_TENSOR"},
      {"Bytes", "VT_BYTES"},
      {"ListInt", "VT_LIST_INT"},
      {"ListFloat", "VT_LIST_FLOAT"},
      {"ListBool", "VT_LIST_BOOL"},
      {"ListString", "VT_LIST_STRING"},
      {"ListAscendString", "VT_LIST_STRING"},
      {"ListType", "VT_LIST_DATA_TYPE"},
      {"ListTensor", "VT_LIST_TENSOR"},
      {"ListListInt", "VT_LIST_LIST_INT"},
      {"ListListFloat", "VT_LIST_LIST_FLOAT"},
  };
  const auto found = names.find(type);
  return found == names.end() ? type : found->second;
}

}  // namespace

bool Prototype::has_input(const std::string& name) const {
  return std::any_of(inputs.begin(), inputs.end(), [&](const auto& input) { return input.name == name; });
}

const Prototype* find_prototype(const std::string& type) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  load_packages(r);
  const auto found = r.prototypes.find(type);
  return found == r.prototypes.end() ? nullptr : &found->second;
}

const std::string& package_errors() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  load_packages(r);
  return r.errors;
}

}  // namespace cann_cpu::graph

namespace ge {

using cann_cpu::graph::Arity;
using cann_cpu::graph::Attribute;
using cann_cpu::graph::registry;

Operator::Operator(const AscendString& name, const AscendString& type)
    : operator_impl_(
          std::make_shared<OperatorImpl>(OperatorImpl{name.GetString(), {type.GetString(), {}, {}, {}, {}}})) {}

bool Operator::IsEmpty() const { return operator_impl_ == nullptr; }

graphStatus Operator::GetName(AscendString& name) const {
  if (IsEmpty()) {
    return GRAPH_FAILED;
  }
  name = AscendString(operator_impl_->name.c_str());
  return GRAPH_SUCCESS;
}

graphStatus Operator::GetOpType(AscendString& type) const {
  if (IsEmpty()) {
    return GRAPH_FAILED;
  }
  type = AscendString(operator_impl_->prototype.type.c_str());
  return GRAPH_SUCCESS;
}

graphStatus Operator::GetAllIrAttrNamesAndTypes(std::map<AscendString, AscendString>& attr_name_types) const {
  if (IsEmpty()) {
    return GRAPH_FAILED;
  }
  for (const auto& attribute : operator_impl_->prototype.attributes) {
    attr_name_types[AscendString(attribute.name.c_str())] = AscendString(attribute.type.c_str());
  }
  return GRAPH_SUCCESS;
}

graphStatus Operator::UpdateInputDesc(const char_t* name, const TensorDesc&) {
  return !IsEmpty() && name != nullptr && operator_impl_->prototype.has_input(name) ? GRAPH_SUCCESS : GRAPH_FAILED;
}

void Operator::InputRegister(const char_t* name, const char_t*) {
  operator_impl_->prototype.inputs.push_back({name, Arity::required});
}

void Operator::OptionalInputRegister(const char_t* name, const char_t*) {
  operator_impl_->prototype.inputs.push_back({name, Arity::optional});
}

void Operator::DynamicInputRegister(const char_t* name, const uint32_t, const char_t*, bool) {
  operator_impl_->prototype.inputs.push_back({name, Arity::dynamic});
}

void Operator::OutputRegister(const char_t* name, const char_t*) {
  operator_impl_->prototype.outputs.push_back({name, Arity::required});
}

void Operator::DynamicOutputRegister(const char_t* name, const uint32_t, const char_t*, bool) {
  operator_impl_->prototype.outputs.push_back({name, Arity::dynamic});
}

void Operator::DataTypeRegister(const char_t*, const TensorType&) {}

void Operator::RequiredAttrWithTypeRegister(const char_t* name, const char_t* type) {
  operator_impl_->prototype.attributes.push_back({name, cann_cpu::graph::value_type(type), true, Attribute()});
}

namespace {

// The engine's value of what ATTR wrote; a tensor's value is not kept.
template <typename T>
Attribute attribute_of(const T& value) {
  return Attribute(value);
}
Attribute attribute_of(const AscendString& value) { return std::string(value.GetString(), value.GetLength()); }
Attribute attribute_of(const std::vector<AscendString>& values) {
  std::vector<std::string> strings;
  for (const auto& value : values) {
    strings.emplace_back(value.GetString(), value.GetLength());
  }
  return strings;
}
Attribute attribute_of(const Operator::OpBytes& value) { return std::string(value.begin(), value.end()); }
Attribute attribute_of(const Tensor&) { return {}; }
Attribute attribute_of(const std::vector<Tensor>&) { return {}; }

}  // namespace

#define DEFINE_ATTR_REGISTER(type, ...)                                          \
  void Operator::AttrRegister(const char_t* name, __VA_ARGS__ value) {           \
    operator_impl_->prototype.attributes.push_back(                              \
        {name, cann_cpu::graph::value_type(#type), false, attribute_of(value)}); \
  }
DEFINE_ATTR_REGISTER(Int, int64_t)
DEFINE_ATTR_REGISTER(Float, float32_t)
DEFINE_ATTR_REGISTER(Bool, bool)
DEFINE_ATTR_REGISTER(String, const AscendString&)
DEFINE_ATTR_REGISTER(Tensor, const Tensor&)
DEFINE_ATTR_REGISTER(Type, const ge::DataType&)
DEFINE_ATTR_REGISTER(ListInt, const std::vector<int64_t>&)
DEFINE_ATTR_REGISTER(ListFloat, const std::vector<float32_t>&)
DEFINE_ATTR_REGISTER(ListBool, const std::vector<bool>&)
DEFINE_ATTR_REGISTER(ListString, const std::vector<AscendString>&)
DEFINE_ATTR_REGISTER(ListTensor, const std::vector<Tensor>&)
DEFINE_ATTR_REGISTER(Bytes, const OpBytes&)
DEFINE_ATTR_REGISTER(ListListInt, const std::vector<std::vector<int64_t>>&)
DEFINE_ATTR_REGISTER(ListType, const std::vector<ge::DataType>&)
#undef DEFINE_ATTR_REGISTER

OperatorCreatorRegister::OperatorCreatorRegister(const char_t* const operator_type, OpCreatorV2 const& op_creator) {
  const Operator op = op_creator(AscendString(operator_type));
  auto& r = registry();
  const std::lock_guard lock(r.mutex);
  // Packages are loaded in order of priority: the first prototype of a type stands.
  if (r.prototypes.emplace(operator_type, OperatorImpl::of(op)->prototype).second) {
    r.added.emplace_back(operator_type);
  }
}

Operator OperatorFactory::CreateOperator(const char_t* const operator_name, const char_t* const operator_type) {
  if (const auto* prototype = cann_cpu::graph::find_prototype(operator_type)) {
    return OperatorImpl::make(operator_name, *prototype);
  }
  if (const auto* node_type = cann_cpu::graph::find_node_type(operator_type)) {
    return OperatorImpl::make(operator_name, node_type->prototype());
  }
  return {};
}

bool OperatorFactory::IsExistOp(const char_t* const operator_type) {
  return cann_cpu::graph::find_prototype(operator_type) != nullptr ||
         cann_cpu::graph::find_node_type(operator_type) != nullptr;
}

}  // namespace ge

namespace {

using NamedTypes = std::vector<std::pair<ge::AscendString, ge::AscendString>>;

NamedTypes named_types(const std::vector<cann_cpu::graph::PrototypeTensor>& tensors) {
  static constexpr const char* kArity[] = {"required", "optional", "dynamic"};
  NamedTypes result;
  for (const auto& tensor : tensors) {
    result.emplace_back(tensor.name.c_str(), kArity[static_cast<int>(tensor.arity)]);
  }
  return result;
}

}  // namespace

// Lists an operator's inputs, outputs and attributes, name and kind each, in IR order.
extern "C" CANN_EXPORT uint32_t GetRegisteredIrDef(const char* op_type, NamedTypes& inputs, NamedTypes& outputs,
                                                   NamedTypes& attributes) {
  const auto* prototype = op_type == nullptr ? nullptr : cann_cpu::graph::find_prototype(op_type);
  if (prototype == nullptr) {
    return ge::GRAPH_FAILED;
  }
  inputs = named_types(prototype->inputs);
  outputs = named_types(prototype->outputs);
  attributes.clear();
  for (const auto& attribute : prototype->attributes) {
    attributes.emplace_back(attribute.name.c_str(), attribute.type.c_str());
  }
  return ge::GRAPH_SUCCESS;
}
