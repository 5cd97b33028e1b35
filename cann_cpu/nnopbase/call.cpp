// SPDX-License-Identifier: Apache-2.0
// A call of a defined operator. Phase one checks the arguments against the definition and tiles; phase two launches the
// kernel. Inference has no part in it, as in CANN: it is for graphs.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <sstream>

#include "attribute_value.h"
#include "cann_cpu/acl_objects.h"
#include "cann_cpu/core_limits.h"
#include "cann_cpu/dtypes.h"
#include "cann_cpu/executor.h"
#include "cann_cpu/kernel_communicator.h"
#include "cann_cpu/log.h"
#include "cann_cpu/operator_call.h"
#include "cann_cpu/runtime.h"
#include "cann_cpu/timed_kernel.h"
#include "cann_cpu/waiting.h"
#include "executor.h"
#include "inference.h"
#include "package.h"

namespace cann_cpu {
namespace {

constexpr size_t kTilingCapacity = 64 * 1024;
constexpr char kUntouched = static_cast<char>(0xA5);  // follows the tiling data, to detect writes past its end
constexpr size_t kNoAddress = ~size_t{0};

CallError invalid(const std::string& what) { return {ACLNN_ERR_PARAM_INVALID, what}; }

std::string name_of(ge::DataType type) { return dtype_name(static_cast<aclDataType>(type)); }

int64_t elements_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Formats in which elements lie in rows: torch_npu names tensors of 4 dimensions NCHW, and they serve as ND.
bool is_nd_format(int32_t format) {
  switch (format) {
    case ge::FORMAT_ND:
    case ge::FORMAT_NCHW:
    case ge::FORMAT_NHWC:
    case ge::FORMAT_NCDHW:
    case ge::FORMAT_NDHWC:
    case ge::FORMAT_HWCN:
    case ge::FORMAT_NCL:
      return true;
    default:
      return false;
  }
}

bool is_contiguous(const aclTensor& tensor) {
  int64_t stride = 1;
  for (size_t i = tensor.shape.size(); i-- > 0; stride *= tensor.shape[i]) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride) return elements_of(tensor.shape) == 0;
  }
  return true;
}

// Copies between a view and the same elements in rows.
void copy_rows(const aclTensor& view, std::byte* at, std::byte* rows, bool to_view, size_t dimension = 0) {
  const size_t itemsize = dtype_size(view.dtype);
  if (dimension == view.shape.size()) {
    to_view ? std::memcpy(at, rows, itemsize) : std::memcpy(rows, at, itemsize);
    return;
  }
  const int64_t inner = elements_of({view.shape.begin() + static_cast<int64_t>(dimension) + 1, view.shape.end()});
  for (int64_t i = 0; i < view.shape[dimension]; ++i) {
    copy_rows(view, at + i * view.strides[dimension] * static_cast<int64_t>(itemsize),
              rows + i * inner * static_cast<int64_t>(itemsize), to_view, dimension + 1);
  }
}

// A tensor of a call; `address` is its place among the addresses of the call.
struct Given {
  aclTensor tensor;
  size_t address = kNoAddress;
  std::vector<char> values;  // of an array, which lies on the host
};

// A parameter of the kernel.
struct Parameter {
  const ops::ParamDefinition* definition;
  std::vector<size_t> given;  // of the call's tensors; none of an optional one that is left out
  bool written;
};

using Addresses = std::vector<void*>;

// The memory of one launch: tensors in rows, lists, and their descriptions for the checks.
class LaunchMemory {
 public:
  // A tensor for the kernel: where it lies, or a copy of its elements in rows.
  void* place(const Given& given, const ops::ParamDefinition& parameter, const Addresses& addresses, bool written,
              const char* name) {
    const size_t itemsize = dtype_size(given.tensor.dtype);
    const size_t bytes = static_cast<size_t>(elements_of(given.tensor.shape)) * itemsize;
    if (given.address == kNoAddress) {
      auto* values = const_cast<char*>(given.values.data());
      buffers.push_back({values, given.values.size(), name});
      return values;
    }
    auto* first =
        static_cast<std::byte*>(addresses[given.address]) + given.tensor.offset * static_cast<int64_t>(itemsize);
    if (!is_nd_format(given.tensor.format)) {
      buffers.push_back({first, static_cast<size_t>(elements_of(given.tensor.storage_shape)) * itemsize, name});
      return first;
    }
    if (parameter.any_strides) {
      size_t last = 0;
      for (size_t i = 0; i < given.tensor.shape.size(); ++i) {
        last += static_cast<size_t>(std::max<int64_t>(given.tensor.shape[i] - 1, 0) * given.tensor.strides[i]);
      }
      buffers.push_back({first, bytes == 0 ? 0 : (last + 1) * itemsize, name});
      return first;
    }
    if (is_contiguous(given.tensor)) {
      buffers.push_back({first, bytes, name});
      return first;
    }
    for (Copy& copy : copies_) {
      if (copy.given == &given) return copy.written = copy.written || written, copy.rows.get();
    }
    copies_.push_back({&given, first, std::make_unique<std::byte[]>(bytes), written});
    copy_rows(given.tensor, first, copies_.back().rows.get(), false);
    buffers.push_back({copies_.back().rows.get(), bytes, name});
    return copies_.back().rows.get();
  }

