#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cross-compiles everything for aarch64 and runs there, under qemu-user, what can run: the C++ tests, and the Python ones
# in an arm64 Python with the arm64 builds of torch and torch_npu. Ends with a table; non-zero exit if a line failed.
#
#   apt-get install g++-aarch64-linux-gnu qemu-user
#   bash test/arm64/run.sh                    everything
#   bash test/arm64/run.sh test/opp -k top    the Python tests that these arguments of pytest select
#
# Needs Debian, with the Python that its release has. Packages come by name from the mirrors that apt and pip are set up
# for. It keeps all files in build/arm64 for the next run.
set -euo pipefail
cd "$(dirname "$0")/../.."

export TORCH=${TORCH:-2.10.0}  # of those that are supported, PyPI has a build without CUDA for aarch64 of this one
WORK=$PWD/build/arm64
SYSROOT=$WORK/sysroot
ENVIRONMENT=$WORK/env
TOOLS=$WORK/tools
COMPILER=aarch64-linux-gnu
TESTS=(
  test/ascendc
  test/cann_cpu/runtime
  test/cann_cpu/opapi
  test/cann_cpu/graph_engine
  test/graph
  test/opp
  test/custom_pypto/test_operators.py
  test/custom_pypto/test_add_custom.py
  test/custom_pypto/test_modes.py
)

mkdir -p "$WORK/logs" "$TOOLS"
results=()
failed=0

# run NAME COMMAND...: shows what is run and how it ends; the output goes to a log. COMMAND... for which there is no
# exit code of 0 makes a failed line of the table.
run() {
  local name=$1 start=$SECONDS status=passed log summary
  shift
  log=$WORK/logs/$(tr -c 'a-zA-Z0-9\n' _ <<<"$name").log
  printf '\n== %s (%d s)\n' "$name" "$SECONDS"
  if ! "$@" 2>&1 | tee "$log" | show; then
    status=FAILED
    failed=1
    tail -n 20 "$log"
  fi
  summary=$(grep -E '^=+ .*(passed|failed|error).* in .*=+$' "$log" | tail -n 1 | sed -E 's/^=+ | in .*$//g' || true)
  results+=("$(printf '%-44s %-7s %5d s  %s' "$name" "$status" $((SECONDS - start)) "$summary")")
}

# Shows the lines of a log that show progress: compiled files, cases, tests.
show() { grep -E --line-buffered '^ *\[[0-9]+/[0-9]+\]|^(passed|FAILED|not here) |%\]$|^[0-9]+ ' | sed -u 's|\(.\{120\}\).*|\1|' || true; }

# ---- the machine: Debian's libraries and Python, and what is called by the names of its tools

