# SPDX-License-Identifier: Apache-2.0
# find_package(ASC): the language ASC, for project(... LANGUAGES ASC CXX) or enable_language(ASC) after it, and functions
# for operator packages.
include("${CMAKE_CURRENT_LIST_DIR}/cann_cpu_toolkit.cmake")
if(NOT CMAKE_CURRENT_LIST_DIR IN_LIST CMAKE_MODULE_PATH)
  list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")
endif()
include("${CMAKE_CURRENT_LIST_DIR}/npu_op.cmake" OPTIONAL)
