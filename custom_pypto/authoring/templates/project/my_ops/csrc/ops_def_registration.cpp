// The schemas of all operators, and the Python module.
#include <pybind11/pybind11.h>

#include "registration.h"

namespace {

using custom_pypto::define;

TORCH_LIBRARY(my_ops, m) {
  // Every operator but for its kernels: what it takes, what it gives, what it writes to.
  define(m, "softcap(Tensor x, *, float cap=30.0) -> Tensor");
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "The operators of my_ops: they are registered when this is imported.";
}