unpack_sysroot() {
  [ -e "$SYSROOT/done" ] && return
  local apt=$WORK/apt
  mkdir -p "$SYSROOT" "$apt/state/lists/partial" "$apt/cache/archives/partial"
  touch "$apt/status"
  local options=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$apt/state"
    -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User= -qq)
  apt-get "${options[@]}" update
  apt-get "${options[@]}" install --download-only --no-install-recommends -y python3 libpython3-dev libstdc++6 libgomp1
  for package in "$apt"/cache/archives/*.deb; do dpkg -x "$package" "$SYSROOT"; done
  touch "$SYSROOT/done"
}

# A virtual environment whose Python is a script, so that the processes that tests start with sys.executable run under
# qemu as well. Compilers and build tools run as they are: qemu leaves programs of the machine to it.
make_environment() {
  local python
  python=$(basename "$(readlink "$SYSROOT/usr/bin/python3")")
  SITE_PACKAGES=$ENVIRONMENT/lib/$python/site-packages
  mkdir -p "$ENVIRONMENT/bin" "$SITE_PACKAGES"
  printf 'home = %s\ninclude-system-site-packages = false\n' "$SYSROOT/usr/bin" >"$ENVIRONMENT/pyvenv.cfg"
  printf '#!/bin/sh\nexec qemu-aarch64 -0 "$0" -L %s %s "$@"\n' "$SYSROOT" "$SYSROOT/usr/bin/$python" \
    >"$ENVIRONMENT/bin/python"
  chmod +x "$ENVIRONMENT/bin/python"

  for name in gcc g++ cc:gcc c++:g++ nm readelf; do
    printf '#!/bin/sh\nexec %s "$@"\n' "$COMPILER-${name#*:}" >"$TOOLS/${name%:*}"
    chmod +x "$TOOLS/${name%:*}"
  done
  cat >"$WORK/toolchain.cmake" <<CMAKE
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER $COMPILER-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L $SYSROOT)
# Libraries that torch's need.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,$SYSROOT/usr/lib/aarch64-linux-gnu:$SYSROOT/lib/aarch64-linux-gnu")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "\${CMAKE_EXE_LINKER_FLAGS_INIT}")
CMAKE
  mkdir -p "$WORK/include/$COMPILER"  # where Debian's Python.h looks for what differs between processors
  ln -sfn "$SYSROOT/usr/include/$COMPILER/$python" "$WORK/include/$COMPILER/$python"
  export PATH=$TOOLS:$ENVIRONMENT/bin:$PATH VIRTUAL_ENV=$ENVIRONMENT CPATH=$WORK/include
  export CC=$COMPILER-gcc CXX=$COMPILER-g++ CMAKE_TOOLCHAIN_FILE=$WORK/toolchain.cmake
}

# install PACKAGES...: by this machine's pip, which is fast, set to download packages for aarch64.
install() {
  python3 -c 'import platform, runpy; platform.machine = lambda: "aarch64"; runpy.run_module("pip", run_name="__main__", alter_sys=True)' \
    --quiet --disable-pip-version-check install --upgrade --target "$SITE_PACKAGES" --only-binary :all: \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 --platform linux_aarch64 \
    --python-version "$(basename "$(dirname "$SITE_PACKAGES")" | tr -d a-z)" "$@"
}

install_packages() {
  [ "$(cat "$ENVIRONMENT/torch" 2>/dev/null)" = "$TORCH" ] && return
  local torch torch_npu others
  read -r torch torch_npu others < <(python -c 'import sys; sys.path.insert(0, "cann_cpu/backend"); import versions; print(*versions.build_requirements())')
  # shellcheck disable=SC2086
  install "$torch" $others jinja2 "setuptools>=77" wheel "scikit-build-core>=1.1" nlohmann-json==3.12.0 pip \
    pytest pytest-timeout hypothesis expecttest
  install --no-deps "$torch_npu"
  echo "$TORCH" >"$ENVIRONMENT/torch"
}

# ---- what is built and run

# wheel PROJECT OPTIONS...: builds the wheel of a project and installs it.
wheel() {
  rm -rf "$WORK/wheel"
  python -m pip --disable-pip-version-check wheel -v --no-build-isolation --no-deps --wheel-dir "$WORK/wheel" "$@" &&
    install --no-deps "$WORK"/wheel/*.whl
}

build_cann_cpu() { wheel ./cann_cpu --config-settings build-dir="$WORK/cann_cpu"; }

# setup.py builds in the project's build/.
build_custom_pypto() { ASCEND_HOME_PATH=$SITE_PACKAGES/cann_cpu wheel .; }

kernel_functions() {
  ASCEND_HOME_PATH=$SITE_PACKAGES/cann_cpu cmake -S test/opp/kernels -B "$WORK/kernels" -G Ninja \
    -D Python_EXECUTABLE="$ENVIRONMENT/bin/python" && ninja -C "$WORK/kernels" && qemu "$WORK/kernels/functions"
}

stress() {
  local home=$SITE_PACKAGES/cann_cpu
  g++ -std=c++20 -O1 -pthread "-I$home/include" test/cann_cpu/runtime/stress.cpp -o "$WORK/stress" "-L$home/lib64" \
    -lascendcl "-Wl,-rpath,$home/lib64" && qemu "$WORK/stress" && echo "passed  every count is right"
}

qemu() { qemu-aarch64 -L "$SYSROOT" "$@"; }

pytest() { python -P -m pytest -q --tb=short -p no:cacheprovider "$@"; }

printf '== the machine (%d s)\n' "$SECONDS"
unpack_sysroot
make_environment
install_packages
run "cann_cpu, the wheel" build_cann_cpu
run "custom_pypto, the wheel" build_custom_pypto
if [ $# -gt 0 ]; then
  run "$*" pytest "$@"
else
  run "functions of the kernels, C++" kernel_functions
  run "stress of the runtime, C++" stress
  run "python -m cann_cpu info" python -P -m cann_cpu info
  for tests in "${TESTS[@]}"; do run "$tests" pytest "$tests"; done
fi

printf '\n%s, torch %s, %s\n' "$(qemu-aarch64 --version | head -n 1)" "$TORCH" "$("$COMPILER-g++" --version | head -n 1)"
printf '%s\n' "${results[@]}"
exit $failed
