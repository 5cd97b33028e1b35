// SPDX-License-Identifier: Apache-2.0
// Defines an aclnn function from a kernel: ACLNN(Name, kernel) or ACLNN_CHECKED(Name, check, kernel).
//
//   ACLNN(Add, [](const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
//     at::add_out(out, self, other, alpha);
//   });
//
// exports aclnnAddGetWorkspaceSize and aclnnAdd. The kernel's parameters are those of the C function, in its order;
// cann_cpu/arguments.h has the table of their types.
//
// CPU_KERNEL and CPU_KERNEL_CHECKED make of the same the kernel of an operator that has a definition (OpDef): its aclnn
// function, which op_build makes, calls it in the place of the operator's Ascend C kernel.
//
// Phase one copies the arguments and calls check, if there is one: check sees the tensors' shapes and dtypes, must not
// read their data, and throws to reject the call. Phase two enqueues the kernel. What either throws becomes CANN's
// status and the text of aclGetRecentErrMsg.
#pragma once

#include <c10/core/InferenceMode.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cann_cpu/arguments.h"
#include "cann_cpu/executor.h"
#include "cann_cpu/operator_call.h"
#include "cann_cpu/runtime.h"

namespace cann_cpu {
namespace detail {

// Runs body; what it throws becomes a status and the text of aclGetRecentErrMsg.
template <class Body>
aclError guarded(const char* name, aclError code, const Body& body) noexcept {
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

// Stores the arguments of a call one after the other, and counts them for the messages.
class ArgumentReader {
 public:
  template <class T>
  typename Argument<T>::Stored read(typename Argument<T>::CType argument) {
    ++position_;
    try {
      using Object = std::remove_cv_t<std::remove_pointer_t<typename Argument<T>::CType>>;
      constexpr bool is_list = std::is_same_v<Object, aclTensorList>;
      if constexpr (is_list || std::is_same_v<Object, aclTensor>) {
        constexpr bool is_in_out = std::is_same_v<T, InOut> || std::is_same_v<T, const std::optional<InOut>&>;
        constexpr bool is_result = std::is_reference_v<T> && !std::is_const_v<std::remove_reference_t<T>>;
        const size_t first = operands.addresses.size();
        operands.parameters.push_back({position_, is_list, !is_result, is_in_out || is_result, first});
        auto stored = Argument<T>::store(argument, operands);
        operands.parameters.back().count = operands.addresses.size() - first;
        return stored;
      } else {
        return Argument<T>::store(argument, operands);
      }
    } catch (const NullArgument& e) {
      throw NullArgument(position() + e.what());
    } catch (const std::invalid_argument& e) {
      throw std::invalid_argument(position() + e.what());
    }
  }

  Operands operands;

 private:
  std::string position() const { return "argument " + std::to_string(position_) + " "; }

  uint32_t position_ = 0;
};

// An out= function of ATen resizes an output of another shape than its result, which then lies beside the caller's
// view.
template <class Param, class Stored, class Bound>
void check_not_resized(size_t position, const Stored& given, const Bound& output) {
  if constexpr (std::is_same_v<Param, at::Tensor&>) {
    TORCH_CHECK(output.sizes() == at::IntArrayRef(given.shape), "argument ", position, ", an output, has shape ",
                at::IntArrayRef(given.shape), ", the result has shape ", output.sizes());
  }
}

template <class... Params>
class TypedCall final : public Call {
 public:
  using Kernel = void (*)(Params...);
  using Stored = std::tuple<typename Argument<Params>::Stored...>;

  TypedCall(const char* name, Kernel kernel, Operands operands, Stored stored)
      : Call(name, std::move(operands)), kernel_(kernel), stored_(std::move(stored)) {}

  aclError run(const std::vector<void*>& addresses) const override {
    return guarded(name, ACL_ERROR_RT_AICPU_EXCEPTION, [&] { compute(addresses); });
  }

  // run(), but throws.
  void compute(const std::vector<void*>& addresses) const { apply(kernel_, AddressCursor(addresses, true)); }

  void check(Kernel check) const { apply(check, AddressCursor(this->operands.addresses, false)); }

  // The same call with other arguments, which takes no part in the checks of memory.
  TypedCall with(Stored stored) const { return TypedCall(name, kernel_, {}, std::move(stored)); }

  const Stored& stored() const { return stored_; }

 private:
  void apply(Kernel function, AddressCursor cursor) const {
    c10::InferenceMode no_autograd;
    apply(function, cursor, std::index_sequence_for<Params...>());
  }

  template <size_t... I>
  void apply(Kernel function, [[maybe_unused]] AddressCursor& cursor, std::index_sequence<I...>) const {
    // Braces, because they bind the arguments from left to right, as the addresses lie.
    std::tuple<typename Argument<Params>::Bound...> bound{Argument<Params>::bind(std::get<I>(stored_), cursor)...};
    function(static_cast<Params>(std::get<I>(bound))...);
    (check_not_resized<Params>(I + 1, std::get<I>(stored_), std::get<I>(bound)), ...);
  }

  Kernel kernel_;
  Stored stored_;
};

// What phase one does with a call that is right so far; throws to reject it.
template <class... Params>
using Trial = void (*)(const TypedCall<Params...>& call, const char* source);

template <class... Params>
aclnnStatus phase_one(const char* name, const char* source, void (*check)(Params...), void (*kernel)(Params...),
                      Trial<Params...> trial, uint64_t* workspace_size, aclOpExecutor** executor,
                      typename Argument<Params>::CType... arguments) {
  aclnnStatus finished = ACLNN_SUCCESS;
  const aclnnStatus status = guarded(name, ACLNN_ERR_PARAM_INVALID, [&] {
    if (workspace_size == nullptr || executor == nullptr) throw NullArgument("workspaceSize or executor is null");
    ArgumentReader reader;
    typename TypedCall<Params...>::Stored stored{reader.template read<Params>(arguments)...};
    auto call = std::make_shared<TypedCall<Params...>>(name, kernel, std::move(reader.operands), std::move(stored));
    if (check != nullptr) call->check(check);
    if (trial != nullptr) trial(*call, source);
    finished = finish_phase_one(std::move(call), workspace_size, executor);
  });
  return status == ACLNN_SUCCESS ? finished : status;
}

// The C function of phase one, made from the kernel's type. Kernel and check are captureless lambdas.
template <class Name, class Check, class Kernel>
struct PhaseOne;

struct NoCheck {};

struct NoTrial {
  template <class... Params>
  static constexpr Trial<Params...> of() {
    return nullptr;
  }
};

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

template <class Name, class Check, class... Params>
struct PhaseOne<Name, Check, void (*)(Params...)> {
  using Call = TypedCall<Params...>;

  static aclnnStatus call(typename Argument<Params>::CType... arguments, uint64_t* workspace_size,
                          aclOpExecutor** executor) {
    void (*check)(Params...) = nullptr;
    if constexpr (!std::is_same_v<Check, NoCheck>) check = Name::check;
    constexpr detail::Trial<Params...> trial = Name::Tried::template of<Params...>();
    return phase_one<Params...>(Name::name, Name::source, check, Name::kernel, trial, workspace_size, executor,
                                arguments...);
  }

  static constexpr size_t count = sizeof...(Params);

  static aclnnStatus call_with(const OperatorArgument* arguments, uint64_t* workspace_size, aclOpExecutor** executor) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return call(arguments[I].template as<typename Argument<Params>::CType>()..., workspace_size, executor);
    }(std::index_sequence_for<Params...>());
  }

