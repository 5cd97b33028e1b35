// SPDX-License-Identifier: Apache-2.0
// Defines an aclnn function from a kernel: ACLNN(Name, kernel).
//
//   ACLNN(Add, [](const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
//     at::add_out(out, self, other, alpha);
//   });
//
// exports aclnnAddGetWorkspaceSize and aclnnAdd. The kernel's parameters are those of the C function, in its order;
// cann_cpu/arguments.h has the table of their types.
//
// CPU_KERNEL defines the kernel of an operator whose definition (OpDef) has no AICore(): its aclnn function, which
// op_build generates, calls it after the definition's checks.
//
// Phase one copies the arguments, and calls a kernel whose first parameter is a Phase with Phase::Check: it then sees
// the tensors' shapes and dtypes, must not read their data, and throws to reject the call. Phase two enqueues the
// kernel. What either throws becomes CANN's status and the text of aclGetRecentErrMsg.
//
//   ACLNN(Dot, [](cann_cpu::Phase phase, const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
//     TORCH_CHECK(self.sizes() == other.sizes(), "other has shape ", other.sizes(), "; expected ", self.sizes());
//     if (phase == cann_cpu::Phase::Check) return;
//     at::dot_out(out, self, other);
//   });
#pragma once

#include <c10/core/InferenceMode.h>
#include <c10/util/FunctionRef.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cann_cpu/arguments.h"
#include "cann_cpu/executor.h"
#include "cann_cpu/operator_call.h"
#include "cann_cpu/runtime.h"
#include "cann_cpu/signature.h"

namespace cann_cpu {

// What a kernel is called for: to check its arguments, in phase one, or to compute.
enum class Phase { Check, Run };

// For a kernel that is a struct of arguments with the members check() and run().
template <class Task, class... Outputs>
void check_or_run(Phase phase, Task&& task, Outputs&&... outputs) {
  if (phase == Phase::Check) {
    task.check(outputs...);
  } else {
    task.run(outputs...);
  }
}

namespace detail {

// Runs body; what it throws becomes a status and the text of aclGetRecentErrMsg.
inline aclError guarded(const char* name, aclError code, c10::function_ref<void()> body) noexcept {
  try {
    body();
    return ACL_SUCCESS;
  } catch (const NullArgument& e) {
    return error(ACLNN_ERR_PARAM_NULLPTR, "%s: %s", name, e.what());
  } catch (const c10::Error& e) {
    return error(code, "%s: %s", name, e.what_without_backtrace());
  } catch (const std::exception& e) {
    return error(code, "%s: %s", name, e.what());
  }
}

// A parameter of a kernel without its type.
struct Parameter {
  void (*store)(const OperatorArgument& argument, Operands& operands, StoredArgument& in_place_of_null);
  bool is_tensor, is_list, is_input, is_output;
};

template <class T>
void store(const OperatorArgument& argument, Operands& operands, StoredArgument& in_place_of_null) {
  // The null holds nothing to destroy.
  new (&in_place_of_null) StoredArgument(Argument<T>::store(argument.as<typename Argument<T>::CType>(), operands));
}

template <class T>
constexpr Parameter parameter_of() {
  using Object = std::remove_cv_t<std::remove_pointer_t<typename Argument<T>::CType>>;
  constexpr bool is_list = std::is_same_v<Object, aclTensorList>;
  constexpr bool is_copied = requires { Argument<T>::is_copied; };  // to the host in phase one
  constexpr bool is_tensor = std::is_same_v<Object, aclTensor> && !is_copied;
  constexpr bool is_in_out = std::is_same_v<T, InOut> || std::is_same_v<T, const std::optional<InOut>&>;
  constexpr bool is_result = std::is_reference_v<T> && !std::is_const_v<std::remove_reference_t<T>>;
  return {store<T>, is_tensor || is_list, is_list, !is_result, is_in_out || is_result};
}

// An argument of type T in C.
template <class T>
OperatorArgument passed(T argument) {
  if constexpr (std::is_pointer_v<T>) {
    return static_cast<const void*>(argument);
  } else {
    return static_cast<std::conditional_t<std::is_floating_point_v<T>, double, int64_t>>(argument);
  }
}

class KernelCall;

// A row: a kernel. What depends on its parameters' types is in `parameters` and `apply`, so that a new list of types
// costs little to compile.
struct Row {
  const char* name;
  const char* source;  // of the kernel
  const char* dtypes;  // of its tensors, as check_dtypes() reads them; may be null
  const Parameter* parameters;
  size_t count;
  bool has_check;                         // the kernel's first parameter is a Phase
  void (*trial)(const KernelCall& call);  // of a call that is right so far; throws to reject it, may be null
  void (*apply)(const Row& row, Phase phase, const StoredArgument* arguments, AddressCursor& addresses);
};

// An out= function of ATen resizes an output of another shape than its result, which then lies beside the caller's
// view.
inline void check_not_resized(size_t position, const aclTensor& given, const at::Tensor& output) {
  TORCH_CHECK(output.sizes() == at::IntArrayRef(given.shape), "argument ", position, ", an output, has shape ",
              at::IntArrayRef(given.shape), ", the result has shape ", output.sizes());
}

template <bool has_phase, class... Params>
class TypedRow : public Row {
 public:
  using Kernel = std::conditional_t<has_phase, void (*)(Phase, Params...), void (*)(Params...)>;

