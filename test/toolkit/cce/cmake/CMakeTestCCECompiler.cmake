# SPDX-License-Identifier: Apache-2.0
set(CMAKE_CCE_COMPILER_WORKS 1 CACHE INTERNAL "")
