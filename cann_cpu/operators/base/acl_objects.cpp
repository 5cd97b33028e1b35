// SPDX-License-Identifier: Apache-2.0
// Creates and destroys the arguments of aclnn functions.
#include "cann_cpu/acl_objects.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cann_cpu/dtypes.h"
#include "cann_cpu/runtime.h"

namespace {

using cann_cpu::error;

// Runs make, which returns a new object; null with a message where it throws.
template <class Make>
auto created(const char* function, const Make& make) noexcept -> decltype(make().release()) {
  try {
    return make().release();
  } catch (const std::exception& e) {
    error(ACL_ERROR_INVALID_PARAM, "%s: %s", function, e.what());
    return nullptr;
  }
}

template <class Array, class T>
Array* create_array(const char* function, const T* value, uint64_t size) {
  return created(function, [&] {
    if (value == nullptr && size != 0) throw std::invalid_argument("value is null");
    auto array = std::make_unique<Array>();
    array->values.assign(value, value + size);
    return array;
  });
}

template <class T>
aclnnStatus destroy(const T* object) {
  delete object;
  return ACLNN_SUCCESS;
}

// A list holds copies, and what it was made of until it is destroyed: a caller may destroy the elements in its place.
template <class List, class T>
struct Owning : List {
  std::vector<const T*> given;
};

template <class List, class T>
List* create_list(const char* function, std::vector<T> List::* elements, const T* const* value, uint64_t size) {
  return created(function, [&]() -> std::unique_ptr<List, void (*)(List*)> {
    if (value == nullptr && size != 0) throw std::invalid_argument("value is null");
    if (std::find(value, value + size, nullptr) != value + size) throw std::invalid_argument("an element is null");
    auto list = std::make_unique<Owning<List, T>>();
    list->given.assign(value, value + size);
    for (const T* each : list->given) (list.get()->*elements).push_back(*each);
    return {list.release(), [](List* made) { delete static_cast<Owning<List, T>*>(made); }};
  });
}

template <class T, class List>
aclnnStatus destroy_list(const List* list) {
  if (list == nullptr) return ACLNN_SUCCESS;
  const auto* owning = static_cast<const Owning<List, T>*>(list);
  for (const T* each : owning->given) delete each;
  return destroy(owning);
}

}  // namespace

void cann_cpu::check_view(const aclTensor& tensor, bool is_written) {
  const auto text = [](const std::vector<int64_t>& numbers) {
    std::string list;
    for (const int64_t number : numbers) list += (list.empty() ? "" : ", ") + std::to_string(number);
    return "[" + list + "]";
  };
  const auto is_negative = [](int64_t number) { return number < 0; };
  int64_t last = tensor.offset, elements = 1;
  bool fits =
      last >= 0 && std::ranges::none_of(tensor.shape, is_negative) && std::ranges::none_of(tensor.strides, is_negative);
  const bool empty = std::ranges::find(tensor.shape, 0) != tensor.shape.end();
  for (size_t i = 0; fits && i < tensor.shape.size(); ++i) {
    int64_t reach = 0;
    fits = !__builtin_mul_overflow(std::max<int64_t>(tensor.shape[i] - 1, 0), tensor.strides[i], &reach) &&
           !__builtin_add_overflow(last, reach, &last);
  }
  for (const int64_t size : tensor.storage_shape) {
    fits = fits && size >= 0 && !__builtin_mul_overflow(elements, size, &elements);
  }
  if (!fits || (!empty && last >= elements)) {
    throw std::invalid_argument("has sizes " + text(tensor.shape) + ", strides " + text(tensor.strides) +
                                " and an offset of " + std::to_string(tensor.offset) +
                                ", which do not lie within a storage of sizes " + text(tensor.storage_shape));
  }
  for (size_t i = 0; is_written && !empty && i < tensor.shape.size(); ++i) {
    if (tensor.strides[i] != 0 || tensor.shape[i] == 1) continue;
    throw std::invalid_argument("is written, but its elements along dimension " + std::to_string(i) +
                                " share their memory: the stride is 0");
  }
}

aclTensor* aclCreateTensor(const int64_t* view_dims, uint64_t view_dims_num, aclDataType data_type,
                           const int64_t* strides, int64_t offset, aclFormat format, const int64_t* storage_dims,
                           uint64_t storage_dims_num, void* data) {
  return created("aclCreateTensor", [&] {
    if (view_dims == nullptr && view_dims_num != 0) throw std::invalid_argument("view_dims is null");
    if (storage_dims == nullptr && storage_dims_num != 0) throw std::invalid_argument("storage_dims is null");
    auto tensor = std::make_unique<aclTensor>();
    tensor->shape.assign(view_dims, view_dims + view_dims_num);
    tensor->strides.resize(view_dims_num);
    if (strides != nullptr) {
      tensor->strides.assign(strides, strides + view_dims_num);
    } else {  // contiguous
      int64_t stride = 1;
      for (size_t i = view_dims_num; i-- > 0; stride *= view_dims[i]) tensor->strides[i] = stride;
    }
    tensor->offset = offset;
    tensor->dtype = data_type;
    tensor->format = format;
    tensor->storage_shape.assign(storage_dims, storage_dims + storage_dims_num);
    tensor->data = data;
    return tensor;
  });
}

aclScalar* aclCreateScalar(void* value, aclDataType data_type) {
  return created("aclCreateScalar", [&] {
    const size_t size = cann_cpu::dtype_size(data_type);
    if (value == nullptr) throw std::invalid_argument("value is null");
    if (size == 0) throw std::invalid_argument("dtype " + cann_cpu::dtype_name(data_type) + " is unknown");
    auto scalar = std::make_unique<aclScalar>();
    scalar->dtype = data_type;
    std::memcpy(scalar->value.data(), value, size);
    return scalar;
  });
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  return create_array<aclIntArray>("aclCreateIntArray", value, size);
}

aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
  return create_array<aclFloatArray>("aclCreateFloatArray", value, size);
}

aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
  return create_array<aclBoolArray>("aclCreateBoolArray", value, size);
}

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  return create_list("aclCreateTensorList", &aclTensorList::tensors, value, size);
}

aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
  return create_list("aclCreateScalarList", &aclScalarList::scalars, value, size);
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) { return destroy(tensor); }
aclnnStatus aclDestroyScalar(const aclScalar* scalar) { return destroy(scalar); }
aclnnStatus aclDestroyIntArray(const aclIntArray* array) { return destroy(array); }
aclnnStatus aclDestroyFloatArray(const aclFloatArray* array) { return destroy(array); }
aclnnStatus aclDestroyBoolArray(const aclBoolArray* array) { return destroy(array); }
aclnnStatus aclDestroyTensorList(const aclTensorList* list) { return destroy_list<aclTensor>(list); }
aclnnStatus aclDestroyScalarList(const aclScalarList* list) { return destroy_list<aclScalar>(list); }

aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** view_dims, uint64_t* view_dims_num) {
  if (tensor == nullptr || view_dims == nullptr || view_dims_num == nullptr) {
    return error(ACLNN_ERR_PARAM_NULLPTR, "aclGetViewShape: an argument is null");
  }
  *view_dims = new (std::nothrow) int64_t[tensor->shape.size()];  // the interface wants delete[] from the caller
  if (*view_dims == nullptr) return error(ACLNN_ERR_INNER, "aclGetViewShape: out of memory");
  std::copy(tensor->shape.begin(), tensor->shape.end(), *view_dims);
  *view_dims_num = tensor->shape.size();
  return ACLNN_SUCCESS;
}