  // As ListTensorDesc of a kernel reads it.
  void* list(const std::vector<const Given*>& tensors, const std::vector<void*>& pointers, const char* name) {
    std::vector<uint64_t> words(1);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& shape = tensors[i]->tensor.shape;
      words.push_back(shape.size() | uint64_t{i} << 32);
      words.insert(words.end(), shape.begin(), shape.end());
    }
    words[0] = words.size() * sizeof(uint64_t);
    for (void* pointer : pointers) words.push_back(reinterpret_cast<uint64_t>(pointer));
    lists_.push_back(std::move(words));
    buffers.push_back({lists_.back().data(), lists_.back().size() * sizeof(uint64_t), name});
    return lists_.back().data();
  }

  void copy_back() {
    for (const Copy& copy : copies_) {
      if (copy.written) copy_rows(copy.given->tensor, copy.view, copy.rows.get(), true);
    }
  }

  std::vector<AscendC::cpu::DeviceBuffer> buffers;

 private:
  struct Copy {
    const Given* given;
    std::byte* view;
    std::unique_ptr<std::byte[]> rows;
    bool written;
  };
  std::vector<Copy> copies_;
  std::vector<std::vector<uint64_t>> lists_;
};

static_assert(ops::GroupDefinition::kMost == AscendC::cpu::kGroups);

// The communicators of one run, by their names: a process group may have been made anew since phase one.
class Communicators {
 public:
  explicit Communicators(const std::vector<std::string>& groups) {
    for (const std::string& group : groups) {
      communicators_.push_back(group.empty() ? nullptr : kernel_communicator(group));
      contexts_.push_back({KernelContext::kMagic, communicators_.back().get()});
    }
    if (!groups.empty()) blocking_.emplace();
  }

  void give(AscendC::cpu::Call& call) const {
    for (size_t i = 0; i < contexts_.size(); ++i)
      call.contexts[i] = communicators_[i] == nullptr ? nullptr : &contexts_[i];
  }

 private:
  std::vector<std::shared_ptr<KernelCommunicator>> communicators_;
  std::vector<KernelContext> contexts_;
  std::optional<BlockingRegion> blocking_;
};

class DefinedCall final : public Call {
 public:
  DefinedCall(const DefinedOperator& op, Operands operands, std::vector<Given> given, std::vector<Parameter> parameters,
              const OperatorKernel& kernel, std::shared_ptr<const Tiled> tiled, std::vector<std::string> groups)
      : Call(op.function.c_str(), std::move(operands), tiled->workspace),
        given_(std::move(given)),
        parameters_(std::move(parameters)),
        kernel_(kernel),
        tiled_(std::move(tiled)),
        groups_(std::move(groups)) {}

  // Calls append(), which appends the call to the stream, in its turn of each group.
  template <class Append>
  aclError enqueue(aclrtStream stream, const Append& append) const try {
    if (groups_.empty()) return append();
    std::function<aclError()> all = append;
    for (const std::string& group : groups_) {
      if (group.empty()) continue;
      all = [communicator = kernel_communicator(group), stream, append = std::move(all)] {
        return communicator->enqueue_ordered(stream, append);
      };
    }
    return all();
  } catch (const std::exception& e) {
    return error(ACLNN_ERR_PARAM_INVALID, "%s: %s", name, e.what());
  }

  std::string name_of(size_t parameter) const override { return parameters_[parameter].definition->name; }

