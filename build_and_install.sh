#!/usr/bin/env bash
# Builds the wheels into dist/ and installs them in the active Python environment: cann_cpu, CANN on the CPU, and
# custom_pypto, the operators. They are for the torch that is there, or another one: TORCH=2.10.0 bash build_and_install.sh
# Objects are kept in build/, so that a second run compiles only what has changed.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p build dist

step() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }
quiet_pip() { python -m pip --quiet --disable-pip-version-check "$@"; }

# torch_npu refuses a CUDA build of torch, and PyPI's own build is one.
install_torch() {
  if quiet_pip install "$1" 2>/dev/null; then return; fi
  echo "pip finds no $1 by itself; taking it from PyTorch's own CPU index"
  quiet_pip install "$1" --index-url https://download.pytorch.org/whl/cpu
}

# wheel DIRECTORY OPTIONS...: builds the wheel of a project into dist/ and installs it. Shows what is being compiled; the
# whole log is kept, and shown where the build fails.
wheel() {
  local project=$1 out log
  shift
  out=$(mktemp -d build/wheel.XXXX) log=build/$(basename "$(realpath "$project")").log
  if ! python -m pip --disable-pip-version-check wheel -v --no-build-isolation --no-deps --wheel-dir "$out" "$@" "$project" \
    2>&1 | tee "$log" | sed -u -n 's/^ *\(\[[0-9]*\/[0-9]*\]\).*[ /]\([^ /]*\.c[cp]*\) *.*/  \1 \2/p'; then
    cat "$log" >&2
    return 1
  fi
  quiet_pip install --force-reinstall --no-deps "$out"/*.whl
  mv "$out"/*.whl dist/ && rmdir "$out"
}

step "torch, torch_npu and what the build needs"
missing=$(python cann_cpu/backend/versions.py)
for package in $missing; do
  case $package in
    torch==*) install_torch "$package" ;;
    *) quiet_pip install "$package" ;;
  esac
done
quiet_pip install numpy pyyaml packaging protobuf jinja2 "setuptools>=77" wheel "scikit-build-core>=1.1" "cmake>=3.25" ninja

step "cann_cpu: CANN on the CPU"
wheel ./cann_cpu -C build-dir=build/cann_cpu

step "custom_pypto: the operators"
wheel .

step "installed"
python -m cann_cpu info
