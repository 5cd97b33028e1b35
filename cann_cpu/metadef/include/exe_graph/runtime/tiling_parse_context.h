// SPDX-License-Identifier: Apache-2.0
// gert::TilingParseContext: fills what GetCompileInfo of a tiling function gives.
#pragma once

#include "exe_graph/runtime/tiling_context.h"

namespace gert {

class CANN_EXPORT TilingParseContext : public ExtendedKernelContext {
 public:
  using ExtendedKernelContext::ExtendedKernelContext;

  template <class T>
  T* GetCompiledInfo() {
    return static_cast<T*>(CompileInfo());
  }
  fe::PlatFormInfos* GetPlatformInfo() const;

 private:
  void* CompileInfo();
};

}  // namespace gert
