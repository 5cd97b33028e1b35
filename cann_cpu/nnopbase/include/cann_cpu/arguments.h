// SPDX-License-Identifier: Apache-2.0
// The parameters that a kernel may have, and the parameters of the C function that they stand for:
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
//   const std::optional<std::vector<at::Tensor>>&   the same      inputs that may be null
//   std::vector<at::Tensor>&              const aclTensorList*   outputs
//   DataDependentOut&                     aclTensor*             an output whose shape the kernel decides
//   const at::Scalar&                     const aclScalar*
//   const std::optional<at::Scalar>&      const aclScalar*       may be null
//   const std::vector<at::Scalar>&        const aclScalarList*
//   at::IntArrayRef                       const aclIntArray*
//   at::OptionalIntArrayRef               const aclIntArray*     may be null
//   at::ArrayRef<float>, <bool>           const aclFloatArray*, const aclBoolArray*
//   std::optional<at::ArrayRef<bool>>     const aclBoolArray*    may be null
//   const std::string&                    char*                  null is the empty string
//   at::ScalarType                        aclDataType
//   int64_t, double, bool, ...            the same
//   Absent<"name", T>                     that of T                must be null or empty: it is not implemented
//   Ignored<T>                            that of T                makes no difference on the CPU
//
// A kernel names every parameter but the last two, so that it uses what it is given.
// Outputs in FRACTAL_NZ, and all other formats that do not store a tensor by its strides, are rejected.
#pragma once

#include <ATen/TensorUtils.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "cann_cpu/executor.h"
#include "cann_cpu/tensors.h"

namespace cann_cpu {

struct NullArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A text as a template argument.
template <size_t size>
struct Name {
  constexpr Name(const char (&given)[size]) { std::copy_n(given, size, text); }
  char text[size];
};

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
    TORCH_CHECK(largest_.is_contiguous(), "an output whose shape the function decides must be contiguous");
    TORCH_CHECK(result.numel() <= largest_.numel(), "the result has ", result.numel(),
                " elements, the output was allocated for ", largest_.numel());
    largest_.as_strided(result.sizes(), at::detail::defaultStrides(result.sizes())).copy_(result);
    if (caller_ == nullptr) return;  // a trial
    caller_->shape = result.sizes().vec();
    caller_->strides = at::detail::defaultStrides(result.sizes());
  }

 private:
  at::Tensor largest_;
  aclTensor* caller_;
};

// A parameter that is not implemented: null, or empty. Its name is CANN's, for the message.
template <Name name, class Param>
struct Absent {};

// A parameter that changes nothing on the CPU; an alias of it says why.
template <class Param>
struct Ignored {};

// An argument as the executor keeps it: nothing, where it is null or changes nothing; the bits of a number. libstdc++
// is at its fastest up to eleven types.
using StoredArgument =
    std::variant<std::monostate, aclTensor, std::vector<aclTensor>, std::pair<aclTensor, aclTensor*>, at::Scalar,
                 std::vector<at::Scalar>, aclIntArray, aclFloatArray, aclBoolArray, std::string, uint64_t>;

// How a kernel parameter of type T is passed in C (CType), stored, and made again (Bound, bind).
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
aclTensor store_tensor(const aclTensor& tensor, Operands& operands) {
  if (scalar_type_or_undefined(tensor.dtype) == at::ScalarType::Undefined) {
    throw std::invalid_argument("has dtype " + dtype_name(tensor.dtype) + ", which is not supported on the CPU");
  }
  check_format(tensor, direction);
  check_view(tensor, direction == Direction::Output);
  operands.add(tensor, direction == Direction::Output, operands.parameters.back().argument);
  operands.given.push_back(&tensor);
  return tensor;
}

template <Direction direction>
at::Tensor bind_tensor(const aclTensor& tensor, AddressCursor& addresses) {
  return direction == Direction::Input ? input_of(tensor, addresses) : view_of(tensor, addresses.take());
}

// The alternative of an argument that is not null.
template <class T>
const T& stored_as(const StoredArgument& stored) {
  return *std::get_if<T>(&stored);
}

inline bool is_null(const StoredArgument& stored) { return stored.index() == 0; }

