// SPDX-License-Identifier: Apache-2.0
// libacl_op_compiler.so: compile options, and the aclop path, on which torch_npu asks for operators without an aclnn
// function and for those on tensors in FRACTAL_NZ. Casts of formats are served here, other operators by the graph
// engine's node of their type; an operator without one answers that it is not served. aclopExecute asks for a model of
// the operator, besides.
#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "acl/acl_op_compiler.h"
#include "acl/acl_rt.h"
#include "cann_cpu/call.h"
#include "cann_cpu/operator_models.h"
#include "format_cast.h"

using namespace cann_cpu;

namespace {

struct CompileOptions {
  std::mutex mutex;
  // Options with a value before anybody sets one.
  std::map<aclCompileOpt, std::string> values{{ACL_OP_JIT_COMPILE, "disable"}};
};

CompileOptions& compile_options() {
  static auto* options = new CompileOptions;
  return *options;
}

void check_option(aclCompileOpt option) {
  if (option < ACL_PRECISION_MODE || option > ACL_OP_DEBUG_OPTION) {
    fail(ACL_ERROR_INVALID_PARAM, "option %d is unknown", option);
  }
}

aclError not_served(const std::string& op_type) {
  return error(
      ACL_ERROR_OP_NOT_FOUND,
      "operator %s is asked for by the aclop path, which cann_cpu does not serve; it has no aclnn function for "
      "what was called, or not for these arguments",
      op_type.c_str());
}

template <class Buffer>
std::vector<Operand> operands(const char* name, int count, const aclTensorDesc* const descs[],
                              Buffer* const buffers[]) {
  if (count < 0) fail(ACL_ERROR_INVALID_PARAM, "there are %d %s", count, name);
  if (count > 0 && (descs == nullptr || buffers == nullptr)) fail(ACL_ERROR_INVALID_PARAM, "the %s are null", name);
  std::vector<Operand> operands;
  for (int i = 0; i < count; ++i) {
    if (descs[i] == nullptr || buffers[i] == nullptr) fail(ACL_ERROR_INVALID_PARAM, "one of the %s is null", name);
    operands.push_back({*descs[i], *buffers[i]});
  }
  return operands;
}

void keep_host_inputs(SingleOperator& op) {
  op.host_inputs.reserve(op.inputs.size());
  for (Operand& input : op.inputs) {
    if (!input.desc.constant.empty()) {
      op.host_inputs.push_back(std::move(input.desc.constant));
    } else if (input.desc.placement != ACL_MEMTYPE_DEVICE && input.buffer.data != nullptr) {
      op.host_inputs.emplace_back(static_cast<const char*>(input.buffer.data), input.buffer.size);
    } else {
      continue;
    }
    input.buffer = {op.host_inputs.back().data(), op.host_inputs.back().size()};
  }
}

// The graph engine needs torch; the runtime finds it where both are installed, and works without it.
aclError run_by_graph_engine(SingleOperator& op, aclrtStream stream) {
  static auto* const run = [] {
    void* library = dlopen("libge_runner.so", RTLD_NOW | RTLD_LOCAL);
    return library == nullptr ? nullptr : reinterpret_cast<RunOperator*>(dlsym(library, "cann_cpu_run_operator"));
  }();
  return run == nullptr ? ACL_ERROR_OP_NOT_FOUND : run(op, stream);
}

std::string name_of(const char* op_type) { return op_type == nullptr ? "(null)" : op_type; }

}  // namespace

aclError aclopSetCompileFlag(aclOpCompileFlag flag) {
  return host_call(__func__, [&] {
    if (flag != ACL_OP_COMPILE_DEFAULT && flag != ACL_OP_COMPILE_FUZZ) {
      fail(ACL_ERROR_INVALID_PARAM, "flag is %d; expected ACL_OP_COMPILE_DEFAULT (0) or ACL_OP_COMPILE_FUZZ (1)", flag);
    }
  });
}

aclError aclSetCompileopt(aclCompileOpt opt, const char* value) {
  return host_call(__func__, [&] {
    check_option(opt);
    require_pointer(value, "value");
    CompileOptions& options = compile_options();
    std::lock_guard lock(options.mutex);
    options.values[opt] = value;
  });
}

size_t aclGetCompileoptSize(aclCompileOpt opt) {
  CompileOptions& options = compile_options();
  std::lock_guard lock(options.mutex);
  auto found = options.values.find(opt);
  return found == options.values.end() ? 0 : found->second.size() + 1;
}

