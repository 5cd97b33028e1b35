// SPDX-License-Identifier: Apache-2.0
// The Python module: the functions of C++ that the package's Python code calls.
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <tuple>
#include <vector>

#include "arguments/recording.h"
#include "ops_common.h"
#include "ops_function.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("add_custom", &custom_pypto::add_custom, pybind11::arg("self"), pybind11::arg("other"),
        pybind11::call_guard<pybind11::gil_scoped_release>());
  m.def("library_of", &custom_pypto::library_of, pybind11::arg("aclnn_name"), pybind11::arg("package"));
  m.def(
      "checked",
      [](const pybind11::object& call) {
        const custom_pypto::Recording recording;
        call();
        std::vector<std::tuple<std::string, std::string, std::vector<std::string>, std::vector<std::string>>> found;
        for (const custom_pypto::Recorded& each : recording.arguments()) {
          found.emplace_back(each.argument, each.use, each.dtypes, each.names);
        }
        return found;
      },
      pybind11::arg("call"));
}