  // The workspace is the last of the addresses, if there is one.
  aclError run(const Addresses& given) const override try {
    if (tiled_->blocks == 0) return ACL_SUCCESS;
    const TimedKernel timed(name);
    LaunchMemory memory;
    std::vector<void*> pointers;
    for (const Parameter& parameter : parameters_) pointers.push_back(pointer(parameter, given, memory));
    void* workspace = workspace_size == 0 ? nullptr : given.back();
    memory.buffers.push_back({workspace, workspace_size, "workspace"});
    pointers.push_back(workspace);
    auto* tiling = const_cast<char*>(tiled_->data.data());
    memory.buffers.push_back({tiling, tiled_->data.size(), "tiling"});
    pointers.push_back(tiling);
    std::vector<const void*> arguments;
    for (void*& each : pointers) arguments.push_back(&each);
    AscendC::cpu::Call call{};
    call.arguments = arguments.data();
    call.buffers = memory.buffers.data();
    call.buffer_count = memory.buffers.size();
    call.tiling_key = tiled_->key;
    call.blocks = tiled_->blocks;
    call.checks = AscendC::cpu::Checks::AsTheEnvironmentSays;
    const Communicators communicators(groups_);
    communicators.give(call);
    char message[4096];
    if (!kernel_.call(&call, message, sizeof(message))) {
      return error(ACL_ERROR_RT_AICPU_EXCEPTION, "%s: the kernel failed: %s", name, message);
    }
    memory.copy_back();
    return ACL_SUCCESS;
  } catch (const std::exception& e) {
    return error(ACL_ERROR_RT_AICPU_EXCEPTION, "%s: %s", name, e.what());
  }

 private:
  void* pointer(const Parameter& parameter, const Addresses& addresses, LaunchMemory& memory) const {
    const char* const title = parameter.definition->name.c_str();
    if (parameter.definition->presence == ops::DYNAMIC) {
      std::vector<const Given*> tensors;
      std::vector<void*> pointers;
      for (const size_t i : parameter.given) {
        tensors.push_back(&given_[i]);
        pointers.push_back(memory.place(given_[i], *parameter.definition, addresses, parameter.written, title));
      }
      return memory.list(tensors, pointers, title);
    }
    if (parameter.given.empty()) {
      memory.buffers.push_back({nullptr, 0, title});
      return nullptr;
    }
    return memory.place(given_[parameter.given[0]], *parameter.definition, addresses, parameter.written, title);
  }

  std::vector<Given> given_;
  std::vector<Parameter> parameters_;  // inputs, then outputs
  const OperatorKernel& kernel_;
  std::shared_ptr<const Tiled> tiled_;
  std::vector<std::string> groups_;
};

// Phase one.
class Preparation {
 public:
  Preparation(const DefinedOperator& op, const OperatorArgument* arguments, size_t count)
      : op_(op), arguments_(arguments), count_(count) {}

  // Throws unless the arguments are as the definition wants them, and its tiling, if there is one.
  void check() {
    read();
    matching(given_types());
    if (op_.definition->core.tiler() != nullptr) tiled();
  }

  std::shared_ptr<const Call> call() {
    read();
    const std::vector<ge::DataType> types = given_types();
    const OperatorKernel& kernel = kernel_for(matching(types), types);
    std::shared_ptr<const Tiled> tiled = this->tiled();
    if (kernel.keys && !kernel.keys->count(tiled->key) && tiled->blocks != 0) {
      std::string keys;
      for (const uint64_t each : *kernel.keys) keys += (keys.empty() ? "" : ", ") + std::to_string(each);
      throw CallError(kFindKernelError, "tiling set the key " + std::to_string(tiled->key) +
                                            ", which was not compiled: " + kernel.name + " (" + kernel.file.string() +
                                            ") has TILING_KEY_IS of " + keys);
    }
    return std::make_shared<DefinedCall>(op_, std::move(operands_), std::move(given_), std::move(parameters_), kernel,
                                         std::move(tiled), groups());
  }

 private:
  using Definition = ops::ParamDefinition;

  // ---- reads the arguments: inputs, attributes, outputs that do not have an input's name

