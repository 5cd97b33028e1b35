# SPDX-License-Identifier: Apache-2.0
# What CMakePresets.json sets, for a build without it.
set(vendor_name customize CACHE STRING "whose operators they are: the package is vendors/<vendor_name>")
set(ASCEND_CANN_PACKAGE_PATH "$ENV{ASCEND_HOME_PATH}" CACHE PATH "the CANN to build against")
set(ASCEND_COMPUTE_UNIT ascend910b CACHE STRING "the SoCs whose kernels are compiled")
set(ASCEND_AUTOGEN_PATH "${CMAKE_BINARY_DIR}/autogen" CACHE PATH "where CANN writes what follows from the definitions")
option(ENABLE_SOURCE_PACKAGE "the package has the kernels' sources" ON)
option(ENABLE_BINARY_PACKAGE "the package has compiled kernels" ON)
option(ASCEND_PACK_SHARED_LIBRARY "libraries in place of an installer" OFF)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
