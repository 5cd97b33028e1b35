// SPDX-License-Identifier: Apache-2.0
// The calls of aclnn functions, on what torch_npu exports for extensions.
#include "ops_common.h"

#include <acl/acl.h>
#include <c10/core/Allocator.h>
#include <dlfcn.h>
#include <op_plugin/include/npu_cpp_extension.h>
#include <torch_npu/csrc/core/npu/NPUFormat.h>
#include <torch_npu/csrc/core/npu/NPUGraphsUtils.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>

#include "torch_npu_versions.h"

namespace custom_pypto {
namespace {

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return c10::str(variable, value ? c10::str("=", value) : std::string(" (not set)"));
}

// The deployed operator package with the name of an extension's package; null if there is none. Another author's
// package may come before it and have an operator of the same name.
void* open_own_library(const std::string& package) {
  namespace fs = std::filesystem;
  const auto value_of = [](const char* name) { return std::string(std::getenv(name) ? std::getenv(name) : ""); };
  std::vector<fs::path> folders;
  std::istringstream deployed(value_of("ASCEND_CUSTOM_OPP_PATH"));
  for (std::string entry; std::getline(deployed, entry, ':');) {
    const fs::path folder = (fs::path(entry) / "").lexically_normal().parent_path();  // without a slash at its end
    if (folder.filename() == package) folders.push_back(folder);
  }
  folders.push_back(fs::path(value_of("ASCEND_OPP_PATH")) / "vendors" / package);
  for (const fs::path& folder : folders) {
    if (void* handle = dlopen((folder / "op_api/lib/libcust_opapi.so").c_str(), RTLD_LAZY)) return handle;
  }
  return nullptr;
}

void* find_address(const std::string& package, const std::string& function) {
  static std::mutex mutex;
  static auto& own = *new std::map<std::string, void*>;
  if (!package.empty()) {
    const std::lock_guard lock(mutex);
    const auto [found, is_new] = own.try_emplace(package, nullptr);
    if (is_new) found->second = open_own_library(package);
    if (void* address = found->second ? dlsym(found->second, function.c_str()) : nullptr) return address;
  }
  return GetOpApiFuncAddr(function.c_str());
}

// PACKAGE of PACKAGE/PACKAGE_lib.so.
std::string package_of(const void* in_library) {
  Dl_info info;
  if (dladdr(in_library, &info) == 0) return "";
  return std::filesystem::path(info.dli_fname).parent_path().filename();
}

void* find_function(const char* operator_name, const std::string& package, const std::string& function) {
  void* address = find_address(package, function);
  TORCH_CHECK(address != nullptr, operator_name, ": ", not_deployed(function));
  return address;
}

// CANN's functions around a call; a CANN without them works, more slowly.
template <typename Function>
Function optional_function(const char* name) {
  return reinterpret_cast<Function>(GetOpApiFuncAddr(name));
}

struct ExecutorCache {
  bool (*usable)(const char*) = optional_function<bool (*)(const char*)>("CanUsePTACache");
  void (*begin)() = optional_function<void (*)()>("InitPTACacheThreadLocal");
  void (*end)() = optional_function<void (*)()>("UnInitPTACacheThreadLocal");
  void (*add_address)(void*) = optional_function<void (*)(void*)>("AddTensorAddrToCachedList");
  void (*set_key)(uint8_t*, size_t) = optional_function<void (*)(uint8_t*, size_t)>("SetPTACacheHashKey");
  aclOpExecutor* (*find)(uint8_t*, size_t, uint64_t*) =
      optional_function<aclOpExecutor* (*)(uint8_t*, size_t, uint64_t*)>("PTAFindExecCache");
  bool complete = usable && begin && end && add_address && set_key && find;

  static const ExecutorCache& get() {
    static const ExecutorCache functions;
    return functions;
  }
};

// torch_npu has no conversion to these.
struct FloatArrays {
  aclFloatArray* (*create)(const float*, uint64_t) =
      optional_function<aclFloatArray* (*)(const float*, uint64_t)>("aclCreateFloatArray");
  int (*destroy)(const aclFloatArray*) = optional_function<int (*)(const aclFloatArray*)>("aclDestroyFloatArray");

