// SPDX-License-Identifier: Apache-2.0
// Kernel libraries that are loaded at run time: functions by name, their arguments, launches.
//
// A library is a shared object that cann_cpu.ascendc.compiler made; ascendc_cpu_kernel_X describes its kernel X. One
// for NPUs can be loaded and asked for its kernels as well: programs do so when they start, and many ignore errors.
// A launch of such a kernel is a task that fails.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <list>
#include <string_view>

#include "ascendc/kernel_entry.h"
#include "ascendc/stream_launch.h"
#include "cann_cpu/open_library.h"
#include "device_binary.h"
#include "launch_config.h"
#include "memory.h"
#include "stream.h"

namespace cann_cpu {
namespace {

using AscendC::cpu::KernelEntry;
using Bytes = std::vector<std::byte>;

// A path to this process's open file that the loader has never been asked for: it answers a path that it knows with the
// library that it knows by it, and the numbers of files are used again. The path has the process's own number and not
// "self", since debuggers open it as well.
std::string new_path(int file) {
  static std::atomic<uint32_t> loads{0};
  std::string path = "/proc/" + std::to_string(getpid()) + "/fd/";
  for (uint32_t bits = ++loads; bits != 0; bits /= 2) path += bits % 2 == 0 ? "/" : "./";
  return path + std::to_string(file);
}

std::string cannot_run(const char* kernel) {
  return std::string("kernel ") + kernel +
         " is from a device binary, which cann_cpu cannot run; it runs what its toolkit compiles from the source";
}

// The entry of a kernel for NPUs takes arguments of any size.
KernelEntry entry_for_npus(const char* name) {
  static constexpr uint32_t no_offsets[] = {0};
  return {name, "", "", nullptr, no_offsets, [](const char* name, const AscendC::cpu::Call&, char* error, size_t size) {
            std::snprintf(error, size, "%s", cannot_run(name).c_str());
            return false;
          }};
}

struct Library : HasHandle {
  // From a copy in memory: the file that it came from may be written anew while its kernels run.
  Library(const std::string& name, const void* data, size_t size) {
    if (is_for_npus(data, size)) {
      kernels = kernels_for_npus(name, data, size);
      return;
    }
    const int descriptor = memfd_create("kernels", MFD_CLOEXEC);
    if (descriptor < 0) fail(ACL_ERROR_INTERNAL_ERROR, "%s: memfd_create: %s", name.c_str(), std::strerror(errno));
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(fdopen(descriptor, "w"), std::fclose);
    if (file == nullptr || std::fwrite(data, 1, size, file.get()) != size || std::fflush(file.get()) != 0) {
      fail(ACL_ERROR_INTERNAL_ERROR, "%s: cannot copy %zu bytes to memory: %s", name.c_str(), size,
           std::strerror(errno));
    }
    const OpenedLibrary opened = open_library(new_path(descriptor));
    if (opened.handle == nullptr) {
      fail(ACL_ERROR_INVALID_FILE, "%s is not a kernel library that cann_cpu's tools have built: %s", name.c_str(),
           opened.error.c_str());
    }
    loaded.reset(opened.handle);
    kernels = kernels_of_library(name, data, size);
  }

  KernelEntry entry_of(const char* name) const {
    if (loaded == nullptr) {
      const auto found = std::ranges::find(kernels, std::string_view(name), &KernelInfo::name);
      if (found != kernels.end()) return entry_for_npus(found->name.c_str());
    } else {
      const std::string symbol = std::string("ascendc_cpu_kernel_") + name;
      auto* describe = reinterpret_cast<const KernelEntry* (*)()>(dlsym(loaded.get(), symbol.c_str()));
      if (describe != nullptr) return *describe();
    }
    fail(ACL_ERROR_KERNEL_NOT_FOUND, "the library has no kernel %s", name);
  }

  std::unique_ptr<void, int (*)(void*)> loaded{nullptr, dlclose};  // null: it is for NPUs
  std::vector<KernelInfo> kernels;
};

struct Function : HasHandle {
  Function(std::shared_ptr<Library> library, const KernelEntry& kernel) : library(std::move(library)), kernel(kernel) {}

