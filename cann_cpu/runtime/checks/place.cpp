// SPDX-License-Identifier: Apache-2.0
#include "place.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
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
    find(current_frame, "PyThreadState_GetFrame");
    find(back, "PyFrame_GetBack");
    find(line, "PyFrame_GetLineNumber");
    find(code, "PyFrame_GetCode");
    find(attribute, "PyObject_GetAttrString");
    find(utf8, "PyUnicode_AsUTF8AndSize");
    find(unref, "Py_DecRef");
    find(clear_error, "PyErr_Clear");
  }

  int (*is_initialized)();
  void* (*thread_state)();
  int (*ensure)();
  void (*release)(int);
  PyObject* (*current_frame)(void*);
  PyObject* (*back)(PyObject*);
  int (*line)(PyObject*);
  PyObject* (*code)(PyObject*);
  PyObject* (*attribute)(PyObject*, const char*);
  const char* (*utf8)(PyObject*, intptr_t*);
  void (*unref)(PyObject*);
  void (*clear_error)();
};

bool is_pytorchs(std::string_view file) {
  constexpr std::array kParts = {"/torch/", "/torch_npu/", "/torchair/", "<eval_with_key>", "<frozen "};
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

}  // namespace

std::string python_place() {
  static const Python python;
  if (python.is_initialized == nullptr || python.is_initialized() == 0) return "";
  void* const thread = python.thread_state();
  if (thread == nullptr) return "";  // not a thread of Python's
  const int state = python.ensure();
  std::string innermost, place;
  PyObject* frame = python.current_frame(thread);
  while (frame != nullptr && place.empty()) {
    PyObject* code = python.code(frame);
    const std::string file = text_of(python, code, "co_filename");
    const bool is_users = !is_pytorchs(file);
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

}  // namespace cann_cpu