  static const FloatArrays& get() {
    static const FloatArrays functions;
    return functions;
  }
};

// Memory that phase one takes for its own use.
struct HugeMemory {
  int (*begin)(void*, bool) = optional_function<int (*)(void*, bool)>("InitHugeMemThreadLocal");
  void (*release)(void*, bool) = optional_function<void (*)(void*, bool)>("ReleaseHugeMem");
  void (*end)(void*, bool) = optional_function<void (*)(void*, bool)>("UnInitHugeMemThreadLocal");
  bool complete = begin && release && end;

  static const HugeMemory& get() {
    static const HugeMemory functions;
    return functions;
  }
};

// Ends what begin() has begun, of a call that phase one was called for.
void release_huge_memory() {
  if (HugeMemory::get().complete) {
    HugeMemory::get().release(nullptr, false);
  }
}

// The key of the call that this thread is making; a longer one switches the cache off for its call.
struct Key {
  std::array<uint8_t, 8192> bytes;
  size_t size = 0;
};
thread_local Key key;

bool is_launch_blocking() {
  static const bool blocking = [] {
    const char* value = std::getenv("ASCEND_LAUNCH_BLOCKING");
    return value != nullptr && std::strcmp(value, "1") == 0;
  }();
  return blocking;
}

template <typename T>
AclnnOwned<T> owned(T* value, const char* what) {
  TORCH_CHECK(value != nullptr, what, " failed: ", aclGetRecentErrMsg());
  return AclnnOwned<T>(value);
}

std::string failure(const AclnnOperator& op, const char* phase, const char* function_suffix, int status) {
  const char* message = aclGetRecentErrMsg();
  return c10::str(op.name(), " failed in ", phase, ": ", op.name(), function_suffix, " returned ", status, ": ",
                  message != nullptr && *message != '\0' ? message : "CANN gives no message");
}

// Phase two of a call, to be run in any thread.
struct PhaseTwo {
  const AclnnOperator* op;
  void* workspace;
  uint64_t workspace_size;
  aclOpExecutor* executor;
  aclrtStream stream;
  std::shared_ptr<void> arguments;  // of phase one; none where the executor comes from the cache

  void run() const {
    using Function = int (*)(void*, uint64_t, aclOpExecutor*, aclrtStream);
    const int status = reinterpret_cast<Function>(op->phase_two())(workspace, workspace_size, executor, stream);
    if (arguments != nullptr) {
      release_huge_memory();
    }
    // Not a c10::Error, with whose frames torch_npu would print it.
    if (status != ACL_SUCCESS) throw std::runtime_error(failure(*op, "phase two", "", status));
  }
};

// Without memory, phase two does not run: what it would have given back is given back here.
c10::DataPtr allocate_workspace(uint64_t size, aclOpExecutor* executor, bool is_new) {
  static const auto destroy = optional_function<int (*)(aclOpExecutor*)>("aclDestroyAclOpExecutor");
  if (size == 0) {
    return {};
  }
  try {
    return c10::GetAllocator(c10::DeviceType::PrivateUse1)->allocate(size);
  } catch (...) {
    if (is_new) {
      release_huge_memory();
      if (destroy != nullptr) {  // CANN's are of another kind where they come from its cache
        destroy(executor);
      }
    }
    throw;
  }
}

// The bytes of storage that a tensor reaches into, from the storage's first.
size_t reach(const at::Tensor& tensor) {
  int64_t last = tensor.storage_offset();
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return static_cast<size_t>(last + 1) * tensor.itemsize();
}

}  // namespace

std::optional<std::string> library_of(const char* name, const std::string& package) {
  void* phase_two = find_address(package, name);
  Dl_info info;
  if (phase_two == nullptr || find_address(package, c10::str(name, "GetWorkspaceSize")) == nullptr ||
      dladdr(phase_two, &info) == 0) {
    return std::nullopt;
  }
  return info.dli_fname;
}

std::string not_deployed(const std::string& function) {
  return c10::str("the function ", function,
                  " is in no operator library. Looked in: op_api/lib/libcust_opapi.so of the operator packages of ",
                  environment("ASCEND_CUSTOM_OPP_PATH"), " and of ", environment("ASCEND_OPP_PATH"),
                  "/vendors, then CANN's libopapi.so. Deploy the operator package of the wheel that has the operator: "
                  "with CANN on the CPU it is in the wheel and found automatically; for NPUs it is built and installed "
                  "with CANN (docs/device_build.md), and its folder named in ASCEND_CUSTOM_OPP_PATH before torch_npu "
                  "is loaded.");
}