  void read() {
    for (const Definition& input : op_.parameters.inputs) {
      parameters_.push_back({&input, read_tensors(input, is_output(input.name), true), is_output(input.name)});
    }
    for (const ops::AttrDefinition& attribute : op_.definition->attributes) read_attribute(attribute);
    const size_t inputs = parameters_.size();
    for (const Definition& output : op_.parameters.outputs) {
      const auto shared = std::find_if(parameters_.begin(), parameters_.begin() + static_cast<int64_t>(inputs),
                                       [&](const auto& input) { return input.definition->name == output.name; });
      const bool is_input = shared != parameters_.begin() + static_cast<int64_t>(inputs);
      if (is_input) {
        TensorParameter same = operands_.parameters[static_cast<size_t>(shared - parameters_.begin())];
        same.is_input = false;
        same.is_output = true;
        operands_.parameters.push_back(same);
      }
      auto given = is_input ? shared->given : read_tensors(output, true, false);
      parameters_.push_back({&output, std::move(given), true});
    }
    if (next_ != count_) {
      throw invalid("the function was generated from another definition than the installed one: it has " +
                    std::to_string(count_) + " arguments, the definition " + std::to_string(next_));
    }
  }

  bool is_output(const std::string& name) const {
    const auto& outputs = op_.parameters.outputs;
    return std::any_of(outputs.begin(), outputs.end(), [&](const auto& output) { return output.name == name; });
  }

  const OperatorArgument& next() {
    static const OperatorArgument missing(static_cast<const void*>(nullptr));
    return next_++ < count_ ? arguments_[next_ - 1] : missing;
  }

  std::vector<size_t> read_tensors(const Definition& parameter, bool written, bool is_input) {
    const void* object = next().object;
    const size_t first = operands_.addresses.size();
    const bool is_list = parameter.presence == ops::DYNAMIC;
    operands_.parameters.push_back({static_cast<uint32_t>(next_), is_list, is_input, !is_input, first});
    if (object == nullptr) {
      if (parameter.presence == ops::OPTIONAL) {
        operands_.addresses.push_back(nullptr);
        operands_.is_empty.push_back(true);
        return {};
      }
      throw CallError(ACLNN_ERR_PARAM_NULLPTR, parameter.name + " is null; it is required");
    }
    std::vector<size_t> indices;
    if (parameter.value_depends && !written) {
      indices.push_back(read_array(parameter, object));
    } else if (is_list) {
      for (const aclTensor* each : static_cast<const aclTensorList*>(object)->tensors) {
        indices.push_back(add(parameter, *each, written));
      }
    } else {
      indices.push_back(add(parameter, *static_cast<const aclTensor*>(object), written));
    }
    operands_.parameters.back().count = operands_.addresses.size() - first;
    return indices;
  }

  size_t add(const Definition& parameter, const aclTensor& tensor, bool written) {
    try {
      check_view(tensor, written);
    } catch (const std::invalid_argument& e) {
      throw CallError(ACLNN_ERR_PARAM_INVALID, parameter.name + " " + e.what());
    }
    given_.push_back({tensor, operands_.addresses.size(), {}});
    operands_.add(tensor, written, static_cast<uint32_t>(next_));
    return given_.size() - 1;
  }

  // An input whose values tiling reads is an array of the host.
  size_t read_array(const Definition& parameter, const void* object) {
    Given given;
    const auto take = [&](const auto& values, aclDataType type) {
      given.tensor.dtype = type;
      given.tensor.shape = given.tensor.storage_shape = {static_cast<int64_t>(values.size())};
      given.tensor.strides = {1};
      const auto* bytes = reinterpret_cast<const char*>(values.data());
      given.values.assign(bytes, bytes + values.size() * sizeof(values[0]));
    };
    switch (parameter.types[0]) {
      case ge::DT_FLOAT:
        take(static_cast<const aclFloatArray*>(object)->values, ACL_FLOAT);
        break;
      case ge::DT_BOOL:
        take(static_cast<const aclBoolArray*>(object)->values, ACL_BOOL);
        break;
      default:
        take(static_cast<const aclIntArray*>(object)->values, ACL_INT64);
    }
    given_.push_back(std::move(given));
    return given_.size() - 1;
  }

