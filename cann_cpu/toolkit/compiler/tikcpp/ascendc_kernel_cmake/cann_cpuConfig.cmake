# SPDX-License-Identifier: Apache-2.0
# find_package(cann_cpu) is found where kernels run on the CPU, and gives, for operator packages:
#
#   cann_cpu_kernels(TARGET files...)
#
# A library of CPU kernels, CPU_KERNEL(Type, ...) of cann_cpu/op.h, of operators that have none in Ascend C.
# npu_op_package_add(PACKAGE LIBRARY TARGET) puts it into the package.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/cann_cpu_toolkit.cmake")
get_filename_component(CANN_CPU_TORCH "${CANN_CPU_HOME}/../torch" REALPATH)

function(cann_cpu_kernels target)
  add_library(${target} SHARED ${ARGN})
  target_include_directories(${target} SYSTEM PRIVATE "${CANN_CPU_HOME}/include" "${CANN_CPU_TORCH}/include")
  target_link_directories(${target} PRIVATE "${CANN_CPU_HOME}/lib64" "${CANN_CPU_TORCH}/lib")
  target_link_libraries(${target} PRIVATE nnopbase ascendcl torch_cpu c10)
  target_link_options(${target} PRIVATE -Wl,-z,defs -Wl,--as-needed)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME cust_cpu_kernels NPU_OP_FOLDER op_impl/cann_cpu CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON
    CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()
