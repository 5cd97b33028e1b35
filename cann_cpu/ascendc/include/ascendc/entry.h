// SPDX-License-Identifier: Apache-2.0
// Makes a kernel callable from other languages and launches it on streams, by functions that follow it in the same file
// (Entry, Launcher). Host functions' kernel<<<blocks, l2ctrl, stream>>>(arguments...) becomes launch_from_host(...).
#pragma once

#include <cstdio>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ascendc/api.h"
#include "ascendc/kernel_entry.h"
#include "ascendc/stream_launch.h"

namespace AscendC::cpu {

// Runs the kernel; false, and the reason, if it did something wrong.
template <class... Parameters, size_t... I>
bool call(const char* name, void (*kernel)(Parameters...), const Call& call, char* error, size_t error_size,
          std::integer_sequence<size_t, I...>) {
  try {
    set_tiling_key(call.tiling_key);
    std::optional<KnownMemory> known;
    if (call.buffers != nullptr) known.emplace(call.buffers, call.buffer_count, call.written);
    run({name, call.blocks, AutoSync::ASCENDC_CPU_AUTO_SYNC, call.checks, call.profile, __NPU_ARCH__, call.contexts},
        [&] { kernel(*static_cast<const std::remove_reference_t<Parameters>*>(call.arguments[I])...); });
    return true;
  } catch (const std::exception& e) {
    std::snprintf(error, error_size, "%s", e.what());
    return false;
  }
}

// A letter for each parameter: p is an address, s a struct; others as Python's struct module has them.
template <class T>
constexpr char letter() {
  if constexpr (std::is_pointer_v<T>) {
    return 'p';
  } else if constexpr (std::is_class_v<T>) {
    static_assert(std::is_trivially_copyable_v<T>, "a parameter of a kernel is an address, a number or a plain struct");
    return 's';
  } else if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? 'f' : 'd';
  } else {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>,
                  "a parameter of a kernel is an address, a number or a plain struct");
    constexpr const char* kLetters = std::is_signed_v<T> ? "bhiq" : "BHIQ";
    return std::is_same_v<T, bool> ? '?' : kLetters[sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3];
  }
}

template <class... Parameters>
struct Signature {
  static constexpr size_t count = sizeof...(Parameters);
  static constexpr char letters[] = {letter<Parameters>()..., '\0'};
  static constexpr uint32_t sizes[] = {sizeof(Parameters)..., 0};
  struct Offsets {
    uint32_t at[count + 1] = {};
  };
  static constexpr Offsets offsets = [] {
    constexpr size_t alignments[] = {alignof(Parameters)..., 1};
    Offsets all;
    uint32_t end = 0;
    for (size_t i = 0; i < count; ++i) {
      all.at[i] = (end + alignments[i] - 1) / alignments[i] * alignments[i];
      end = all.at[i] + sizes[i];
    }
    all.at[count] = end;
    return all;
  }();
};
template <class... Parameters>
Signature<std::remove_cv_t<Parameters>...> signature(void (*)(Parameters...));

template <class... Parameters>
std::tuple<std::remove_cv_t<Parameters>...> parameters(void (*)(Parameters...));

template <class... Parameters>
std::make_integer_sequence<size_t, sizeof...(Parameters)> positions(void (*)(Parameters...));

template <auto kernel>
struct Entry {
  static constexpr KernelEntry entry(const char* name, const char* parameters) {
    using Of = decltype(cpu::signature(kernel));
    return {name, parameters, Of::letters, Of::sizes, Of::offsets.at, call};
  }
  static bool call(const char* name, const Call& call, char* error, size_t error_size) {
    return cpu::call(name, kernel, call, error, error_size, decltype(positions(kernel)){});
  }
};

// A kernel whose file was compiled for each kind of cores: on each it is the function for its kind.
template <auto vector, const auto& cube, class = decltype(vector)>
struct OfCores;
template <auto vector, const auto& cube, class... Parameters>
struct OfCores<vector, cube, void (*)(Parameters...)> {
  static void run(Parameters... arguments) { (is_cube_core(Where::current()) ? cube : vector)(arguments...); }
};

