// SPDX-License-Identifier: Apache-2.0
// Says what the kernels use on this machine, for tests and reports.
#include <string>

#include "cann_cpu/cpu_capability.h"
#include "cpu/matmul.h"

namespace opp {
namespace {

template <class Element>
const char* products() {
  return with_products<Element>([]<class Multiply>() {
    if (std::is_same_v<Multiply, FloatProducts>) return "float";
    if (Multiply::kLayout == Layout::kTiles) return "tiles";
    return Multiply::kGroup > 1 ? "vnni" : "rows";
  });
}

}  // namespace
}  // namespace opp

// The level of vector instructions, and how matrices of each type are multiplied: by "tiles", "vnni", "rows" or
// "float".
extern "C" [[gnu::visibility("default")]] const char* custom_pypto_machine() {
  static const std::string text = std::string(cann_cpu::name_of(cann_cpu::cpu_capability())) + ", float16 " +
                                  opp::products<at::Half>() + ", bfloat16 " + opp::products<at::BFloat16>() +
                                  ", int8 " + opp::products<int8_t>();
  return text.c_str();
}