  std::shared_ptr<Library> library;
  const KernelEntry kernel;
  size_t count() const { return std::strlen(kernel.letters); }
};

// Memory that a kernel gets the address of; the checks know it.
using Buffer = std::shared_ptr<void>;
Buffer make_buffer(const void* bytes, size_t size) {
  Buffer buffer(AscendC::GmAlloc(size), AscendC::GmFree);
  if (buffer == nullptr) throw std::bad_alloc();
  if (bytes != nullptr) std::memcpy(buffer.get(), bytes, size);
  return buffer;
}

// What a function is called with: a value for each parameter, and memory that addresses among them are of.
struct Arguments : HasHandle {
  std::shared_ptr<Function> function;
  struct Value : HasHandle {
    Bytes bytes;
    bool is_placeholder = false;
    Bytes pointed_to;
  };
  std::list<Value> values;
  bool is_final = false;
};

Registry<Library>& libraries() {
  static auto* registry = new Registry<Library>("kernel library");
  return *registry;
}
Registry<Function>& functions() {
  static auto* registry = new Registry<Function>("kernel function");
  return *registry;
}
Registry<Arguments>& all_arguments() {
  static auto* registry =
      new Registry<Arguments>("list of kernel arguments (the next aclrtKernelArgsInit of its thread ends it)");
  return *registry;
}

// The list of a thread's latest aclrtKernelArgsInit: no function of CANN gives lists back, so a thread has one.
struct ListOfThread {
  std::weak_ptr<Arguments> latest;
  ~ListOfThread() { end(); }
  void end() {
    const std::shared_ptr<Arguments> list = latest.lock();
    if (list) all_arguments().remove_if([&](const Arguments& arguments) { return &arguments == list.get(); });
  }
};
thread_local ListOfThread list_of_thread;

std::shared_ptr<Function> find_function(aclrtFuncHandle handle) {
  require_pointer(handle, "funcHandle");
  return functions().find(handle);
}

std::shared_ptr<Arguments> open_arguments(aclrtArgsHandle handle) {
  require_pointer(handle, "argsHandle");
  std::shared_ptr<Arguments> arguments = all_arguments().find(handle);
  if (arguments->is_final) fail(ACL_ERROR_INVALID_PARAM, "aclrtKernelArgsFinalize has ended this list of arguments");
  return arguments;
}

Arguments::Value& find_value(Arguments& arguments, aclrtParamHandle handle) {
  for (Arguments::Value& value : arguments.values) {
    if (value.handle == handle) return value;
  }
  fail(ACL_ERROR_RT_INVALID_HANDLE, "paramHandle %p is not of this list of arguments", handle);
}

void check_size(const KernelEntry& kernel, size_t position, size_t size) {
  if (size != kernel.sizes[position]) {
    fail(ACL_ERROR_INVALID_PARAM, "argument %zu of kernel %s (%s) has %u bytes, not %zu", position + 1, kernel.name,
         kernel.parameters, kernel.sizes[position], size);
  }
}

// Appends the value of the next parameter.
Arguments::Value& append_value(Arguments& arguments, Bytes bytes) {
  const KernelEntry& kernel = arguments.function->kernel;
  if (arguments.values.size() == arguments.function->count()) {
    fail(ACL_ERROR_INVALID_PARAM, "kernel %s takes %zu arguments (%s), and has them", kernel.name,
         arguments.function->count(), kernel.parameters);
  }
  check_size(kernel, arguments.values.size(), bytes.size());
  Arguments::Value& value = arguments.values.emplace_back();
  value.bytes = std::move(bytes);
  return value;
}

Bytes copy_of(const void* from, size_t size) {
  const auto* begin = static_cast<const std::byte*>(from);
  return Bytes(begin, begin + size);
}

// Launches a function with the values as members of a struct, which `pack` gives when it runs, or now if `at_once`.
template <class Pack>
void launch_packed(std::shared_ptr<Function> function, uint32_t blocks, aclrtStream stream,
                   std::optional<uint64_t> timeout, bool at_once, Pack pack) {
  const KernelEntry& kernel = function->kernel;
  const size_t count = function->count();
  std::vector<AddressArgument> addresses;
  std::shared_ptr<Bytes> packed;
  if (at_once) {
    packed = std::make_shared<Bytes>(pack());
    for (uint32_t i = 0; i < count; ++i) {
      if (kernel.letters[i] != 'p') continue;
      const void* address;
      std::memcpy(&address, packed->data() + kernel.offsets[i], sizeof(address));
      addresses.push_back({address, i});
    }
  }
  const KernelLaunch launch{kernel.name, blocks, stream, kernel.parameters, addresses.data(), addresses.size()};
  const auto code = static_cast<aclError>(launch_kernel(launch, timeout, [function, blocks, packed, pack, count] {
    const KernelEntry& kernel = function->kernel;
    const Bytes bytes = packed != nullptr ? *packed : pack();
    std::vector<const void*> pointers;
    for (size_t i = 0; i < count; ++i) pointers.push_back(bytes.data() + kernel.offsets[i]);
    const AscendC::cpu::Call call{pointers.data(), nullptr, 0, nullptr, 0, blocks, {}};
    char message[4096];
    if (!kernel.call(kernel.name, call, message, sizeof(message))) fail(ACL_ERROR_INTERNAL_ERROR, "%s", message);
  }));
  if (code != ACL_SUCCESS) fail(code, "%s", take_message().c_str());
}

void launch_arguments(const Arguments& arguments, uint32_t blocks, aclrtStream stream,
                      std::optional<uint64_t> timeout) {
  const KernelEntry& kernel = arguments.function->kernel;
  const size_t count = arguments.function->count();
  if (!arguments.is_final) fail(ACL_ERROR_INVALID_PARAM, "the arguments lack aclrtKernelArgsFinalize");
  Bytes packed(kernel.offsets[count]);
  std::vector<Buffer> buffers;
  size_t position = 0;
  for (const Arguments::Value& value : arguments.values) {
    std::byte* place = packed.data() + kernel.offsets[position++];
    if (value.is_placeholder) {
      buffers.push_back(make_buffer(value.pointed_to.data(), value.pointed_to.size()));
      const void* address = buffers.back().get();
      std::memcpy(place, &address, sizeof(address));
    } else {
      std::memcpy(place, value.bytes.data(), value.bytes.size());
    }
  }
  launch_packed(arguments.function, blocks, stream, timeout, true,
                [packed = std::move(packed), buffers] { return packed; });
}

void check_packed_size(const Function& function, const void* data, size_t size) {
  const size_t needed = function.kernel.offsets[function.count()];
  if (needed != 0) require_pointer(data, "argsData");
  if (size < needed) {
    fail(ACL_ERROR_INVALID_PARAM, "argsSize is %zu; the arguments of kernel %s (%s) have %zu bytes", size,
         function.kernel.name, function.kernel.parameters, needed);
  }
}

void launch_data(aclrtFuncHandle handle, uint32_t blocks, const void* data, size_t size, aclrtStream stream,
                 std::optional<uint64_t> timeout) {
  std::shared_ptr<Function> function = find_function(handle);
  check_packed_size(*function, data, size);
  const bool on_device = find_range(data).space == Space::kDevice;  // what lies there is read when it is its turn
  launch_packed(function, blocks, stream, timeout, !on_device, [data, size] { return copy_of(data, size); });
}

void launch_host_arguments(aclrtFuncHandle handle, uint32_t blocks, aclrtStream stream, const void* data, size_t size,
                           const aclrtPlaceHolderInfo* placeholders, size_t count, std::optional<uint64_t> timeout) {
  std::shared_ptr<Function> function = find_function(handle);
  check_packed_size(*function, data, size);
  if (count > 0) require_pointer(placeholders, "placeHolderArray");
  Bytes packed = copy_of(data, size);
  const Buffer buffer = make_buffer(data, std::max<size_t>(size, 1));
  for (size_t i = 0; i < count; ++i) {
    if (placeholders[i].addrOffset + sizeof(void*) > size || placeholders[i].dataOffset >= size) {
      fail(ACL_ERROR_INVALID_PARAM, "placeHolderArray[%zu] points past the end of the arguments, which have %zu bytes",
           i, size);
    }
    const void* address = static_cast<std::byte*>(buffer.get()) + placeholders[i].dataOffset;
    std::memcpy(packed.data() + placeholders[i].addrOffset, &address, sizeof(address));
  }
  launch_packed(function, blocks, stream, timeout, true, [packed = std::move(packed), buffer] { return packed; });
}

void load_data(const void* data, size_t length, aclrtBinHandle* handle) {
  require_pointer(data, "data");
  require_pointer(handle, "binHandle");
  *handle = libraries().add(std::make_shared<Library>("data", data, length));
}

void load_file(const char* path, aclrtBinHandle* handle) {
  require_pointer(path, "binPath");
  require_pointer(handle, "binHandle");
  std::ifstream file(path, std::ios::binary);
  std::string data{std::istreambuf_iterator<char>(file), {}};
  if (!file) fail(ACL_ERROR_INVALID_FILE, "cannot read %s: %s", path, std::strerror(errno));
  *handle = libraries().add(std::make_shared<Library>(path, data.data(), data.size()));
}

void unload(aclrtBinHandle handle) {
  require_pointer(handle, "binHandle");
  const std::shared_ptr<Library> library = libraries().remove(handle);
  const auto is_of_it = [&](const Function& function) { return function.library == library; };
  all_arguments().remove_if([&](const Arguments& arguments) { return is_of_it(*arguments.function); });
  functions().remove_if(is_of_it);
}

aclrtFuncHandle function_of(const std::shared_ptr<Library>& library, const char* name) {
  const KernelEntry kernel = library->entry_of(name);
  const auto known = functions().find_if(
      [&](const Function& f) { return f.library == library && std::strcmp(f.kernel.name, kernel.name) == 0; });
  return known.empty() ? functions().add(std::make_shared<Function>(library, kernel)) : known.front()->handle;
}

void get_function(aclrtBinHandle handle, const char* name, aclrtFuncHandle* function) {
  require_pointer(handle, "binHandle");
  require_pointer(name, "kernelName");
  require_pointer(function, "funcHandle");
  *function = function_of(libraries().find(handle), name);
}

void get_function_by_entry(aclrtBinHandle handle, uint64_t entry, aclrtFuncHandle* function) {
  require_pointer(handle, "binHandle");
  require_pointer(function, "funcHandle");
  const std::shared_ptr<Library> library = libraries().find(handle);
  std::vector<const char*> found;
  std::string all;
  for (const KernelInfo& kernel : library->kernels) {
    if (kernel.entry == entry) found.push_back(kernel.name.c_str());
    all += (all.empty() ? "" : ", ") + kernel.name;
  }
  if (found.size() != 1) {
    fail(ACL_ERROR_KERNEL_NOT_FOUND, "%zu of the library's kernels have the entry %lu: %s", found.size(), entry,
         all.c_str());
  }
  *function = function_of(library, found[0]);
}

const std::vector<std::byte>& find_meta(const Function& function, uint32_t type) {
  const auto& kernels = function.library->kernels;
  const auto kernel = std::ranges::find(kernels, std::string_view(function.kernel.name), &KernelInfo::name);
  if (kernel != kernels.end()) {
    if (const auto found = kernel->meta.find(type); found != kernel->meta.end()) return found->second;
  }
  fail(ACL_ERROR_RT_PARAM_INVALID, "the binary has no meta information of type %u of kernel %s", type,
       function.kernel.name);
}

struct Binary : HasHandle {
  Binary(const void* data, size_t length) : data(data), length(length) {}

