# SPDX-License-Identifier: Apache-2.0
"""The loops of the vector unit: every level of the CPU's vector instructions gives the same bits, and operands that
overlap are read and written repeat by repeat."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from vector_calls import MASK_OF_BITS, MASK_OF_ELEMENTS, REQUEST, Form

ELEMENTS = 4096
LEVELS = ("default", "avx2", "avx512")
INSTRUCTIONS = ("Add", "MulAddDst", "Adds", "Cast")


def levels():
    """The levels that this machine has."""
    flags = Path("/proc/cpuinfo").read_text()
    return [level for level in LEVELS if level == "default" or {"avx512": "avx512bw"}.get(level, level) in flags]


def test_every_level_gives_the_same_bits(tmp_path):
    if len(levels()) < 2:
        pytest.skip("this machine has one level")
    script = Path(__file__).with_name("every_instruction.py")
    files = {level: tmp_path / f"{level}.npz" for level in levels()}
    processes = [
        subprocess.Popen([sys.executable, script, path], env={**os.environ, "CANN_CPU_CAPABILITY": level})
        for level, path in files.items()
    ]
    assert [process.wait(300) for process in processes] == [0] * len(processes)
    results = {level: np.load(path) for level, path in files.items()}
    first = results.pop("default")
    assert len(first.files) > 200
    for level, other in results.items():
        for name in first.files:
            np.testing.assert_array_equal(first[name].view(np.uint8), other[name].view(np.uint8), f"{name}, {level}")


def expected(memory, name, at, form, scalar):
    """What the instruction leaves in the memory: each repeat is read before it is written."""
    memory = memory.copy()
    lanes = np.array([i for i in range(64) if form.bits >> i & 1])

    def indices(operand, repeat, per_block=8):
        block = repeat * form.repeat_stride[operand] + lanes // per_block * form.block_stride[operand]
        return block * per_block + lanes % per_block

    for repeat in range(form.repeats):
        to, a = at[0] + indices(0, repeat), at[1] + indices(1, repeat)
        if name == "Cast":
            halves = memory[at[1] :].view(np.float16)
            memory[to] = halves[indices(1, repeat, 16)].astype(np.float32)
            continue
        if name == "Adds":
            memory[to] = memory[a] + np.float32(scalar)
            continue
        product = memory[a] * memory[at[2] + indices(2, repeat)]
        memory[to] = memory[to] + product if name == "MulAddDst" else memory[a] + memory[at[2] + indices(2, repeat)]
    return memory


FORMS = [
    Form(MASK_OF_ELEMENTS, 64, repeats=9, bits=2**64 - 1),
    Form(MASK_OF_ELEMENTS, 64, repeats=9, bits=2**24 - 1, repeat_stride=(3, 3, 3)),
    Form(MASK_OF_ELEMENTS, 64, repeats=19, bits=2**64 - 1, block_stride=(1, 1, 0), repeat_stride=(8, 8, 1)),
    Form(MASK_OF_ELEMENTS, 64, repeats=5, bits=2**64 - 1, repeat_stride=(0, 8, 8)),
    Form(MASK_OF_ELEMENTS, 64, repeats=5, bits=2**64 - 1, block_stride=(2, 1, 3), repeat_stride=(16, 8, 24)),
    Form(MASK_OF_BITS, 64, repeats=7, bits=0xF0F0_1234_5678_9ABC, repeat_stride=(8, 4, 8)),
    Form(MASK_OF_ELEMENTS, 64, repeats=5, bits=2**8 - 1, block_stride=(3, 0, 2), repeat_stride=(1, 2, 1)),
]
PLACES = [
    (0, 0, 2048),
    (0, 2048, 0),
    (64, 0, 8),
    (0, 64, 8),
    (8, 0, 1024),
    (0, 8, 1024),
    (1024, 0, 2048),
    (512, 512, 512),
]


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_overlapping_operands(kernels, name):
    kernel = kernels("overlap")["overlap"]
    generator = np.random.default_rng(1)
    for form, at in itertools.product(FORMS, PLACES):
        memory = generator.uniform(-1, 1, ELEMENTS).astype(np.float32)
        if name == "Cast":  # every half is a number
            memory = generator.uniform(-1, 1, 2 * ELEMENTS).astype(np.float16).view(np.float32)
        request = np.zeros(1, REQUEST)
        for key, value in {"name": name, "dtype": "f", "scalar": 0.5, **form.request()}.items():
            request[key] = value
        request["bytes"] = [memory.nbytes, 0, 0, 0]
        result = memory.copy()
        kernel(result, np.array(at, np.uint32), request, checks=False)
        wanted = expected(memory, name, at, form, 0.5)
        np.testing.assert_array_equal(result.view(np.uint32), wanted.view(np.uint32), f"{name} {form} {at}")
