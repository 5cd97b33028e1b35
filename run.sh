#!/usr/bin/env bash
# Does all set-up and runs the project's main job.
#   bash run.sh           decoding with DeepSeek-V3.2's sparse attention, then every operator in every mode: a table each,
#                         non-zero exit if a line failed
#   bash run.sh test      the tests
#   bash run.sh bench     the benchmarks
# With no virtual environment active it makes .venv here.
set -euo pipefail
cd "$(dirname "$0")"

if [ -z "${VIRTUAL_ENV:-}" ]; then
  python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "run.sh: Python 3.11 is needed (torch_npu 2.13.0 is built for it); python3 is $(python3 --version)" >&2
    exit 1
  }
  [ -d .venv ] || python3 -m venv .venv
  . .venv/bin/activate
fi

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
  test)
    shift
    install pytest pytest-timeout hypothesis expecttest ruff matplotlib tqdm
    python -P -m pytest "$@"  # -P: the installed custom_pypto, not the source folder of that name
    ;;
  bench)
    python benchmark/dispatch.py
    python benchmark/sparse_attention.py
    python benchmark/ascendc.py
    ;;
  *)
    echo "run.sh: unknown job '$1'; there are: test, bench, and none for the main job" >&2
    exit 2
    ;;
esac
