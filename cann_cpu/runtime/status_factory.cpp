// SPDX-License-Identifier: Apache-2.0
// The texts of GE's status codes, for programs with the string ABI of before C++11: CMake compiles this file so. They
// need not be linked with libge_runner, as modules of MindSpore's CustomOpBuilder are not.
#include <cstdint>
#include <map>
#include <string>

#include "cann_cpu/export.h"

static_assert(_GLIBCXX_USE_CXX11_ABI == 0, "this file needs -D_GLIBCXX_USE_CXX11_ABI=0");

namespace ge {

// Programs read and write the map themselves, by inline functions of CANN's headers.
class CANN_EXPORT StatusFactory {
 public:
  static StatusFactory* Instance();

 private:
  std::map<uint32_t, std::string> texts_;
};

StatusFactory* StatusFactory::Instance() {
  static auto* const instance = new StatusFactory;
  return instance;
}

}  // namespace ge
