# SPDX-License-Identifier: Apache-2.0
"""Machines with fewer vector instructions than this one, made with variables; and those that this one cannot be."""

import re
from pathlib import Path

import pytest

ISA_OF_ONEDNN = {"default": "SSE41", "avx2": "AVX2", "avx512": "AVX512_CORE"}


def held_to(level):
    """The variables that hold our kernels, ATen and oneDNN to a level of vector instructions."""
    return {
        "CANN_CPU_CAPABILITY": level,
        "ATEN_CPU_CAPABILITY": level,
        "ONEDNN_MAX_CPU_ISA": ISA_OF_ONEDNN[level],
    }


def of_cpuinfo(key):
    found = re.search(rf"^{key}\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else ""


FLAGS = set(of_cpuinfo("flags").split())

# What a machine has of /proc/cpuinfo, and its variables: the least first.
MACHINES = {
    "no vector instructions": (set(), held_to("default")),
    "AVX2": ({"avx2"}, held_to("avx2")),
    "AVX-512": ({"avx512bw"}, held_to("avx512")),
    "AMX": ({"amx_bf16"}, {}),
}
THIS_CAN_BE = {name: variables for name, (flags, variables) in MACHINES.items() if flags <= FLAGS}
NOT_HERE = {name: f"needs {', '.join(flags)}" for name, (flags, _) in MACHINES.items() if not flags <= FLAGS}


def every_machine(test):
    """Parametrizes by `name`; a machine that this processor cannot be is skipped."""
    names = [
        pytest.param(name, marks=[pytest.mark.skip(reason=NOT_HERE[name])] if name in NOT_HERE else [])
        for name in MACHINES
    ]
    return pytest.mark.parametrize("name", names)(test)
