// SPDX-License-Identifier: Apache-2.0
// Launches of Ascend C kernels on streams.
#include "ascendc/stream_launch.h"

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "cann_cpu/timed_kernel.h"
#include "launch_config.h"
#include "log.h"
#include "memory.h"
#include "stream.h"

namespace cann_cpu {
namespace {

constexpr uint32_t kMaxBlocks = 65535;

// The name of the parameter at a position of "x,y,tiling".
std::string name_at(const char* parameters, uint32_t position) {
  const std::string all = parameters == nullptr ? "" : parameters;
  size_t begin = 0;
  for (uint32_t i = 0; i < position && begin != std::string::npos; ++i) {
    begin = all.find(',', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (all.empty() || begin == std::string::npos) return "argument " + std::to_string(position + 1);
  return all.substr(begin, all.find(',', begin) - begin);
}

// What a checked launch may touch: all memory of the device, its allocations named by the arguments in them.
class DeviceMemory {
 public:
  explicit DeviceMemory(const std::vector<std::pair<const void*, std::string>>& arguments) {
    std::map<const void*, Named> allocations;
    for (const Range& range : device_ranges()) {
      allocations[reinterpret_cast<const void*>(range.begin)] = {range.end - range.begin, ""};
    }
    for (const auto& [address, name] : arguments) {
      const Range range = find_range(address);
      if (address != nullptr && range.space != Space::kDevice) continue;
      const void* begin = address == nullptr ? nullptr : reinterpret_cast<const void*>(range.begin);
      Named& named = allocations[begin];
      named.name += (named.name.empty() ? "" : ", ") + name;
      if (address != nullptr) named.bytes = range.end - range.begin;
    }
    for (auto& [begin, named] : allocations) {
      names_.push_back(named.name.empty() ? "device memory of no argument" : std::move(named.name));
      buffers_.push_back({begin, named.bytes, nullptr});
    }
    for (size_t i = 0; i < names_.size(); ++i) buffers_[i].name = names_[i].c_str();
    known_.emplace(buffers_.data(), buffers_.size());
  }

 private:
  struct Named {
    size_t bytes = 0;
    std::string name;
  };
  std::vector<std::string> names_;
  std::vector<AscendC::cpu::DeviceBuffer> buffers_;
  std::optional<AscendC::cpu::KnownMemory> known_;
};

// The access to the buffer at the address. The part that a kernel reads or writes is not known.
Access of_unknown_extent(const void* address, uint32_t argument) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  return {begin, begin, false, argument};
}

// The launch of many a program returns nothing: where errors are not printed anyway, this one is.
void say_not_launched(const char* kernel, const char* reason) {
  if (!errors_are_printed()) std::fprintf(stderr, "kernel %s was not launched: %s\n", kernel, reason);
}

}  // namespace

uint32_t cannot_launch(const char* kernel, const char* reason) {
  say_not_launched(kernel, reason);
  return error(ACL_ERROR_INVALID_PARAM, "kernel %s was not launched: %s", kernel, reason);
}

uint32_t launch_kernel(const KernelLaunch& launch, std::function<void()> body) {
  return launch_kernel(launch, {}, std::move(body));
}

uint32_t launch_kernel(const KernelLaunch& launch, std::optional<uint64_t> timeout, std::function<void()> body) {
  if (launch.blocks == 0 || launch.blocks > kMaxBlocks) {
    return cannot_launch(launch.kernel, ("the number of blocks is " + std::to_string(launch.blocks) +
                                         "; it must be from 1 to " + std::to_string(kMaxBlocks))
                                            .c_str());
  }
  std::vector<std::pair<const void*, std::string>> arguments;
  if (AscendC::cpu::checks_by_default()) {
    for (size_t i = 0; i < launch.address_count; ++i) {
      const AddressArgument& argument = launch.addresses[i];
      arguments.emplace_back(argument.address, name_at(launch.parameters, argument.position));
    }
  }
  Accesses accesses;
  if (accesses_are_checked()) {
    for (size_t i = 0; i < launch.address_count; ++i) {
      accesses.push_back(of_unknown_extent(launch.addresses[i].address, launch.addresses[i].position + 1));
    }
  }
  const aclError code = cann_cpu::launch(
      launch.stream, launch.kernel,
      [arguments = std::move(arguments), body = std::move(body), key = launch.tiling_key, timeout,
       kernel = std::string(launch.kernel)] {
        const TimedKernel timed(kernel.c_str(), timeout);
        AscendC::cpu::set_tiling_key(key);
        std::optional<DeviceMemory> memory;
        if (AscendC::cpu::checks_by_default()) memory.emplace(arguments);
        body();
        return ACL_SUCCESS;
      },
      accesses);
  if (code == ACL_SUCCESS) return code;
  const std::string message = take_message();
  say_not_launched(launch.kernel, message.c_str());
  return error(code, "%s", message.c_str());
}

}  // namespace cann_cpu

// Runs a kernel that a Python program calls on the device's tensors (python/cann_cpu/kernel.py): a task, and the caller
// waits for it. False with the error's text.
extern "C" CANN_EXPORT bool cann_cpu_call_kernel(const char* kernel, const AscendC::cpu::DeviceBuffer* buffers,
                                                 size_t count, bool (*function)(void*, char*, size_t), void* call,
                                                 char* text, size_t size) {
  cann_cpu::Accesses accesses;
  if (cann_cpu::accesses_are_checked()) {
    for (size_t i = 0; i < count; ++i) accesses.push_back(cann_cpu::of_unknown_extent(buffers[i].begin, 0));
  }
  bool has_succeeded = false;
  const auto task = [&] {
    has_succeeded = function(call, text, size);
    return ACL_SUCCESS;
  };
  aclError code = cann_cpu::launch(nullptr, kernel, task, accesses);
  if (code == ACL_SUCCESS) code = aclrtSynchronizeStream(nullptr);
  if (code != ACL_SUCCESS) std::snprintf(text, size, "%s", cann_cpu::take_message().c_str());
  return code == ACL_SUCCESS && has_succeeded;
}