template <Direction direction, class C, class View>
struct TensorArgument {
  using CType = C*;
  using Bound = View;
  static StoredArgument store(CType argument, Operands& operands) {
    return store_tensor<direction>(not_null(argument), operands);
  }
  static Bound bind(const StoredArgument& stored, AddressCursor& addresses) {
    return Bound(bind_tensor<direction>(stored_as<aclTensor>(stored), addresses));
  }
};

template <Direction direction>
struct TensorListArgument {
  using CType = const aclTensorList*;
  using Bound = std::vector<at::Tensor>;
  static StoredArgument store(CType argument, Operands& operands) {
    std::vector<aclTensor> stored;
    for (const aclTensor* tensor : not_null(argument).tensors) {
      stored.push_back(store_tensor<direction>(*tensor, operands));
    }
    return stored;
  }
  static Bound bind(const StoredArgument& stored, AddressCursor& addresses) {
    Bound bound;
    const auto& tensors = stored_as<std::vector<aclTensor>>(stored);
    bound.reserve(tensors.size());
    for (const aclTensor& tensor : tensors) bound.push_back(bind_tensor<direction>(tensor, addresses));
    return bound;
  }
};

template <class CArray, class View>
struct ArrayArgument {
  using CType = const CArray*;
  using Bound = View;
  static StoredArgument store(CType argument, Operands&) { return not_null(argument); }
  static Bound bind(const StoredArgument& stored, AddressCursor&) {
    const auto& values = stored_as<CArray>(stored).values;
    return View(reinterpret_cast<const typename View::value_type*>(values.data()), values.size());
  }
};

// An argument as Given describes it, or null.
template <class Given, class Optional = std::optional<typename Given::Bound>>
struct OptionalArgument {
  using CType = typename Given::CType;
  using Bound = Optional;
  static StoredArgument store(CType argument, Operands& operands) {
    return argument ? Given::store(argument, operands) : StoredArgument();
  }
  static Bound bind(const StoredArgument& stored, AddressCursor& addresses) {
    return is_null(stored) ? Bound() : Bound(Given::bind(stored, addresses));
  }
};

