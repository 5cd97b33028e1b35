# SPDX-License-Identifier: Apache-2.0
"""Machines with fewer vector instructions than this one, made with variables."""

ISA_OF_ONEDNN = {"default": "SSE41", "avx2": "AVX2", "avx512": "AVX512_CORE"}


def held_to(level):
    """The variables that hold our kernels, ATen and oneDNN to a level of vector instructions."""
    return {
        "CANN_CPU_CAPABILITY": level,
        "ATEN_CPU_CAPABILITY": level,
        "ONEDNN_MAX_CPU_ISA": ISA_OF_ONEDNN[level],
    }
