// SPDX-License-Identifier: Apache-2.0
// ge::Operator, and ge::OperatorFactory over the prototypes of packages and the built-in node types.
#include "graph/operator_factory.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "graph_engine/nodes/node_types.h"
#include "graph_engine/packages/prototypes.h"
#include "operator_impl.h"

namespace ge {

using cann_cpu::graph::Arity;
using cann_cpu::graph::Attribute;

namespace {

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

// Numbers are kept in 64 bits.
template <typename T>
Attribute kept_attribute(const T& value) {
  if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, uint32_t>) {
    return static_cast<int64_t>(value);
  } else if constexpr (std::is_same_v<T, std::vector<int32_t>>) {
    return std::vector<int64_t>(value.begin(), value.end());
  } else {
    return value;
  }
}

// False where the attribute has another type, or a number does not fit.
template <typename T>
bool read_attribute(const Attribute& attribute, T& value) {
  if constexpr (std::is_same_v<T, int32_t>) {
    const auto* number = std::get_if<int64_t>(&attribute);
    if (number == nullptr || !std::in_range<int32_t>(*number)) return false;
    value = static_cast<int32_t>(*number);
  } else if constexpr (std::is_same_v<T, std::vector<int32_t>>) {
    const auto* numbers = std::get_if<std::vector<int64_t>>(&attribute);
    const auto fits = [](int64_t number) { return std::in_range<int32_t>(number); };
    if (numbers == nullptr || !std::ranges::all_of(*numbers, fits)) return false;
    value.assign(numbers->begin(), numbers->end());
  } else {
    const T* const found = std::get_if<T>(&attribute);
    if (found == nullptr) return false;
    value = *found;
  }
  return true;
}

// What was set, or the prototype's default; null where there is neither.
const Attribute* find_attribute(const OperatorImpl& op, const std::string& name) {
  const auto set = op.attributes.find(name);
  if (set != op.attributes.end()) return &set->second;
  const auto& declared = op.prototype.attributes;
  const auto found = std::ranges::find(declared, name, &cann_cpu::graph::PrototypeAttribute::name);
  return found == declared.end() || found->required ? nullptr : &found->default_value;
}

}  // namespace

Operator::Operator(const AscendString& name, const AscendString& type)
    : operator_impl_(
          std::make_shared<OperatorImpl>(OperatorImpl{name.GetString(), {type.GetString(), {}, {}, {}, {}}})) {}

Operator::Operator(const char_t* type) : Operator("", type) {}
Operator::Operator(const char_t* name, const char_t* type) : Operator(AscendString(name), AscendString(type)) {}

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

namespace {

using cann_cpu::graph::TensorDescription;

void describe(const std::string& name, const TensorDesc& desc, std::vector<TensorDescription>& descriptions) {
  const auto found = std::ranges::find(descriptions, name, &TensorDescription::name);
  TensorDescription& description = found == descriptions.end() ? descriptions.emplace_back() : *found;
  description.name = name;
  description.dtype = desc.GetDataType();
  description.has_shape = true;
  description.shape = desc.GetShape().GetDims();
}

TensorDesc tensor_desc(const TensorDescription& description) {
  TensorDesc desc(Shape(description.shape), FORMAT_ND, description.dtype);
  desc.SetOriginShape(desc.GetShape());
  return desc;
}

void connect(const std::shared_ptr<OperatorImpl>& op, const std::string& input, const Operator& source,
             const char* output) {
  const auto& of = OperatorImpl::of(source);
  if (op == nullptr || of == nullptr) return;
  const OperatorImpl::Input connection{input, of, output == nullptr ? "" : output, 0};
  const auto found = std::ranges::find(op->inputs, input, &OperatorImpl::Input::name);
  if (found == op->inputs.end()) {
    op->inputs.push_back(connection);
  } else {
    *found = connection;
  }
  of->users.push_back(op);
}

}  // namespace

graphStatus Operator::UpdateInputDesc(const char_t* name, const TensorDesc& tensor_desc) {
  if (IsEmpty() || name == nullptr) return GRAPH_FAILED;
  describe(name, tensor_desc, operator_impl_->input_descriptions);
  return operator_impl_->prototype.has_input(name) ? GRAPH_SUCCESS : GRAPH_FAILED;
}

graphStatus Operator::UpdateOutputDesc(const char_t* name, const TensorDesc& tensor_desc) {
  if (IsEmpty() || name == nullptr) return GRAPH_FAILED;
  describe(name, tensor_desc, operator_impl_->output_descriptions);
  return GRAPH_SUCCESS;
}

