// SPDX-License-Identifier: Apache-2.0
#include "operation.h"

#include <memory>

#include "aclnn/aclnn_base.h"

namespace atb {
namespace {

// The stream that operations run on.
class StreamContext final : public Context {
 public:
  Status SetExecuteStream(aclrtStream stream) override {
    stream_ = stream;
    return kNoError;
  }
  aclrtStream GetExecuteStream() const override { return stream_; }
  Status SetAsyncTilingCopyStatus(bool enable) override {  // there is no tiling that would be copied
    is_async_ = enable;
    return kNoError;
  }
  bool GetAsyncTilingCopyStatus() const override { return is_async_; }

 private:
  aclrtStream stream_ = nullptr;
  bool is_async_ = false;
};

struct ExecutorDeleter {
  void operator()(aclOpExecutor* executor) const { (void)aclDestroyAclOpExecutor(executor); }
};

// Setup is phase one of the row, Execute phase two.
class RowOperation final : public Operation {
 public:
  RowOperation(const char* name, uint32_t inputs, uint32_t outputs, PhaseOne phase_one, Arrange arrange)
      : name_(name), inputs_(inputs), outputs_(outputs), phase_one_(phase_one), arrange_(std::move(arrange)) {}
  RowOperation(const char* name, aclOpExecutor* executor) : name_(name), executor_(executor) {}

  std::string GetName() const override { return name_; }
  Status InferShape(const SVector<TensorDesc>&, SVector<TensorDesc>&) const override {
    return cann_cpu::unsupported("atb::Operation::InferShape");
  }
  uint32_t GetInputNum() const override { return inputs_; }
  uint32_t GetOutputNum() const override { return outputs_; }

  Status Setup(const VariantPack& tensors, uint64_t& workspace_size, Context*) override {
    aclOpExecutor* executor = nullptr;
    Status failed = kNoError;
    const Status status = guarded(name_, [&] {
      Arguments arguments;
      arrange_(tensors, arguments);
      failed = phase_one_(arguments.list().data(), &workspace_size, &executor);
    });
    executor_.reset(executor);
    return status != kNoError ? status : failed;
  }

  Status Execute(const VariantPack&, uint8_t*, uint64_t, Context* context) override { return execute(context); }

  Status execute(Context* context) {
    if (context == nullptr) return cann_cpu::error(kInvalidContext, "%s: context is null", name_);
    if (executor_ == nullptr) return cann_cpu::error(kInternalError, "%s: Execute without a Setup", name_);
    return cann_cpu::run_phase_two(executor_.release(), context->GetExecuteStream());
  }

 private:
  const char* name_;
  uint32_t inputs_ = 0, outputs_ = 0;
  PhaseOne phase_one_ = nullptr;
  Arrange arrange_;
  std::unique_ptr<aclOpExecutor, ExecutorDeleter> executor_;
};

}  // namespace

aclTensor& Arguments::described(const Tensor& tensor) {
  const Dims& dims = tensor.desc.shape;
  TORCH_CHECK(dims.count <= std::size(dims.dims), "a tensor has ", dims.count, " dimensions; expected up to 8");
  aclTensor& made = tensors_.emplace_back();
  made.shape.assign(dims.dims, dims.dims + dims.count);
  made.strides.resize(dims.count);
  int64_t stride = 1;
  for (size_t i = dims.count; i-- > 0; stride *= made.shape[i]) made.strides[i] = stride;
  made.dtype = tensor.desc.dtype;
  made.format = tensor.desc.format;
  made.storage_shape = {stride};
  return made;
}

void Arguments::add(const Tensor& tensor) {
  if (tensor.device_data == nullptr && tensor.host_data == nullptr && tensor.desc.dtype == ACL_DT_UNDEFINED) {
    return add(nullptr);
  }
  aclTensor& made = described(tensor);
  made.data = tensor.device_data;
  TORCH_CHECK(tensor.host_data == nullptr, "tensor ", list_.size() + 1,
              " lies in the memory of the host; expected a tensor on the device");
  list_.emplace_back(static_cast<const void*>(&made));
}

void Arguments::add_host(const Tensor& tensor) {
  if (tensor.device_data == nullptr && tensor.host_data == nullptr) return add(nullptr);
  aclTensor& made = described(tensor);
  made.data = tensor.host_data != nullptr ? tensor.host_data : tensor.device_data;  // HostInts rejects the latter
  list_.emplace_back(static_cast<const void*>(&made));
}

Status guarded(const char* name, const std::function<void()>& body) {
  return cann_cpu::detail::guarded(name, kInvalidParam, [&] { body(); });
}

Operation* new_operation(const char* name, uint32_t inputs, uint32_t outputs, PhaseOne phase_one, Arrange arrange) {
  return new RowOperation(name, inputs, outputs, phase_one, std::move(arrange));
}

Operation* new_operation(const char* name, aclOpExecutor* executor) { return new RowOperation(name, executor); }

Status execute(Operation* operation, Context* context) {
  if (operation == nullptr) return cann_cpu::error(kInvalidParam, "operation is null");
  return static_cast<RowOperation*>(operation)->execute(context);
}

uint64_t Utils::GetTensorSize(const Tensor& tensor) {
  uint64_t elements = tensor.desc.shape.count == 0 ? 0 : 1;
  for (uint64_t i = 0; i < tensor.desc.shape.count; ++i) elements *= tensor.desc.shape.dims[i];
  return elements * cann_cpu::dtype_size(tensor.desc.dtype);
}

Status CreateContext(Context** context) {
  if (context == nullptr) return cann_cpu::error(kInvalidParam, "CreateContext: context is null");
  *context = new StreamContext;
  return kNoError;
}

Status DestroyContext(Context* context) {
  delete context;
  return kNoError;
}

#define ATB_OPERATION(Name)                                                                    \
  template <>                                                                                  \
  CANN_EXPORT Status CreateOperation(const infer::Name##Param& param, Operation** operation) { \
    return guarded(#Name "Operation", [&] {                                                    \
      TORCH_CHECK(operation != nullptr, "operation is null");                                  \
      *operation = make(param);                                                                \
    });                                                                                        \
  }
ATB_OPERATION(Linear)
ATB_OPERATION(Elewise)
ATB_OPERATION(RmsNorm)
ATB_OPERATION(GroupTopk)
ATB_OPERATION(SelfAttention)
ATB_OPERATION(PagedAttention)
ATB_OPERATION(ReshapeAndCache)
ATB_OPERATION(Rope)
#undef ATB_OPERATION

Status DestroyOperation(Operation* operation) {
  delete operation;
  return kNoError;
}

}  // namespace atb

cann_cpu::StoredArgument cann_cpu::Argument<atb::HostInts>::store(CType argument, Operands&) {
  if (argument == nullptr) return aclIntArray();
  aclrtPtrAttributes place{};
  (void)aclrtPointerGetAttributes(argument->data, &place);
  if (place.location.type == ACL_MEM_LOCATION_TYPE_DEVICE) {
    throw std::invalid_argument("lies in the memory of the device; expected a tensor on the CPU");
  }
  if (argument->dtype != ACL_INT32 && argument->dtype != ACL_INT64) {
    throw std::invalid_argument("has dtype " + dtype_name(argument->dtype) + "; expected int32 or int64");
  }
  const at::Tensor values = view_of(*argument, argument->data).to(at::kLong).contiguous();
  return aclIntArray{{values.const_data_ptr<int64_t>(), values.const_data_ptr<int64_t>() + values.numel()}};
}
