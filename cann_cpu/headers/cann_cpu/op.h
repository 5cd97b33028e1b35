// Defines an aclnn function from a kernel: ACLNN(Name, kernel) or ACLNN(Name, check, kernel).
//
//   ACLNN(Add, [](const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
//     at::add_out(out, self, other, alpha);
//   });
//
// exports aclnnAddGetWorkspaceSize and aclnnAdd. The kernel's parameters are those of the C function, in its order:
//
//   kernel parameter                      C parameter
//   const at::Tensor&                     const aclTensor*       a view of the device memory
//   at::Tensor&                           const aclTensor*       an output: written through the view, never resized
//   InOut                                 aclTensor*             the same, for an argument with suffix Ref
//   const std::optional<at::Tensor>&      const aclTensor*       may be null
//   const std::vector<at::Tensor>&        const aclTensorList*   inputs or outputs
//   DataDependentOut&                     aclTensor*             an output whose shape the kernel decides
//   const at::Scalar&                     const aclScalar*
//   const std::optional<at::Scalar>&      const aclScalar*       may be null
//   const std::vector<at::Scalar>&        const aclScalarList*
//   at::IntArrayRef                       const aclIntArray*
//   at::OptionalIntArrayRef               const aclIntArray*     may be null
//   at::ArrayRef<float>, <bool>           const aclFloatArray*, const aclBoolArray*
//   const std::string&                    char*                  null is the empty string
//   at::ScalarType                        aclDataType
//   int64_t, double, bool, ...            the same
//
// Phase one copies the arguments and calls check, if there is one: check sees the tensors' shapes and dtypes, must not
// read their data, and throws to refuse the call. Phase two enqueues the kernel. What either throws becomes CANN's
// status and the text of aclGetRecentErrMsg.
#pragma once

#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/Scalar.h>
#include <c10/util/Exception.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cann_cpu/acl_objects.h"
#include "cann_cpu/executor.h"
#include "cann_cpu/runtime.h"

namespace cann_cpu {

struct NullArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline at::ScalarType scalar_type(aclDataType dtype) {
  switch (dtype) {
    case ACL_FLOAT:
      return at::kFloat;
    case ACL_FLOAT16:
      return at::kHalf;
    case ACL_BF16:
      return at::kBFloat16;
    case ACL_DOUBLE:
      return at::kDouble;
    case ACL_INT8:
      return at::kChar;
    case ACL_UINT8:
      return at::kByte;
    case ACL_INT16:
      return at::kShort;
    case ACL_UINT16:
      return at::kUInt16;
    case ACL_INT32:
      return at::kInt;
    case ACL_UINT32:
      return at::kUInt32;
    case ACL_INT64:
      return at::kLong;
    case ACL_UINT64:
      return at::kUInt64;
    case ACL_BOOL:
      return at::kBool;
    case ACL_COMPLEX32:
      return at::kComplexHalf;
    case ACL_COMPLEX64:
      return at::kComplexFloat;
    case ACL_COMPLEX128:
      return at::kComplexDouble;
    default:
      TORCH_CHECK(false, "dtype ", dtype_name(dtype), " is not supported on the CPU");
  }
}

inline at::Tensor view_of(const aclTensor& tensor, void* data) {
  const auto dtype = scalar_type(tensor.dtype);
  auto* first = static_cast<std::byte*>(data) + tensor.offset * static_cast<int64_t>(c10::elementSize(dtype));
  return at::from_blob(first, tensor.shape, tensor.strides, at::TensorOptions().dtype(dtype));
}

inline at::Scalar scalar_of(const aclScalar& scalar) {
  const void* value = scalar.value.data();
  switch (scalar.dtype) {
    case ACL_BOOL:
      return *static_cast<const bool*>(value);
    case ACL_INT8:
      return *static_cast<const int8_t*>(value);
    case ACL_UINT8:
      return *static_cast<const uint8_t*>(value);
    case ACL_INT16:
      return *static_cast<const int16_t*>(value);
    case ACL_UINT16:
      return *static_cast<const uint16_t*>(value);
    case ACL_INT32:
      return *static_cast<const int32_t*>(value);
    case ACL_UINT32:
      return static_cast<int64_t>(*static_cast<const uint32_t*>(value));
    case ACL_INT64:
      return *static_cast<const int64_t*>(value);
    case ACL_UINT64:
      return *static_cast<const uint64_t*>(value);
    case ACL_FLOAT16:
      return static_cast<float>(*static_cast<const at::Half*>(value));
    case ACL_BF16:
      return static_cast<float>(*static_cast<const at::BFloat16*>(value));
    case ACL_FLOAT:
      return *static_cast<const float*>(value);
    case ACL_DOUBLE:
      return *static_cast<const double*>(value);
    case ACL_COMPLEX64:
      return *static_cast<const c10::complex<float>*>(value);
    case ACL_COMPLEX128:
      return *static_cast<const c10::complex<double>*>(value);
    default:
      TORCH_CHECK(false, "scalars of dtype ", dtype_name(scalar.dtype), " are not supported on the CPU");
  }
}

// The addresses of a call's tensors, taken one after the other in the order of the arguments.
class AddressCursor {
 public:
  explicit AddressCursor(const std::vector<void*>& addresses) : next_(addresses.begin()) {}
  void* take() { return *next_++; }