graphStatus Operator::UpdateDynamicOutputDesc(const char_t* name, uint32_t index, const TensorDesc& tensor_desc) {
  return name == nullptr ? GRAPH_FAILED : UpdateOutputDesc((name + std::to_string(index)).c_str(), tensor_desc);
}

TensorDesc Operator::GetOutputDesc(uint32_t index) const {
  if (IsEmpty() || index >= operator_impl_->output_descriptions.size()) return {};
  return tensor_desc(operator_impl_->output_descriptions[index]);
}

int Operator::GetDynamicOutputNum(const char_t* name) const {
  int count = 0;
  if (IsEmpty() || name == nullptr) return count;
  const auto& described = operator_impl_->output_descriptions;
  const auto is_described = [&](const std::string& output) {
    return std::ranges::find(described, output, &TensorDescription::name) != described.end();
  };
  while (is_described(name + std::to_string(count))) ++count;
  return count;
}

TensorDesc Operator::GetOutputDescByName(const char_t* name) const {
  if (IsEmpty() || name == nullptr) return {};
  const auto& described = operator_impl_->output_descriptions;
  const auto found = std::ranges::find(described, name, &TensorDescription::name);
  return found == described.end() ? TensorDesc() : tensor_desc(*found);
}

Operator& Operator::SetInput(const char_t* dst_name, const Operator& src_oprt) {
  return SetInput(dst_name, src_oprt, nullptr);
}

Operator& Operator::SetInput(const char_t* dst_name, const Operator& src_oprt, const char_t* name) {
  if (dst_name != nullptr) connect(operator_impl_, dst_name, src_oprt, name);
  return *this;
}

Operator& Operator::SetInput(const char_t* dst_name, uint32_t dst_index, const Operator& src_oprt) {
  return SetInput(dst_name, dst_index, src_oprt, nullptr);
}

Operator& Operator::SetInput(const char_t* dst_name, uint32_t dst_index, const Operator& src_oprt, const char_t* name) {
  if (dst_name != nullptr) connect(operator_impl_, dst_name + std::to_string(dst_index), src_oprt, name);
  return *this;
}

Operator& Operator::AddControlInput(const Operator& src_oprt) {
  if (!IsEmpty() && !src_oprt.IsEmpty()) {
    operator_impl_->controls.push_back(src_oprt.operator_impl_);
    src_oprt.operator_impl_->users.push_back(operator_impl_);
  }
  return *this;
}

Operator& Operator::SetAttr(const char_t* name, uint32_t attr_value) {
  return SetAttr(name, static_cast<int64_t>(attr_value));
}

Operator& Operator::SetAttr(const char_t* name, const char_t* attr_value) {
  if (!IsEmpty() && name != nullptr && attr_value != nullptr) {
    operator_impl_->attributes.insert_or_assign(name, std::string(attr_value));
  }
  return *this;
}

Operator& Operator::SetAttr(const char_t* name, const Tensor& attr_value) {
  if (IsEmpty() || name == nullptr) return *this;
  const TensorDesc desc = attr_value.GetTensorDesc();
  auto constant = std::make_shared<cann_cpu::graph::ConstTensor>();
  constant->dtype = desc.GetDataType();
  constant->shape = desc.GetShape().GetDims();
  constant->bytes.assign(reinterpret_cast<const char*>(attr_value.GetData()), attr_value.GetSize());
  operator_impl_->attributes.insert_or_assign(name, std::shared_ptr<const cann_cpu::graph::ConstTensor>(constant));
  return *this;
}

graphStatus Operator::GetAttr(const char_t* name, ge::Tensor& attr_value) const {
  if (IsEmpty() || name == nullptr) return GRAPH_FAILED;
  const Attribute* const found = find_attribute(*operator_impl_, name);
  const auto* constant =
      found == nullptr ? nullptr : std::get_if<std::shared_ptr<const cann_cpu::graph::ConstTensor>>(found);
  if (constant == nullptr || *constant == nullptr) return GRAPH_FAILED;
  const TensorDesc desc(Shape((*constant)->shape), FORMAT_ND, (*constant)->dtype);
  attr_value = Tensor(desc, reinterpret_cast<const uint8_t*>((*constant)->bytes.data()), (*constant)->bytes.size());
  return GRAPH_SUCCESS;
}

#define DEFINE_ATTRIBUTE(type, ...)                                                               \
  Operator& Operator::SetAttr(const char_t* name, __VA_ARGS__ attr_value) {                       \
    if (!IsEmpty() && name != nullptr) {                                                          \
      operator_impl_->attributes.insert_or_assign(name, kept_attribute(attr_value));              \
    }                                                                                             \
    return *this;                                                                                 \
  }                                                                                               \
  graphStatus Operator::GetAttr(const char_t* name, type& attr_value) const {                     \
    if (IsEmpty() || name == nullptr) return GRAPH_FAILED;                                        \
    const Attribute* const found = find_attribute(*operator_impl_, name);                         \
    return found != nullptr && read_attribute(*found, attr_value) ? GRAPH_SUCCESS : GRAPH_FAILED; \
  }