  constexpr TypedRow(const char* name, const char* source, const char* dtypes, void (*trial)(const KernelCall&),
                     Kernel kernel)
      : Row{name, source, dtypes, kParameters, sizeof...(Params), has_phase, trial, apply}, kernel_(kernel) {}

 private:
  static constexpr Parameter kParameters[] = {parameter_of<Params>()..., {}};

  struct Application {
    Application(Kernel kernel, [[maybe_unused]] Phase phase, const StoredArgument* arguments,
                typename Argument<Params>::Bound... bound) {
      if constexpr (has_phase) {
        kernel(phase, static_cast<Params>(bound)...);
      } else {
        kernel(static_cast<Params>(bound)...);
      }
      size_t i = 0;
      (check_result<Params>(i++, arguments, bound), ...);
    }

    template <class Param, class Bound>
    static void check_result([[maybe_unused]] size_t i, [[maybe_unused]] const StoredArgument* arguments,
                             [[maybe_unused]] const Bound& bound) {
      if constexpr (std::is_same_v<Param, at::Tensor&>) {
        check_not_resized(i + 1, stored_as<aclTensor>(arguments[i]), bound);
      }
    }
  };

  static void apply(const Row& row, Phase phase, const StoredArgument* arguments, AddressCursor& addresses) {
    apply(static_cast<const TypedRow&>(row).kernel_, phase, arguments, addresses, std::index_sequence_for<Params...>());
  }

  template <size_t... I>
  static void apply(Kernel kernel, Phase phase, const StoredArgument* arguments,
                    [[maybe_unused]] AddressCursor& addresses, std::index_sequence<I...>) {
    // Braces, because they bind the arguments from left to right, as the addresses lie.
    Application{kernel, phase, arguments, Argument<Params>::bind(arguments[I], addresses)...};
  }

  Kernel kernel_;
};

template <class... Params>
TypedRow(const char*, const char*, const char*, void (*)(const KernelCall&), void (*)(Params...))
    -> TypedRow<false, Params...>;
template <class... Params>
TypedRow(const char*, const char*, const char*, void (*)(const KernelCall&), void (*)(Phase, Params...))
    -> TypedRow<true, Params...>;

class KernelCall final : public Call {
 public:
  KernelCall(const Row& row, Operands operands, std::vector<StoredArgument> arguments)
      : Call(row.name, std::move(operands)), row(row), arguments(std::move(arguments)) {}

  aclError run(const std::vector<void*>& addresses) const override {
    return guarded(name, ACL_ERROR_RT_AICPU_EXCEPTION, [&] { compute(addresses); });
  }

  // run(), but throws.
  void compute(const std::vector<void*>& addresses) const { apply(Phase::Run, AddressCursor(addresses, true)); }

  void check() const { apply(Phase::Check, AddressCursor(this->operands.addresses, false)); }

  const Row& row;
  const std::vector<StoredArgument> arguments;

 private:
  void apply(Phase phase, AddressCursor addresses) const {
    c10::InferenceMode no_autograd;
    row.apply(row, phase, arguments.data(), addresses);
  }
};

// The arguments of a call, stored one after the other.
inline std::vector<StoredArgument> store_all(const Row& row, const OperatorArgument* arguments, Operands& operands) {
  std::vector<StoredArgument> stored(row.count);
  for (uint32_t i = 0; i < row.count; ++i) {
    const Parameter& parameter = row.parameters[i];
    const size_t first = operands.addresses.size();
    if (parameter.is_tensor) {
      operands.parameters.push_back({i + 1, parameter.is_list, parameter.is_input, parameter.is_output, first});
    }
    const auto position = [&] { return "argument " + std::to_string(i + 1) + in_brackets(row.source, i) + " "; };
    try {
      parameter.store(arguments[i], operands, stored[i]);
    } catch (const NullArgument& e) {
      throw NullArgument(position() + e.what());
    } catch (const std::invalid_argument& e) {
      throw std::invalid_argument(position() + e.what());
    }
    if (parameter.is_tensor) operands.parameters.back().count = operands.addresses.size() - first;
  }
  return stored;
}

inline aclnnStatus phase_one(const Row& row, const OperatorArgument* arguments, uint64_t* workspace_size,
                             aclOpExecutor** executor) {
  aclnnStatus finished = ACLNN_SUCCESS;
  const aclnnStatus status = guarded(row.name, ACLNN_ERR_PARAM_INVALID, [&] {
    if (workspace_size == nullptr || executor == nullptr) throw NullArgument("workspaceSize or executor is null");
    Operands operands;
    auto stored = store_all(row, arguments, operands);
    if (row.dtypes != nullptr) check_dtypes(row.source, row.dtypes, operands);
    auto call = std::make_shared<KernelCall>(row, std::move(operands), std::move(stored));
    if (row.has_check) call->check();
    if (row.trial != nullptr) row.trial(*call);
    finished = finish_phase_one(std::move(call), workspace_size, executor);
  });
  return status == ACLNN_SUCCESS ? finished : status;
}

// The C function of phase one, made from the row.
template <class Definition, class TypedRow>
struct PhaseOne;

// What converts to every parameter, and what converts to those of one type.
struct Anything {
  template <class T>
  operator T() const;
};
template <class T>
struct Exactly {
  template <class U>
    requires std::is_same_v<T, U>
  operator U() const;
};

template <class Definition, bool has_phase, class... Params>
struct PhaseOne<Definition, TypedRow<has_phase, Params...>> {
  static aclnnStatus call(typename Argument<Params>::CType... arguments, uint64_t* workspace_size,
                          aclOpExecutor** executor) {
    const OperatorArgument passed_on[] = {passed(arguments)..., nullptr};
    return call_with(passed_on, workspace_size, executor);
  }

