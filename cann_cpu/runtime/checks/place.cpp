// SPDX-License-Identifier: Apache-2.0
#include "place.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace cann_cpu {
namespace {

struct PyObject;

// The functions of Python's stable interface that this takes, found in the process: programs in C++ have none.
struct Python {
  template <class Function>
  static void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  }

  Python() {
    find(is_initialized, "Py_IsInitialized");
    find(thread_state, "PyGILState_GetThisThreadState");
    find(ensure, "PyGILState_Ensure");
    find(release, "PyGILState_Release");
    find(has_gil, "PyGILState_Check");
    find(save_thread, "PyEval_SaveThread");
    find(restore_thread, "PyEval_RestoreThread");
    find(current_frame, "PyThreadState_GetFrame");
    find(back, "PyFrame_GetBack");
    find(line, "PyFrame_GetLineNumber");
    find(code, "PyFrame_GetCode");
    find(attribute, "PyObject_GetAttrString");
    find(utf8, "PyUnicode_AsUTF8AndSize");
    find(unref, "Py_DecRef");
    find(clear_error, "PyErr_Clear");
  }

  bool runs() const { return is_initialized != nullptr && is_initialized() != 0; }

  int (*is_initialized)();
  void* (*thread_state)();
  int (*ensure)();
  void (*release)(int);
  int (*has_gil)();
  void* (*save_thread)();
  void (*restore_thread)(void*);
  PyObject* (*current_frame)(void*);
  PyObject* (*back)(PyObject*);
  int (*line)(PyObject*);
  PyObject* (*code)(PyObject*);
  PyObject* (*attribute)(PyObject*, const char*);
  const char* (*utf8)(PyObject*, intptr_t*);
  void (*unref)(PyObject*);
  void (*clear_error)();
};

const Python& python_of_the_process() {
  static const Python python;
  return python;
}

// Of code that programs are made with, PyTorch's above all.
bool is_librarys(std::string_view file) {
  constexpr std::array kParts = {"/torch/",  "/torch_npu/",     "/torchair/", "/numpy/",
                                 "/ctypes/", "<eval_with_key>", "<frozen "};
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

// Libraries that a program calls memory by way of.
bool is_a_way(std::string_view file) {
  constexpr std::array kParts = {"/libc.so", "/libstdc++.so", "/libpthread.so", "/ld-linux", "/libtorch_npu.so"};
  return std::ranges::any_of(kParts, [&](const char* part) { return file.find(part) != std::string_view::npos; });
}

}  // namespace

std::string native_place() {
  Dl_info own{};
  dladdr(reinterpret_cast<const void*>(&native_place), &own);
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

std::string place() { return python_of_the_process().runs() ? python_place() : native_place(); }

std::string python_place() {
  const Python& python = python_of_the_process();
  if (!python.runs()) return "";
  void* const thread = python.thread_state();
  if (thread == nullptr) return "";  // not a thread of Python's
  const int state = python.ensure();
  std::string innermost, place;
  PyObject* frame = python.current_frame(thread);
  while (frame != nullptr && place.empty()) {
    PyObject* code = python.code(frame);
    const std::string file = text_of(python, code, "co_filename");
    const bool is_users = !is_librarys(file);
    if (is_users || innermost.empty()) {
      (is_users ? place : innermost) =
          file + ":" + std::to_string(python.line(frame)) + " in " + text_of(python, code, "co_name");
    }
    python.unref(code);
    PyObject* const outer = python.back(frame);
    python.unref(frame);
    frame = outer;
  }
  if (frame != nullptr) python.unref(frame);
  python.release(state);
  return place.empty() ? innermost : place;
}

WithoutGil::WithoutGil() {
  const Python& python = python_of_the_process();
  if (python.runs() && python.thread_state() != nullptr && python.has_gil() != 0) thread_ = python.save_thread();
}

WithoutGil::~WithoutGil() {
  if (thread_ != nullptr) python_of_the_process().restore_thread(thread_);
}

}  // namespace cann_cpu
