// SPDX-License-Identifier: Apache-2.0
#include "call_site.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "cann_cpu/python_function.h"

namespace cann_cpu {
namespace {

// For who has the GIL to give it away: longer than Python's own threads take, shorter than a user's patience.
constexpr auto kPatience = std::chrono::seconds(2);

struct PyObject;

// The functions of Python's stable interface that this takes, found in the process: programs in C++ have none.
struct Python {
  template <class Function>
  static void find(Function*& function, const char* name) {
    function = python_function<Function>(name);
  }

  Python() {
    find(is_initialized, "Py_IsInitialized");
    find(thread_state, "PyGILState_GetThisThreadState");
    find(ensure, "PyGILState_Ensure");
    find(release, "PyGILState_Release");
    find(has_gil, "PyGILState_Check");
    find(current_frame, "PyThreadState_GetFrame");
    find(back, "PyFrame_GetBack");
    find(line, "PyFrame_GetLineNumber");
    find(code, "PyFrame_GetCode");
    find(attribute, "PyObject_GetAttrString");
    find(size, "PyTuple_Size");
    find(item, "PyTuple_GetItem");
    find(utf8, "PyUnicode_AsUTF8AndSize");
    find(unref, "Py_DecRef");
    find(clear_error, "PyErr_Clear");
    find(disable_collection, "PyGC_Disable");
    find(enable_collection, "PyGC_Enable");
  }

  bool runs() const { return is_initialized != nullptr && is_initialized() != 0; }
  // Null for a thread that is not Python's.
  void* this_thread() const { return runs() ? thread_state() : nullptr; }

  int (*is_initialized)();
  void* (*thread_state)();
  int (*ensure)();
  void (*release)(int);
  int (*has_gil)();
  PyObject* (*current_frame)(void*);
  PyObject* (*back)(PyObject*);
  int (*line)(PyObject*);
  PyObject* (*code)(PyObject*);
  PyObject* (*attribute)(PyObject*, const char*);
  intptr_t (*size)(PyObject*);
  PyObject* (*item)(PyObject*, intptr_t);
  const char* (*utf8)(PyObject*, intptr_t*);
  void (*unref)(PyObject*);
  void (*clear_error)();
  int (*disable_collection)();
  int (*enable_collection)();
};

const Python& python_of_the_process() {
  static const Python python;
  return python;
}

// Whether the file belongs to a library, such as PyTorch, and not to the program.
bool is_librarys(std::string_view file) {
  // typing_extensions.deprecated wraps functions of PyTorch's.
  constexpr std::array kParts = {
      "/torch/",  "/torch_npu/",     "/torchair/", "/numpy/",          "/typing_extensions.py",
      "/ctypes/", "<eval_with_key>", "<frozen ",   "/triton/runtime/", "/cann_cpu/triton/"};
  return std::ranges::any_of(kParts, [&](const char* part) { return file.find(part) != std::string_view::npos; });
}

std::string text_of(const Python& python, PyObject* object, const char* attribute) {
  PyObject* text = python.attribute(object, attribute);
  const char* bytes = text == nullptr ? nullptr : python.utf8(text, nullptr);
  std::string found = bytes == nullptr ? "" : bytes;
  if (text != nullptr) python.unref(text);
  if (bytes == nullptr) python.clear_error();
  return found;
}

// Whether a program calls memory functions through this library.
bool is_a_way(std::string_view file) {
  constexpr std::array kParts = {"/libc.so", "/libstdc++.so", "/libpthread.so", "/ld-linux", "/libtorch_npu.so"};
  return std::ranges::any_of(kParts, [&](const char* part) { return file.find(part) != std::string_view::npos; });
}

// Whether pytest would also leave it out of tracebacks: such functions only forward calls.
bool hides_itself(const Python& python, PyObject* code) {
  PyObject* const names = python.attribute(code, "co_varnames");
  if (names == nullptr) return python.clear_error(), false;
  bool found = false;
  for (intptr_t i = 0; i < python.size(names) && !found; ++i) {
    const char* name = python.utf8(python.item(names, i), nullptr);
    found = name != nullptr && std::string_view(name) == "__tracebackhide__";
  }
  python.unref(names);
  return found;
}

// The functions that were met, and the call sites in them: making a text takes longer than all else.
class CallSites {
 public:
  struct Function {
    std::string file;
    std::string name;
    bool is_passed;                         // on the way to the user's
    std::map<int, std::string> call_sites;  // by line
  };