 private:
  std::vector<void*>::const_iterator next_;
};

// An argument given with suffix Ref: read and written.
struct InOut : at::Tensor {
  explicit InOut(at::Tensor tensor) : at::Tensor(std::move(tensor)) {}
};

// An output whose shape the kernel decides, within the memory the caller has allocated for the largest result. The
// caller's aclTensor gets the shape, so the caller keeps it until the stream is synchronised.
class DataDependentOut {
 public:
  DataDependentOut(at::Tensor largest, aclTensor* caller) : largest_(std::move(largest)), caller_(caller) {}

  void set(const at::Tensor& result) {
    TORCH_CHECK(result.numel() <= largest_.numel(), "the result has ", result.numel(),
                " elements, the output was allocated for ", largest_.numel());
    largest_.as_strided(result.sizes(), at::detail::defaultStrides(result.sizes())).copy_(result);
    caller_->shape = result.sizes().vec();
    caller_->strides = at::detail::defaultStrides(result.sizes());
  }

 private:
  at::Tensor largest_;
  aclTensor* caller_;
};

// How a kernel parameter of type T is passed in C (CType), kept in the executor (Stored), and made again (Bound, bind).
template <class T>
struct Argument;

namespace detail {

template <class T>
const T& not_null(const T* argument) {
  if (argument == nullptr) throw NullArgument("is a null pointer");
  return *argument;
}

inline aclTensor store_tensor(const aclTensor& tensor, std::vector<void*>& addresses) {
  bool empty = false;
  for (int64_t size : tensor.shape) empty |= size == 0;
  if (tensor.data == nullptr && !empty) throw NullArgument("has no data");
  addresses.push_back(tensor.data);
  return tensor;
}

template <class C, class View>
struct TensorArgument {
  using CType = C*;
  using Stored = aclTensor;
  using Bound = View;
  static Stored store(CType argument, std::vector<void*>& addresses) {
    return store_tensor(not_null(argument), addresses);
  }
  static Bound bind(const Stored& stored, AddressCursor& addresses) { return Bound(view_of(stored, addresses.take())); }
};

template <class T>
struct PlainArgument {
  using CType = T;
  using Stored = T;
  using Bound = T;
  static Stored store(T argument, std::vector<void*>&) { return argument; }
  static Bound bind(const Stored& stored, AddressCursor&) { return stored; }
};

template <class CArray, class View>
struct ArrayArgument {
  using CType = const CArray*;
  using Stored = CArray;
  using Bound = View;
  static Stored store(CType argument, std::vector<void*>&) { return not_null(argument); }
  static Bound bind(const Stored& stored, AddressCursor&) {
    using Element = typename View::value_type;
    return View(reinterpret_cast<const Element*>(stored.values.data()), stored.values.size());
  }
};

}  // namespace detail

template <>
struct Argument<const at::Tensor&> : detail::TensorArgument<const aclTensor, at::Tensor> {};
template <>
struct Argument<at::Tensor&> : detail::TensorArgument<const aclTensor, at::Tensor> {};
template <>
struct Argument<InOut> : detail::TensorArgument<aclTensor, InOut> {};

template <>
struct Argument<const std::optional<at::Tensor>&> {
  using CType = const aclTensor*;
  using Stored = std::optional<aclTensor>;
  using Bound = std::optional<at::Tensor>;
  static Stored store(CType argument, std::vector<void*>& addresses) {
    return argument ? Stored(detail::store_tensor(*argument, addresses)) : std::nullopt;
  }
  static Bound bind(const Stored& stored, AddressCursor& addresses) {
    return stored ? Bound(view_of(*stored, addresses.take())) : std::nullopt;
  }
};

template <>
struct Argument<const std::vector<at::Tensor>&> {
  using CType = const aclTensorList*;
  using Stored = aclTensorList;
  using Bound = std::vector<at::Tensor>;
  static Stored store(CType argument, std::vector<void*>& addresses) {
    for (const aclTensor& tensor : detail::not_null(argument).tensors) detail::store_tensor(tensor, addresses);
    return *argument;
  }
  static Bound bind(const Stored& stored, AddressCursor& addresses) {
    Bound bound;
    bound.reserve(stored.tensors.size());
    for (const aclTensor& tensor : stored.tensors) bound.push_back(view_of(tensor, addresses.take()));
    return bound;
  }
};

template <>
struct Argument<DataDependentOut&> {
  using CType = aclTensor*;
  using Stored = std::pair<aclTensor, aclTensor*>;
  using Bound = DataDependentOut;
  static Stored store(CType argument, std::vector<void*>& addresses) {
    return {detail::store_tensor(detail::not_null(argument), addresses), argument};
  }
  static Bound bind(const Stored& stored, AddressCursor& addresses) {
    return Bound(view_of(stored.first, addresses.take()), stored.second);
  }
};

template <>
struct Argument<const at::Scalar&> {
  using CType = const aclScalar*;
  using Stored = at::Scalar;
  using Bound = at::Scalar;
  static Stored store(CType argument, std::vector<void*>&) { return scalar_of(detail::not_null(argument)); }
  static Bound bind(const Stored& stored, AddressCursor&) { return stored; }
};

template <>
struct Argument<const std::optional<at::Scalar>&> {
  using CType = const aclScalar*;
  using Stored = std::optional<at::Scalar>;
  using Bound = std::optional<at::Scalar>;
  static Stored store(CType argument, std::vector<void*>&) {
    return argument ? Stored(scalar_of(*argument)) : std::nullopt;
  }
  static Bound bind(const Stored& stored, AddressCursor&) { return stored; }
};

template <>
struct Argument<const std::vector<at::Scalar>&> {
  using CType = const aclScalarList*;
  using Stored = std::vector<at::Scalar>;
  using Bound = std::vector<at::Scalar>;
  static Stored store(CType argument, std::vector<void*>&) {
    Stored stored;
    for (const aclScalar& scalar : detail::not_null(argument).scalars) stored.push_back(scalar_of(scalar));
    return stored;
  }
  static Bound bind(const Stored& stored, AddressCursor&) { return stored; }
};

template <>
struct Argument<at::IntArrayRef> : detail::ArrayArgument<aclIntArray, at::IntArrayRef> {};
template <>
struct Argument<at::ArrayRef<float>> : detail::ArrayArgument<aclFloatArray, at::ArrayRef<float>> {};
template <>
struct Argument<at::ArrayRef<bool>> : detail::ArrayArgument<aclBoolArray, at::ArrayRef<bool>> {};

template <>
struct Argument<at::OptionalIntArrayRef> {
  using CType = const aclIntArray*;
  using Stored = std::optional<aclIntArray>;
  using Bound = at::OptionalIntArrayRef;
  static Stored store(CType argument, std::vector<void*>&) { return argument ? Stored(*argument) : std::nullopt; }
  static Bound bind(const Stored& stored, AddressCursor&) {
    return stored ? Bound(at::IntArrayRef(stored->values)) : std::nullopt;
  }
};

template <>
struct Argument<const std::string&> {
  using CType = char*;
  using Stored = std::string;
  using Bound = std::string;
  static Stored store(CType argument, std::vector<void*>&) { return argument ? argument : ""; }
  static Bound bind(const Stored& stored, AddressCursor&) { return stored; }
};

template <>
struct Argument<at::ScalarType> {
  using CType = aclDataType;
  using Stored = at::ScalarType;
  using Bound = at::ScalarType;
  static Stored store(CType argument, std::vector<void*>&) { return scalar_type(argument); }
  static Bound bind(const Stored& stored, AddressCursor&) { return stored; }
};

template <class T>
  requires(std::is_arithmetic_v<T>)
struct Argument<T> : detail::PlainArgument<T> {};

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
      return Argument<T>::store(argument, addresses);
    } catch (const NullArgument& e) {
      throw NullArgument("argument " + std::to_string(position_) + " " + e.what());
    }
  }

  std::vector<void*> addresses;

 private:
  int position_ = 0;
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

  TypedCall(const char* name, Kernel kernel, std::vector<void*> addresses, Stored stored)
      : Call(name, std::move(addresses)), kernel_(kernel), stored_(std::move(stored)) {}

  aclError run(const std::vector<void*>& addresses) const override {
    return guarded(name, ACL_ERROR_RT_AICPU_EXCEPTION, [&] { apply(kernel_, addresses); });
  }

  void apply(Kernel function, const std::vector<void*>& addresses) const {
    c10::InferenceMode no_autograd;
    AddressCursor cursor(addresses);
    apply(function, cursor, std::index_sequence_for<Params...>());
  }

 private:
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

