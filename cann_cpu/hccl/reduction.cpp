// SPDX-License-Identifier: Apache-2.0
#include "reduction.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "cann_cpu/soc.h"

namespace cann_cpu {
namespace {

// How elements are widened before they are folded, and rounded afterwards.
template <class T>
struct Plain {
  using Element = T;
  using Sum = T;
  static void widen(const void* from, Sum* to, size_t count) { std::memcpy(to, from, count * sizeof(T)); }
  static void narrow(const Sum* from, void* to, size_t count) { std::memcpy(to, from, count * sizeof(T)); }
};

// ATen converts 16-bit floats with the instructions that the CPU has for it.
template <class T>
struct InFloat32 {
  using Element = T;
  using Sum = float;
  static at::Tensor view(const void* data, size_t count, at::ScalarType type) {
    return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(count)}, type);
  }
  static void widen(const void* from, Sum* to, size_t count) {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    view(to, count, at::kFloat).copy_(view(from, count, c10::CppTypeToScalarType<T>::value));
  }
  static void narrow(const Sum* from, void* to, size_t count) {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    view(to, count, c10::CppTypeToScalarType<T>::value).copy_(view(from, count, at::kFloat));
  }
};

// Integers wrap around, which signed ones may not in C++; 64 bits, as two factors of 16 bits would be promoted to int.
template <class T, HcclReduceOp op>
T combine(T a, T b) {
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  if constexpr (op == HCCL_REDUCE_SUM) return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  if constexpr (op == HCCL_REDUCE_PROD) return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
  if constexpr (op == HCCL_REDUCE_MAX) return a != a || a > b ? a : b;
  if constexpr (op == HCCL_REDUCE_MIN) return a != a || a < b ? a : b;
}

template <class Type, HcclReduceOp op>
class Fold : public Reduction {
 public:
  void begin(const void* elements, size_t count) override { Type::widen(elements, sum_.data(), count); }
  void add(const void* elements, size_t count) override {
    Type::widen(elements, next_.data(), count);
    for (size_t i = 0; i < count; ++i) sum_[i] = combine<typename Type::Sum, op>(sum_[i], next_[i]);
  }
  void end(void* result, size_t count) override { Type::narrow(sum_.data(), result, count); }

 private:
  std::vector<typename Type::Sum> sum_{std::vector<typename Type::Sum>(kBlock)};
  std::vector<typename Type::Sum> next_{std::vector<typename Type::Sum>(kBlock)};
};

template <class Type>
std::unique_ptr<Reduction> make_fold(HcclReduceOp op) {
  switch (op) {
    case HCCL_REDUCE_SUM:
      return std::make_unique<Fold<Type, HCCL_REDUCE_SUM>>();
    case HCCL_REDUCE_PROD:
      return std::make_unique<Fold<Type, HCCL_REDUCE_PROD>>();
    case HCCL_REDUCE_MAX:
      return std::make_unique<Fold<Type, HCCL_REDUCE_MAX>>();
    case HCCL_REDUCE_MIN:
      return std::make_unique<Fold<Type, HCCL_REDUCE_MIN>>();
    default:
      throw CollectiveFailure(HCCL_E_PARA, std::string("op is ") + std::to_string(op) + "; expected 0 to 3");
  }
}

struct TypeFacts {
  HcclDataType type;
  const char* name;
  size_t size;                                       // 0: it is not even moved
  std::unique_ptr<Reduction> (*fold)(HcclReduceOp);  // null: it is moved, not reduced
};

const TypeFacts kTypes[] = {
    {HCCL_DATA_TYPE_INT8, "int8", 1, make_fold<Plain<int8_t>>},
    {HCCL_DATA_TYPE_INT16, "int16", 2, make_fold<Plain<int16_t>>},
    {HCCL_DATA_TYPE_INT32, "int32", 4, make_fold<Plain<int32_t>>},
    {HCCL_DATA_TYPE_INT64, "int64", 8, make_fold<Plain<int64_t>>},
    {HCCL_DATA_TYPE_UINT8, "uint8", 1, nullptr},
    {HCCL_DATA_TYPE_UINT16, "uint16", 2, nullptr},
    {HCCL_DATA_TYPE_UINT32, "uint32", 4, nullptr},
    {HCCL_DATA_TYPE_UINT64, "uint64", 8, nullptr},
    {HCCL_DATA_TYPE_FP16, "float16", 2, make_fold<InFloat32<c10::Half>>},
    {HCCL_DATA_TYPE_BFP16, "bfloat16", 2, make_fold<InFloat32<c10::BFloat16>>},
    {HCCL_DATA_TYPE_FP32, "float32", 4, make_fold<Plain<float>>},
    {HCCL_DATA_TYPE_FP64, "float64", 8, nullptr},
    {HCCL_DATA_TYPE_INT128, "int128", 0, nullptr},
    {HCCL_DATA_TYPE_HIF8, "hifloat8", 0, nullptr},
    {HCCL_DATA_TYPE_FP8E4M3, "float8_e4m3fn", 0, nullptr},
    {HCCL_DATA_TYPE_FP8E5M2, "float8_e5m2", 0, nullptr},
    {HCCL_DATA_TYPE_FP8E8M0, "float8_e8m0fnu", 0, nullptr},
};

const TypeFacts& facts_of(HcclDataType type) {
  for (const TypeFacts& facts : kTypes) {
    if (facts.type == type) return facts;
  }
  throw CollectiveFailure(HCCL_E_PARA, "dataType is " + std::to_string(type) + ", which is not an HcclDataType");
}

}  // namespace

const char* name_of(HcclDataType type) { return facts_of(type).name; }

size_t size_of(HcclDataType type) {
  if (const size_t size = facts_of(type).size) return size;
  throw CollectiveFailure(HCCL_E_NOT_SUPPORT,
                          std::string(name_of(type)) + " is not moved between chips of " + soc().name);
}

const char* name_of(HcclReduceOp op) {
  static const char* const names[] = {"sum", "product", "maximum", "minimum"};
  if (op < HCCL_REDUCE_SUM || op > HCCL_REDUCE_MIN) {
    throw CollectiveFailure(HCCL_E_PARA, "op is " + std::to_string(op) + "; expected 0 to 3");
  }
  return names[op];
}

CollectiveFailure not_reduced(HcclDataType type, HcclReduceOp op) {
  return {HCCL_E_NOT_SUPPORT, std::string("there is no ") + name_of(op) + " of " + name_of(type) + " on " + soc().name};
}

std::unique_ptr<Reduction> Reduction::make(HcclDataType type, HcclReduceOp op) {
  const TypeFacts& facts = facts_of(type);
  const bool has_no_product = type == HCCL_DATA_TYPE_INT16 || type == HCCL_DATA_TYPE_BFP16;
  if (facts.fold == nullptr || (op == HCCL_REDUCE_PROD && has_no_product)) throw not_reduced(type, op);
  return facts.fold(op);
}

}  // namespace cann_cpu
