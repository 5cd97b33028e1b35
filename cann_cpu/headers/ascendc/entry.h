// SPDX-License-Identifier: Apache-2.0
// Makes a kernel callable from other languages, by functions that stand behind it in the same file and call
// Entry<kernel>; and kernel<<<blocks, ...>>>(arguments...) of host functions, which becomes launch_from_host(...).
#pragma once

#include <cstdio>
#include <type_traits>

#include "ascendc/api.h"

namespace AscendC::cpu {

struct Call {
  const void* const* arguments;  // a pointer to each, in the order of the kernel's parameters
  const DeviceBuffer* buffers;
  size_t buffer_count;
  size_t* written;  // for each buffer, how many of its bytes the kernel wrote, if it is checked
  uint64_t tiling_key;
  uint32_t blocks;
  Checks checks;
};

// Runs the kernel; false, and the reason, if it did something wrong.
template <class... Parameters, size_t... I>
bool call(const char* name, void (*kernel)(Parameters...), const Call& call, char* error, size_t error_size,
          std::integer_sequence<size_t, I...>) {
  try {
    set_tiling_key(call.tiling_key);
    const KnownMemory known(call.buffers, call.buffer_count, call.written);
    run({name, call.blocks, AutoSync::ASCENDC_CPU_AUTO_SYNC, call.checks},
        [&] { kernel(*static_cast<const std::remove_reference_t<Parameters>*>(call.arguments[I])...); });
    return true;
  } catch (const std::exception& e) {
    std::snprintf(error, error_size, "%s", e.what());
    return false;
  }
}

// A letter for each parameter: p is an address; others as Python's struct module has them.
template <class T>
constexpr char letter() {
  if constexpr (std::is_pointer_v<T>) {
    return 'p';
  } else if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? 'f' : 'd';
  } else {
    static_assert(std::is_integral_v<T>, "a parameter of a kernel is an address or a number");
    constexpr const char* kLetters = std::is_signed_v<T> ? "bhiq" : "BHIQ";
    return std::is_same_v<T, bool> ? '?' : kLetters[sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3];
  }
}

template <class... Parameters>
struct Signature {
  static constexpr char letters[] = {letter<Parameters>()..., '\0'};
};
template <class... Parameters>
Signature<Parameters...> signature(void (*)(Parameters...));

template <class... Parameters>
std::make_integer_sequence<size_t, sizeof...(Parameters)> positions(void (*)(Parameters...));

template <auto kernel>
struct Entry {
  static const char* signature() { return decltype(cpu::signature(kernel))::letters; }
  static bool call(const char* name, const Call& call, char* error, size_t error_size) {
    return cpu::call(name, kernel, call, error, error_size, decltype(positions(kernel)){});
  }
};

template <class... Parameters>
auto launch_from_host(const char* name, void (*kernel)(Parameters...), uint32_t blocks, const void* /*reserved*/ = {},
                      const void* /*stream*/ = {}) {
  return [=](Parameters... arguments) {
    run({name, blocks, AutoSync::ASCENDC_CPU_AUTO_SYNC}, [&] { kernel(arguments...); });
  };
}

}  // namespace AscendC::cpu