template <class... Params>
aclnnStatus phase_one(const char* name, void (*check)(Params...), void (*kernel)(Params...), uint64_t* workspace_size,
                      aclOpExecutor** executor, typename Argument<Params>::CType... arguments) {
  return guarded(name, ACLNN_ERR_PARAM_INVALID, [&] {
    if (workspace_size == nullptr || executor == nullptr) throw NullArgument("workspaceSize or executor is null");
    ArgumentReader reader;
    typename TypedCall<Params...>::Stored stored{reader.template read<Params>(arguments)...};
    auto call = std::make_shared<TypedCall<Params...>>(name, kernel, std::move(reader.addresses), std::move(stored));
    if (check != nullptr) call->apply(check, call->addresses);
    finish_phase_one(std::move(call), workspace_size, executor);
  });
}

// The C function of phase one, made from the kernel's type. Kernel and check are captureless lambdas.
template <class Name, class Check, class Kernel>
struct PhaseOne;

struct NoCheck {};

template <class Name, class Check, class... Params>
struct PhaseOne<Name, Check, void (*)(Params...)> {
  static aclnnStatus call(typename Argument<Params>::CType... arguments, uint64_t* workspace_size,
                          aclOpExecutor** executor) {
    void (*check)(Params...) = nullptr;
    if constexpr (!std::is_same_v<Check, NoCheck>) check = Name::check;
    return phase_one<Params...>(Name::name, check, Name::kernel, workspace_size, executor, arguments...);
  }
};

}  // namespace detail
}  // namespace cann_cpu

