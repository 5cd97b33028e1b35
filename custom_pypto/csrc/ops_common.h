// SPDX-License-Identifier: Apache-2.0
// EXEC_NPU_CMD: how an operator calls its aclnn function on the current NPU stream. Other packages also use it, so
// custom_pypto_lib exports what their operators need.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/macros/Export.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

struct aclTensor;
struct aclTensorList;
struct aclScalar;
struct aclIntArray;
struct aclFloatArray;
struct aclBoolArray;
struct aclOpExecutor;

namespace custom_pypto {

// Lies in the library that this header is compiled into.
[[maybe_unused]] static const char in_this_library = 0;

// The two functions of an aclnn operator: those of the operator package of the extension that calls it, where it is
// deployed, or else as torch_npu's own search finds them: operator packages first, then CANN.
class C10_EXPORT AclnnOperator {
 public:
  // Throws when a function is missing: there is no fallback.
  AclnnOperator(const char* name, const void* in_caller);

  const std::string& name() const { return name_; }
  void* phase_one() const { return get_workspace_size_; }
  void* phase_two() const { return run_; }

 private:
  std::string name_;
  void* get_workspace_size_;
  void* run_;
};

// The library with phase two of an aclnn operator where both phases are deployed, searched for as an extension of the
// package does, or without one as torch_npu does.
std::optional<std::string> library_of(const char* name, const std::string& package);

// Says that a function is in none of them, which they are, and how to deploy it.
std::string not_deployed(const std::string& function);

// The format of a tensor on an NPU, an aclFormat.
int64_t format_of(const at::Tensor& tensor);

struct C10_EXPORT AclnnDelete {
  void operator()(aclTensor* value) const;
  void operator()(aclTensorList* value) const;
  void operator()(aclScalar* value) const;
  void operator()(aclIntArray* value) const;
  void operator()(aclFloatArray* value) const;
  void operator()(aclBoolArray* value) const;
};
template <typename T>
using AclnnOwned = std::unique_ptr<T, AclnnDelete>;

// What aclnn takes for each of our argument types; an absent optional is a null pointer.
C10_EXPORT AclnnOwned<aclTensor> to_aclnn(const at::Tensor& value);
C10_EXPORT AclnnOwned<aclTensor> to_aclnn(const std::optional<at::Tensor>& value);
C10_EXPORT AclnnOwned<aclTensorList> to_aclnn(at::TensorList value);
C10_EXPORT AclnnOwned<aclScalar> to_aclnn(const at::Scalar& value);
C10_EXPORT AclnnOwned<aclIntArray> to_aclnn(at::IntArrayRef value);
C10_EXPORT AclnnOwned<aclFloatArray> to_aclnn(at::ArrayRef<double> value);
C10_EXPORT AclnnOwned<aclBoolArray> to_aclnn(const c10::List<bool>& value);
// aclDataType is an int.
C10_EXPORT int to_aclnn(at::ScalarType value);
inline const char* to_aclnn(const std::string& value) { return value.c_str(); }
// int64_t, double and bool are aclnn's own; any other number would be passed with the wrong width.
template <typename T>
  requires std::is_arithmetic_v<T>
T to_aclnn(T value) {
  static_assert(std::is_same_v<T, int64_t> || std::is_same_v<T, double> || std::is_same_v<T, bool>);
  return value;
}

template <typename T>
auto aclnn_argument(const T& value) {
  if constexpr (std::is_scalar_v<T>) {
    return value;
  } else {
    return value.get();
  }
}

// A type without what EXEC_NPU_CMD does not compare: the const of what a pointer points to, and an enumeration's name.
template <typename T>
struct Comparable {
  using type = T;
};
template <typename T>
struct Comparable<T*> {
  using type = std::remove_const_t<T>*;
};
template <typename T>
  requires std::is_enum_v<T>
struct Comparable<T> {
  using type = int;
};

template <typename Parameter, typename Argument>
inline constexpr bool kFits =
    std::is_same_v<typename Comparable<Parameter>::type,
                   typename Comparable<decltype(aclnn_argument(to_aclnn(std::declval<const Argument&>())))>::type>;

// 0 when a call with `Args` is one of phase one; otherwise the number of the first argument that is not.
template <typename... Parameters, typename... Args>
consteval size_t first_mismatch(int (*)(Parameters...), std::type_identity<std::tuple<Args...>>) {
  using All = std::tuple<Parameters...>;
  constexpr size_t kExpected = sizeof...(Parameters) - 2;  // the last two are workspaceSize and executor
  return [&]<size_t... i>(std::index_sequence<i...>) {
    size_t mismatch = 0;
    (void)((kFits<std::tuple_element_t<i, All>, std::tuple_element_t<i, std::tuple<Args...>>> ||
            (mismatch = i + 1, false)) &&
           ...);
    constexpr size_t kCompared = sizeof...(i);
    return mismatch == 0 && kExpected != sizeof...(Args) ? kCompared + 1 : mismatch;
  }(std::make_index_sequence<std::min(kExpected, sizeof...(Args))>());
}

// One call of an aclnn operator. While it lives the device guard is set and CANN's per-thread state is the call's.
//
// Phase one runs in the caller, and the call raises its errors. Phase two runs where torch_npu's operators run theirs,
// so that all keep their order: with TASK_QUEUE_ENABLE 1 and 2, in its task queue, after the call. As with torch_npu's
// own operators, an error of phase two then ends the queue: torch_npu logs the error, raises one with the operator's
// name at the next call or synchronization, and drops every later operation of the device.
//
// Nothing keeps the tensors alive until then, as for torch_npu's own operators: the allocator reuses freed memory only
// for later work of the same stream. The workspace is also such memory.
class C10_EXPORT AclnnCall {
 public:
  // Rejects tensors that are not on one NPU or whose storage is too small, sets the device, and takes the stream.
  template <typename... Args>
  explicit AclnnCall(const AclnnOperator& op, const Args&... args) : op_(op) {
    (check(args), ...);
    begin();
    (add_to_key(args), ...);
  }
  ~AclnnCall();
  AclnnCall(const AclnnCall&) = delete;
  AclnnCall& operator=(const AclnnCall&) = delete;

