# SPDX-License-Identifier: Apache-2.0
# Shared by the packages of the toolkit: its folder, the libraries that programs link, the supported SoCs.
get_filename_component(CANN_CPU_HOME "${CMAKE_CURRENT_LIST_DIR}" REALPATH)  # which may be a link to this folder
get_filename_component(CANN_CPU_HOME "${CANN_CPU_HOME}/../../.." ABSOLUTE)

# Projects install by these names without including GNUInstallDirs.
if(NOT DEFINED CMAKE_INSTALL_LIBDIR)
  set(CMAKE_INSTALL_LIBDIR lib)
endif()
if(NOT DEFINED CMAKE_INSTALL_BINDIR)
  set(CMAKE_INSTALL_BINDIR bin)
endif()

# cann_cpu_npu_arch(ARCH SOC): the architecture of a SoC, or of a series as Ascend310B; ends the configuration for one
# that is not served.
function(cann_cpu_npu_arch result soc)
  string(TOLOWER "${soc}" wanted)
  file(GLOB chips "${CANN_CPU_HOME}/data/platform_config/*.ini")
  set(names)
  foreach(chip IN LISTS chips)
    file(STRINGS "${chip}" found REGEX "^(SoC_version|Short_SoC_version|NpuArch)=")
    list(TRANSFORM found REPLACE "^.*=" "")
    list(POP_FRONT found name series architecture)
    list(APPEND names ${name})
    string(TOLOWER "${name};${series}" known)
    if(wanted IN_LIST known)
      set(${result} ${architecture} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  list(JOIN names " " names)
  message(FATAL_ERROR "SOC_VERSION is ${soc}; cann_cpu serves ${names}")
endfunction()

# The option of kernels for SOC_VERSION.
set(CANN_CPU_NPU_ARCH)
if(SOC_VERSION)
  cann_cpu_npu_arch(CANN_CPU_NPU_ARCH "${SOC_VERSION}")
endif()

# cann_cpu_host(target): what a program needs that is compiled with g++ and calls ACL.
function(cann_cpu_host target)
  target_include_directories(${target} SYSTEM INTERFACE "${CANN_CPU_HOME}/include")
  target_link_directories(${target} INTERFACE "${CANN_CPU_HOME}/lib64")
  target_link_libraries(${target} INTERFACE
    "${CANN_CPU_HOME}/lib64/libascendc_cpu.so" "${CANN_CPU_HOME}/lib64/libascendcl.so")
  # Projects ask for the old std::string, which torch's libraries and these no longer have.
  target_compile_options(${target} INTERFACE -U_GLIBCXX_USE_CXX11_ABI)
endfunction()
