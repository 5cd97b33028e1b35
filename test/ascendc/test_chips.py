# SPDX-License-Identifier: Apache-2.0
"""Kernels as each chip: what they are compiled for, how large its memories are, and what it does not have."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("chips.cpp")
EXAMPLES = Path(__file__).parents[2] / "examples/kernels"
KIB = 1024
# __NPU_ARCH__, __CCE_AICORE__, KiB of the unified buffer, of TOTAL_VEC_LOCAL_SIZE (asc-devkit,
# impl/utils/kernel_utils_constants.h), and whether a core has both units.
CHIPS = {
    "Ascend910B3": (2201, 220, 192, 184, False),
    "Ascend910_9391": (2201, 220, 192, 184, False),
    "Ascend910A": (1001, 100, 256, 248, True),
    "Ascend310P3": (2002, 200, 256, 248, True),
    "Ascend310B4": (3002, 300, 248, 184, True),
    "Ascend950PR_9589": (3510, 310, 248, 248, False),
}
# Runs each call in a process of the chip, and prints what came of it.
PROGRAM = """
import json, sys
import numpy as np
from cann_cpu.kernel import KernelError, KernelFile

file = KernelFile(sys.argv[1], ("-O1", "-Wextra", "-Werror"))
done = []
for name, numbers, blocks, checks in json.load(sys.stdin):
    y = np.zeros(512, np.int32 if name == "says" else np.float32)
    try:
        file[name](y, *numbers, blocks=blocks, checks=checks)
        done.append(y.tolist())
    except KernelError as error:
        done.append(str(error))
