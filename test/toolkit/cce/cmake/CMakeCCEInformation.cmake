# SPDX-License-Identifier: Apache-2.0
include(CMakeCommonLanguageInclude)
set(CMAKE_INCLUDE_FLAG_CCE "-I")
set(CMAKE_CCE_OUTPUT_EXTENSION .o)
set(CMAKE_SHARED_LIBRARY_CCE_FLAGS -fPIC)
set(CMAKE_CCE_COMPILE_OBJECT "<CMAKE_CCE_COMPILER> -xcce <DEFINES> <INCLUDES> <FLAGS> --cce-aicore-arch=dav-c220-vec \
--cce-auto-sync -mllvm -cce-aicore-function-stack-size=16000 -mllvm -cce-aicore-record-overflow=false -std=c++17 \
-pthread -o <OBJECT> -c <SOURCE>")
set(CMAKE_CCE_CREATE_SHARED_LIBRARY "<CMAKE_CCE_COMPILER> --cce-fatobj-link --cce-aicore-arch=dav-c220-vec -fPIC \
<LANGUAGE_COMPILE_FLAGS> <LINK_FLAGS> -shared -Wl,-soname,<TARGET_SONAME> -o <TARGET> <OBJECTS>")
set(CMAKE_CCE_INFORMATION_LOADED 1)