AclnnOperator::AclnnOperator(const char* name, const void* in_caller)
    : name_(name),
      get_workspace_size_(find_function(name, package_of(in_caller), c10::str(name, "GetWorkspaceSize"))),
      run_(find_function(name, package_of(in_caller), name)) {}

int64_t format_of(const at::Tensor& tensor) { return at_npu::native::get_npu_format(tensor); }

void AclnnDelete::operator()(aclTensor* value) const { Release(value); }
void AclnnDelete::operator()(aclTensorList* value) const { Release(value); }
void AclnnDelete::operator()(aclScalar* value) const { Release(value); }
void AclnnDelete::operator()(aclIntArray* value) const { Release(value); }
void AclnnDelete::operator()(aclFloatArray* value) const { FloatArrays::get().destroy(value); }
void AclnnDelete::operator()(aclBoolArray* value) const { Release(value); }

AclnnOwned<aclTensor> to_aclnn(const at::Tensor& value) { return owned(ConvertType(value), "aclCreateTensor"); }
AclnnOwned<aclTensor> to_aclnn(const std::optional<at::Tensor>& value) {
  return value.has_value() ? to_aclnn(*value) : nullptr;
}
AclnnOwned<aclTensorList> to_aclnn(at::TensorList value) {
  static const auto create =
      optional_function<aclTensorList* (*)(const aclTensor* const*, uint64_t)>("aclCreateTensorList");
  const aclTensor* none = nullptr;
  return owned(value.empty() ? create(&none, 0) : ConvertType(value), "aclCreateTensorList");
}
AclnnOwned<aclScalar> to_aclnn(const at::Scalar& value) { return owned(ConvertType(value), "aclCreateScalar"); }
AclnnOwned<aclIntArray> to_aclnn(at::IntArrayRef value) { return owned(ConvertType(value), "aclCreateIntArray"); }

AclnnOwned<aclFloatArray> to_aclnn(at::ArrayRef<double> value) {
  const std::vector<float> floats(value.begin(), value.end());
  return owned(FloatArrays::get().create(floats.data(), floats.size()), "aclCreateFloatArray");
}
AclnnOwned<aclBoolArray> to_aclnn(const c10::List<bool>& value) {
  const auto flags = std::make_unique<bool[]>(value.size());
  std::copy(value.begin(), value.end(), flags.get());
  return owned(ConvertType(at::ArrayRef<bool>(flags.get(), value.size())), "aclCreateBoolArray");
}
int to_aclnn(at::ScalarType value) { return ConvertType(value); }

void AclnnCall::check(const at::Tensor& value) {
  TORCH_CHECK(value.defined(), op_.name(), ": a tensor is undefined (null); pass a tensor on an NPU");
  TORCH_CHECK(value.is_privateuseone(), op_.name(), ": all tensors must be on an NPU, but one is on ", value.device(),
              "; move it there with .npu()");
  if (!device_.has_value()) {
    device_ = value.device();
  }
  TORCH_CHECK(value.device() == *device_, op_.name(), ": all tensors must be on one NPU, but the first is on ",
              *device_, " and another on ", value.device());
  TORCH_CHECK(value.numel() == 0 || value.storage().nbytes() >= reach(value), op_.name(), ": a tensor of shape ",
              value.sizes(), " reaches ", reach(value), " bytes into its storage, which has ", value.storage().nbytes(),
              " (its data is null or was freed)");
}

void AclnnCall::check(const std::optional<at::Tensor>& value) {
  if (value.has_value()) {
    check(*value);
  }
}

void AclnnCall::check(at::TensorList value) {
  for (const at::Tensor& tensor : value) {
    check(tensor);
  }
}

void AclnnCall::begin() {
  TORCH_CHECK(device_.has_value(), op_.name(), ": there is no tensor among the arguments");
  device_guard_.reset_device(*device_);
  stream_ = GetAclStream();
  const auto [deterministic, level] = apply_determinism();

  const ExecutorCache& cache = ExecutorCache::get();
  caching_ = cache.complete && cache.usable(op_.name().c_str());
  if (!caching_) {
    return;
  }
  cache.begin();
  key.size = 0;
  const CacheParams cores = GetCacheParams();
  add_to_key(op_.name());
  add_to_key(reinterpret_cast<uintptr_t>(stream_));
  add_to_key(device_->index());
  add_to_key(level);
  add_to_key(deterministic);
  static_assert(std::is_trivially_copyable_v<CacheParams>);  // the cores that the stream may use
  add_bytes_to_key(&cores, sizeof(cores));
}