  const void* const data;
  const size_t length;
};

Registry<Binary>& binaries() {
  static auto* registry = new Registry<Binary>("binary");
  return *registry;
}

}  // namespace
}  // namespace cann_cpu

using namespace cann_cpu;

aclrtBinary aclrtCreateBinary(const void* data, size_t dataLen) {
  aclrtBinary binary = nullptr;
  host_call(__func__, [&] {
    require_pointer(data, "data");
    binary = binaries().add(std::make_shared<Binary>(data, dataLen));
  });
  return binary;
}

aclError aclrtDestroyBinary(aclrtBinary binary) {
  return host_call(__func__, [&] {
    require_pointer(binary, "binary");
    binaries().remove(binary);
  });
}

aclError aclrtBinaryLoad(const aclrtBinary binary, aclrtBinHandle* binHandle) {
  return call(__func__, [&] {
    require_pointer(binary, "binary");
    const std::shared_ptr<Binary> found = binaries().find(binary);
    load_data(found->data, found->length, binHandle);
  });
}

aclError aclrtBinaryLoadFromFile(const char* binPath, aclrtBinaryLoadOptions* options, aclrtBinHandle* binHandle) {
  return call(__func__, [&] {
    check_load_options(options);
    load_file(binPath, binHandle);
  });
}

