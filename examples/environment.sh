# SPDX-License-Identifier: Apache-2.0
# environment NAME: makes the virtual environment NAME in this folder, if it is not there, for packages that the active one
# must not have. It sees the packages of the active one after its own. Sets `python` to its Python.
environment() {
  local packages='import sysconfig; print(sysconfig.get_path("purelib"))'
  python=$PWD/$1/bin/python
  [ -d "$1" ] || command python -m venv --without-pip "$1"
  echo "import site; site.addsitedir('$(command python -c "$packages")')" >"$("$python" -c "$packages")/packages_of_cann_cpu.pth"
}

# Installs packages in it with the pip of the active one. pip compiles none: Python compiles what is imported, and keeps it.
install() { command python -m pip --python "$python" --quiet --disable-pip-version-check install --no-compile "$@"; }
unset PYTHONDONTWRITEBYTECODE