  static constexpr size_t count = sizeof...(Params);

  static aclnnStatus call_with(const OperatorArgument* arguments, uint64_t* workspace_size, aclOpExecutor** executor) {
    return phase_one(Definition::row, arguments, workspace_size, executor);
  }

  // Whether the header, if one is included that declares the function, has these parameters.
  static constexpr bool is_as_declared() {
    return !Definition::takes(std::conditional_t<true, Anything, Params>{}..., Anything{}, Anything{}) ||
           Definition::takes(Exactly<typename Argument<Params>::CType>{}..., Exactly<uint64_t*>{},
                             Exactly<aclOpExecutor**>{});
  }
};

inline aclnnStatus phase_two(aclOpExecutor* executor, aclrtStream stream) { return run_phase_two(executor, stream); }

}  // namespace detail
}  // namespace cann_cpu

// The parameters are written once, in the kernel; a header that is included and declares the function has to agree.
#define CANN_CPU_PHASE_ONE(op, name, dtypes, trial, ...)                                                               \
  namespace {                                                                                                          \
  struct op##Definition {                                                                                              \
    static constexpr cann_cpu::detail::TypedRow row{name, #__VA_ARGS__, dtypes, trial, +__VA_ARGS__};                  \
    static constexpr bool takes(auto... arguments) {                                                                   \
      return requires { aclnn##op##GetWorkspaceSize(arguments...); };                                                  \
    }                                                                                                                  \
  };                                                                                                                   \
  using op##PhaseOne = cann_cpu::detail::PhaseOne<op##Definition, std::remove_const_t<decltype(op##Definition::row)>>; \
  static_assert(op##PhaseOne::is_as_declared(),                                                                        \
                "the kernel of aclnn" #op                                                                              \
                " does not have the parameters of the header: a tensor that is written, Tensor(a!), is an "            \
                "InOut, one that is read a const Tensor&, a result a Tensor&");                                        \
  }

// ifunc gives the C name to the function that the template makes.
#define CANN_CPU_DEFINE_ACLNN(op, phase_two, dtypes, trial, ...)                                              \
  CANN_CPU_PHASE_ONE(op, "aclnn" #op, dtypes, trial, __VA_ARGS__)                                             \
  extern "C" {                                                                                                \
  [[gnu::used]] static auto aclnn##op##Resolve() { return &op##PhaseOne::call; }                              \
  CANN_EXPORT decltype(op##PhaseOne::call) aclnn##op##GetWorkspaceSize [[gnu::ifunc("aclnn" #op "Resolve")]]; \
  CANN_EXPORT aclnnStatus aclnn##op(void*, uint64_t, aclOpExecutor* executor, aclrtStream stream) {           \
    return phase_two(executor, stream);                                                                       \
  }                                                                                                           \
  }                                                                                                           \
  static_assert(true)

#define ACLNN(op, ...) CANN_CPU_DEFINE_ACLNN(op, cann_cpu::detail::phase_two, nullptr, nullptr, __VA_ARGS__)
#define CPU_KERNEL(op, ...)                                                                                   \
  CANN_CPU_PHASE_ONE(op, "aclnn" #op, nullptr, nullptr, __VA_ARGS__)                                          \
  extern "C" CANN_EXPORT constinit const cann_cpu::CpuKernel ascendc_cpu_kernel_##op{op##PhaseOne::call_with, \
                                                                                     op##PhaseOne::count};    \
  static_assert(true)
