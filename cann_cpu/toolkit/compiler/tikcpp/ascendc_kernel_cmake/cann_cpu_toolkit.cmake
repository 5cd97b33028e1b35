# SPDX-License-Identifier: Apache-2.0
# What the packages of the toolkit share: where it is, what programs link, the SoCs that are served.
get_filename_component(CANN_CPU_HOME "${CMAKE_CURRENT_LIST_DIR}/../../.." REALPATH)

# Projects install by these names without including GNUInstallDirs.
if(NOT DEFINED CMAKE_INSTALL_LIBDIR)
  set(CMAKE_INSTALL_LIBDIR lib)
endif()
if(NOT DEFINED CMAKE_INSTALL_BINDIR)
  set(CMAKE_INSTALL_BINDIR bin)
endif()

# cann_cpu_check_soc(): ends the configuration if the project is built for a SoC that is not served.
function(cann_cpu_check_soc)
  string(TOLOWER "${SOC_VERSION}" soc)
  if(soc AND NOT soc MATCHES "^ascend910(b|_93)")
    message(FATAL_ERROR
      "SOC_VERSION is ${SOC_VERSION}; cann_cpu serves Ascend910B1 to Ascend910B4 and Ascend910_93xx (Atlas A2 and A3)")
  endif()
endfunction()

# cann_cpu_host(target): what a program needs that is compiled with g++ and calls ACL.
function(cann_cpu_host target)
  target_include_directories(${target} SYSTEM INTERFACE "${CANN_CPU_HOME}/include")
  target_link_directories(${target} INTERFACE "${CANN_CPU_HOME}/lib64")
  target_link_libraries(${target} INTERFACE
    "${CANN_CPU_HOME}/lib64/libascendc_cpu.so" "${CANN_CPU_HOME}/lib64/libascendcl.so")
  # Projects ask for the old std::string, which torch's libraries and these no longer have.
  target_compile_options(${target} INTERFACE -U_GLIBCXX_USE_CXX11_ABI)
endfunction()
