#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Does all set-up and runs the project's main job.
#   bash run.sh           decoding with DeepSeek-V3.2's sparse attention, then every operator in every mode: a table each,
#                         non-zero exit if a line failed
#   bash run.sh parallel  the decoding divided between two ranks, in every way, with the tokens of one rank
#   bash run.sh vllm      vLLM and vllm-ascend from PyPI serve tiny models, in each mode, with every token checked; the options are
#                         those of examples/serve_vllm.py
#   bash run.sh mindspore MindSpore's own operators and custom operators in PyNative and graph mode: a table
#   bash run.sh test      the tests; --nightly, with the slow ones and those that rarely find a fault, and other options of pytest
#   bash run.sh bench     the benchmarks
# With no virtual environment active it makes .venv here. TORCH=2.10.0 bash run.sh takes that torch and its torch_npu.
set -euo pipefail
cd "$(dirname "$0")"

if [ -z "${VIRTUAL_ENV:-}" ]; then
  python3 cann_cpu/backend/versions.py >/dev/null  # fails with a message if Python is too old or too new
  [ -d .venv ] || python3 -m venv .venv
  . .venv/bin/activate
fi

echo "The first run takes 6 to 10 minutes to build on two cores, and needs 3 GB of disk and 5 GB of memory; later runs build"
echo "what has changed. The main job then takes about a minute."
bash build_and_install.sh

install() { python -m pip --quiet --disable-pip-version-check install "$@"; }

case "${1:-main}" in
  main)
    install matplotlib tqdm
    failed=0
    python examples/deepseek_sparse_decode.py || failed=1
    echo
    python examples/every_mode.py || failed=1
    exit $failed
    ;;
  parallel)
    install matplotlib tqdm
    torchrun --nproc-per-node 2 examples/parallel_decode.py
    ;;
  vllm)
    shift
    bash examples/serve_vllm.sh "$@"
    ;;
  mindspore)
    bash examples/mindspore/run.sh
    ;;
  test)
    shift
    install pytest pytest-timeout pytest-xdist hypothesis expecttest ruff mypy matplotlib tqdm
    [ -d build/triton/triton ] || install --no-deps --target build/triton triton==3.9.0
    # Side by side, in the groups and the order of test/conftest.py. python -m pytest would import the source folder custom_pypto instead of what is installed.
    # A crashed worker ends the run: another one would be given nothing, and waited for.
    pytest --numprocesses auto --maxprocesses 8 --max-worker-restart 0 --dist loadscope --no-loadscope-reorder "$@"
    ;;
  bench)
    python benchmark/runtime.py
    python benchmark/checks.py
    python benchmark/dispatch.py
    python benchmark/sparse_attention.py
    python benchmark/functions.py
    python benchmark/ascendc.py
    python benchmark/collectives.py
    install triton==3.9.0
    python benchmark/triton_launches.py
    bash benchmark/vllm_decode.sh
    ;;
  *)
    echo "run.sh: unknown job '$1'; there are: parallel, vllm, mindspore, test, bench, and none for the main job" >&2
    exit 2
    ;;
esac