aclError aclrtBinaryLoadFromData(const void* data, size_t length, const aclrtBinaryLoadOptions* options,
                                 aclrtBinHandle* binHandle) {
  return call(__func__, [&] {
    check_load_options(options);
    load_data(data, length, binHandle);
  });
}

aclError aclrtBinaryUnLoad(aclrtBinHandle binHandle) {
  return call(__func__, [&] { unload(binHandle); });
}

aclError aclrtBinaryGetFunction(const aclrtBinHandle binHandle, const char* kernelName, aclrtFuncHandle* funcHandle) {
  return call(__func__, [&] { get_function(binHandle, kernelName, funcHandle); });
}

aclError aclrtBinaryGetFunctionByEntry(aclrtBinHandle binHandle, uint64_t funcEntry, aclrtFuncHandle* funcHandle) {
  return call(__func__, [&] { get_function_by_entry(binHandle, funcEntry, funcHandle); });
}

// Functions of libruntime: what the compiler has written of a kernel, such as the kind of its cores (type 1).
extern "C" CANN_EXPORT aclError rtFunctionGetMetaInfoSize(aclrtFuncHandle funcHandle, uint32_t type, size_t* size) {
  return call(__func__, [&] {
    require_pointer(size, "size");
    *size = find_meta(*find_function(funcHandle), type).size();
  });
}

