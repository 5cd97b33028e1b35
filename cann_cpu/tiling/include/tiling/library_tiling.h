// SPDX-License-Identifier: Apache-2.0
// The structs of the libraries' tilings as a host fills them and copies them to where the kernel reads them.
#pragma once

#include <stddef.h>
#include <string.h>

#include "ascendc/tiling_structs.h"

namespace optiling {

// A struct of a tiling, which a host copies to where the kernel reads it.
template <class Struct>
class LibraryTiling : public Struct {
 public:
  size_t GetDataSize() const { return sizeof(Struct); }
  // Nothing is written if the buffer is too small.
  void SaveToBuffer(void* buffer, size_t size) const {
    if (size >= sizeof(Struct)) memcpy(buffer, static_cast<const Struct*>(this), sizeof(Struct));
  }
};

typedef LibraryTiling<::LayerNormTiling> LayerNormTiling;
typedef LibraryTiling<::LogSoftMaxTiling> LogSoftMaxTiling;
typedef LibraryTiling<::Mc2CcTiling> Mc2CcTiling;
typedef LibraryTiling<::Mc2InitTiling> Mc2InitTiling;
typedef LibraryTiling<::PadTiling> PadTiling;
typedef LibraryTiling<::RmsNormTiling> RmsNormTiling;
typedef LibraryTiling<::SoftMaxTiling> SoftMaxTiling;
typedef LibraryTiling<::TopkTiling> TopkTiling;
typedef LibraryTiling<::UnPadTiling> UnPadTiling;

}  // namespace optiling

namespace AscendC {
namespace tiling {
using ::LayerNormTiling;
using ::LogSoftMaxTiling;
using ::PadTiling;
using ::RmsNormTiling;
using ::SoftMaxTiling;
using ::TopkTiling;
using ::UnPadTiling;
}  // namespace tiling
}  // namespace AscendC