  void read_attribute(const ops::AttrDefinition& attribute) {
    const OperatorArgument& argument = next();
    attributes_.emplace_back(std::make_unique<AttributeValue>());
    AttributeValue& value = *attributes_.back();
    const std::string& type = attribute.type;
    if (type == "Int") {
      value.set(argument.integer);
    } else if (type == "Float") {
      value.set(static_cast<float>(argument.real));
    } else if (type == "Bool") {
      value.set(argument.integer != 0);
    } else if (argument.object == nullptr) {
      if (!attribute.has_value) {
        throw CallError(ACLNN_ERR_PARAM_NULLPTR, attribute.name + ", an attribute, is null; it is required");
      }
      set_default(value, attribute);
    } else if (type == "String") {
      value.set(static_cast<const char*>(argument.object));
    } else if (type == "ListInt") {
      value.set(static_cast<const aclIntArray*>(argument.object)->values);
    } else if (type == "ListFloat") {
      value.set(static_cast<const aclFloatArray*>(argument.object)->values);
    } else if (type == "ListBool") {
      value.set(static_cast<const aclBoolArray*>(argument.object)->values);
    } else {
      throw invalid(attribute.name + " is a " + type + ", which no aclnn function takes");
    }
  }

  // The names of the groups; each has a communicator, unless an optional attribute is left out.
  std::vector<std::string> groups() const {
    std::vector<std::string> names;
    for (const std::string& group : op_.definition->groups.attributes) {
      const auto& all = op_.definition->attributes;
      const auto found = std::ranges::find(all, group, &ops::AttrDefinition::name);
      names.push_back(attributes_[static_cast<size_t>(std::distance(all.begin(), found))]->text);
      try {
        if (!names.back().empty()) kernel_communicator(names.back());
      } catch (const std::exception& e) {
        throw invalid(group + ": " + e.what());
      }
    }
    return names;
  }

  // ---- dtypes and formats

  // The dtype of each parameter; DT_UNDEFINED for an omitted one.
  std::vector<ge::DataType> given_types() const {
    std::vector<ge::DataType> types;
    for (const Parameter& parameter : parameters_) {
      auto type = ge::DT_UNDEFINED;
      for (const size_t i : parameter.given) {
        const auto each = static_cast<ge::DataType>(given_[i].tensor.dtype);
        if (type != ge::DT_UNDEFINED && type != each) {
          throw invalid("the tensors of " + parameter.definition->name + " are of several dtypes, " + name_of(type) +
                        " and " + name_of(each));
        }
        type = each;
      }
      types.push_back(type);
    }
    return types;
  }

  // The combinations of the definition that the arguments are one of.
  std::vector<const ops::Combination*> matching(const std::vector<ge::DataType>& types) const {
    std::vector<const ops::Combination*> found;
    for (const ops::Combination& each : op_.combinations) {
      bool matches = true;
      for (size_t i = 0; i < types.size(); ++i) {
        matches = matches && (types[i] == ge::DT_UNDEFINED || types[i] == each.types[i]) && fits(i, each.formats[i]);
      }
      if (matches) found.push_back(&each);
    }
    if (found.empty()) throw invalid(mismatch(types));
    return found;
  }

  bool fits(size_t parameter, ge::Format format) const {
    for (const size_t i : parameters_[parameter].given) {
      const int32_t given = given_[i].tensor.format;
      if (given != format && !(is_nd_format(given) && is_nd_format(format))) return false;
    }
    return true;
  }

