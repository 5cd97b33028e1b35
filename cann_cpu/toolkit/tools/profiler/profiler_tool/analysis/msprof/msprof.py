# SPDX-License-Identifier: Apache-2.0
"""msprof, where torch_npu makes sure of it before it calls the command."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[6]))

from cann_cpu.profiler.msprof import main

if __name__ == "__main__":
    sys.exit(main())
