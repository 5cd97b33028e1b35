// SPDX-License-Identifier: Apache-2.0
// ge::Operator: an operator's prototype, filled by the constructor that REG_OP writes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/ascend_string.h"
#include "graph/ge_error_codes.h"
#include "graph/tensor.h"
#include "graph/types.h"

namespace ge {

class OperatorImpl;

// Names of types whose common type an output has; not looked at, as nodes infer their own.
class CANN_EXPORT Promote {
 public:
  explicit Promote(const std::initializer_list<const char*>& names);

 private:
  std::shared_ptr<void> data_;
};

class CANN_EXPORT Operator {
 public:
  // The C++ type of each attribute type that ATTR and REQUIRED_ATTR name.
  using OpInt = int64_t;
  using OpFloat = float32_t;
  using OpString = std::string;
  using OpAscendString = AscendString;
  using OpBool = bool;
  using OpTensor = Tensor;
  using OpType = ge::DataType;
  using OpListInt = std::vector<int64_t>;
  using OpListFloat = std::vector<float32_t>;
  using OpListString = std::vector<std::string>;
  using OpListAscendString = std::vector<AscendString>;
  using OpListBool = std::vector<bool>;
  using OpListTensor = std::vector<Tensor>;
  using OpBytes = std::vector<uint8_t>;
  using OpListListInt = std::vector<std::vector<int64_t>>;
  using OpListType = std::vector<ge::DataType>;

  Operator() {}
  Operator(const AscendString& name, const AscendString& type);
  explicit Operator(const char_t* type);
  Operator(const char_t* name, const char_t* type);
  virtual ~Operator() = default;

  // True for the operator of an unknown type.
  bool IsEmpty() const;
  graphStatus GetName(AscendString& name) const;
  graphStatus GetOpType(AscendString& type) const;
  // Each attribute of the prototype and its type (VT_INT, VT_LIST_FLOAT, ...).
  graphStatus GetAllIrAttrNamesAndTypes(std::map<AscendString, AscendString>& attr_name_types) const;
  // Fails for a name that is no input of the prototype.
  graphStatus UpdateInputDesc(const char_t* name, const TensorDesc& tensor_desc);
  graphStatus UpdateOutputDesc(const char_t* name, const TensorDesc& tensor_desc);
  graphStatus UpdateDynamicOutputDesc(const char_t* name, uint32_t index, const TensorDesc& tensor_desc);
  // The description that output `index` was given.
  TensorDesc GetOutputDesc(uint32_t index) const;
  TensorDesc GetOutputDescByName(const char_t* name) const;
  // How many outputs of a dynamic list have a description.
  int GetDynamicOutputNum(const char_t* name) const;

  // Connects an input with an output of another operator: its only one, or the one of this name. The input of a dynamic
  // list has its place in it.
  Operator& SetInput(const char_t* dst_name, const Operator& src_oprt);
  Operator& SetInput(const char_t* dst_name, const Operator& src_oprt, const char_t* name);
  Operator& SetInput(const char_t* dst_name, uint32_t dst_index, const Operator& src_oprt);
  Operator& SetInput(const char_t* dst_name, uint32_t dst_index, const Operator& src_oprt, const char_t* name);
  Operator& AddControlInput(const Operator& src_oprt);

