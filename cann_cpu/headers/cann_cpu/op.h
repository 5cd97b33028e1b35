// SPDX-License-Identifier: Apache-2.0
// Defines an aclnn function from a kernel: ACLNN(Name, kernel) or ACLNN(Name, check, kernel).
//
//   ACLNN(Add, [](const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
//     at::add_out(out, self, other, alpha);
//   });
//
// exports aclnnAddGetWorkspaceSize and aclnnAdd. The kernel's parameters are those of the C function, in its order:
//
//   kernel parameter                      C parameter
//   const at::Tensor&                     const aclTensor*       a view of the device memory; FRACTAL_NZ: a copy in ND
//   const StoredTensor&                   const aclTensor*       for kernels that read FRACTAL_NZ themselves
//   at::Tensor&                           const aclTensor*       an output: written through the view, never resized
//   InOut                                 aclTensor*             the same, for an argument with suffix Ref
//   const std::optional<at::Tensor>&      const aclTensor*       an input that may be null
//   std::optional<at::Tensor>&            const aclTensor*       an output that may be null
//   const std::optional<InOut>&           aclTensor*             an argument with suffix Ref that may be null
//   const std::vector<at::Tensor>&        const aclTensorList*   inputs
//   std::vector<at::Tensor>&              const aclTensorList*   outputs
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
// Outputs in FRACTAL_NZ, and all other formats that do not store a tensor by its strides, are refused.
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
#include "cann_cpu/stored_tensor.h"

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

// A tensor in FRACTAL_NZ that is no view of a part of its storage, nor a transposed one.
inline bool is_whole(const aclTensor& tensor) {
  int64_t stride = 1;
  for (size_t i = tensor.shape.size(); i-- > 0; stride *= tensor.shape[i]) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride) return false;
  }
  return tensor.offset == 0 && tensor.storage_shape.size() == tensor.shape.size() + 2;
}

// The matrices in the storage of a tensor in FRACTAL_NZ: its strides and offset count in their elements, row by row.
inline FractalNz stored_matrices(const aclTensor& tensor) {
  const auto& storage = tensor.storage_shape;
  const size_t itemsize = dtype_size(tensor.dtype);
  if (is_whole(tensor)) return {tensor.shape, storage, itemsize};
  const size_t rank = tensor.shape.size();
  if (rank < 2 || storage.size() != rank + 2) {
    throw std::invalid_argument("is a view of FRACTAL_NZ that has another rank; cast the viewed tensor to ND first");
  }
  const auto& strides = tensor.strides;
  const int64_t columns = std::max(strides[rank - 1], strides[rank - 2]);
  std::vector<int64_t> shape(storage.begin(), storage.end() - 2);
  shape[rank - 1] = columns;
  shape[rank - 2] = rank == 2 || columns == 0 ? storage[rank - 1] * storage[rank] : strides[rank - 3] / columns;
  return {shape, storage, itemsize};
}

inline at::Tensor nd_copy_of(const aclTensor& tensor, const void* blocks) {
  const at::Tensor rows = copy_rows(stored_matrices(tensor), blocks, scalar_type(tensor.dtype));
  return rows.as_strided(tensor.shape, tensor.strides, tensor.offset);
}

// The addresses of a call's tensors, taken one after the other in the order of the arguments.
class AddressCursor {
 public:
  AddressCursor(const std::vector<void*>& addresses, bool readable) : next_(addresses.begin()), readable_(readable) {}
  void* take() { return *next_++; }

  // False for a check in phase one, when the work that writes the tensors may still wait in a stream.
  bool readable() const { return readable_; }

 private:
  std::vector<void*>::const_iterator next_;
  bool readable_;
};

inline at::Tensor input_of(const aclTensor& tensor, AddressCursor& addresses) {
  void* data = addresses.take();
  const bool copied = tensor.format == ACL_FORMAT_FRACTAL_NZ && addresses.readable();
  return copied ? nd_copy_of(tensor, data) : view_of(tensor, data);
}

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

enum class Direction { Input, Output };

inline void check_format(const aclTensor& tensor, Direction direction) {
  switch (tensor.format) {
    case ACL_FORMAT_UNDEFINED:
    case ACL_FORMAT_ND:
    case ACL_FORMAT_NC:
    case ACL_FORMAT_NCL:
    case ACL_FORMAT_NCHW:
    case ACL_FORMAT_NHWC:
    case ACL_FORMAT_HWCN:
    case ACL_FORMAT_NCDHW:
    case ACL_FORMAT_NDHWC:
      return;
    case ACL_FORMAT_FRACTAL_NZ:
      if (direction == Direction::Output) {
        throw std::invalid_argument("is written, so it must be in format ND, but is in FRACTAL_NZ");
      }
      (void)stored_matrices(tensor);
      return;
    default:
      throw std::invalid_argument("is in format " + std::to_string(tensor.format) + ", which the CPU does not have");
  }
}

template <Direction direction>
aclTensor store_tensor(const aclTensor& tensor, std::vector<void*>& addresses) {
  bool empty = false;
  for (int64_t size : tensor.shape) empty |= size == 0;
  if (tensor.data == nullptr && !empty) throw NullArgument("has no data");
  check_format(tensor, direction);
  addresses.push_back(tensor.data);
  return tensor;
}

