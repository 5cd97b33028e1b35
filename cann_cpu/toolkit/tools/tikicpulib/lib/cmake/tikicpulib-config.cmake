# SPDX-License-Identifier: Apache-2.0
# find_package(tikicpulib): kernels in a program of the host, run mode cpu. A library or program that links
# tikicpulib::Ascend910B1, or another SoC, includes kernel_operator.h and tikicpulib.h, and calls kernels by ICPU_RUN_KF.
include("${CMAKE_CURRENT_LIST_DIR}/../../../../compiler/tikcpp/ascendc_kernel_cmake/cann_cpu_toolkit.cmake")
file(GLOB _socs "${CANN_CPU_HOME}/data/platform_config/*.ini")
list(TRANSFORM _socs REPLACE "^.*/(.*)\\.ini$" "\\1")
list(APPEND _socs Ascend910B)
list(APPEND _socs ${SOC_VERSION})
list(REMOVE_DUPLICATES _socs)
foreach(_soc IN LISTS _socs)
  # Projects of CANN 7 write ascend910B1, and ascend910 and ascend310p for the first of theirs.
  string(REGEX REPLACE "^Ascend" "ascend" _early ${_soc})
  if(_soc STREQUAL Ascend910A)
    list(APPEND _early ascend910)
  elseif(_soc STREQUAL Ascend310P3)
    list(APPEND _early ascend310p)
  endif()
  foreach(_name IN LISTS _soc _early)
    if(NOT TARGET tikicpulib::${_name})
      add_library(tikicpulib::${_name} INTERFACE IMPORTED GLOBAL)
      cann_cpu_host(tikicpulib::${_name})
      # Behind the project's own -std=c++17: the headers need C++20.
      target_compile_options(tikicpulib::${_name} INTERFACE -std=gnu++20 -ffp-contract=off)
      cann_cpu_npu_arch(_architecture ${_soc})
      target_compile_definitions(tikicpulib::${_name} INTERFACE ASCENDC_CPU_DEBUG=1 __CCE_KT_TEST__=1
        __NPU_ARCH__=${_architecture})
    endif()
  endforeach()
endforeach()
unset(_socs)
unset(_soc)
unset(_early)
unset(_name)
unset(_architecture)