AclnnCall::~AclnnCall() {
  if (in_huge_memory_) {
    HugeMemory::get().end(nullptr, false);
  }
  if (caching_) {
    ExecutorCache::get().end();
  }
}

void AclnnCall::add_bytes_to_key(const void* data, size_t size) {
  if (!caching_) {
    return;
  }
  if (key.size + size > key.bytes.size()) {
    caching_ = false;
    ExecutorCache::get().end();
    return;
  }
  std::memcpy(key.bytes.data() + key.size, data, size);
  key.size += size;
}

void AclnnCall::add_to_key(const at::Tensor& value) {
  add_to_key(value.sizes());
  add_to_key(value.strides());
  add_to_key(value.storage_offset());
  add_to_key(value.storage().nbytes());
  add_to_key(static_cast<int>(value.scalar_type()));
  add_to_key(format_of(value));
  if (caching_) {
    ExecutorCache::get().add_address(const_cast<void*>(value.storage().data()));
  }
}

void AclnnCall::add_to_key(const std::optional<at::Tensor>& value) {
  add_to_key(value.has_value());
  if (value.has_value()) {
    add_to_key(*value);
  }
}

void AclnnCall::add_to_key(at::TensorList value) {
  add_to_key(value.size());
  for (const at::Tensor& tensor : value) {
    add_to_key(tensor);
  }
}

void AclnnCall::add_to_key(const at::Scalar& value) {
  add_to_key(static_cast<int>(value.type()));
  if (value.isIntegral(/*includeBool=*/true)) {
    add_to_key(value.toLong());
  } else {
    const c10::complex<double> number = value.toComplexDouble();
    add_bytes_to_key(&number, sizeof(number));
  }
}

void AclnnCall::add_to_key(at::IntArrayRef value) {
  add_to_key(value.size());
  add_bytes_to_key(value.data(), value.size() * sizeof(int64_t));
}

void AclnnCall::add_to_key(at::ArrayRef<double> value) {
  add_to_key(value.size());
  add_bytes_to_key(value.data(), value.size() * sizeof(double));
}

void AclnnCall::add_to_key(const c10::List<bool>& value) {
  add_to_key(value.size());
  for (const bool flag : value) {
    add_to_key(flag);
  }
}

void AclnnCall::add_to_key(const std::string& value) {
  add_to_key(value.size());
  add_bytes_to_key(value.data(), value.size());
}

bool AclnnCall::run_cached() {
  if (caching_) {
    const ExecutorCache& cache = ExecutorCache::get();
    uint64_t workspace_size = 0;
    cache.set_key(key.bytes.data(), key.size);
    if (aclOpExecutor* executor = cache.find(key.bytes.data(), key.size, &workspace_size)) {
      run_phase_two(workspace_size, executor, nullptr);
      return true;
    }
  }
  if (HugeMemory::get().complete) {
    HugeMemory::get().begin(nullptr, false);
    in_huge_memory_ = true;
  }
  return false;
}

void AclnnCall::run(int phase_one_status, uint64_t workspace_size, aclOpExecutor* executor,
                    std::shared_ptr<void> arguments) {
  if (phase_one_status != ACL_SUCCESS) {
    release_huge_memory();
    TORCH_CHECK(false, failure(op_, "phase one", "GetWorkspaceSize", phase_one_status));
  }
  run_phase_two(workspace_size, executor, std::move(arguments));
}

void AclnnCall::run_phase_two(uint64_t workspace_size, aclOpExecutor* executor, std::shared_ptr<void> arguments) {
  const c10::DataPtr workspace = allocate_workspace(workspace_size, executor, arguments != nullptr);
  PhaseTwo task{&op_, workspace.get(), workspace_size, executor, stream_, std::move(arguments)};
  const c10_npu::NPUStream stream = c10_npu::getCurrentNPUStream(device_->index());
  if (OpApiGetTaskQueueEnable() != 0 && !stream.isSyncLaunchStream()) {
    at_npu::native::OpCommand::RunOpApiV2(op_.name(), [task = std::move(task)] {
      InitExecSubTheadCtx(task.stream);
      task.run();  // torch_npu logs what it throws
      return ACL_SUCCESS;
    });
    return;
  }
  task.run();
  if (is_launch_blocking() && c10_npu::currentStreamCaptureStatusMayInitCtx() == c10_npu::CaptureStatus::None) {
    stream.synchronize();
  }
}

}  // namespace custom_pypto
