# SPDX-License-Identifier: Apache-2.0
# Libraries of kernels that host programs launch. Include this file after project().
#
#   ascendc_library(NAME SHARED|STATIC|OBJECT files...)      aclrtlaunch_X.h of each kernel is on its include path
#   ascendc_fatbin_library(NAME files...)                     installs fatbin/NAME/NAME.o for aclrtBinaryLoadFromFile
#   ascendc_include_directories, ascendc_compile_definitions, ascendc_compile_options(NAME [PRIVATE|...] items...)
#
# The files are of the language ASC, whatever their names end with. A STATIC library is put into ${CMAKE_BINARY_DIR}/lib.
# A target that links such a library, or host_intf_pub, also links ACL.
cmake_policy(PUSH)
cmake_policy(VERSION 3.16...3.25)

include("${CMAKE_CURRENT_LIST_DIR}/cann_cpu_toolkit.cmake")
if(NOT CMAKE_CURRENT_LIST_DIR IN_LIST CMAKE_MODULE_PATH)
  list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")
endif()
enable_language(ASC)

if(NOT TARGET host_intf_pub)
  add_library(host_intf_pub INTERFACE)
  cann_cpu_host(host_intf_pub)
endif()

# The files of a target, compiled as kernels.
function(_ascendc_add_library target type)
  add_library(${target} ${type} ${ARGN})
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE ASC)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
    ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
  # A debug build concerns the host. The device's code is optimized in it as well.
  target_compile_options(${target} PRIVATE $<$<NOT:$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>:-O2>)
  if(CANN_CPU_NPU_ARCH)
    ascendc_compile_options(${target} PRIVATE --npu-arch=dav-${CANN_CPU_NPU_ARCH})
  endif()
  target_link_libraries(${target} PUBLIC host_intf_pub)
endfunction()

function(ascendc_library target type)
  if(NOT type MATCHES "^(SHARED|STATIC|OBJECT)$")
    message(FATAL_ERROR "ascendc_library(${target} ${type} ...): the type must be SHARED, STATIC or OBJECT")
  endif()
  _ascendc_add_library(${target} ${type} ${ARGN})

  # Before what includes them is compiled, which need not wait for the kernels.
  set(folder "${CMAKE_BINARY_DIR}/include/${target}")
  set(stamp "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.launch_headers")
  set(definitions "$<FILTER:$<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>,EXCLUDE,^$>")
  set(includes "$<FILTER:$<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>,EXCLUDE,^$>")
  set(sources "")
  foreach(source IN LISTS ARGN)
    get_filename_component(source "${source}" ABSOLUTE)
    list(APPEND sources "${source}")
  endforeach()
  add_custom_command(
    OUTPUT "${stamp}"
    COMMAND "${CMAKE_ASC_COMPILER}" "--launch-headers=${folder}"
            "$<$<BOOL:${definitions}>:-D$<JOIN:${definitions},;-D>>" "$<$<BOOL:${includes}>:-I$<JOIN:${includes},;-I>>"
            "$<TARGET_PROPERTY:${target},ASCENDC_COMPILE_OPTIONS>" -MD -MT "${stamp}" -MF "${stamp}.d" -x asc -c ${sources}
    COMMAND "${CMAKE_COMMAND}" -E touch "${stamp}"
    DEPENDS ${sources}
    DEPFILE "${stamp}.d"
    COMMENT "Generating aclrtlaunch headers of ${target}"
    COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(${target}_launch_headers DEPENDS "${stamp}")
  add_dependencies(${target} ${target}_launch_headers)
  target_include_directories(${target} INTERFACE "$<BUILD_INTERFACE:${folder}>")

  if(NOT type STREQUAL "OBJECT")
    install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
  install(DIRECTORY "${folder}" DESTINATION include)
endfunction()

function(ascendc_fatbin_library target)
  _ascendc_add_library(${target} MODULE ${ARGN})
  target_link_options(${target} PRIVATE -Wl,-Bsymbolic)  # its own functions, whatever the program calls alike
  set_target_properties(${target} PROPERTIES PREFIX "" SUFFIX ".o"
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fatbin/${target}")
  install(TARGETS ${target} LIBRARY DESTINATION "fatbin/${target}")
endfunction()

function(_ascendc_scoped function target)
  if(NOT ARGV2 MATCHES "^(PRIVATE|PUBLIC|INTERFACE)$")
    list(INSERT ARGN 0 PRIVATE)
  endif()
  cmake_language(CALL ${function} ${target} ${ARGN})
endfunction()

function(ascendc_include_directories target)
  _ascendc_scoped(target_include_directories ${target} ${ARGN})
endfunction()

function(ascendc_compile_definitions target)
  _ascendc_scoped(target_compile_definitions ${target} ${ARGN})
endfunction()

function(ascendc_compile_options target)
  _ascendc_scoped(target_compile_options ${target} ${ARGN})
  list(REMOVE_ITEM ARGN PRIVATE PUBLIC INTERFACE)
  set_property(TARGET ${target} APPEND PROPERTY ASCENDC_COMPILE_OPTIONS ${ARGN})
endfunction()

cmake_policy(POP)