  std::string mismatch(const std::vector<ge::DataType>& types) const {
    for (size_t i = 0; i < types.size(); ++i) {
      const std::string& name = parameters_[i].definition->name;
      std::string expected, formats;
      bool type_fits = types[i] == ge::DT_UNDEFINED, format_fits = false;
      for (const ops::Combination& each : op_.combinations) {
        type_fits = type_fits || types[i] == each.types[i];
        format_fits = format_fits || fits(i, each.formats[i]);
        const std::string type = name_of(each.types[i]), format = std::to_string(each.formats[i]);
        if ((", " + expected + ",").find(", " + type + ",") == std::string::npos)
          expected += (expected.empty() ? "" : ", ") + type;
        if ((", " + formats + ",").find(", " + format + ",") == std::string::npos)
          formats += (formats.empty() ? "" : ", ") + format;
      }
      if (!type_fits) return name + " is " + name_of(types[i]) + "; expected " + expected;
      if (!format_fits) {
        return name + " is in the format " + std::to_string(given_[parameters_[i].given[0]].tensor.format) +
               "; expected " + formats + " (aclFormat)";
      }
    }
    std::string given, known;
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] == ge::DT_UNDEFINED) continue;
      given += (given.empty() ? "" : ", ") + parameters_[i].definition->name + " " + name_of(types[i]);
    }
    std::vector<const std::vector<ge::DataType>*> columns;  // those of several formats once
    for (const ops::Combination& each : op_.combinations) {
      const auto is_same = [&](const auto* column) { return *column == each.types; };
      if (std::none_of(columns.begin(), columns.end(), is_same)) columns.push_back(&each.types);
    }
    constexpr size_t kShown = 6;
    for (size_t k = 0; k < std::min(kShown, columns.size()); ++k) {
      known += "\n  ";
      for (size_t i = 0; i < types.size(); ++i) {
        known += (i == 0 ? "" : ", ") + parameters_[i].definition->name + " " + name_of((*columns[k])[i]);
      }
    }
    return "the dtypes do not go together: " + given + "; expected one of " + std::to_string(columns.size()) +
           " combinations" + known + (columns.size() > kShown ? "\n  ..." : "");
  }

  const OperatorKernel& kernel_for(const std::vector<const ops::Combination*>& matches,
                                   const std::vector<ge::DataType>& types) const {
    for (const ops::Combination* each : matches) {
      std::vector<int> combination(each->types.begin(), each->types.end());
      combination.insert(combination.end(), each->formats.begin(), each->formats.end());
      for (const OperatorKernel& kernel : op_.kernels) {
        if (kernel.combinations.count(combination) != 0) return kernel;
      }
    }
    std::string given;
    for (const ge::DataType type : types) given += (given.empty() ? "" : ", ") + name_of(type);
    throw CallError(kFindKernelError, "no kernel of " + op_.package.string() + " was compiled for the dtypes " + given);
  }

  // ---- tiling

  // All that tiling may depend on.
  const std::string& key() {
    const auto add = [&](const auto& number) { key_.append(reinterpret_cast<const char*>(&number), sizeof(number)); };
    for (const Parameter& parameter : parameters_) {
      add(parameter.given.size());
      for (const size_t i : parameter.given) {
        const Given& given = given_[i];
        add(given.tensor.dtype);
        add(given.tensor.format);
        add(given.tensor.shape.size());
        for (const int64_t dim : given.tensor.shape) add(dim);
        key_.append(given.values.data(), given.values.size());
      }
    }
    for (const auto& value : attributes_) {
      add(value->integer);
      add(value->real);
      add(value->flag);
      add(value->text.size());
      key_ += value->text;
      add(value->bytes.size());
      key_.append(value->bytes.data(), value->bytes.size());
    }
    add(cores_of_thread());
    return key_;
  }

  void describe() {
    call_.type = op_.type;
    call_.compile_info = op_.compile_info;
    for (size_t p = 0; p < parameters_.size(); ++p) {
      const bool is_input = p < op_.parameters.inputs.size();
      auto& tensors = is_input ? call_.inputs : call_.outputs;
      auto& spans = is_input ? call_.input_spans : call_.output_spans;
      spans.push_back({tensors.size(), parameters_[p].given.size()});
      for (const size_t i : parameters_[p].given) {
        const Given& given = given_[i];
        gert::StorageShape shape;
        const bool rows = is_nd_format(given.tensor.format);
        for (const int64_t dim : given.tensor.shape) shape.MutableOriginShape().AppendDim(dim);
        for (const int64_t dim : rows ? given.tensor.shape : given.tensor.storage_shape) {
          shape.MutableStorageShape().AppendDim(dim);
        }
        const auto format = rows ? ge::FORMAT_ND : static_cast<ge::Format>(given.tensor.format);
        const gert::CompileTimeTensorDesc desc(static_cast<ge::DataType>(given.tensor.dtype), {ge::FORMAT_ND, format});
        tensors.emplace_back(shape, desc, given.address == kNoAddress ? given.values.data() : nullptr,
                             given.values.size());
      }
    }
    for (const auto& value : attributes_) call_.attributes.push_back(value->pointer);
  }

  std::string arguments() const { return arguments_of(*op_.definition, call_); }

  // What tiling says of such a call, which it is asked once.
  std::shared_ptr<const Tiled> tiled() {
    std::shared_ptr<const Tiled> found = op_.find_tiled(key());
    if (found != nullptr) return found;
    describe();
    found = tile();
    op_.store_tiled(key_, found);
    return found;
  }

  std::shared_ptr<const Tiled> tile() {
    std::vector<uint64_t> room(kTilingCapacity / sizeof(uint64_t) * 2);
    auto* const bytes = reinterpret_cast<char*>(room.data());
    const size_t all = room.size() * sizeof(uint64_t);
    std::memset(bytes, kUntouched, all);
    call_.tiling = gert::TilingData(bytes, kTilingCapacity);
    take_logged_error();
    gert::TilingContext context(&call_);
    const ge::graphStatus status = [&] {
      const AuthorsFunction called("SetTiling", *op_.definition, call_);
      return op_.definition->core.tiler()(&context);
    }();
    if (status != ge::GRAPH_SUCCESS) {
      throw CallError(kTilingError, "tiling failed: the function of SetTiling returned " + std::to_string(status) +
                                        " for " + arguments() + logged_reason());
    }
    const size_t size = call_.tiling.GetDataSize();
    if (size > kTilingCapacity) {
      throw CallError(kTilingError, "tiling failed: its data has " + std::to_string(size) +
                                        " bytes, and there is room for " + std::to_string(kTilingCapacity));
    }
    size_t end = all;
    while (end > size && bytes[end - 1] == kUntouched) --end;
    if (end > size) {
      throw CallError(kTilingError, "tiling failed: the function of SetTiling wrote " + std::to_string(end) +
                                        " bytes of tiling data and says that they are " + std::to_string(size) +
                                        ": GetTilingData<T>() makes room for a T, SetDataSize says how much "
                                        "SaveToBuffer has written");
    }
    const bool nothing_to_do =
        !call_.outputs.empty() && std::all_of(call_.outputs.begin(), call_.outputs.end(),
                                              [](const auto& each) { return each.GetShapeSize() == 0; });
    if (call_.blocks == 0 && !nothing_to_do) {
      throw CallError(kTilingError, "tiling failed: it set no block dim (or 0) for " + arguments() +
                                        "; SetBlockDim says how many blocks run");
    }
    auto tiled = std::make_shared<Tiled>();
    tiled->data.assign(bytes, bytes + size);
    tiled->key = call_.key;
    tiled->blocks = call_.blocks;
    tiled->workspace = std::accumulate(call_.workspaces.begin(), call_.workspaces.end(), uint64_t{0});
    return tiled;
  }

  const DefinedOperator& op_;
  const OperatorArgument* arguments_;
  size_t count_;
  size_t next_ = 0;
  std::vector<Given> given_;
  std::vector<Parameter> parameters_;
  std::vector<std::unique_ptr<AttributeValue>> attributes_;
  Operands operands_;
  std::string key_;
  OperatorCall call_;
};

}  // namespace