print(json.dumps(done))
"""


def run(chip, calls, **variables):
    calls = [(name, list(numbers), blocks, checks) for name, numbers, blocks, checks in calls]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, SOURCE],
        input=json.dumps(calls),
        env={**os.environ, "CANN_CPU_SOC": chip, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


USES = {
    # the chips that have it not, and what the message says
    "add_float": ((), ""),
    "add_int16": (("Ascend910A",), "Add: {} does not have it for int16_t"),
    "adds_int32": (("Ascend910A",), "Adds: {} does not have it for int32_t"),
    "relu_float": (("Ascend910A",), "Relu: {} does not have it for float"),
    "add_relu_int16": (("Ascend910A", "Ascend310B4"), "AddRelu: {} does not have it"),
    "leaky_relu": (("Ascend910A",), "LeakyRelu: {} does not have it"),
    "maxs": (("Ascend910A",), "Maxs: {} does not have it"),
    "shift_left": (("Ascend910A",), "ShiftLeft: {} does not have it"),
    "cast_to_bfloat16": (("Ascend910A", "Ascend310P3"), "Cast: {} does not have it for float to bfloat16_t"),
    "cast_of_bfloat16": (("Ascend910A", "Ascend310P3"), "Cast: {} does not have it for bfloat16_t to float"),
    "cast_float_to_float": (("Ascend910A", "Ascend310P3"), "Cast: {} does not have it for float; cast before"),
    "cast_half_to_int16": (("Ascend910A",), "Cast: {} does not have it for half to int16_t"),
    "cast_half_to_float": ((), ""),
    "compare_int32": (("Ascend910A", "Ascend310P3"), "Compare: {} does not have it for int32_t"),
    "compare_scalar": (("Ascend910A",), "CompareScalar: {} does not have it"),
    "gather": (("Ascend910A",), "Gather: {} does not have it"),
    "sort32": (("Ascend910A", "Ascend310P3"), "Sort32: {} does not have it"),
    "whole_reduce_max_float": (("Ascend910A",), "WholeReduceMax: {} does not have it for float"),
    "data_copy_pad": (("Ascend910A", "Ascend310P3"), "DataCopyPad: {} does not have it; choose the code by"),
    "set_atomic_max": (("Ascend910A", "Ascend310P3", "Ascend310B4"), "SetAtomicMax: {} does not have it"),
}
# Which modes of Select write to the last 8 KiB by CANN's documentation, and on which chips.
SELECTS = {chip: chip not in ("Ascend310B4", "Ascend950PR_9589") for chip in CHIPS}


@pytest.fixture(scope="module", params=CHIPS)
def chip(request):
    """The name of a chip, and what kernels gave as it."""
    name = request.param
    unified_buffer = CHIPS[name][2] * KIB
    calls = [("says", (), 1, True), ("has_both_units", (), 2, True)]
    calls += [("fills", (bytes_,), 1, checks) for bytes_ in (unified_buffer, unified_buffer + 32) for checks in (0, 1)]
    calls += [
        ("selects", (bytes_, mode), 1, True) for bytes_ in (unified_buffer - 8192, unified_buffer) for mode in (0, 1, 2)
    ]
    calls += [("compares", (70,), 1, checks) for checks in (False, True)]
    calls += [("declares", (which,), 1, True) for which in range(3)]
    calls += [(f"uses_{use}", (), 1, checks) for use in USES for checks in (False, True)]
    return name, dict(zip(calls, run(name, calls), strict=True))


def test_a_kernel_is_compiled_for_it(chip):
    name, results = chip
    architecture, ai_core, total, local, fused = CHIPS[name]
    said = results["says", (), 1, True]
    assert said[:4] == [architecture, ai_core, total * KIB, local * KIB]
    assert said[4:7] == [0, int(not fused), ai_core]


def test_the_whole_unified_buffer_is_the_kernel_s(chip):
    name, results = chip
    total = CHIPS[name][2] * KIB
    for checks in (False, True):
        assert results["fills", (total,), 1, checks][:8] == [7.0] * 8
        message = f"InitBuffer: 1 buffers of {total + 32} bytes, with 0 bytes in use already, exceed the unified buffer"
        assert f"{message} of {total} bytes, which {name} has" in results["fills", (total + 32,), 1, checks]


def test_a_comparison_of_70_elements(chip):
    """Whole repeats compare only 64 of them: asc-devkit, impl/basic_api/*/kernel_operator_vec_cmp*_impl.h."""
    name, results = chip
    whole = CHIPS[name][0] in (3002, 3510)
    bits = [255.0] * 8 + ([63.0] + [0.0] * 7 if whole else [7.0] * 8)
    assert results["compares", (70,), 1, False][:16] == bits
    if whole:
        assert results["compares", (70,), 1, True][:16] == bits
    else:
        assert "Compare: 70 elements are not a multiple of 64" in results["compares", (70,), 1, True]


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_select_needs_the_last_bytes_where_it_writes_to_them(chip, mode):
    name, results = chip
    total = CHIPS[name][2] * KIB
    expected = [1.0] * 4 + [2.0] * 4
    assert results["selects", (total - 8192, mode), 1, True][:8] == expected
    all_taken = results["selects", (total, mode), 1, True]
    if mode != 0 and SELECTS[name]:
        assert f"Select: on {name} it writes to the last 8192 bytes of the unified buffer" in all_taken
        assert f"has taken {total} of {total} bytes" in all_taken
    else:
        assert all_taken[:8] == expected


@pytest.mark.parametrize("use", USES)
def test_what_it_does_not_have_is_rejected_by_name(chip, use):
    name, results = chip
    without, message = USES[use]
    for checks in (False, True):
        result = results[f"uses_{use}", (), 1, checks]
        if name in without:
            assert message.format(name) in result and "chips.cpp:" in result
        else:
            assert isinstance(result, list), result


def test_a_core_has_both_units_or_one(chip):
    name, results = chip
    result = results["has_both_units", (), 2, True]
    if CHIPS[name][4]:
        assert result[:256] == [1.0] * 128 + [2.0] * 128
    else:  # the cube core copies to L1 what the vector cores have written, and waits for nothing
        assert "has_both_units, block 0, AIC, and block 0, AIV 0: block 0, AIC reads bytes 0 to" in result


def test_the_type_of_a_kernel_says_units_that_there_are(chip):
    name, results = chip
    aiv_only, ai_core, mixed = (results["declares", (which,), 1, True] for which in range(3))
    assert isinstance(aiv_only, list)
    if CHIPS[name][4]:
        assert isinstance(ai_core, list)
        assert f"KERNEL_TASK_TYPE: a block of several cores; a core of {name} has the matrix and the vector" in mixed
    else:
        assert f"KERNEL_TASK_TYPE: a type of chips whose cores have both units, which {name} does not have" in ai_core
        assert isinstance(mixed, list)


def test_a_kernel_for_another_chip_is_rejected(tmp_path):
    (message,) = run("Ascend310P3", [("says", (), 1, False)], CXXFLAGS="--npu-arch=dav-3002")
    assert "says was compiled for dav-3002, and this is Ascend310P3, of dav-2002 (CANN_CPU_SOC): " in message
    assert "set CANN_CPU_SOC=Ascend310B4, or compile it for this chip" in message


def test_a_kernel_says_what_it_is_for_where_nothing_else_does():
    (said,) = run("", [("says", (), 1, True)], CXXFLAGS="--npu-arch=dav-3002", ASCEND_CUSTOM_OPP_PATH="")
    assert said[0] == 3002


def test_the_matmul_library_runs_on_cores_with_both_units():
    environment = {**os.environ, "CANN_CPU_SOC": "Ascend310B1"}
    command = [sys.executable, "-m", "cann_cpu", "kernel", EXAMPLES / "matmul.cpp"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_model_of_costs_says_which_chips_it_knows():
    environment = {**os.environ, "CANN_CPU_SOC": "Ascend310B1"}
    command = [sys.executable, "-m", "cann_cpu", "kernel", "--profile", EXAMPLES / "scale.cpp"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert "the model of costs knows Ascend910B and Ascend910_93, not Ascend310B1" in done.stderr
