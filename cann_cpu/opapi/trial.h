// SPDX-License-Identifier: Apache-2.0
// Tries a call in phase one: its kernel runs on stand-ins for its tensors, so that an error which the arguments alone
// make is known before the call is enqueued. Calls that differ in their addresses only are tried once.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cann_cpu/op.h"

namespace cann_cpu {

enum class Rejects { Any, Dtypes };  // which errors of a trial reject the call

class TrialCall {
 public:
  TrialCall(const char* name, const std::vector<void*>& addresses);

  // The next argument as the executor keeps it.
  template <class T>
  void add_argument(const T& stored) {
    ++position_;
    add(stored);
  }

  // Whether such a call has passed before; all arguments have been added.
  bool is_known();

  // Throws std::invalid_argument, with the arguments' names from the kernel's source, where the call is wrong. Large
  // tensors are tried as small ones, which shows wrong dtypes only; this changes the arguments, which are copies.
  void run(Rejects rejects, const char* source,
           const std::function<void(const std::vector<void*>& addresses)>& compute);

 private:
  struct Operand {
    const aclTensor* tensor;
    size_t position;  // of the argument, from 1
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
      add_elements(stored.values);
    } else if constexpr (requires { stored.has_value(); }) {
      add_bytes(stored.has_value());
      if (stored.has_value()) add(*stored);
    } else if constexpr (requires { stored.size(); }) {
      add_elements(stored);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      add_bytes(stored);
    } else {
      static_assert(std::is_empty_v<T>, "a kind of argument that a trial does not know");
    }
  }

  template <class Elements>
  void add_elements(const Elements& elements) {
    add_bytes(elements.size());
    for (const auto& element : elements) add(element);
  }

  template <class T>
  void add_bytes(const T& value) {
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
  std::vector<Operand> operands_;
  std::vector<Extent> storages_;  // by the first operand in each
  bool is_large_ = false;
};

// A trial reports no shape to the caller.
inline void forget_caller(std::pair<aclTensor, aclTensor*>& stored) { stored.second = nullptr; }
template <class T>
void forget_caller(T&) {}

template <Rejects rejects>
struct Tried {
  template <class... Params>
  static void run(const detail::TypedCall<Params...>& call, const char* source) {
    const auto made_of = [&](const auto& stored) {
      TrialCall trial(call.name, call.operands.addresses);
      std::apply([&](const auto&... each) { (trial.add_argument(each), ...); }, stored);
      return trial;
    };
    if (made_of(call.stored()).is_known()) return;
    auto copies = call.stored();
    std::apply([](auto&... each) { (forget_caller(each), ...); }, copies);
    made_of(copies).run(rejects, source,
                        [&](const std::vector<void*>& addresses) { call.with(copies).compute(addresses); });
  }

  template <class... Params>
  static constexpr detail::Trial<Params...> of() {
    return run<Params...>;
  }
};

}  // namespace cann_cpu