  // An attribute of this operator; GetAttr fails for one that was not set and has no default, or that has another type.
  Operator& SetAttr(const char_t* name, int64_t attr_value);
  Operator& SetAttr(const char_t* name, int32_t attr_value);
  Operator& SetAttr(const char_t* name, uint32_t attr_value);
  Operator& SetAttr(const char_t* name, float32_t attr_value);
  Operator& SetAttr(const char_t* name, bool attr_value);
  Operator& SetAttr(const char_t* name, const char_t* attr_value);
  Operator& SetAttr(const char_t* name, const Tensor& attr_value);
  Operator& SetAttr(const char_t* name, const ge::DataType& attr_value);
  Operator& SetAttr(const char_t* name, const std::vector<int64_t>& attr_value);
  Operator& SetAttr(const char_t* name, const std::vector<int32_t>& attr_value);
  Operator& SetAttr(const char_t* name, const std::vector<float32_t>& attr_value);
  Operator& SetAttr(const char_t* name, const std::vector<ge::DataType>& attr_value);
  Operator& SetAttr(const char_t* name, const std::vector<std::vector<int64_t>>& attr_value);
  graphStatus GetAttr(const char_t* name, int64_t& attr_value) const;
  graphStatus GetAttr(const char_t* name, int32_t& attr_value) const;
  graphStatus GetAttr(const char_t* name, float32_t& attr_value) const;
  graphStatus GetAttr(const char_t* name, bool& attr_value) const;
  graphStatus GetAttr(const char_t* name, ge::Tensor& attr_value) const;
  graphStatus GetAttr(const char_t* name, ge::DataType& attr_value) const;
  graphStatus GetAttr(const char_t* name, std::vector<int64_t>& attr_value) const;
  graphStatus GetAttr(const char_t* name, std::vector<int32_t>& attr_value) const;
  graphStatus GetAttr(const char_t* name, std::vector<float32_t>& attr_value) const;
  graphStatus GetAttr(const char_t* name, std::vector<ge::DataType>& attr_value) const;
  graphStatus GetAttr(const char_t* name, std::vector<std::vector<int64_t>>& attr_value) const;

#if !_GLIBCXX_USE_CXX11_ABI
  // For programs with the string ABI of before C++11, such as MindSpore's.
  explicit Operator(const std::string& type);
  Operator(const std::string& name, const std::string& type);
  std::string GetName() const;
  std::string GetOpType() const;
  graphStatus UpdateInputDesc(const std::string& name, const TensorDesc& tensor_desc);
  graphStatus UpdateOutputDesc(const std::string& name, const TensorDesc& tensor_desc);
  TensorDesc GetOutputDesc(const std::string& name) const;
  int GetDynamicOutputNum(const std::string& name) const;
  Operator& SetInput(const std::string& dst_name, const Operator& src_oprt);
  Operator& SetInput(const std::string& dst_name, const Operator& src_oprt, const std::string& name);
  Operator& SetAttr(const std::string& name, int64_t attr_value);
  Operator& SetAttr(const std::string& name, int32_t attr_value);
  Operator& SetAttr(const std::string& name, float32_t attr_value);
  Operator& SetAttr(const std::string& name, bool attr_value);
  Operator& SetAttr(const std::string& name, const std::string& attr_value);
  Operator& SetAttr(const std::string& name, const std::vector<int64_t>& attr_value);
  Operator& SetAttr(const std::string& name, const std::vector<int32_t>& attr_value);
  Operator& SetAttr(const std::string& name, const std::vector<float32_t>& attr_value);
#endif

 protected:
  void InputRegister(const char_t* name, const char_t* datatype_symbol);
  void OptionalInputRegister(const char_t* name, const char_t* datatype_symbol);
  void DynamicInputRegister(const char_t* name, const uint32_t num, const char_t* datatype_symbol,
                            bool is_push_back = true);
  void OutputRegister(const char_t* name, const char_t* datatype_symbol);
  void DynamicOutputRegister(const char_t* name, const uint32_t num, const char_t* datatype_symbol,
                             bool is_push_back = true);
  void DynamicInputRegister(const char_t* name, const uint32_t num, bool is_push_back = true);
  void DynamicOutputRegister(const char_t* name, const uint32_t num, bool is_push_back = true);
  // The function infers the shapes of a graph's nodes. Nodes here infer their own, and no others run.
  void InferFuncRegister(const std::function<graphStatus(Operator&)>& func);
  void DataTypeRegister(const char_t* datatype_symbol, const TensorType& type_range);
  void DataTypeRegister(const char_t* datatype_symbol, const Promote& promote_rule);
  void RequiredAttrWithTypeRegister(const char_t* name, const char_t* type);
  void AttrRegister(const char_t* name, int64_t value);
  void AttrRegister(const char_t* name, float32_t value);
  void AttrRegister(const char_t* name, bool value);
  void AttrRegister(const char_t* name, const AscendString& value);
  void AttrRegister(const char_t* name, const Tensor& value);
  void AttrRegister(const char_t* name, const ge::DataType& value);
  void AttrRegister(const char_t* name, const std::vector<int64_t>& value);
  void AttrRegister(const char_t* name, const std::vector<float32_t>& value);
  void AttrRegister(const char_t* name, const std::vector<bool>& value);
  void AttrRegister(const char_t* name, const std::vector<AscendString>& value);
  void AttrRegister(const char_t* name, const std::vector<Tensor>& value);
  void AttrRegister(const char_t* name, const OpBytes& value);
  void AttrRegister(const char_t* name, const std::vector<std::vector<int64_t>>& value);
  void AttrRegister(const char_t* name, const std::vector<ge::DataType>& value);

#if !_GLIBCXX_USE_CXX11_ABI
  void InputRegister(const std::string& name);
  void OptionalInputRegister(const std::string& name);
  void OutputRegister(const std::string& name);
  void RequiredAttrRegister(const std::string& name);
#endif

 private:
  friend class OperatorImpl;
  std::shared_ptr<OperatorImpl> operator_impl_;
};

}  // namespace ge
