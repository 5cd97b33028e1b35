#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs MindSpore's examples, in a separate environment, since MindSpore needs numpy below 2: a table, non-zero exit if
# a line failed. Not run as a whole yet.
set -euo pipefail
cd "$(dirname "$0")/../.."
. examples/environment.sh
environment .venv-mindspore
"$python" -m pip --quiet --disable-pip-version-check install mindspore==2.10.0 "numpy<2"
"$python" examples/mindspore/run.py
