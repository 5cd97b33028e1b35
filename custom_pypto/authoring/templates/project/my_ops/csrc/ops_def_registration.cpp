// The schemas of all operators, and the Python module.
#include <Python.h>

#include "registration.h"

namespace {

using custom_pypto::define;

TORCH_LIBRARY(my_ops, m) {
  // Every operator but for its kernels: what it takes, what it gives, what it writes to.
  define(m, "softcap(Tensor x, *, float cap=30.0) -> Tensor");
}

}  // namespace

// The library is a module without functions: importing it registers the operators.
PyMODINIT_FUNC PyInit_my_ops_lib() {
  static PyModuleDef module{
      PyModuleDef_HEAD_INIT, "my_ops_lib", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&module);
}