  // Runs phase two on the executor that an earlier call with the same key left; false: there is none, go on to phase
  // one.
  bool run_cached();
  // Runs phase two on what phase one gave, which may read the arguments that it was given.
  void run(int phase_one_status, uint64_t workspace_size, aclOpExecutor* executor, std::shared_ptr<void> arguments);

 private:
  void check(const at::Tensor& value);
  void check(const std::optional<at::Tensor>& value);
  void check(at::TensorList value);
  template <typename T>
    requires(!std::is_convertible_v<const T&, at::TensorList>)
  void check(const T&) {}

  void begin();

  // The key of the executor cache: all that an executor depends on, but for the tensors' addresses.
  void add_to_key(const at::Tensor& value);
  void add_to_key(const std::optional<at::Tensor>& value);
  void add_to_key(at::TensorList value);
  void add_to_key(const at::Scalar& value);
  void add_to_key(at::IntArrayRef value);
  void add_to_key(at::ArrayRef<double> value);
  void add_to_key(const c10::List<bool>& value);
  void add_to_key(at::ScalarType value) { add_to_key(static_cast<int>(value)); }
  void add_to_key(const std::string& value);
  template <typename T>
    requires std::is_arithmetic_v<T>
  void add_to_key(T value) {
    add_bytes_to_key(&value, sizeof(value));
  }
  void add_bytes_to_key(const void* data, size_t size);

  void run_phase_two(uint64_t workspace_size, aclOpExecutor* executor, std::shared_ptr<void> arguments);

  const AclnnOperator& op_;
  std::optional<c10::Device> device_;  // of the tensors, once one was seen
  c10::OptionalDeviceGuard device_guard_;
  void* stream_ = nullptr;
  bool caching_ = false;
  bool in_huge_memory_ = false;
};

// Runs `op` with `args`: the inputs, attributes and outputs in the order of its aclnn function.
template <typename... Args>
void exec_npu_cmd(const AclnnOperator& op, const Args&... args) {
  AclnnCall call(op, args...);
  if (call.run_cached()) {
    return;
  }
  const auto converted = std::make_shared<std::tuple<decltype(to_aclnn(args))...>>(to_aclnn(args)...);
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  const int status = std::apply(
      [&](const auto&... values) {
        using PhaseOne = int (*)(decltype(aclnn_argument(values))..., uint64_t*, aclOpExecutor**);
        return reinterpret_cast<PhaseOne>(op.phase_one())(aclnn_argument(values)..., &workspace_size, &executor);
      },
      *converted);
  call.run(status, workspace_size, executor, converted);
}

}  // namespace custom_pypto

// EXEC_NPU_CMD(aclnnXxx, inputs..., attributes..., outputs...), which aclnn_xxx.h declares; the function is looked up
// once, and what is found lives as long as torch_npu's task queue, to the end.
#define CUSTOM_PYPTO_TEXT(value) #value
#define CUSTOM_PYPTO_TEXT_OF(macro) CUSTOM_PYPTO_TEXT(macro)
#define EXEC_NPU_CMD(aclnn_api, ...)                                                                                  \
  do {                                                                                                                \
    static_assert(                                                                                                    \
        custom_pypto::first_mismatch(decltype (&aclnn_api##GetWorkspaceSize)(nullptr),                                \
                                     std::type_identity<decltype(std::forward_as_tuple(__VA_ARGS__))>()) == 0,        \
        __FILE__ ":" CUSTOM_PYPTO_TEXT_OF(__LINE__) ": the arguments of EXEC_NPU_CMD(" #aclnn_api                     \
                                                    ", ...) are not those that its header, generated from "           \
                                                    "the prototype, declares; the first that is not:");               \
    static const auto& aclnn_operator = *new custom_pypto::AclnnOperator(#aclnn_api, &custom_pypto::in_this_library); \
    custom_pypto::exec_npu_cmd(aclnn_operator, __VA_ARGS__);                                                          \
  } while (false)
