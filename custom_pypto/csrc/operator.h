// SPDX-License-Identifier: Apache-2.0
// implement: registers an operator's functions for NPU and Meta, from one function that checks its arguments and
// describes the results, and from the call of its aclnn function.
#pragma once

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "arguments/table.h"
#include "ops_common.h"
#include "registration.h"

namespace custom_pypto {
namespace detail {

template <typename T>
inline constexpr bool kIsTensor = std::is_convertible_v<const T&, Tensors>;

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

// What owns the elements of a list.
template <typename T>
struct Owner {
  using type = T;
};
template <typename T>
struct Owner<c10::ArrayRef<T>> {
  using type = std::vector<T>;
};

// What an attribute stands for that is None: its default in the schema, or where that is None, none of it.
template <typename T>
T default_of(const c10::Argument& argument) {
  const auto value = argument.default_value();
  if (value.has_value() && !value->isNone()) {
    return value->to<T>();
  }
  if constexpr (std::is_same_v<T, at::ScalarType>) {
    return at::ScalarType::Undefined;
  } else {
    return T();
  }
}

inline at::Tensor allocated(const Result& result, at::Device device) {
  return at::empty_symint(result.sizes, at::TensorOptions().dtype(result.dtype).device(device));
}
template <size_t n>
auto allocated(const Results<n>& results) {
  return [&]<size_t... i>(std::index_sequence<i...>) {
    return std::make_tuple(allocated(results.rows[i], results.device)...);
  }(std::make_index_sequence<n>());
}
// The results if a check has allocated them itself.
template <typename... T>
std::tuple<T...> allocated(std::tuple<T...> results) {
  return results;
}
inline std::tuple<at::Tensor> allocated(at::Tensor result) { return {std::move(result)}; }
inline std::tuple<std::vector<at::Tensor>> allocated(std::vector<at::Tensor> results) { return {std::move(results)}; }

template <typename... T>
auto returned(std::tuple<T...> results) {
  if constexpr (sizeof...(T) == 1) {
    return std::get<0>(std::move(results));
  } else if constexpr (sizeof...(T) > 1) {
    return results;
  }
}

inline bool is_empty(at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != 0) {
      return false;
    }
  }
  return true;
}

// How many arguments a check takes.
template <typename Checked, typename... Args>
constexpr size_t count_of(Checked (*)(const Checks&, Args...)) {
  return sizeof...(Args);
}

// With the arguments of the check that an overload has; the others are false, and as many results are not its own.
template <auto check, typename Launch, typename Given = std::make_index_sequence<count_of(check)>>
struct Kernels;

template <typename Checked, typename... All, Checked (*check)(const Checks&, All...), typename Launch, size_t... given>
struct Kernels<check, Launch, std::index_sequence<given...>> {
  static inline const char* name = nullptr;
  static inline const char* overload = nullptr;

  template <size_t i>
  using Argument = std::tuple_element_t<i, std::tuple<All...>>;
  static constexpr std::array<bool, sizeof...(All) - sizeof...(given)> kOmitted{};

  static const c10::FunctionSchema& schema() {
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
    return op.schema();
  }

  // Checks, and allocates the results. None comes as an undefined tensor where a tensor is needed.
  static auto run(const Argument<given>&... args) {
    const Checks checks(name);
    (require<given>(checks, args), ...);
    const auto checked = [&](const auto&... others) { return check(checks, args..., others...); };
    if constexpr (std::is_void_v<Checked>) {
      std::apply(checked, kOmitted);
      return std::tuple<>();
    } else {
      return allocated(std::apply(checked, kOmitted));
    }
  }

  static auto meta(Argument<given>... args) { return returned(own(run(args...))); }

  // Nothing is launched where there is nothing to compute: where the results, what is written and the first tensor are
  // empty.
  static auto npu(Argument<given>... args) {
    auto results = run(args...);
    const bool nothing = std::apply([](const auto&... each) { return (true && ... && is_empty(each)); }, results);
    if (!nothing || !is_empty(first(args...)) || (false || ... || is_written<given>(args))) {
      const auto tied = [](const auto&... each) { return std::tie(each...); };
      std::apply(Launch{}, std::tuple_cat(tensor(args)..., attribute<given>(args)..., std::apply(tied, kOmitted),
                                          std::apply(tied, results)));
    }
    return returned(own(std::move(results)));
  }