template <Direction direction>
at::Tensor bind_tensor(const aclTensor& tensor, AddressCursor& addresses) {
  return direction == Direction::Input ? input_of(tensor, addresses) : view_of(tensor, addresses.take());
}

template <Direction direction, class C, class View>
struct TensorArgument {
  using CType = C*;
  using Stored = aclTensor;
  using Bound = View;
  static Stored store(CType argument, std::vector<void*>& addresses) {
    return store_tensor<direction>(not_null(argument), addresses);
  }
  static Bound bind(const Stored& stored, AddressCursor& addresses) {
    return Bound(bind_tensor<direction>(stored, addresses));
  }
};

template <Direction direction, class C, class View>
struct OptionalTensorArgument {
  using CType = C*;
  using Stored = std::optional<aclTensor>;
  using Bound = std::optional<View>;
  static Stored store(CType argument, std::vector<void*>& addresses) {
    return argument ? Stored(store_tensor<direction>(*argument, addresses)) : std::nullopt;
  }
  static Bound bind(const Stored& stored, AddressCursor& addresses) {
    return stored ? Bound(View(bind_tensor<direction>(*stored, addresses))) : std::nullopt;
  }
};

template <Direction direction>
struct TensorListArgument {
  using CType = const aclTensorList*;
  using Stored = aclTensorList;
  using Bound = std::vector<at::Tensor>;
  static Stored store(CType argument, std::vector<void*>& addresses) {
    for (const aclTensor& tensor : not_null(argument).tensors) store_tensor<direction>(tensor, addresses);
    return *argument;
  }
  static Bound bind(const Stored& stored, AddressCursor& addresses) {
    Bound bound;
    bound.reserve(stored.tensors.size());
    for (const aclTensor& tensor : stored.tensors) bound.push_back(bind_tensor<direction>(tensor, addresses));
    return bound;
  }
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
struct Argument<const at::Tensor&> : detail::TensorArgument<detail::Direction::Input, const aclTensor, at::Tensor> {};
template <>
struct Argument<at::Tensor&> : detail::TensorArgument<detail::Direction::Output, const aclTensor, at::Tensor> {};
template <>
struct Argument<InOut> : detail::TensorArgument<detail::Direction::Output, aclTensor, InOut> {};

template <>
struct Argument<const std::optional<at::Tensor>&>
    : detail::OptionalTensorArgument<detail::Direction::Input, const aclTensor, at::Tensor> {};
template <>
struct Argument<std::optional<at::Tensor>&>
    : detail::OptionalTensorArgument<detail::Direction::Output, const aclTensor, at::Tensor> {};
template <>
struct Argument<const std::optional<InOut>&>
    : detail::OptionalTensorArgument<detail::Direction::Output, aclTensor, InOut> {};

template <>
struct Argument<const std::vector<at::Tensor>&> : detail::TensorListArgument<detail::Direction::Input> {};
template <>
struct Argument<std::vector<at::Tensor>&> : detail::TensorListArgument<detail::Direction::Output> {};

template <>
struct Argument<const StoredTensor&> {
  using CType = const aclTensor*;
  using Stored = aclTensor;
  using Bound = StoredTensor;
  static Stored store(CType argument, std::vector<void*>& addresses) {
    return detail::store_tensor<detail::Direction::Input>(detail::not_null(argument), addresses);
  }
  static Bound bind(const Stored& stored, AddressCursor& addresses) {
    if (stored.format != ACL_FORMAT_FRACTAL_NZ || !is_whole(stored)) {
      return {input_of(stored, addresses), ACL_FORMAT_ND, stored.shape};
    }
    const auto options = at::TensorOptions().dtype(scalar_type(stored.dtype));
    return {at::from_blob(addresses.take(), stored.storage_shape, options), stored.format, stored.shape};
  }
};

template <>
struct Argument<DataDependentOut&> {
  using CType = aclTensor*;
  using Stored = std::pair<aclTensor, aclTensor*>;
  using Bound = DataDependentOut;
  static Stored store(CType argument, std::vector<void*>& addresses) {
    return {detail::store_tensor<detail::Direction::Output>(detail::not_null(argument), addresses), argument};
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
      throw NullArgument(position() + e.what());
    } catch (const std::invalid_argument& e) {
      throw std::invalid_argument(position() + e.what());
    }
  }

  std::vector<void*> addresses;

 private:
  std::string position() const { return "argument " + std::to_string(position_) + " "; }

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
    return guarded(name, ACL_ERROR_RT_AICPU_EXCEPTION, [&] { apply(kernel_, AddressCursor(addresses, true)); });
  }

  void check(Kernel check) const { apply(check, AddressCursor(addresses, false)); }

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

template <class... Params>
aclnnStatus phase_one(const char* name, void (*check)(Params...), void (*kernel)(Params...), uint64_t* workspace_size,
                      aclOpExecutor** executor, typename Argument<Params>::CType... arguments) {
  return guarded(name, ACLNN_ERR_PARAM_INVALID, [&] {
    if (workspace_size == nullptr || executor == nullptr) throw NullArgument("workspaceSize or executor is null");
    ArgumentReader reader;
    typename TypedCall<Params...>::Stored stored{reader.template read<Params>(arguments)...};
    auto call = std::make_shared<TypedCall<Params...>>(name, kernel, std::move(reader.addresses), std::move(stored));
    if (check != nullptr) call->check(check);
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
