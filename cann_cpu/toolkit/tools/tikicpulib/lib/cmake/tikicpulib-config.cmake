# SPDX-License-Identifier: Apache-2.0
# find_package(tikicpulib): kernels in a program of the host, run mode cpu. A library or program that links
# tikicpulib::Ascend910B1, or another SoC, includes kernel_operator.h and tikicpulib.h, and calls kernels by ICPU_RUN_KF.
include("${CMAKE_CURRENT_LIST_DIR}/../../../../compiler/tikcpp/ascendc_kernel_cmake/cann_cpu_toolkit.cmake")
cann_cpu_check_soc()

set(_socs 910B 910B1 910B2 910B2C 910B3 910B4 910B4-1 910_9362 910_9372 910_9381 910_9382 910_9391 910_9392)
list(TRANSFORM _socs PREPEND Ascend)
list(APPEND _socs ${SOC_VERSION})
list(REMOVE_DUPLICATES _socs)
foreach(_soc IN LISTS _socs)
  if(NOT TARGET tikicpulib::${_soc})
    add_library(tikicpulib::${_soc} INTERFACE IMPORTED)
    cann_cpu_host(tikicpulib::${_soc})
    # Behind the project's own -std=c++17: the headers need C++20.
    target_compile_options(tikicpulib::${_soc} INTERFACE -std=gnu++20 -ffp-contract=off)
    target_compile_definitions(tikicpulib::${_soc} INTERFACE ASCENDC_CPU_DEBUG=1 __CCE_KT_TEST__=1)
  endif()
endforeach()
unset(_socs)
unset(_soc)
