// SPDX-License-Identifier: Apache-2.0
// Kernels that are templates, and the tiling keys of their instances. A header that op_host/ and op_kernel/ share
// declares the template's parameters (ASCENDC_TPL_ARGS_DECL) and selects the combinations of arguments that are
// compiled (ASCENDC_TPL_SEL). The key has a field for each parameter, the first one's in its lowest bits.
#pragma once

#include "ascendc/template_declaration.h"

#define ASCENDC_CPU_TPL(name, kind, bits, ...)                                        \
  {name, ::AscendC::tpl::Kind::kind, bits, ::AscendC::tpl::Values<__VA_ARGS__>::list, \
   ::AscendC::tpl::Values<__VA_ARGS__>::count}

#define ASCENDC_TPL_DTYPE_DECL(parameter, ...) ASCENDC_CPU_TPL(#parameter, Dtype, 8, __VA_ARGS__)
#define ASCENDC_TPL_DATATYPE_DECL(parameter, ...) ASCENDC_CPU_TPL(#parameter, Type, 8, __VA_ARGS__)
#define ASCENDC_TPL_FORMAT_DECL(parameter, ...) ASCENDC_CPU_TPL(#parameter, Format, 8, __VA_ARGS__)
#define ASCENDC_TPL_UINT_DECL(parameter, bits, ...) ASCENDC_CPU_TPL(#parameter, Uint, bits, __VA_ARGS__)
#define ASCENDC_TPL_BOOL_DECL(parameter, ...) ASCENDC_CPU_TPL(#parameter, Bool, 1, __VA_ARGS__)
#define ASCENDC_TPL_KERNEL_TYPE_DECL(parameter, ...) ASCENDC_CPU_TPL(#parameter, KernelType, 8, __VA_ARGS__)

#define ASCENDC_TPL_DTYPE_SEL(parameter, ...) ASCENDC_CPU_TPL(#parameter, Dtype, 8, __VA_ARGS__)
#define ASCENDC_TPL_DATATYPE_SEL(parameter, ...) ASCENDC_CPU_TPL(#parameter, Type, 8, __VA_ARGS__)
#define ASCENDC_TPL_FORMAT_SEL(parameter, ...) ASCENDC_CPU_TPL(#parameter, Format, 8, __VA_ARGS__)
#define ASCENDC_TPL_UINT_SEL(parameter, ...) ASCENDC_CPU_TPL(#parameter, Uint, 0, __VA_ARGS__)
#define ASCENDC_TPL_BOOL_SEL(parameter, ...) ASCENDC_CPU_TPL(#parameter, Bool, 1, __VA_ARGS__)
#define ASCENDC_TPL_SHARED_KERNEL_TYPE_SEL(parameter, ...) ASCENDC_CPU_TPL(#parameter, KernelType, 8, __VA_ARGS__)
#define ASCENDC_TPL_KERNEL_TYPE_SEL(...) ASCENDC_CPU_TPL("ASCENDC_TPL_KERNEL_TYPE_SEL", OfAll, 0, __VA_ARGS__)
#define ASCENDC_TPL_DETERMINISTIC_SEL(...) \
  ASCENDC_CPU_TPL("ASCENDC_TPL_DETERMINISTIC_SEL", Deterministic, 0, __VA_ARGS__)
#define ASCENDC_TPL_TILING_STRUCT_SEL(...) {#__VA_ARGS__, ::AscendC::tpl::Kind::TilingStruct, 0, nullptr, 0}

#define ASCENDC_TPL_ARGS_DECL(name, ...)                 \
  static constexpr const char* ascendc_tpl_name = #name; \
  static constexpr ::AscendC::tpl::Argument ascendc_tpl_declared[] = {__VA_ARGS__}
#define ASCENDC_TPL_ARGS_SEL(...) \
  {                               \
    {                             \
      __VA_ARGS__                 \
    }                             \
  }
#define ASCENDC_TPL_SEL(...)                                                         \
  static constexpr ::AscendC::tpl::Selection ascendc_tpl_selected[] = {__VA_ARGS__}; \
  static constexpr ::AscendC::tpl::Templates ascendc_templates = {                   \
      ascendc_tpl_name,                                                              \
      ascendc_tpl_declared,                                                          \
      sizeof(ascendc_tpl_declared) / sizeof(ascendc_tpl_declared[0]),                \
      ascendc_tpl_selected,                                                          \
      sizeof(ascendc_tpl_selected) / sizeof(ascendc_tpl_selected[0]),                \
      __FILE__,                                                                      \
      __LINE__} ASCENDC_CPU_TPL_REGISTERED

#ifdef TILING_KEY_IS  // a kernel; the code that is compiled after it reads ascendc_templates
#include "ascendc/template_kernel.h"
#define ASCENDC_CPU_TPL_REGISTERED
#else
#define ASCENDC_CPU_TPL_REGISTERED \
  ;                                \
  static const ::AscendC::tpl::Registration ascendc_tpl_registered(ascendc_templates)

#define GET_TPL_TILING_KEY(...) ::AscendC::tpl::key_of(ascendc_templates, __VA_ARGS__)
#define ASCENDC_TPL_SEL_PARAM(context, ...) (context)->SetTilingKey(GET_TPL_TILING_KEY(__VA_ARGS__))
#endif
