# SPDX-License-Identifier: Apache-2.0
# find_package(custom_pypto) gives operator_package(NAME), which makes an operator package in CANN's vendors layout of
# the folders graph/ and opp/ of a project; the file calling it is opp/CMakeLists.txt. ASCEND_HOME_PATH names the CANN to
# build against; without it, it is the one that torch_npu finds.
#
# Targets: cust_opapi (the aclnn functions on the CPU, if that CANN runs kernels there), cust_opsproto_rt2.0 (the
# prototypes), ge_api (the Python GE API that the converters call) and aclnn_headers.
set(CUSTOM_PYPTO_CODEGEN ${CMAKE_CURRENT_LIST_DIR}/../graph/codegen)
set(CUSTOM_PYPTO_OPP ${CMAKE_CURRENT_LIST_DIR}/../opp)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# One rounding for each operation: kernels give the same bits on processors with and without fused multiplication.
add_compile_options(-ffp-contract=off)

find_package(Python REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0 ${Python_EXECUTABLE} -c
          "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(ASCEND_HOME_PATH "$ENV{ASCEND_HOME_PATH}" CACHE PATH "the CANN to build against")
if(NOT ASCEND_HOME_PATH)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import os, torch_npu; print(os.environ.get('ASCEND_HOME_PATH', ''))"
    OUTPUT_VARIABLE FOUND OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set_property(CACHE ASCEND_HOME_PATH PROPERTY VALUE "${FOUND}")
endif()
if(NOT EXISTS "${ASCEND_HOME_PATH}/include/graph/operator_reg.h")
  message(FATAL_ERROR "'${ASCEND_HOME_PATH}' is no CANN: it has no include/graph/operator_reg.h. Set ASCEND_HOME_PATH.")
endif()

function(operator_package name)
  set(PROTOTYPES ${CMAKE_CURRENT_SOURCE_DIR}/../graph/custom_reg_op.h)
  set(VENDOR vendors/${name})
  generated_interfaces()
  prototype_library()
  find_library(ASCENDC_CPU ascendc_cpu PATHS "${ASCEND_HOME_PATH}/lib64" NO_DEFAULT_PATH)
  if(ASCENDC_CPU)
    aclnn_library()
  else()
    message(STATUS "${ASCEND_HOME_PATH} runs no kernels on the CPU: libcust_opapi.so is that of ${name}'s package for NPUs")
  endif()
endfunction()

# The header of prototypes compiled against collecting headers is a program that prints what follows from it. One error
# names what it does not know.
function(generated_interfaces)
  set(SOURCES generate.cpp op_proto.cpp print_aclnn.cpp print_python.cpp text.cpp)
  list(TRANSFORM SOURCES PREPEND ${CUSTOM_PYPTO_CODEGEN}/)
  add_executable(generate ${SOURCES})
  target_include_directories(generate PRIVATE ${CUSTOM_PYPTO_CODEGEN} ${CUSTOM_PYPTO_CODEGEN}/include)
  target_compile_definitions(generate PRIVATE PROTOTYPES="${PROTOTYPES}")
  target_compile_options(generate PRIVATE -Wall -Wextra $<$<CXX_COMPILER_ID:GNU>:-fmax-errors=1> -O0)

  set(GE_API ${CMAKE_CURRENT_BINARY_DIR}/auto_generated_ge_raw_custom_ops.py)
  add_custom_command(OUTPUT ${GE_API} COMMAND generate python ${GE_API} DEPENDS generate VERBATIM)
  add_custom_target(ge_api ALL DEPENDS ${GE_API})
  install(FILES ${GE_API} DESTINATION ../converter)

  # A header is written only when it changes, so that what includes the others is not compiled again.
  set(HEADERS ${CMAKE_CURRENT_BINARY_DIR}/aclnn)
  set(STAMP ${CMAKE_CURRENT_BINARY_DIR}/aclnn.stamp)
  add_custom_command(OUTPUT ${STAMP} COMMAND generate aclnn ${HEADERS}
                     COMMAND ${CMAKE_COMMAND} -E touch ${STAMP} DEPENDS generate VERBATIM)
  add_custom_target(aclnn_headers ALL DEPENDS ${STAMP})
  add_library(aclnn INTERFACE)
  target_include_directories(aclnn INTERFACE ${HEADERS})
  add_dependencies(aclnn aclnn_headers)
  install(DIRECTORY ${HEADERS}/ DESTINATION ${VENDOR}/op_api/include)
endfunction()

# The header of prototypes compiled against CANN's registers them; Graph Engine, which opens the library, has the symbols.
function(prototype_library)
  add_library(cust_opsproto_rt2.0 SHARED ${CUSTOM_PYPTO_CODEGEN}/op_proto.cpp)
  target_include_directories(cust_opsproto_rt2.0 SYSTEM PRIVATE ${ASCEND_HOME_PATH}/include)
  target_compile_definitions(cust_opsproto_rt2.0 PRIVATE PROTOTYPES="${PROTOTYPES}")
  target_compile_options(cust_opsproto_rt2.0 PRIVATE -Wall -Wextra)
  string(TOLOWER ${CMAKE_SYSTEM_NAME}/${CMAKE_SYSTEM_PROCESSOR} PLATFORM)
  install(TARGETS cust_opsproto_rt2.0 LIBRARY DESTINATION ${VENDOR}/op_proto/lib/${PLATFORM})
  install(FILES ${PROTOTYPES} DESTINATION ${VENDOR}/op_proto/inc RENAME op_proto.h)
endfunction()

# The aclnn functions, and the kernels and checks that they call.
function(aclnn_library)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  file(GLOB FUNCTIONS CONFIGURE_DEPENDS op_api/*.cpp)
  file(GLOB SOURCES CONFIGURE_DEPENDS arguments/*.cpp op_host/*.cpp op_kernel/*.cpp cpu/*.cpp)
  # A function without its header would not be compared with its prototype.
  set_source_files_properties(${FUNCTIONS} PROPERTIES COMPILE_OPTIONS -Werror=missing-declarations)
  add_library(cust_opapi SHARED ${FUNCTIONS} ${SOURCES})
  set_target_properties(cust_opapi PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(cust_opapi PRIVATE . ${CUSTOM_PYPTO_OPP} ${ASCEND_HOME_PATH}/include)
  target_include_directories(cust_opapi SYSTEM PRIVATE ${TORCH_DIR}/include)
  target_link_directories(cust_opapi PRIVATE ${ASCEND_HOME_PATH}/lib64 ${TORCH_DIR}/lib)
  target_link_libraries(cust_opapi PRIVATE aclnn ascendc_cpu nnopbase ascendcl torch_cpu c10 OpenMP::OpenMP_CXX)
  target_link_options(cust_opapi PRIVATE -Wl,-z,defs -Wl,--as-needed)
  target_compile_definitions(cust_opapi PRIVATE AT_PER_OPERATOR_HEADERS)
  target_compile_options(cust_opapi PRIVATE -Wall -Wextra)

  # Kernels are read for what the device's compiler would reject; what it orders by --cce-auto-sync the checks let pass.
  set(LAUNCHER ${Python_EXECUTABLE} ${ASCEND_HOME_PATH}/device_rules.py ${CMAKE_CXX_COMPILER_LAUNCHER})
  set_target_properties(cust_opapi PROPERTIES CXX_COMPILER_LAUNCHER "${LAUNCHER}")

  # Installed, it lies in site-packages/<package>/opp/vendors/<name>/op_api/lib.
  cmake_path(GET TORCH_DIR PARENT_PATH SITE_PACKAGES)
  cmake_path(RELATIVE_PATH ASCEND_HOME_PATH BASE_DIRECTORY ${SITE_PACKAGES} OUTPUT_VARIABLE CANN)
  set(INSTALLED "$ORIGIN/../../../../../..")
  set_target_properties(cust_opapi PROPERTIES
    BUILD_RPATH "${ASCEND_HOME_PATH}/lib64;${TORCH_DIR}/lib"
    INSTALL_RPATH "${INSTALLED}/${CANN}/lib64:${INSTALLED}/torch/lib")
  install(TARGETS cust_opapi LIBRARY DESTINATION ${VENDOR}/op_api/lib)
endfunction()