extern "C" CANN_EXPORT aclError rtFunctionGetMetaInfo(aclrtFuncHandle funcHandle, uint32_t type, void* data,
                                                      uint32_t length) {
  return call(__func__, [&] {
    require_pointer(data, "data");
    const std::shared_ptr<Function> function = find_function(funcHandle);
    const std::vector<std::byte>& meta = find_meta(*function, type);
    if (length != meta.size()) {
      fail(ACL_ERROR_RT_PARAM_INVALID, "length is %u; meta information of type %u of kernel %s has %zu bytes", length,
           type, function->kernel.name, meta.size());
    }
    std::memcpy(data, meta.data(), length);
  });
}

aclError aclrtGetFunctionName(aclrtFuncHandle funcHandle, uint32_t maxLen, char* name) {
  return call(__func__, [&] {
    require_pointer(name, "name");
    const std::string text = find_function(funcHandle)->kernel.name;
    if (text.size() >= maxLen) fail(ACL_ERROR_INVALID_PARAM, "maxLen is %u; %zu are needed", maxLen, text.size() + 1);
    std::memcpy(name, text.c_str(), text.size() + 1);
  });
}

aclError aclrtKernelArgsInit(aclrtFuncHandle funcHandle, aclrtArgsHandle* argsHandle) {
  return call(__func__, [&] {
    require_pointer(argsHandle, "argsHandle");
    auto arguments = std::make_shared<Arguments>();
    arguments->function = find_function(funcHandle);
    if (arguments->function->library->loaded == nullptr) {  // how many it takes is not known
      fail(ACL_ERROR_FEATURE_UNSUPPORTED, "%s", cannot_run(arguments->function->kernel.name).c_str());
    }
    list_of_thread.end();
    list_of_thread.latest = arguments;
    *argsHandle = all_arguments().add(std::move(arguments));
  });
}

aclError aclrtKernelArgsAppend(aclrtArgsHandle argsHandle, void* param, size_t paramSize,
                               aclrtParamHandle* paramHandle) {
  return call(__func__, [&] {
    require_pointer(param, "param");
    require_pointer(paramHandle, "paramHandle");
    *paramHandle = append_value(*open_arguments(argsHandle), copy_of(param, paramSize)).handle;
  });
}

aclError aclrtKernelArgsAppendPlaceHolder(aclrtArgsHandle argsHandle, aclrtParamHandle* paramHandle) {
  return call(__func__, [&] {
    require_pointer(paramHandle, "paramHandle");
    Arguments::Value& value = append_value(*open_arguments(argsHandle), Bytes(sizeof(void*)));
    value.is_placeholder = true;
    *paramHandle = value.handle;
  });
}