// ifunc gives the C name to the function that the template makes: the parameters are written once, in the kernel.
#define CANN_CPU_DEFINE_ACLNN(op, check_expression, ...)                                                      \
  namespace {                                                                                                 \
  struct op##Definition {                                                                                     \
    static constexpr const char* name = "aclnn" #op;                                                          \
    static constexpr auto check = check_expression;                                                           \
    static constexpr auto kernel = +__VA_ARGS__;                                                              \
  };                                                                                                          \
  using op##PhaseOne =                                                                                        \
      cann_cpu::detail::PhaseOne<op##Definition, std::remove_const_t<decltype(op##Definition::check)>,        \
                                 std::remove_const_t<decltype(op##Definition::kernel)>>;                      \
  }                                                                                                           \
  extern "C" {                                                                                                \
  [[gnu::used]] static auto aclnn##op##Resolve() { return &op##PhaseOne::call; }                              \
  CANN_EXPORT decltype(op##PhaseOne::call) aclnn##op##GetWorkspaceSize [[gnu::ifunc("aclnn" #op "Resolve")]]; \
  CANN_EXPORT aclnnStatus aclnn##op(void*, uint64_t, aclOpExecutor* executor, aclrtStream stream) {           \
    return cann_cpu::run_phase_two(executor, stream);                                                         \
  }                                                                                                           \
  }                                                                                                           \
  static_assert(true)

#define ACLNN(op, ...) CANN_CPU_DEFINE_ACLNN(op, cann_cpu::detail::NoCheck{}, __VA_ARGS__)
#define ACLNN_CHECKED(op, check_expression, ...) CANN_CPU_DEFINE_ACLNN(op, +check_expression, __VA_ARGS__)
