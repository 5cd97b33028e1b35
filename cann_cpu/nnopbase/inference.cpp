// SPDX-License-Identifier: Apache-2.0
// Calls the functions of inference.
#include "inference.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "cann_cpu/dtypes.h"
#include "cann_cpu/log.h"
#include "cann_cpu/named_crash.h"
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

// Describes a crash in this thread, in the message with its signal; null outside of authors' functions.
thread_local const AuthorsFunction* called = nullptr;

void say_crash(int signal) {
  if (called == nullptr) return;
  dprintf(STDERR_FILENO, "%s crashed (%s)%s\n", called->name().c_str(), strsignal(signal), called->given().c_str());
  called = nullptr;
}

}  // namespace

AuthorsFunction::AuthorsFunction(const char* name, const ops::Definition& definition, const OperatorCall& call)
    : name_("aclnn" + call.type + ": the function of " + name), outer_(called) {
  [[maybe_unused]] static const bool named = (name_crashes(say_crash), true);
  given_ = " for " + arguments_of(definition, call);
  std::string without;
  auto input = definition.inputs.begin();
  for (const auto& span : call.input_spans) {
    const bool known = span.count == 0 || call.inputs[span.first].GetAddr() != nullptr;
    if (!known) without += (without.empty() ? "" : ", ") + input->name;
    ++input;
  }
  if (!without.empty()) {
    given_ +=
        "; GetData() is null for " + without +
        ", whose values lie on the device: .ValueDepend(OPTIONAL) in the OpDef makes an input an array of the host";
  }
  if (call.outputs.empty()) given_ += "; it has no output, and GetOutputShape(0) is null";
  called = this;
}

AuthorsFunction::~AuthorsFunction() { called = outer_; }

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
  const auto fails = [&](const char* name, auto function, auto* context) {
    const AuthorsFunction called_now(name, definition, call);
    return function != nullptr && function(context) != ge::GRAPH_SUCCESS;
  };
  if (fails("SetInferShape", definition.infer_shape, &shapes)) {
    throw CallError(kInferShapeError, "shape inference failed: the function of SetInferShape rejects " +
                                          arguments_of(definition, call) + logged_reason());
  }
  gert::InferDataTypeContext types(&call);
  if (fails("SetInferDataType", definition.infer_data_type, &types)) {
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

// For the command `project`. Numbers are, of each defined input, whether it is given, its dtype, its rank and its
// sizes, then the dtype of each output; attributes are the defaults. In `found` each output is its dtype, its rank and
// its sizes. False with the reason where a function of inference rejects the call.
extern "C" CANN_EXPORT bool cann_cpu_infer(const char* library, const char* type, const int64_t* numbers,
                                           int64_t* found, size_t room, const char** error) {
  static thread_local std::string text;
  try {
    cann_cpu::load_definitions(library);
    const auto definition = cann_cpu::find_definition(library, type);
    if (definition == nullptr) throw std::runtime_error(std::string(library) + " has no OP_ADD(" + type + ")");
    cann_cpu::InferenceArguments arguments;
    for (size_t i = 0; i < definition->inputs.size(); ++i) {
      auto& tensors = arguments.inputs.emplace_back();
      const bool given = *numbers++ != 0;
      const auto of_type = static_cast<ge::DataType>(*numbers++);
      const auto rank = *numbers++;
      if (given) tensors.push_back({of_type, {numbers, numbers + rank}, nullptr, 0});
      numbers += rank;
    }
    for (size_t i = 0; i < definition->outputs.size(); ++i) {
      arguments.outputs.push_back(static_cast<ge::DataType>(*numbers++));
    }
    for (const auto& attribute : definition->attributes) set_default(arguments.attributes.emplace_back(), attribute);
    for (const auto& output : cann_cpu::infer(*definition, arguments)) {
      if (room < output.shape.size() + 2) throw std::runtime_error("the outputs have too many dimensions");
      room -= output.shape.size() + 2;
      *found++ = output.type;
      *found++ = static_cast<int64_t>(output.shape.size());
      found = std::copy(output.shape.begin(), output.shape.end(), found);
    }
    return true;
  } catch (const std::exception& e) {
    text = e.what();
    *error = text.c_str();
    return false;
  }
}
