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

# What the machine has of /proc/cpuinfo, variables, and what the kernels then use: the level, float16, bfloat16, int8.
# None: whatever is best here.
MACHINES = {
    "no vector instructions": (set(), held_to("default"), "default", "float", "float", "float"),
    "AVX2": ({"avx2"}, held_to("avx2"), "avx2", "float", "float", "float"),
    "AVX-512": ({"avx512bw"}, held_to("avx512"), "avx512", "float", "float", "float"),
    "AMX tiles": ({"amx_bf16"}, {}, None, None, "tiles", None),
    "products of oneDNN": ({"amx_bf16"}, {"CUSTOM_PYPTO_PRODUCTS": "vnni"}, None, None, "vnni", None),
    "products of rows": (set(), {"CUSTOM_PYPTO_PRODUCTS": "rows"}, None, "rows", "rows", "float"),
}
HERE = {name: rest for name, (flags, *rest) in MACHINES.items() if flags <= FLAGS}
NOT_HERE = {name: f"needs {', '.join(flags)}" for name, (flags, *_) in MACHINES.items() if name not in HERE}


def every_machine(test):
    """Parametrizes by `name`; a machine that this processor cannot be is skipped."""
    names = [
        pytest.param(name, marks=[pytest.mark.skip(reason=NOT_HERE[name])] if name in NOT_HERE else [])
        for name in MACHINES
    ]
    return pytest.mark.parametrize("name", names)(test)
