// SPDX-License-Identifier: Apache-2.0
// Finds and calls aclnn functions.
#include "aclnn_function.h"

#include <ATen/ops/empty.h>
#include <dlfcn.h>

#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "acl/acl_rt.h"
#include "cann_cpu/open_library.h"
#include "cann_cpu/operator_packages.h"
#include "graph_engine/model/dtypes.h"
#include "graph_engine/model/model.h"

namespace cann_cpu::graph {
namespace {

// The libraries that hold aclnn functions, in order of priority. `errors` lists those that do not load.
struct AclnnLibraries {
  std::vector<void*> handles;
  std::string errors;

  AclnnLibraries() {
    for (const auto& package : operator_packages()) {
      const auto library = package / "op_api/lib/libcust_opapi.so";
      if (std::filesystem::exists(library)) {
        open(library.string());
      }
    }
    open("libopapi.so");
  }

  void* find(const std::string& symbol) const {
    for (void* handle : handles) {
      if (void* function = dlsym(handle, symbol.c_str())) {
        return function;
      }
    }
    return nullptr;
  }

 private:
  void open(const std::string& library) {
    const OpenedLibrary opened = open_library(library);
    if (opened.handle != nullptr) {
      handles.push_back(opened.handle);
    } else {
      errors += "; " + opened.error;
    }
  }
};

aclTensor* create_tensor(const StoredTensor& stored) {
  const at::Tensor& tensor = stored.tensor;
  const auto type = static_cast<aclDataType>(ge_dtype(tensor.scalar_type()));
  if (stored.format != ACL_FORMAT_ND) {
    return aclCreateTensor(stored.shape.data(), stored.shape.size(), type, nullptr, 0, stored.format,
                           tensor.sizes().data(), tensor.sizes().size(), tensor.data_ptr());
  }
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const int64_t elements = bytes / static_cast<int64_t>(tensor.element_size()) - tensor.storage_offset();
  return aclCreateTensor(stored.shape.data(), stored.shape.size(), type, tensor.strides().data(), 0, stored.format,
                         &elements, 1, tensor.data_ptr());
}

// As torch_npu passes Python's numbers.
aclScalar* create_scalar(const at::Scalar& scalar) {
  return aclCreateScalar(const_cast<void*>(scalar.data_ptr()), static_cast<aclDataType>(ge_dtype(scalar.type())));
}

// Both calling conventions (System V x86-64, AAPCS64) have separate registers for integers and doubles, eight doubles
// at most, and pass the integers that do not fit on the stack, eight bytes each, in order. So the order of the two
// kinds in a signature does not matter as long as no double comes to the stack. Surplus integers come after those that
// the function has, where it does not look.
constexpr size_t kMaxReals = 8;
constexpr size_t kMaxIntegers = 64;

template <size_t>
using Real = double;
template <size_t>
using Integer = uint64_t;

template <size_t... R, size_t... I>
aclnnStatus call_any(void* function, const std::array<double, kMaxReals>& reals,
                     const std::array<uint64_t, kMaxIntegers>& integers, std::index_sequence<R...>,
                     std::index_sequence<I...>) {
  using AnyPhaseOne = aclnnStatus (*)(Real<R>..., Integer<I>...);
  return reinterpret_cast<AnyPhaseOne>(function)(reals[R]..., integers[I]...);
}

void check(aclnnStatus status, const std::string& function) {
  if (status != ACL_SUCCESS) {
    const char* message = aclGetRecentErrMsg();
    throw GraphError(function + " returned " + std::to_string(status) + ": " +
                     (message == nullptr || *message == '\0' ? "it left no message" : message));
  }
}

}  // namespace

std::optional<AclnnFunction> find_aclnn(const std::string& name, std::string& reason) {
  static const auto* libraries = new AclnnLibraries;
  AclnnFunction function;
  function.name = name;
  function.phase_one = libraries->find(name + "GetWorkspaceSize");
  function.phase_two = reinterpret_cast<decltype(function.phase_two)>(libraries->find(name));
  if (function.phase_one == nullptr || function.phase_two == nullptr) {
    reason = name + (function.phase_one == nullptr ? "GetWorkspaceSize" : "") +
             " is in no operator package's libcust_opapi.so, nor in libopapi.so" + libraries->errors;
    return std::nullopt;
  }
  return function;
}

AclnnArguments::~AclnnArguments() {
  for (auto destroy = destroyers_.rbegin(); destroy != destroyers_.rend(); ++destroy) {
    (*destroy)();
  }
}

template <class T>
AclnnArguments& AclnnArguments::keep(T* object, aclnnStatus (*destroy)(const T*)) {
  if (object == nullptr) {
    throw GraphError(std::string("an argument of its aclnn function cannot be created: ") + aclGetRecentErrMsg());
  }
  destroyers_.push_back([object, destroy] { destroy(object); });
  return integer(reinterpret_cast<uintptr_t>(object));
}

AclnnArguments& AclnnArguments::tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return integer(0);
  }
  return this->tensor(in_rows(tensor));
}

