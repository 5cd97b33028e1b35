# SPDX-License-Identifier: Apache-2.0
# The compiler of the language ASC: the toolkit's own.
get_filename_component(_asc_home "${CMAKE_CURRENT_LIST_DIR}" REALPATH)  # which may be a link to this folder
get_filename_component(_asc_home "${_asc_home}/../../.." ABSOLUTE)
set(CMAKE_ASC_COMPILER "${_asc_home}/bin/bisheng" CACHE FILEPATH "ASC compiler")
set(CMAKE_ASC_COMPILER_ENV_VAR ASC)
set(CMAKE_ASC_COMPILER_ID cann_cpu)
mark_as_advanced(CMAKE_ASC_COMPILER)
include(CMakeFindBinUtils)
configure_file("${CMAKE_CURRENT_LIST_DIR}/CMakeASCCompiler.cmake.in"
  "${CMAKE_PLATFORM_INFO_DIR}/CMakeASCCompiler.cmake" @ONLY)
message(STATUS "The ASC compiler is ${CMAKE_ASC_COMPILER}")