aclError aclGetCompileopt(aclCompileOpt opt, char* value, size_t length) {
  return host_call(__func__, [&] {
    check_option(opt);
    require_pointer(value, "value");
    CompileOptions& options = compile_options();
    std::lock_guard lock(options.mutex);
    auto found = options.values.find(opt);
    if (found == options.values.end()) fail(ACL_ERROR_API_NOT_SUPPORT, "option %d was never set", opt);
    if (length <= found->second.size()) {
      fail(ACL_ERROR_INVALID_PARAM, "length is %zu; the value of option %d takes %zu", length, opt,
           found->second.size() + 1);
    }
    found->second.copy(value, found->second.size());
    value[found->second.size()] = '\0';
  });
}

aclError aclopCompile(const char* opType, int, const aclTensorDesc* const[], int, const aclTensorDesc* const[],
                      const aclopAttr*, aclopEngineType, aclopCompileType, const char*) {
  return not_served(name_of(opType));
}

namespace {

// Without decided_descs, an error of the operator is the stream's: returned here it would end torch_npu's task queue,
// whose thread calls this, and drop all later work without an error. With decided_descs the call waits, returns the
// error, and gives these descriptions the shapes that only the kernel knows; torch_npu makes such a call in the
// caller's thread.
aclError run_operator(const char* function, const char* type, int input_count, const aclTensorDesc* const input_descs[],
                      const aclDataBuffer* const inputs[], int output_count, const aclTensorDesc* const output_descs[],
                      aclDataBuffer* const outputs[], const aclopAttr* attr, bool by_model, aclrtStream stream,
                      std::optional<aclTensorDesc* const*> decided_descs = {}) {
  const auto op = std::make_shared<SingleOperator>();
  aclError status = host_call(function, [&] {
    op->type = name_of(type);
    op->inputs = operands("inputs", input_count, input_descs, inputs);
    op->outputs = operands("outputs", output_count, output_descs, outputs);
    op->decides_shapes = decided_descs.has_value();
    if (attr != nullptr) op->attributes = *attr;
    if (by_model) require_model(*op);
    keep_host_inputs(*op);
  });
  if (status != ACL_SUCCESS) return status;
  status = launch(stream, op->type.c_str(), [op, stream] {
    if (!has_known_formats(*op)) return not_served(op->type);
    if (op->type == "Identity") {
      return is_format_cast(*op) ? host_call("Identity", [&] { cast_format(op->inputs[0], op->outputs[0]); })
                                 : not_served(op->type);
    }
    const aclError found = run_by_graph_engine(*op, stream);
    return found == ACL_ERROR_OP_NOT_FOUND ? not_served(op->type) : found;
  });
  if (!decided_descs || status != ACL_SUCCESS) return status;
  status = aclrtSynchronizeStream(stream);
  if (status != ACL_SUCCESS) return status;
  for (int i = 0; i < output_count; ++i) (*decided_descs)[i]->dims = op->outputs[i].desc.dims;
  return ACL_SUCCESS;
}

}  // namespace

aclError aclopExecute(const char* opType, int numInputs, const aclTensorDesc* const inputDesc[],
                      const aclDataBuffer* const inputs[], int numOutputs, const aclTensorDesc* const outputDesc[],
                      aclDataBuffer* const outputs[], const aclopAttr* attr, aclrtStream stream) {
  return run_operator(__func__, opType, numInputs, inputDesc, inputs, numOutputs, outputDesc, outputs, attr, true,
                      stream);
}

aclError aclopExecuteV2(const char* opType, int numInputs, aclTensorDesc* inputDesc[], aclDataBuffer* inputs[],
                        int numOutputs, aclTensorDesc* outputDesc[], aclDataBuffer* outputs[], aclopAttr* attr,
                        aclrtStream stream) {
  return run_operator(__func__, opType, numInputs, inputDesc, inputs, numOutputs, outputDesc, outputs, attr, true,
                      stream, outputDesc);
}

aclError aclopCompileAndExecute(const char* opType, int numInputs, const aclTensorDesc* const inputDesc[],
                                const aclDataBuffer* const inputs[], int numOutputs,
                                const aclTensorDesc* const outputDesc[], aclDataBuffer* const outputs[],
                                const aclopAttr* attr, aclopEngineType, aclopCompileType, const char*,
                                aclrtStream stream) {
  return run_operator(__func__, opType, numInputs, inputDesc, inputs, numOutputs, outputDesc, outputs, attr, false,
                      stream);
}

aclError aclopCompileAndExecuteV2(const char* opType, int numInputs, aclTensorDesc* inputDesc[],
                                  aclDataBuffer* inputs[], int numOutputs, aclTensorDesc* outputDesc[],
                                  aclDataBuffer* outputs[], aclopAttr* attr, aclopEngineType, aclopCompileType,
                                  const char*, aclrtStream stream) {
  return run_operator(__func__, opType, numInputs, inputDesc, inputs, numOutputs, outputDesc, outputs, attr, false,
                      stream, outputDesc);
}