AclnnArguments& AclnnArguments::tensor(const StoredTensor& stored) {
  tensors_.push_back(stored.tensor);
  return keep(create_tensor(stored), aclDestroyTensor);
}

AclnnArguments& AclnnArguments::list(const std::vector<StoredTensor>& tensors) {
  std::vector<const aclTensor*> elements;  // the list destroys them
  for (const auto& stored : tensors) {
    tensors_.push_back(stored.tensor);
    elements.push_back(create_tensor(stored));
  }
  return keep(aclCreateTensorList(elements.data(), elements.size()), aclDestroyTensorList);
}

AclnnArguments& AclnnArguments::array(const std::vector<int64_t>& values) {
  return keep(aclCreateIntArray(values.data(), values.size()), aclDestroyIntArray);
}

AclnnArguments& AclnnArguments::array(const std::vector<float>& values) {
  return keep(aclCreateFloatArray(values.data(), values.size()), aclDestroyFloatArray);
}

AclnnArguments& AclnnArguments::array(const std::vector<bool>& values) {
  const std::unique_ptr<bool[]> bools(new bool[values.size()]);
  std::copy(values.begin(), values.end(), bools.get());
  return keep(aclCreateBoolArray(bools.get(), values.size()), aclDestroyBoolArray);
}

AclnnArguments& AclnnArguments::scalar(const at::Scalar& scalar) {
  return keep(create_scalar(scalar), aclDestroyScalar);
}

AclnnArguments& AclnnArguments::scalars(const std::vector<at::Scalar>& scalars) {
  std::vector<const aclScalar*> elements;  // the list destroys them
  for (const at::Scalar& scalar : scalars) {
    elements.push_back(create_scalar(scalar));
  }
  return keep(aclCreateScalarList(elements.data(), elements.size()), aclDestroyScalarList);
}

AclnnArguments& AclnnArguments::text(std::string text) {
  return integer(reinterpret_cast<uintptr_t>(texts_.emplace_back(std::move(text)).c_str()));
}

AclnnArguments& AclnnArguments::integer(uint64_t value) {
  integers_.push_back(value);
  return *this;
}

AclnnArguments& AclnnArguments::real(double value) {
  reals_.push_back(value);
  return *this;
}

AclnnArguments& AclnnArguments::real32(float value) {
  double lower_half = 0;
  std::memcpy(&lower_half, &value, sizeof value);
  return real(lower_half);
}

aclnnStatus AclnnArguments::call_phase_one(void* function, uint64_t* workspace_size, aclOpExecutor** executor) const {
  if (reals_.size() > kMaxReals || integers_.size() + 2 > kMaxIntegers) {
    throw GraphError("its aclnn function has " + std::to_string(reals_.size()) + " float attributes and " +
                     std::to_string(integers_.size()) + " other arguments; at most " + std::to_string(kMaxReals) +
                     " and " + std::to_string(kMaxIntegers - 2) + " can be passed");
  }
  std::array<double, kMaxReals> reals{};
  std::array<uint64_t, kMaxIntegers> integers{};
  std::copy(reals_.begin(), reals_.end(), reals.begin());
  auto* next = std::copy(integers_.begin(), integers_.end(), integers.begin());
  *next++ = reinterpret_cast<uintptr_t>(workspace_size);
  *next = reinterpret_cast<uintptr_t>(executor);
  return call_any(function, reals, integers, std::make_index_sequence<kMaxReals>(),
                  std::make_index_sequence<kMaxIntegers>());
}

void AclnnArguments::call(const AclnnFunction& function, aclrtStream stream) const {
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  check(call_phase_one(function.phase_one, &workspace_size, &executor), function.name + "GetWorkspaceSize");
  const auto bytes = at::TensorOptions().dtype(at::kByte);
  const at::Tensor workspace = at::empty({static_cast<int64_t>(workspace_size)}, bytes);
  check(function.phase_two(workspace_size == 0 ? nullptr : workspace.data_ptr(), workspace_size, executor, stream),
        function.name);
}

}  // namespace cann_cpu::graph