// ---- launches on streams

// The kernel's arguments that are addresses, for the checks.
template <class... Arguments>
std::vector<cann_cpu::AddressArgument> addresses_of(const Arguments&... arguments) {
  std::vector<cann_cpu::AddressArgument> addresses;
  uint32_t position = 0;
  const auto add = [&]<class T>(const T& argument) {
    if constexpr (std::is_pointer_v<T>) addresses.push_back({argument, position});
    ++position;
  };
  (add(arguments), ...);
  return addresses;
}

template <class... Parameters>
uint32_t launch(cann_cpu::KernelLaunch launch, void (*kernel)(Parameters...),
                std::type_identity_t<Parameters>... arguments) {
  const std::vector<cann_cpu::AddressArgument> addresses = addresses_of(arguments...);
  launch.addresses = addresses.data();
  launch.address_count = addresses.size();
  return cann_cpu::launch_kernel(launch, [=, name = launch.kernel, blocks = launch.blocks] {
    run({name, blocks, AutoSync::ASCENDC_CPU_AUTO_SYNC}, [&] { kernel(arguments...); });
  });
}

// An address in kernel<<<>>>(...), which may be void*.
template <class T>
struct AnyAddress {
  AnyAddress(T given) : value(given) {}
  template <class Pointer>
    requires std::is_same_v<Pointer, void*>
  AnyAddress(Pointer address) : value(static_cast<T>(address)) {}
  operator T() const { return value; }
  T value;
};
template <class T>
using Given = std::conditional_t<std::is_pointer_v<T>, AnyAddress<T>, T>;

template <class... Parameters>
auto launch_from_host(const char* name, void (*kernel)(Parameters...), uint32_t blocks, const void* /*l2ctrl*/ = {},
                      void* stream = {}) {
  return [=](Given<Parameters>... arguments) { return launch({name, blocks, stream}, kernel, arguments...); };
}

// A parameter of aclrtlaunch_X: addresses are void*, and a struct is given by its address.
template <class T>
using OfHost = std::conditional_t<std::is_pointer_v<T> || std::is_class_v<T>, void*, T>;
template <auto kernel, size_t i>
using HostParameter = OfHost<std::tuple_element_t<i, decltype(parameters(kernel))>>;

template <class T>
T from_host(OfHost<T> argument) {
  if constexpr (std::is_class_v<T>) {
    return *static_cast<const T*>(argument);
  } else if constexpr (std::is_pointer_v<T>) {
    return static_cast<T>(argument);
  } else {
    return argument;
  }
}

template <auto kernel>
struct Launcher {
  template <class... Arguments>
  static uint32_t launch(const KernelEntry& entry, uint32_t blocks, void* stream, Arguments... arguments) {
    return to(kernel, entry, blocks, stream, arguments...);
  }

 private:
  template <class... Parameters>
  static uint32_t to(void (*)(Parameters...), const KernelEntry& entry, uint32_t blocks, void* stream,
                     OfHost<std::remove_cv_t<Parameters>>... arguments) {
    if (const char* missing = null_struct<Parameters...>(arguments...)) {
      return cann_cpu::cannot_launch(entry.name, missing);
    }
    return cpu::launch({entry.name, blocks, stream, entry.parameters}, kernel,
                       from_host<std::remove_cv_t<Parameters>>(arguments)...);
  }

  template <class... Parameters>
  static const char* null_struct(OfHost<std::remove_cv_t<Parameters>>... arguments) {
    bool is_null = false;
    const auto look = [&]<class T>(const OfHost<std::remove_cv_t<T>>& argument) {
      if constexpr (std::is_class_v<T>) is_null |= argument == nullptr;
    };
    (look.template operator()<Parameters>(arguments), ...);
    return is_null ? "the address of a struct is null" : nullptr;
  }
};

}  // namespace AscendC::cpu
