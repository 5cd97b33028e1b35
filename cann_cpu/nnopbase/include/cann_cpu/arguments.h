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
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
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

template <Direction direction, class C, class View>
struct TensorArgument {
  using CType = C*;
  using Stored = aclTensor;
  using Bound = View;
  static Stored store(CType argument, Operands& operands) {
    return store_tensor<direction>(not_null(argument), operands);
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
  static Stored store(CType argument, Operands& operands) {
    return argument ? Stored(store_tensor<direction>(*argument, operands)) : std::nullopt;
  }
  static Bound bind(const Stored& stored, AddressCursor& addresses) {
    return stored ? Bound(View(bind_tensor<direction>(*stored, addresses))) : std::nullopt;
  }
};

template <Direction direction>
struct TensorListArgument {
  using CType = const aclTensorList*;
  using Stored = std::vector<aclTensor>;
  using Bound = std::vector<at::Tensor>;
  static Stored store(CType argument, Operands& operands) {
    Stored stored;
    for (const aclTensor* tensor : not_null(argument).tensors) {
      stored.push_back(store_tensor<direction>(*tensor, operands));
    }
    return stored;
  }
  static Bound bind(const Stored& stored, AddressCursor& addresses) {
    Bound bound;
    bound.reserve(stored.size());
    for (const aclTensor& tensor : stored) bound.push_back(bind_tensor<direction>(tensor, addresses));
    return bound;
  }
};

template <class T>
struct PlainArgument {
  using CType = T;
  using Stored = T;
  using Bound = T;
  static Stored store(T argument, Operands&) { return argument; }
  static Bound bind(const Stored& stored, AddressCursor&) { return stored; }
};

template <class CArray, class View>
struct ArrayArgument {
  using CType = const CArray*;
  using Stored = CArray;
  using Bound = View;
  static Stored store(CType argument, Operands&) { return not_null(argument); }
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
struct Argument<const std::optional<std::vector<at::Tensor>>&> {
  using Tensors = Argument<const std::vector<at::Tensor>&>;
  using CType = Tensors::CType;
  using Stored = std::optional<Tensors::Stored>;
  using Bound = std::optional<std::vector<at::Tensor>>;
  static Stored store(CType argument, Operands& operands) {
    return argument ? Stored(Tensors::store(argument, operands)) : std::nullopt;
  }
  static Bound bind(const Stored& stored, AddressCursor& addresses) {
    return stored ? Bound(Tensors::bind(*stored, addresses)) : std::nullopt;
  }
};
template <>
struct Argument<std::vector<at::Tensor>&> : detail::TensorListArgument<detail::Direction::Output> {};

template <>
struct Argument<const StoredTensor&> {
  using CType = const aclTensor*;
  using Stored = aclTensor;
  using Bound = StoredTensor;
  static Stored store(CType argument, Operands& operands) {
    return detail::store_tensor<detail::Direction::Input>(detail::not_null(argument), operands);
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
  static Stored store(CType argument, Operands& operands) {
    return {detail::store_tensor<detail::Direction::Output>(detail::not_null(argument), operands), argument};
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
  static Stored store(CType argument, Operands&) { return scalar_of(detail::not_null(argument)); }
  static Bound bind(const Stored& stored, AddressCursor&) { return stored; }
};

template <>
struct Argument<const std::optional<at::Scalar>&> {
  using CType = const aclScalar*;
  using Stored = std::optional<at::Scalar>;
  using Bound = std::optional<at::Scalar>;
  static Stored store(CType argument, Operands&) { return argument ? Stored(scalar_of(*argument)) : std::nullopt; }
  static Bound bind(const Stored& stored, AddressCursor&) { return stored; }
};

template <>
struct Argument<const std::vector<at::Scalar>&> {
  using CType = const aclScalarList*;
  using Stored = std::vector<at::Scalar>;
  using Bound = std::vector<at::Scalar>;
  static Stored store(CType argument, Operands&) {
    Stored stored;
    for (const aclScalar* scalar : detail::not_null(argument).scalars) stored.push_back(scalar_of(*scalar));
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
  static Stored store(CType argument, Operands&) { return argument ? Stored(*argument) : std::nullopt; }
  static Bound bind(const Stored& stored, AddressCursor&) {
    return stored ? Bound(at::IntArrayRef(stored->values)) : std::nullopt;
  }
};

template <>
struct Argument<const std::string&> {
  using CType = char*;
  using Stored = std::string;
  using Bound = std::string;
  static Stored store(CType argument, Operands&) { return argument ? argument : ""; }
  static Bound bind(const Stored& stored, AddressCursor&) { return stored; }
};

template <>
struct Argument<at::ScalarType> {
  using CType = aclDataType;
  using Stored = at::ScalarType;
  using Bound = at::ScalarType;
  static Stored store(CType argument, Operands&) { return scalar_type(argument); }
  static Bound bind(const Stored& stored, AddressCursor&) { return stored; }
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

template <class Param>
struct UnusedArgument {
  using CType = typename Argument<Param>::CType;
  struct Stored {};
  static Stored store(CType, Operands&) { return {}; }
};

}  // namespace detail

template <Name name, class Param>
struct Argument<Absent<name, Param>> : detail::UnusedArgument<Param> {
  using Base = detail::UnusedArgument<Param>;
  using Bound = Absent<name, Param>;
  static typename Base::Stored store(typename Base::CType argument, Operands&) {
    if (argument != nullptr && !detail::is_empty(*argument)) {
      throw std::invalid_argument("(" + std::string(name.text) + ") is not implemented: it must be null or empty");
    }
    return {};
  }
  static Bound bind(const typename Base::Stored&, AddressCursor&) { return {}; }
};

template <class Param>
struct Argument<Ignored<Param>> : detail::UnusedArgument<Param> {
  using Bound = Ignored<Param>;
  static Bound bind(const typename detail::UnusedArgument<Param>::Stored&, AddressCursor&) { return {}; }
};

}  // namespace cann_cpu