template <class T>
struct PlainArgument {
  using CType = T;
  using Bound = T;
  using Kept = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
  static StoredArgument store(T argument, Operands&) { return std::bit_cast<uint64_t>(static_cast<Kept>(argument)); }
  static Bound bind(const StoredArgument& stored, AddressCursor&) {
    return static_cast<T>(std::bit_cast<Kept>(stored_as<uint64_t>(stored)));
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
struct Argument<const std::optional<at::Tensor>&> : detail::OptionalArgument<Argument<const at::Tensor&>> {};
template <>
struct Argument<std::optional<at::Tensor>&> : detail::OptionalArgument<Argument<at::Tensor&>> {};
template <>
struct Argument<const std::optional<InOut>&> : detail::OptionalArgument<Argument<InOut>> {};

template <>
struct Argument<const std::vector<at::Tensor>&> : detail::TensorListArgument<detail::Direction::Input> {};
template <>
struct Argument<const std::optional<std::vector<at::Tensor>>&>
    : detail::OptionalArgument<Argument<const std::vector<at::Tensor>&>> {};
template <>
struct Argument<std::vector<at::Tensor>&> : detail::TensorListArgument<detail::Direction::Output> {};

template <>
struct Argument<const StoredTensor&> {
  using CType = const aclTensor*;
  using Bound = StoredTensor;
  static StoredArgument store(CType argument, Operands& operands) {
    return detail::store_tensor<detail::Direction::Input>(detail::not_null(argument), operands);
  }
  static Bound bind(const StoredArgument& stored, AddressCursor& addresses) {
    const auto& tensor = detail::stored_as<aclTensor>(stored);
    if (tensor.format != ACL_FORMAT_FRACTAL_NZ || !is_whole(tensor)) {
      return {input_of(tensor, addresses), ACL_FORMAT_ND, tensor.shape};
    }
    const auto options = at::TensorOptions().dtype(scalar_type(tensor.dtype));
    return {at::from_blob(addresses.take(), tensor.storage_shape, options), tensor.format, tensor.shape};
  }
};

template <>
struct Argument<DataDependentOut&> {
  using CType = aclTensor*;
  using Bound = DataDependentOut;
  static StoredArgument store(CType argument, Operands& operands) {
    return std::pair(detail::store_tensor<detail::Direction::Output>(detail::not_null(argument), operands), argument);
  }
  static Bound bind(const StoredArgument& stored, AddressCursor& addresses) {
    const auto& [tensor, caller] = detail::stored_as<std::pair<aclTensor, aclTensor*>>(stored);
    return Bound(view_of(tensor, addresses.take()), caller);
  }
};

template <>
struct Argument<const at::Scalar&> {
  using CType = const aclScalar*;
  using Bound = at::Scalar;
  static StoredArgument store(CType argument, Operands&) { return scalar_of(detail::not_null(argument)); }
  static Bound bind(const StoredArgument& stored, AddressCursor&) { return detail::stored_as<at::Scalar>(stored); }
};

template <>
struct Argument<const std::optional<at::Scalar>&> : detail::OptionalArgument<Argument<const at::Scalar&>> {};

template <>
struct Argument<const std::vector<at::Scalar>&> {
  using CType = const aclScalarList*;
  using Bound = std::vector<at::Scalar>;
  static StoredArgument store(CType argument, Operands&) {
    std::vector<at::Scalar> stored;
    for (const aclScalar* scalar : detail::not_null(argument).scalars) stored.push_back(scalar_of(*scalar));
    return stored;
  }
  static Bound bind(const StoredArgument& stored, AddressCursor&) { return detail::stored_as<Bound>(stored); }
};

template <>
struct Argument<at::IntArrayRef> : detail::ArrayArgument<aclIntArray, at::IntArrayRef> {};
template <>
struct Argument<at::ArrayRef<float>> : detail::ArrayArgument<aclFloatArray, at::ArrayRef<float>> {};
template <>
struct Argument<at::ArrayRef<bool>> : detail::ArrayArgument<aclBoolArray, at::ArrayRef<bool>> {};
template <>
struct Argument<std::optional<at::ArrayRef<bool>>> : detail::OptionalArgument<Argument<at::ArrayRef<bool>>> {};
template <>
struct Argument<at::OptionalIntArrayRef>
    : detail::OptionalArgument<Argument<at::IntArrayRef>, at::OptionalIntArrayRef> {};

template <>
struct Argument<const std::string&> {
  using CType = char*;
  using Bound = std::string;
  static StoredArgument store(CType argument, Operands&) { return std::string(argument ? argument : ""); }
  static Bound bind(const StoredArgument& stored, AddressCursor&) { return detail::stored_as<Bound>(stored); }
};

template <>
struct Argument<at::ScalarType> : detail::PlainArgument<at::ScalarType> {
  using CType = aclDataType;
  static StoredArgument store(CType argument, Operands& operands) {
    return PlainArgument::store(scalar_type(argument), operands);
  }
};

template <class T>
  requires(std::is_arithmetic_v<T>)
struct Argument<T> : detail::PlainArgument<T> {};

namespace detail {

inline bool is_empty(const aclTensor& tensor) {
  return std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t size) { return size == 0; });
}
inline bool is_empty(const aclTensorList& list) { return list.tensors.empty(); }
inline bool is_empty(const aclIntArray& array) { return array.values.empty(); }
inline bool is_empty(const aclBoolArray& array) { return array.values.empty(); }

}  // namespace detail

template <Name name, class Param>
struct Argument<Absent<name, Param>> {
  using CType = typename Argument<Param>::CType;
  using Bound = Absent<name, Param>;
  static StoredArgument store(CType argument, Operands&) {
    if (argument != nullptr && !detail::is_empty(*argument)) {
      throw std::invalid_argument("(" + std::string(name.text) + ") is not implemented: it must be null or empty");
    }
    return {};
  }
  static Bound bind(const StoredArgument&, AddressCursor&) { return {}; }
};

template <class Param>
struct Argument<Ignored<Param>> {
  using CType = typename Argument<Param>::CType;
  using Bound = Ignored<Param>;
  static StoredArgument store(CType, Operands&) { return {}; }
  static Bound bind(const StoredArgument&, AddressCursor&) { return {}; }
};

}  // namespace cann_cpu
