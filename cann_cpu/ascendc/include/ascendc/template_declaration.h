// SPDX-License-Identifier: Apache-2.0
// A kernel template as a header declares it: its parameters, their values, and the combinations that are selected.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cann_cpu/export.h"

// Native dtypes, by the numbers of ge::DataType.
enum AscendCTemplateType : uint64_t {
  C_DT_FLOAT = 0,
  C_DT_FLOAT16 = 1,
  C_DT_INT8 = 2,
  C_DT_INT32 = 3,
  C_DT_UINT8 = 4,
  C_DT_INT16 = 6,
  C_DT_UINT16 = 7,
  C_DT_UINT32 = 8,
  C_DT_INT64 = 9,
  C_DT_UINT64 = 10,
  C_DT_DOUBLE = 11,
  C_DT_BOOL = 12,
  C_DT_BF16 = 27,
  C_DT_INT4 = 29
};

// Formats, by those of ge::Format.
enum AscendCTemplateFormat : uint64_t {
  C_FORMAT_NCHW = 0,
  C_FORMAT_NHWC = 1,
  C_FORMAT_ND = 2,
  C_FORMAT_NC1HWC0 = 3,
  C_FORMAT_FRACTAL_Z = 4,
  C_FORMAT_HWCN = 16,
  C_FORMAT_NDHWC = 27,
  C_FORMAT_FRACTAL_NZ = 29,
  C_FORMAT_NCDHW = 30,
  C_FORMAT_NDC1HWC0 = 32,
  C_FORMAT_FRACTAL_Z_3D = 33
};

// Which cores an instance runs on.
enum AscendCTemplateKernelType : uint64_t {
  ASCENDC_TPL_AIV_ONLY,
  ASCENDC_TPL_MIX_AIV_1_0,
  ASCENDC_TPL_AIC_ONLY,
  ASCENDC_TPL_MIX_AIC_1_0,
  ASCENDC_TPL_MIX_AIC_1_1,
  ASCENDC_TPL_MIX_AIC_1_2
};

#define ASCENDC_TPL_1_BW 1
#define ASCENDC_TPL_2_BW 2
#define ASCENDC_TPL_4_BW 4
#define ASCENDC_TPL_8_BW 8

// How the values of a UINT are written: "n, first, last, ..." n times, one by one, or the one and then the other.
#define ASCENDC_TPL_UI_RANGE 0
#define ASCENDC_TPL_UI_LIST 1
#define ASCENDC_TPL_UI_MIX 2

// Among the values of a native dtype: that of an input or output. They save CANN the instances of other dtypes.
#define ASCENDC_TPL_INPUT(position) (AscendC::tpl::kOfTensor + (position))
#define ASCENDC_TPL_OUTPUT(position) (AscendC::tpl::kOfTensor + 1000 + (position))

namespace AscendC {
namespace tpl {

constexpr uint64_t kOfTensor = uint64_t{1} << 32;
constexpr size_t kMostArguments = 48;

enum class Kind { Dtype, Type, Format, Uint, Bool, KernelType, OfAll, Deterministic, TilingStruct };

// A parameter with the values that it may have, or the values of one that are selected.
struct Argument {
  const char* name;
  Kind kind;
  uint32_t bits;
  const uint64_t* values;
  size_t count;
};

struct Selection {
  Argument arguments[kMostArguments];  // up to one without a name
};

struct Templates {
  const char* name;
  const Argument* declared;
  size_t declared_count;
  const Selection* selected;
  size_t selected_count;
  const char* file;
  int line;
};

template <uint64_t... value>
struct Values {
  static constexpr uint64_t list[sizeof...(value) + 1] = {value..., 0};
  static constexpr size_t count = sizeof...(value);
};
template <uint64_t... value>
constexpr uint64_t Values<value...>::list[sizeof...(value) + 1];

// ---- the host

// The key of a combination. What is not selected fails the tiling of the call, by name.
CANN_EXPORT uint64_t tiling_key(const Templates& templates, const uint64_t* values, size_t count);

template <class... Value>
uint64_t key_of(const Templates& templates, Value... value) {
  const uint64_t values[] = {static_cast<uint64_t>(value)..., 0};
  return tiling_key(templates, values, sizeof...(value));
}

// Checks what a header declares and selects, when the library is loaded.
struct CANN_EXPORT Registration {
  explicit Registration(const Templates& templates);
};

}  // namespace tpl
}  // namespace AscendC
