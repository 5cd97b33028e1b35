// SPDX-License-Identifier: Apache-2.0
// The memory, the errors and the record of trials.
#include "trial.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

namespace cann_cpu {
namespace {

constexpr int64_t kLargest = 1 << 16;  // bytes of all tensors that a trial computes with as they are
constexpr int64_t kAlignment = 64;

// The calls that have passed.
class Passed {
 public:
  bool has(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return keys_.contains(key);
  }

  void add(std::string key) {
    constexpr size_t kCapacity = 10000;
    const std::lock_guard lock(mutex_);
    if (keys_.size() == kCapacity) keys_.clear();
    keys_.insert(std::move(key));
  }

 private:
  std::mutex mutex_;
  std::unordered_set<std::string> keys_;
};

Passed& passed() {
  static auto* const instance = new Passed;  // never destroyed: threads may call at exit
  return *instance;
}

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

// Where a view begins and ends in its storage, in bytes.
std::pair<int64_t, int64_t> extent(const aclTensor& tensor) {
  const auto size = static_cast<int64_t>(dtype_size(tensor.dtype));
  if (tensor.format == ACL_FORMAT_FRACTAL_NZ) return {0, product(tensor.storage_shape) * size};
  int64_t last = tensor.offset;
  for (size_t i = 0; i < tensor.shape.size(); ++i) last += (tensor.shape[i] - 1) * tensor.strides[i];
  const bool empty = std::ranges::find(tensor.shape, 0) != tensor.shape.end();
  return {tensor.offset * size, (empty ? tensor.offset : last + 1) * size};
}

bool is_about_dtypes(std::string_view text) {
  const auto contains = [&](const char* words) { return text.find(words) != std::string_view::npos; };
  return contains("not implemented for '") || contains("can't be cast to the desired output type");
}

// A kernel that runs in the caller's thread: what that thread has set for PyTorch, its profiler and its warnings are
// the caller's.
class AsInAStream {
  struct NoWarnings : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };

  NoWarnings none_;
  c10::WarningUtils::WarningHandlerGuard warnings_{&none_};
  at::DisableRecordFunctionGuard profiler_;
  c10::impl::ForceDispatchKeyGuard keys_{c10::default_included_set, c10::default_excluded_set};
};

// What an attempt throws; empty where it throws nothing, or what only the values make.
std::string error_of(const std::function<void()>& attempt) {
  try {
    attempt();
    return "";
  } catch (const c10::LinAlgError&) {  // of a matrix that is singular
    return "";
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (const std::exception& e) {
    return e.what();
  }
}

class TrialCall {
 public:
  TrialCall(const char* name, const std::vector<void*>& addresses, const std::vector<StoredArgument>& arguments);

  // Whether such a call has passed before.
  bool is_known();

  // Throws std::invalid_argument where the call is wrong. This changes the arguments, which are copies, where the
  // tensors are large.
  void run(Rejects rejects, const char* source,
           const std::function<void(const std::vector<void*>& addresses)>& compute);

 private:
  struct Operand {
    const aclTensor* tensor;
    size_t position;  // of the argument, from 0
    size_t storage;   // the number of the first operand in the same storage
  };
  // What a call takes of a storage, in bytes.
  struct Extent {
    int64_t begin = 0, end = 0;
  };

  template <class T>
  void add(const T& stored) {
    if constexpr (std::is_same_v<T, aclTensor>) {
      operands_.push_back({&stored, position_, 0});
    } else if constexpr (std::is_same_v<T, std::pair<aclTensor, aclTensor*>>) {
      add(stored.first);
    } else if constexpr (std::is_same_v<T, at::Scalar>) {
      add_scalar(stored);
    } else if constexpr (requires { stored.values; }) {
      add(stored.values);
    } else if constexpr (requires { stored.size(); }) {
      add_bytes(stored.size());
      for (const auto& element : stored) add(element);
    } else if constexpr (std::is_same_v<T, std::monostate>) {
      nulls_ |= uint64_t{1} << position_ % 64;
    } else {
      add_bytes(stored);
    }
  }

  template <class T>
  void add_bytes(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    key_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  void add_scalar(const at::Scalar& scalar);
  void measure();
  void describe();  // completes the key
  void make_small();
  std::string arguments(const char* source) const;

  const std::vector<void*>& addresses_;
  std::string key_;
  size_t position_ = 0;
  uint64_t nulls_ = 0;  // a bit for each argument
  std::vector<Operand> operands_;
  std::vector<Extent> storages_;  // by the first operand in each
  bool is_large_ = false;
};

TrialCall::TrialCall(const char* name, const std::vector<void*>& addresses,
                     const std::vector<StoredArgument>& arguments)
    : addresses_(addresses) {
  key_.reserve(512);
  operands_.reserve(addresses.size());
  add_bytes(name);
  for (; position_ < arguments.size(); ++position_) {
    std::visit([this](const auto& stored) { add(stored); }, arguments[position_]);
  }
}

void TrialCall::add_scalar(const at::Scalar& scalar) {
  add_bytes(scalar.type());
  if (scalar.isIntegral(/*includeBool=*/true)) {
    add_bytes(scalar.type() == at::kUInt64 ? static_cast<int64_t>(scalar.toUInt64()) : scalar.toLong());
  } else if (scalar.isComplex()) {
    add_bytes(scalar.toComplexDouble());
  } else {
    add_bytes(scalar.toDouble());
  }
}

void TrialCall::measure() {
  std::vector<std::pair<void*, size_t>> order;
  order.reserve(operands_.size());
  for (size_t i = 0; i < operands_.size(); ++i) order.emplace_back(addresses_[i], i);
  std::ranges::sort(order);
  storages_.assign(operands_.size(), {});
  for (size_t k = 0; k < order.size(); ++k) {
    const auto [address, i] = order[k];
    const auto [begin, end] = extent(*operands_[i].tensor);
    const bool is_first = k == 0 || address == nullptr || order[k - 1].first != address;  // null: not known yet
    operands_[i].storage = is_first ? i : operands_[order[k - 1].second].storage;
    Extent& storage = storages_[operands_[i].storage];
    storage = is_first ? Extent{begin, end} : Extent{std::min(storage.begin, begin), std::max(storage.end, end)};
  }
}

void TrialCall::describe() {
  measure();
  int64_t bytes = 0;
  for (const Extent& storage : storages_) bytes += storage.end - storage.begin;
  is_large_ = bytes > kLargest;
  add_bytes(is_large_);
  add_bytes(nulls_);
  for (const Operand& operand : operands_) {
    const aclTensor& tensor = *operand.tensor;
    add_bytes(tensor.dtype);
    add_bytes(operand.storage);
    add_bytes(tensor.shape.size());
    if (is_large_) {
      for (const int64_t size : tensor.shape) add_bytes(size == 0);
      continue;
    }
    add_bytes(tensor.format);
    add_bytes(tensor.storage_shape.size());
    for (const auto* sizes : {&tensor.shape, &tensor.strides, &tensor.storage_shape}) {
      key_.append(reinterpret_cast<const char*>(sizes->data()), sizes->size() * sizeof(int64_t));
    }
  }
}

bool TrialCall::is_known() {
  describe();
  return passed().has(key_);
}

void TrialCall::make_small() {
  for (const Operand& operand : operands_) {
    auto& tensor = const_cast<aclTensor&>(*operand.tensor);
    for (int64_t& size : tensor.shape) size = std::min<int64_t>(size, 1);
    tensor.strides.assign(tensor.shape.size(), 1);
    tensor.offset = 0;
    tensor.format = ACL_FORMAT_ND;
    tensor.storage_shape = tensor.shape;
  }
  measure();
}

void TrialCall::run(Rejects rejects, const char* source,
                    const std::function<void(const std::vector<void*>& addresses)>& compute) {
  describe();
  if (is_large_) make_small();
  const auto room = [](const Extent& storage) {
    return (storage.end - storage.begin) / kAlignment * kAlignment + 2 * kAlignment;
  };
  size_t size = kAlignment;
  for (const Extent& storage : storages_) size += room(storage);
  std::vector<std::byte> memory(size);
  auto next = (reinterpret_cast<uintptr_t>(memory.data()) + kAlignment - 1) / kAlignment * kAlignment;
  std::vector<uintptr_t> bases;  // where each storage would start
  for (const Extent& storage : storages_) {
    bases.push_back(next + storage.begin % kAlignment - storage.begin);
    next += room(storage);
  }
  std::vector<void*> addresses;
  for (const Operand& operand : operands_) addresses.push_back(reinterpret_cast<void*>(bases[operand.storage]));

  const AsInAStream guards;
  const auto attempt = [&] { compute(addresses); };
  const std::string with_zeros = error_of(attempt);
  if (!with_zeros.empty()) {
    // A divisor must not be 0, nor may all probabilities be.
    for (const Operand& operand : operands_) {
      const auto [begin, end] = extent(*operand.tensor);
      const at::ScalarType dtype = scalar_type(operand.tensor->dtype);
      if (c10::isFloat8Type(dtype) || c10::isBitsType(dtype)) continue;
      at::from_blob(reinterpret_cast<void*>(bases[operand.storage] + begin),
                    {(end - begin) / static_cast<int64_t>(c10::elementSize(dtype))}, dtype)
          .fill_(1);
    }
    const std::string with_ones = error_of(attempt);
    for (const std::string& error : {with_zeros, with_ones}) {
      const bool is_wrong = (rejects == Rejects::Any && !is_large_) || is_about_dtypes(error);
      if (is_wrong && !with_ones.empty()) throw std::invalid_argument(error + arguments(source));
    }
  }
  passed().add(std::move(key_));
}

// " (self float32 [2, 3], out int64 [2])"
std::string TrialCall::arguments(const char* source) const {
  const auto names = parameter_names(source);
  std::string text;
  for (const Operand& operand : operands_) {
    text += (text.empty() ? " (" : ", ") + names[operand.position] + " " + dtype_name(operand.tensor->dtype);
    if (!is_large_) text += c10::str(" ", at::IntArrayRef(operand.tensor->shape));
  }
  return text.empty() ? text : text + ")";
}

}  // namespace

void run_trial(const detail::KernelCall& call, Rejects rejects) {
  if (TrialCall(call.name, call.operands.addresses, call.arguments).is_known()) return;
  auto copies = call.arguments;
  for (StoredArgument& copy : copies) {
    auto* result = std::get_if<std::pair<aclTensor, aclTensor*>>(&copy);
    if (result != nullptr) result->second = nullptr;  // a trial reports no shape to the caller
  }
  const detail::KernelCall trial(call.row, {}, std::move(copies));
  TrialCall(call.name, call.operands.addresses, trial.arguments)
      .run(rejects, call.row.source, [&](const std::vector<void*>& addresses) { trial.compute(addresses); });
}

}  // namespace cann_cpu