  // Whether the header, if one is included that declares the function, has these parameters.
  static constexpr bool is_as_declared() {
    return !Name::takes(std::conditional_t<true, Anything, Params>{}..., Anything{}, Anything{}) ||
           Name::takes(Exactly<typename Argument<Params>::CType>{}..., Exactly<uint64_t*>{},
                       Exactly<aclOpExecutor**>{});
  }
};

template <class PhaseOne>
aclnnStatus phase_two(aclOpExecutor* executor, aclrtStream stream) {
  return run_phase_two(executor, stream);
}

}  // namespace detail
}  // namespace cann_cpu

// The parameters are written once, in the kernel; a header that is included and declares the function has to agree.
#define CANN_CPU_PHASE_ONE(op, trial, check_expression, ...)                                                \
  namespace {                                                                                               \
  struct op##Definition {                                                                                   \
    using Tried = trial;                                                                                    \
    static constexpr const char* name = "aclnn" #op;                                                        \
    static constexpr const char* source = #__VA_ARGS__;                                                     \
    static constexpr auto check = check_expression;                                                         \
    static constexpr auto kernel = +__VA_ARGS__;                                                            \
    static constexpr bool takes(auto... arguments) {                                                        \
      return requires { aclnn##op##GetWorkspaceSize(arguments...); };                                       \
    }                                                                                                       \
  };                                                                                                        \
  using op##PhaseOne =                                                                                      \
      cann_cpu::detail::PhaseOne<op##Definition, std::remove_const_t<decltype(op##Definition::check)>,      \
                                 std::remove_const_t<decltype(op##Definition::kernel)>>;                    \
  static_assert(op##PhaseOne::is_as_declared(),                                                             \
                "the kernel of aclnn" #op                                                                   \
                " does not have the parameters of the header: a tensor that is written, Tensor(a!), is an " \
                "InOut, one that is read a const Tensor&, a result a Tensor&");                             \
  }

// ifunc gives the C name to the function that the template makes.
#define CANN_CPU_DEFINE_ACLNN(op, phase_two, trial, check_expression, ...)                                    \
  CANN_CPU_PHASE_ONE(op, trial, check_expression, __VA_ARGS__)                                                \
  extern "C" {                                                                                                \
  [[gnu::used]] static auto aclnn##op##Resolve() { return &op##PhaseOne::call; }                              \
  CANN_EXPORT decltype(op##PhaseOne::call) aclnn##op##GetWorkspaceSize [[gnu::ifunc("aclnn" #op "Resolve")]]; \
  CANN_EXPORT aclnnStatus aclnn##op(void*, uint64_t, aclOpExecutor* executor, aclrtStream stream) {           \
    return phase_two<op##PhaseOne>(executor, stream);                                                         \
  }                                                                                                           \
  }                                                                                                           \
  static_assert(true)

#define CANN_CPU_DEFINE_KERNEL(op, checks, check_expression, ...)                                                  \
  CANN_CPU_PHASE_ONE(op, cann_cpu::detail::NoTrial, check_expression, __VA_ARGS__)                                 \
  extern "C" CANN_EXPORT constinit const cann_cpu::CpuKernel ascendc_cpu_kernel_##op{op##PhaseOne::call_with,      \
                                                                                     op##PhaseOne::count, checks}; \
  static_assert(true)

#define ACLNN(op, ...)                                                                                           \
  CANN_CPU_DEFINE_ACLNN(op, cann_cpu::detail::phase_two, cann_cpu::detail::NoTrial, cann_cpu::detail::NoCheck{}, \
                        __VA_ARGS__)
#define ACLNN_CHECKED(op, check_expression, ...) \
  CANN_CPU_DEFINE_ACLNN(op, cann_cpu::detail::phase_two, cann_cpu::detail::NoTrial, +check_expression, __VA_ARGS__)
#define CPU_KERNEL(op, ...) CANN_CPU_DEFINE_KERNEL(op, false, cann_cpu::detail::NoCheck{}, __VA_ARGS__)
#define CPU_KERNEL_CHECKED(op, check_expression, ...) CANN_CPU_DEFINE_KERNEL(op, true, +check_expression, __VA_ARGS__)
