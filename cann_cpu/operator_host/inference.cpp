// SPDX-License-Identifier: Apache-2.0
// Calls the functions of inference.
#include "inference.h"

#include <algorithm>

#include "cann_cpu/dtypes.h"
#include "cann_cpu/log.h"
#include "context.h"
#include "exe_graph/runtime/infer_datatype_context.h"
#include "exe_graph/runtime/infer_shape_context.h"
#include "package.h"

namespace cann_cpu {
namespace {

std::vector<int64_t> dims_of(const gert::Shape& shape) {
  std::vector<int64_t> dims;
  for (size_t i = 0; i < shape.GetDimNum(); ++i) dims.push_back(shape.GetDim(i));
  return dims;
}

std::string described(const std::list<ops::ParamDefinition>& parameters, const std::vector<OperatorCall::Span>& spans,
                      const std::vector<gert::Tensor>& tensors) {
  std::string text;
  auto parameter = parameters.begin();
  for (size_t p = 0; p < spans.size(); ++p, ++parameter) {
    for (size_t i = spans[p].first; i < spans[p].first + spans[p].count; ++i) {
      text += ", " + parameter->name + " " + dtype_name(static_cast<aclDataType>(tensors[i].GetDataType())) +
              text_of(dims_of(tensors[i].GetOriginShape()));
    }
  }
  return text;
}

gert::Tensor tensor_of(const InferenceArguments::Input& input) {
  gert::StorageShape shape;
  for (const int64_t dim : input.shape) {
    shape.MutableOriginShape().AppendDim(dim);
    shape.MutableStorageShape().AppendDim(dim);
  }
  return {shape, {input.type, {ge::FORMAT_ND, ge::FORMAT_ND}}, input.values, input.bytes};
}

}  // namespace

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t dim : shape) text += (text.empty() ? "" : ", ") + std::to_string(dim);
  return "[" + text + "]";
}

std::string arguments_of(const ops::Definition& definition, const OperatorCall& call) {
  const std::string text = described(definition.inputs, call.input_spans, call.inputs) +
                           described(definition.outputs, call.output_spans, call.outputs);
  return text.empty() ? "no tensors" : text.substr(2);
}

std::string logged_reason() {
  const std::string logged = take_logged_error();
  return logged.empty() ? "" : ": " + logged;
}

void infer(const ops::Definition& definition, OperatorCall& call) {
  take_logged_error();
  call.shapes.resize(call.outputs.size());
  for (const gert::Tensor& output : call.outputs) call.types.push_back(output.GetDataType());
  gert::InferShapeContext shapes(&call);
  if (definition.infer_shape != nullptr && definition.infer_shape(&shapes) != ge::GRAPH_SUCCESS) {
    throw CallError(kInferShapeError, "shape inference failed: the function of SetInferShape rejects " +
                                          arguments_of(definition, call) + logged_reason());
  }
  gert::InferDataTypeContext types(&call);
  if (definition.infer_data_type != nullptr && definition.infer_data_type(&types) != ge::GRAPH_SUCCESS) {
    throw CallError(kInferShapeError, "dtype inference failed: the function of SetInferDataType rejects " +
                                          arguments_of(definition, call) + logged_reason());
  }
}

void set_default(AttributeValue& value, const ops::AttrDefinition& attribute) {
  const std::string& type = attribute.type;
  if (type == "Int") {
    value.set(attribute.integer);
  } else if (type == "Bool") {
    value.set(attribute.integer != 0);
  } else if (type == "Float") {
    value.set(attribute.real);
  } else if (type == "String") {
    value.set(attribute.text.c_str());
  } else if (type == "ListInt") {
    value.set(attribute.integers);
  } else if (type == "ListFloat") {
    value.set(attribute.reals);
  } else {
    value.set(attribute.flags);
  }
}

std::vector<InferredTensor> infer(const ops::Definition& definition, const InferenceArguments& arguments) {
  OperatorCall call;
  call.type = definition.type;
  for (const auto& tensors : arguments.inputs) {
    call.input_spans.push_back({call.inputs.size(), tensors.size()});
    for (const auto& tensor : tensors) call.inputs.push_back(tensor_of(tensor));
  }
  for (const ge::DataType type : arguments.outputs) call.outputs.push_back(tensor_of({type, {}, nullptr, 0}));
  for (const AttributeValue& attribute : arguments.attributes) call.attributes.push_back(attribute.pointer);
  infer(definition, call);
  std::vector<InferredTensor> inferred;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    inferred.push_back({dims_of(call.shapes[i]), call.types[i]});
    const auto& shape = inferred.back().shape;
    if (std::any_of(shape.begin(), shape.end(), [](int64_t dim) { return dim < 0; })) {
      throw CallError(kInferShapeError, "shape inference failed: the function of SetInferShape gives output " +
                                            std::to_string(i) + " the shape " + text_of(shape) + " for " +
                                            arguments_of(definition, call) + logged_reason());
    }
  }
  return inferred;
}

}  // namespace cann_cpu
