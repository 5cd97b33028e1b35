#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Serves tiny models with vLLM and vllm-ascend, in a separate environment; the options are serve_vllm.py's.
set -euo pipefail
cd "$(dirname "$0")/.."
. examples/environment.sh  # Python may write what it compiles: vllm-ascend's graph modes need it
environment .venv-vllm
install -r examples/serve_vllm.txt
install --no-deps vllm==0.23.0 vllm_ascend==0.23.0 compressed-tensors==0.17.0
# The operators of a torchvision for CUDA cannot be registered without it; those of 0.15.2 are not looked for.
"$python" -c "import torchvision" 2>/dev/null || install --no-deps torchvision==0.15.2
install --no-deps examples/vllm_operator  # loaded with --operator only
"$python" examples/serve_vllm.py "$@"
