#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs MindSpore's examples, in a separate environment, since MindSpore needs numpy below 2: a table, non-zero exit if
# a line failed.
set -euo pipefail
cd "$(dirname "$0")/../.."
if python -c 'import sys; sys.exit(sys.version_info < (3, 13))'; then
  echo "MindSpore 2.10.0 has wheels for Python 3.10 to 3.12; this is $(python --version)" >&2
  exit 1
fi
. examples/environment.sh
environment .venv-mindspore
install mindspore==2.10.0 "numpy<2"
"$python" examples/mindspore/run.py