DEFINE_ATTRIBUTE(int64_t, int64_t)
DEFINE_ATTRIBUTE(int32_t, int32_t)
DEFINE_ATTRIBUTE(float32_t, float32_t)
DEFINE_ATTRIBUTE(bool, bool)
DEFINE_ATTRIBUTE(ge::DataType, const ge::DataType&)
DEFINE_ATTRIBUTE(std::vector<int64_t>, const std::vector<int64_t>&)
DEFINE_ATTRIBUTE(std::vector<int32_t>, const std::vector<int32_t>&)
DEFINE_ATTRIBUTE(std::vector<float32_t>, const std::vector<float32_t>&)
DEFINE_ATTRIBUTE(std::vector<ge::DataType>, const std::vector<ge::DataType>&)
DEFINE_ATTRIBUTE(std::vector<std::vector<int64_t>>, const std::vector<std::vector<int64_t>>&)
#undef DEFINE_ATTRIBUTE

void Operator::InputRegister(const char_t* name, const char_t*) {
  operator_impl_->prototype.inputs.push_back({name, Arity::required});
}

void Operator::OptionalInputRegister(const char_t* name, const char_t*) {
  operator_impl_->prototype.inputs.push_back({name, Arity::optional});
}

// A later call gives the number of inputs; the connections give it as well.
void Operator::DynamicInputRegister(const char_t* name, const uint32_t, const char_t*, bool) {
  if (!operator_impl_->prototype.has_input(name)) operator_impl_->prototype.inputs.push_back({name, Arity::dynamic});
}

void Operator::OutputRegister(const char_t* name, const char_t*) {
  operator_impl_->prototype.outputs.push_back({name, Arity::required});
}

void Operator::DynamicOutputRegister(const char_t* name, const uint32_t num, const char_t*, bool) {
  auto& outputs = operator_impl_->prototype.outputs;
  if (std::ranges::find(outputs, name, &cann_cpu::graph::PrototypeTensor::name) == outputs.end()) {
    outputs.push_back({name, Arity::dynamic});
  }
  for (uint32_t i = 0; i < num; ++i) {
    operator_impl_->output_descriptions.emplace_back().name = name + std::to_string(i);
  }
}

void Operator::DynamicInputRegister(const char_t* name, const uint32_t num, bool is_push_back) {
  DynamicInputRegister(name, num, "", is_push_back);
}

void Operator::DynamicOutputRegister(const char_t* name, const uint32_t num, bool is_push_back) {
  DynamicOutputRegister(name, num, "", is_push_back);
}

void Operator::InferFuncRegister(const std::function<graphStatus(Operator&)>&) {}

void Operator::DataTypeRegister(const char_t*, const TensorType&) {}
void Operator::DataTypeRegister(const char_t*, const Promote&) {}

Promote::Promote(const std::initializer_list<const char*>&) {}

void Operator::RequiredAttrWithTypeRegister(const char_t* name, const char_t* type) {
  operator_impl_->prototype.attributes.push_back({name, value_type(type), true, Attribute()});
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

#define DEFINE_ATTR_REGISTER(type, ...)                                                                    \
  void Operator::AttrRegister(const char_t* name, __VA_ARGS__ value) {                                     \
    operator_impl_->prototype.attributes.push_back({name, value_type(#type), false, attribute_of(value)}); \
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
  cann_cpu::graph::add_prototype(operator_type, OperatorImpl::of(op)->prototype);
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
  if (op_type == nullptr) {
    return ge::GRAPH_FAILED;
  }
  const auto* prototype = cann_cpu::graph::find_prototype(op_type);
  const auto* node_type = cann_cpu::graph::find_node_type(op_type);
  cann_cpu::graph::Prototype built_in;
  if (prototype == nullptr) {
    if (node_type != nullptr) built_in = node_type->prototype();
    if (built_in.outputs.empty()) {
      return ge::GRAPH_FAILED;
    }
    prototype = &built_in;
  }
  inputs = named_types(prototype->inputs);
  outputs = named_types(prototype->outputs);
  attributes.clear();
  for (const auto& attribute : prototype->attributes) {
    attributes.emplace_back(attribute.name.c_str(), attribute.type.c_str());
  }
  return ge::GRAPH_SUCCESS;
}