aclnnStatus operator_phase_one(const char* type, const void* in_library, const OperatorArgument* arguments,
                               size_t count, uint64_t* workspace_size, aclOpExecutor** executor) {
  const std::string function = std::string("aclnn") + type;
  try {
    if (workspace_size == nullptr || executor == nullptr) {
      return error(ACLNN_ERR_PARAM_NULLPTR, "%s: workspaceSize or executor is null", function.c_str());
    }
    const DefinedOperator& op = find_operator(type, in_library);
    if (op.cpu_kernel != nullptr) {
      Preparation(op, arguments, count).check();
      return op.cpu_kernel->phase_one(arguments, workspace_size, executor);
    }
    return finish_phase_one(Preparation(op, arguments, count).call(), workspace_size, executor);
  } catch (const CallError& e) {
    return error(e.code, "%s: %s", function.c_str(), e.what());
  } catch (const std::exception& e) {
    return error(ACLNN_ERR_INNER, "%s: %s", function.c_str(), e.what());
  }
}

aclnnStatus operator_phase_two(void* workspace, uint64_t workspace_size, aclOpExecutor* executor, aclrtStream stream) {
  if (executor != nullptr && executor->call->workspace_size > (workspace == nullptr ? 0 : workspace_size)) {
    return error(ACLNN_ERR_PARAM_INVALID, "%s: the workspace has %llu bytes; phase one asked for %llu",
                 executor->call->name, static_cast<unsigned long long>(workspace == nullptr ? 0 : workspace_size),
                 static_cast<unsigned long long>(executor->call->workspace_size));
  }
  const std::shared_ptr<const Call> call = executor == nullptr ? nullptr : executor->call;  // which phase two may end
  const auto append = [&] { return run_phase_two(executor, stream, workspace); };
  const auto* const defined = dynamic_cast<const DefinedCall*>(call.get());
  return defined == nullptr ? append() : defined->enqueue(stream, append);
}

}  // namespace cann_cpu
