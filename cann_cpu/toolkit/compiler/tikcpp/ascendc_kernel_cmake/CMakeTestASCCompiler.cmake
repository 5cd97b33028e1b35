# SPDX-License-Identifier: Apache-2.0
# The compiler comes with these files: nothing is to be found out about it.
set(CMAKE_ASC_COMPILER_WORKS TRUE CACHE INTERNAL "")