  // Keeps a reference to the code, so that its address stays its own.
  Function& function(const Python& python, PyObject* code) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = functions_.find(code);
      if (found != functions_.end()) {
        python.unref(code);
        return found->second;
      }
    }
    std::string file = text_of(python, code, "co_filename");
    const bool is_passed = is_librarys(file) || hides_itself(python, code);
    Function function{std::move(file), text_of(python, code, "co_name"), is_passed, {}};
    const std::lock_guard lock(mutex_);
    return functions_.try_emplace(code, std::move(function)).first->second;
  }

  const std::string& call_site(Function& function, int line) {
    const std::lock_guard lock(mutex_);
    std::string& text = function.call_sites[line];
    if (text.empty()) text = function.file + ":" + std::to_string(line) + " in " + function.name;
    return text;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<PyObject*, Function> functions_;
};

const std::string& nowhere() {
  static const auto* const none = new std::string;
  return *none;
}

// Where a thread of Python's is, which stays there meanwhile; the caller has the GIL. Nothing of the program's runs
// meanwhile: no garbage is collected.
const std::string& call_site_of(const Python& python, void* thread) {
  static auto* const call_sites = new CallSites;
  const int has_collected = python.disable_collection();
  const std::string* innermost = nullptr;
  const std::string* site = nullptr;
  PyObject* frame = python.current_frame(thread);
  while (frame != nullptr && site == nullptr) {
    CallSites::Function& function = call_sites->function(python, python.code(frame));
    if (!function.is_passed || innermost == nullptr) {
      (function.is_passed ? innermost : site) = &call_sites->call_site(function, python.line(frame));
    }
    PyObject* const outer = python.back(frame);
    python.unref(frame);
    frame = outer;
  }
  if (frame != nullptr) python.unref(frame);
  if (has_collected != 0) python.enable_collection();
  if (site == nullptr) site = innermost;
  return site == nullptr ? nowhere() : *site;
}

}  // namespace

std::string native_call_site() {
  Dl_info own{};
  dladdr(reinterpret_cast<const void*>(&native_call_site), &own);
  std::array<void*, 32> frames;
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  for (int i = 0; i < count; ++i) {
    Dl_info found{};
    if (dladdr(frames[i], &found) == 0 || found.dli_fname == nullptr) continue;
    if (found.dli_fbase == own.dli_fbase || is_a_way(found.dli_fname)) continue;
    const auto address = reinterpret_cast<uintptr_t>(frames[i]);
    char offset[64];
    std::snprintf(offset, sizeof(offset), "+0x%zx", address - reinterpret_cast<uintptr_t>(found.dli_fbase));
    const std::string file = found.dli_fname + std::string(offset);
    if (found.dli_sname == nullptr) return file;
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, nullptr), std::free);
    return file + " in " + (name ? name.get() : found.dli_sname);
  }
  return "";
}

bool is_within(std::string_view symbol) {
  std::array<void*, 64> frames;
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  return std::any_of(frames.begin(), frames.begin() + count, [=](const void* frame) {
    Dl_info found{};
    return dladdr(frame, &found) != 0 && found.dli_sname != nullptr &&
           std::string_view(found.dli_sname).starts_with(symbol);
  });
}

std::string call_site() { return python_of_the_process().runs() ? python_call_site() : native_call_site(); }

std::string call_site_nonblocking() {
  return python_of_the_process().runs() ? python_call_site_nonblocking() : native_call_site();
}

const std::string& python_call_site() {
  const Python& python = python_of_the_process();
  void* const thread = python.this_thread();
  if (thread == nullptr) return nowhere();
  const int state = python.ensure();
  const std::string& site = call_site_of(python, thread);
  python.release(state);
  return site;
}

const std::string& python_call_site_nonblocking() {
  const Python& python = python_of_the_process();
  void* const thread = python.this_thread();
  if (thread == nullptr) return nowhere();
  if (python.has_gil() != 0) return call_site_of(python, thread);

  struct Question {
    std::mutex mutex;
    std::condition_variable is_answered;
    const std::string* answer = nullptr;
    bool is_taken_back = false;
  };
  const auto question = std::make_shared<Question>();
  std::thread([&python, thread, question] {
    const int state = python.ensure();
    {
      const std::lock_guard lock(question->mutex);
      if (!question->is_taken_back) question->answer = &call_site_of(python, thread);
      question->is_answered.notify_one();
    }
    python.release(state);
  }).detach();
  std::unique_lock lock(question->mutex);
  question->is_answered.wait_for(lock, kPatience, [&] { return question->answer != nullptr; });
  question->is_taken_back = true;
  return question->answer == nullptr ? nowhere() : *question->answer;
}

bool has_gil() {
  const Python& python = python_of_the_process();
  return python.this_thread() != nullptr && python.has_gil() != 0;
}

}  // namespace cann_cpu
