// SPDX-License-Identifier: Apache-2.0
// ge::Operator: an operator's prototype, filled by the constructor that REG_OP writes.
#pragma once

#include <cstdint>
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
  virtual ~Operator() = default;

  // True for the operator of an unknown type.
  bool IsEmpty() const;
  graphStatus GetName(AscendString& name) const;
  graphStatus GetOpType(AscendString& type) const;
  // Each attribute of the prototype and its type (VT_INT, VT_LIST_FLOAT, ...).
  graphStatus GetAllIrAttrNamesAndTypes(std::map<AscendString, AscendString>& attr_name_types) const;
  // Fails for a name that is no input of the prototype.
  graphStatus UpdateInputDesc(const char_t* name, const TensorDesc& tensor_desc);

 protected:
  void InputRegister(const char_t* name, const char_t* datatype_symbol);
  void OptionalInputRegister(const char_t* name, const char_t* datatype_symbol);
  void DynamicInputRegister(const char_t* name, const uint32_t num, const char_t* datatype_symbol,
                            bool is_push_back = true);
  void OutputRegister(const char_t* name, const char_t* datatype_symbol);
  void DynamicOutputRegister(const char_t* name, const uint32_t num, const char_t* datatype_symbol,
                             bool is_push_back = true);
  void DataTypeRegister(const char_t* datatype_symbol, const TensorType& type_range);
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

 private:
  friend class OperatorImpl;
  std::shared_ptr<OperatorImpl> operator_impl_;
};

}  // namespace ge