aclError aclrtKernelArgsGetPlaceHolderBuffer(aclrtArgsHandle argsHandle, aclrtParamHandle paramHandle, size_t dataSize,
                                             void** bufferAddr) {
  return call(__func__, [&] {
    require_pointer(bufferAddr, "bufferAddr");
    const std::shared_ptr<Arguments> arguments = open_arguments(argsHandle);
    Arguments::Value& value = find_value(*arguments, paramHandle);
    if (!value.is_placeholder) fail(ACL_ERROR_INVALID_PARAM, "paramHandle is of no placeholder");
    value.pointed_to.assign(std::max<size_t>(dataSize, 1), std::byte{});
    *bufferAddr = value.pointed_to.data();
  });
}

aclError aclrtKernelArgsParaUpdate(aclrtArgsHandle argsHandle, aclrtParamHandle paramHandle, void* param,
                                   size_t paramSize) {
  return call(__func__, [&] {
    require_pointer(argsHandle, "argsHandle");
    require_pointer(param, "param");
    const std::shared_ptr<Arguments> arguments = all_arguments().find(argsHandle);
    Arguments::Value& value = find_value(*arguments, paramHandle);
    if (value.is_placeholder || paramSize != value.bytes.size()) {
      fail(ACL_ERROR_INVALID_PARAM, "the parameter has %zu bytes%s, not %zu", value.bytes.size(),
           value.is_placeholder ? " and is a placeholder" : "", paramSize);
    }
    value.bytes = copy_of(param, paramSize);
  });
}

aclError aclrtKernelArgsFinalize(aclrtArgsHandle argsHandle) {
  return call(__func__, [&] {
    const std::shared_ptr<Arguments> arguments = open_arguments(argsHandle);
    const Function& function = *arguments->function;
    if (arguments->values.size() != function.count()) {
      fail(ACL_ERROR_INVALID_PARAM, "kernel %s takes %zu arguments (%s), but %zu were appended", function.kernel.name,
           function.count(), function.kernel.parameters, arguments->values.size());
    }
    arguments->is_final = true;
  });
}

aclError aclrtLaunchKernelWithConfig(aclrtFuncHandle funcHandle, uint32_t numBlocks, aclrtStream stream,
                                     aclrtLaunchKernelCfg* cfg, aclrtArgsHandle argsHandle, void* reserve) {
  return call(__func__, [&] {
    if (reserve != nullptr) fail(ACL_ERROR_INVALID_PARAM, "reserve is %p; it is reserved and must be null", reserve);
    require_pointer(argsHandle, "argsHandle");
    const std::shared_ptr<Arguments> arguments = all_arguments().find(argsHandle);
    if (arguments->function != find_function(funcHandle)) {
      fail(ACL_ERROR_INVALID_PARAM, "the arguments are of kernel %s", arguments->function->kernel.name);
    }
    launch_arguments(*arguments, numBlocks, stream, timeout_of(cfg));
  });
}

aclError aclrtLaunchKernel(aclrtFuncHandle funcHandle, uint32_t numBlocks, const void* argsData, size_t argsSize,
                           aclrtStream stream) {
  return call(__func__, [&] { launch_data(funcHandle, numBlocks, argsData, argsSize, stream, {}); });
}

aclError aclrtLaunchKernelV2(aclrtFuncHandle funcHandle, uint32_t numBlocks, const void* argsData, size_t argsSize,
                             aclrtLaunchKernelCfg* cfg, aclrtStream stream) {
  return call(__func__, [&] { launch_data(funcHandle, numBlocks, argsData, argsSize, stream, timeout_of(cfg)); });
}

aclError aclrtLaunchKernelWithHostArgs(aclrtFuncHandle funcHandle, uint32_t numBlocks, aclrtStream stream,
                                       aclrtLaunchKernelCfg* cfg, void* hostArgs, size_t argsSize,
                                       aclrtPlaceHolderInfo* placeHolderArray, size_t placeHolderNum) {
  return call(__func__, [&] {
    launch_host_arguments(funcHandle, numBlocks, stream, hostArgs, argsSize, placeHolderArray, placeHolderNum,
                          timeout_of(cfg));
  });
}

aclError aclrtGetHardwareSyncAddr(void** addr) {
  return call(__func__, [&] {
    require_pointer(addr, "addr");
    static void* const passed_on = new_handle();
    *addr = passed_on;
  });
}
