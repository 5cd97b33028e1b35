#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the package into build_out/, for the CANN that ASCEND_HOME_PATH names.
set -e
cd "$(dirname "${BASH_SOURCE[0]}")"
if [ -z "$ASCEND_HOME_PATH" ]; then
  echo "ASCEND_HOME_PATH is not set: source CANN's set_env.sh first" >&2
  exit 1
fi
rm -rf build_out
cmake --preset=default -DASCEND_CANN_PACKAGE_PATH="$ASCEND_HOME_PATH"
cmake --build build_out --target binary package --parallel
