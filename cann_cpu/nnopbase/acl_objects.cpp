// SPDX-License-Identifier: Apache-2.0
// Creates, reads, changes and destroys the arguments of aclnn functions.
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

template <class List, class T>
List* create_list(const char* function, std::vector<T*> List::* elements, const T* const* value, uint64_t size) {
  return created(function, [&] {
    if (value == nullptr && size != 0) throw std::invalid_argument("value is null");
    if (std::find(value, value + size, nullptr) != value + size) throw std::invalid_argument("an element is null");
    auto list = std::make_unique<List>();
    for (uint64_t i = 0; i < size; ++i) ((*list).*elements).push_back(const_cast<T*>(value[i]));
    return list;
  });
}

template <class List, class T>
aclnnStatus destroy_list(std::vector<T*> List::* elements, const List* list) {
  if (list == nullptr) return ACLNN_SUCCESS;
  for (const T* each : list->*elements) delete each;
  return destroy(list);
}

// Throws std::invalid_argument, before it changes anything.
void describe(aclTensor& tensor, const int64_t* view_dims, uint64_t view_dims_num, aclDataType data_type,
              const int64_t* strides, int64_t offset, aclFormat format, const int64_t* storage_dims,
              uint64_t storage_dims_num, void* data) {
  if (view_dims == nullptr && view_dims_num != 0) throw std::invalid_argument("view_dims is null");
  if (storage_dims == nullptr && storage_dims_num != 0) throw std::invalid_argument("storage_dims is null");
  tensor.shape.assign(view_dims, view_dims + view_dims_num);
  tensor.strides.resize(view_dims_num);
  if (strides != nullptr) {
    tensor.strides.assign(strides, strides + view_dims_num);
  } else {  // contiguous
    int64_t stride = 1;
    for (size_t i = view_dims_num; i-- > 0; stride *= view_dims[i]) tensor.strides[i] = stride;
  }
  tensor.offset = offset;
  tensor.dtype = data_type;
  tensor.format = format;
  tensor.storage_shape.assign(storage_dims, storage_dims + storage_dims_num);
  tensor.data = data;
}

aclnnStatus null_argument(const char* function) {
  return error(ACLNN_ERR_PARAM_NULLPTR, "%s: an argument is null", function);
}

template <class Object, class T>
aclnnStatus get(const char* function, const Object* object, T Object::* member, T* value) {
  if (object == nullptr || value == nullptr) return null_argument(function);
  *value = object->*member;
  return ACLNN_SUCCESS;
}

template <class Object, class Elements>
aclnnStatus get_size(const char* function, const Object* object, Elements Object::* elements, uint64_t* size) {
  if (object == nullptr || size == nullptr) return null_argument(function);
  *size = (object->*elements).size();
  return ACLNN_SUCCESS;
}

aclnnStatus get_numbers(const char* function, const aclTensor* tensor, std::vector<int64_t> aclTensor::* member,
                        int64_t** numbers, uint64_t* count) {
  if (tensor == nullptr || numbers == nullptr || count == nullptr) return null_argument(function);
  const std::vector<int64_t>& values = tensor->*member;
  *numbers = new (std::nothrow) int64_t[values.size()];  // the interface wants delete[] from the caller
  if (*numbers == nullptr) return error(ACLNN_ERR_INNER_NULLPTR, "%s: out of memory", function);
  std::copy(values.begin(), values.end(), *numbers);
  *count = values.size();
  return ACLNN_SUCCESS;
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
    auto tensor = std::make_unique<aclTensor>();
    describe(*tensor, view_dims, view_dims_num, data_type, strides, offset, format, storage_dims, storage_dims_num,
             data);
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
aclnnStatus aclDestroyTensorList(const aclTensorList* list) { return destroy_list(&aclTensorList::tensors, list); }
aclnnStatus aclDestroyScalarList(const aclScalarList* list) { return destroy_list(&aclScalarList::scalars, list); }

aclnnStatus aclInitTensor(aclTensor* tensor, const int64_t* view_dims, uint64_t view_dims_num, aclDataType data_type,
                          const int64_t* strides, int64_t offset, aclFormat format, const int64_t* storage_dims,
                          uint64_t storage_dims_num, void* data) {
  if (tensor == nullptr) return error(ACLNN_ERR_PARAM_NULLPTR, "aclInitTensor: tensor is null");
  try {
    describe(*tensor, view_dims, view_dims_num, data_type, strides, offset, format, storage_dims, storage_dims_num,
             data);
  } catch (const std::exception& e) {
    return error(ACLNN_ERR_PARAM_NULLPTR, "aclInitTensor: %s", e.what());
  }
  return ACLNN_SUCCESS;
}

aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* address) {
  if (tensor == nullptr) return error(ACLNN_ERR_PARAM_NULLPTR, "aclSetRawTensorAddr: tensor is null");
  tensor->data = address;
  return ACLNN_SUCCESS;
}
aclnnStatus aclGetRawTensorAddr(const aclTensor* tensor, void** address) {
  return get(__func__, tensor, &aclTensor::data, address);
}

aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** view_dims, uint64_t* view_dims_num) {
  return get_numbers(__func__, tensor, &aclTensor::shape, view_dims, view_dims_num);
}
aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** strides, uint64_t* strides_num) {
  return get_numbers(__func__, tensor, &aclTensor::strides, strides, strides_num);
}
aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storage_dims, uint64_t* storage_dims_num) {
  return get_numbers(__func__, tensor, &aclTensor::storage_shape, storage_dims, storage_dims_num);
}
aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset) {
  return get(__func__, tensor, &aclTensor::offset, offset);
}
aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format) {
  return get(__func__, tensor, &aclTensor::format, format);
}
aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* data_type) {
  return get(__func__, tensor, &aclTensor::dtype, data_type);
}

aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size) {
  return get_size(__func__, array, &aclIntArray::values, size);
}
aclnnStatus aclGetFloatArraySize(const aclFloatArray* array, uint64_t* size) {
  return get_size(__func__, array, &aclFloatArray::values, size);
}
aclnnStatus aclGetBoolArraySize(const aclBoolArray* array, uint64_t* size) {
  return get_size(__func__, array, &aclBoolArray::values, size);
}
aclnnStatus aclGetTensorListSize(const aclTensorList* list, uint64_t* size) {
  return get_size(__func__, list, &aclTensorList::tensors, size);
}
aclnnStatus aclGetScalarListSize(const aclScalarList* list, uint64_t* size) {
  return get_size(__func__, list, &aclScalarList::scalars, size);
}

aclnnStatus aclDumpOpTensors(const char* op_type, const char* op_name, aclTensor** tensors, size_t, size_t,
                             aclrtStream stream) {
  const bool is_whole = op_type != nullptr && op_name != nullptr && tensors != nullptr && stream != nullptr;
  return is_whole ? ACLNN_SUCCESS : null_argument("aclDumpOpTensors");
}