 private:
  // The results that the overload gives.
  template <typename... T>
  static auto own(std::tuple<T...> results) {
    return [&]<size_t... i>(std::index_sequence<i...>) {
      return std::make_tuple(std::move(std::get<i>(results))...);
    }(std::make_index_sequence<sizeof...(T) - kOmitted.size()>());
  }

  template <size_t i, typename T>
  static void require(const Checks& checks, const T& value) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      if (!value.defined()) {
        checks.defined(schema().arguments()[i].name().c_str(), value);
      }
    }
  }

  // The first tensor, in the order of the arguments.
  template <typename T, typename... Others>
  static Tensors first(const T& value, const Others&... others) {
    if constexpr (kIsTensor<T>) {
      return value;
    } else {
      return first(others...);
    }
  }

  // Whether an argument is one that is written, and has elements.
  template <size_t i, typename T>
  static bool is_written(const T& value) {
    if constexpr (kIsTensor<T>) {
      const c10::AliasInfo* alias = schema().arguments()[i].alias_info();
      return alias != nullptr && alias->isWrite() && !is_empty(Tensors(value));
    } else {
      return false;
    }
  }

  // The aclnn function takes tensors, then attributes, then results.
  template <typename T>
  static auto tensor(const T& value) {
    if constexpr (kIsTensor<T>) {
      return std::tie(value);
    } else {
      return std::tuple<>();
    }
  }
  template <size_t i, typename T>
  static auto attribute(const T& value) {
    if constexpr (kIsTensor<T>) {
      return std::tuple<>();
    } else if constexpr (kIsOptional<T>) {
      using Value = typename T::value_type;
      static const auto absent = default_of<typename Owner<Value>::type>(schema().arguments()[i]);
      return std::tuple<Value>(value.has_value() ? *value : Value(absent));
    } else {
      return std::tie(value);
    }
  }
};

}  // namespace detail

// The type of the operator that a check belongs to: find_operator<Signature<check_f>>("my_ops::f").
template <auto check>
using Signature = std::remove_pointer_t<decltype(&detail::Kernels<check, void>::meta)>;

// Registers an operator's functions for NPU and Meta:
//
//   TORCH_LIBRARY_FRAGMENT(my_ops, m) {
//     implement<check_f>(m, "my_ops::f", [](const auto&... arguments) { EXEC_NPU_CMD(aclnnF, arguments...); });
//   }
//
// check_f(const Checks&, the arguments of the schema...) rejects what is wrong, and returns Results, or the results
// themselves, or nothing. `launch` is called on an NPU with the tensors, the attributes and the results. An attribute
// that is None has its default.
template <auto check, size_t given = detail::count_of(check), typename Launch>
void implement(torch::Library& m, const char* name, Launch, const char* overload = "") {
  using Kernels = detail::Kernels<check, Launch, std::make_index_sequence<given>>;
  Kernels::name = name;
  Kernels::overload = overload;
  const std::string full = *overload == '\0' ? name : c10::str(name, ".", overload);
  m.impl(full.c_str(), torch::dispatch(c10::DispatchKey::PrivateUse1, torch::CppFunction(&Kernels::npu)));
  m.impl(full.c_str(), torch::dispatch(c10::DispatchKey::Meta, torch::CppFunction(&Kernels::meta)));
}

// Both overloads of an operator that gives one more result if its last argument, a bool, is true: their number is fixed
// for an overload. `more`, of that argument's name, has all of it; the other one neither that argument nor that result,
// which check_f describes as empty where it is false.
template <auto check, typename Launch>
void implement_optional_result(torch::Library& m, const char* name, Launch launch, const char* more) {
  implement<check, detail::count_of(check) - 1>(m, name, launch);
  implement<check>(m, name, launch, more);
}

}  // namespace custom_pypto
