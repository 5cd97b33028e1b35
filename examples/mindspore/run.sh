#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes an environment for MindSpore, .venv-mindspore in the project's root, and runs the examples in it: a table,
# non-zero exit if a line failed. MindSpore needs numpy below 2. The environment has that and MindSpore, and sees the
# packages of the active one after its own.
set -euo pipefail
cd "$(dirname "$0")/../.."

environment=.venv-mindspore
[ -d "$environment" ] || python -m venv "$environment"
packages() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
"$environment/bin/python" -m pip --quiet --disable-pip-version-check install mindspore==2.10.0 "numpy<2"
echo "import site; site.addsitedir('$(packages python)')" >"$(packages "$environment/bin/python")/packages_of_cann_cpu.pth"
"$environment/bin/python" examples/mindspore/run.py
