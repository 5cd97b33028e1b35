#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the code under the sanitizers, in separate builds (build/sanitizers), in the active environment:
#
#   bash test/sanitizers.sh                         all of it
#   bash test/sanitizers.sh thread                  the runtime's stress driver under ThreadSanitizer
#   bash test/sanitizers.sh address [pytest...]     test/cann_cpu and test/opp, or what is named, under AddressSanitizer and
#                                                   UndefinedBehaviorSanitizer
#
# Needs what build_and_install.sh has installed, and g++ with its sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/build/sanitizers
site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p "$out"

# An error of a sanitizer ends the process. No check of vptr: it asks for type information that torch's libraries do not
# export. None of enum: ACL's are C's, whose programs may pass any number, which is then rejected. Left out are warnings
# that the sanitizers' own code raises.
declare -A sanitizers=(
  [thread]="-fsanitize=thread -Wno-tsan"
  [address]="-fsanitize=address,undefined -fno-sanitize=vptr,enum -fno-sanitize-recover=undefined
    -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds"
)

# build SANITIZER PROJECT TARGETS
build() {
  local flags="-O1 -g1 -DNDEBUG -fno-omit-frame-pointer ${sanitizers[$1]//$'\n'/}"
  cmake -S "$2" -B "$out/$1/$2" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="$flags" \
    -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DASCEND_CANN_PACKAGE_PATH="$site/cann_cpu" >/dev/null
  ninja -C "$out/$1/$2" "${@:3}"
}

# The runtime and the driver.
thread() {
  build thread cann_cpu ascendcl
  local libraries=$out/thread/cann_cpu
  g++ -std=c++20 -g -O1 -fsanitize=thread -pthread "-I$site/cann_cpu/include" test/cann_cpu/runtime/stress.cpp -L"$libraries/runtime" \
    -L"$libraries/ascendc" -Wl,-rpath,"$libraries/runtime:$libraries/ascendc" -lascendcl -lascendc_cpu -o "$out/stress"
  TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1" "$out/stress"
  echo "ThreadSanitizer: clean"
}

# The installed packages with the sanitized libraries in their places, found before the installed ones.
overlay() {
  local vendor=$out/site/custom_pypto/opp/vendors/custom_pypto/op_impl
  rm -rf "$out/site" "$out/installed"
  mkdir -p "$out/site"
  cp -a "$site/cann_cpu" "$site/custom_pypto" "$out/site/"
  ln -s "$site/torch" "$site/torch_npu" "$out/site"  # rpaths lead there, and torch_npu looks for its acl.json there
  cmake --install "$out/address/cann_cpu" --prefix "$out/installed" --component cann_cpu >/dev/null
  cp -a "$out/installed/cann_cpu/lib64/." "$out/site/cann_cpu/lib64/"
  cmake --install "$out/address/cann_cpu" --prefix "$out/site" --component headers >/dev/null
  cp "$out/address/opp/libcust_opmaster_rt2.0.so" "$vendor/ai_core/tbe/op_tiling/lib/linux/$(uname -m)/"
}

address() {
  local tests=("$@")
  [ $# -gt 0 ] || tests=(test/cann_cpu test/opp)
  build address cann_cpu all
  build address opp cust_optiling
  overlay
  # Leaks are not looked for: Python's and torch's own, of what lives until the process ends, drown all others. Torch's
  # libraries are not instrumented, so that containers that they and we fill look overflowed. Allocations that are too
  # large fail, as without. One test limits a process's address space, where AddressSanitizer needs terabytes.
  ASAN_OPTIONS="detect_leaks=0 detect_container_overflow=0 allocator_may_return_null=1" \
    UBSAN_OPTIONS="print_stacktrace=1" PYTHONPATH="$out/site" \
    LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so)" \
    pytest -s -q -p no:cacheprovider -k "not no_exception_leaves_an_entry_point" "${tests[@]}"
  echo "AddressSanitizer and UndefinedBehaviorSanitizer: clean"
}

case "${1:-all}" in
  all) thread; address ;;
  thread) thread ;;
  address) shift; address "$@" ;;
  *) sed -n '3,10p' "$0" >&2 && exit 2 ;;
esac
