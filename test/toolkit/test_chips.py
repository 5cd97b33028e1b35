# SPDX-License-Identifier: Apache-2.0
"""The chip that CANN_CPU_SOC names: what tiling functions and torch_npu are told of it."""

import subprocess
import sys
from pathlib import Path

import pytest
from cann_cpu.activation import HOME, LIBRARIES

MIB = 1024
A2, A3 = 1, 4  # platform_ascendc::SocVersion
# Series, cores with a matrix and with a vector unit, L2 in KiB: CANN's platform_config, AscendNPU-IR.
CHIPS = {
    "Ascend910B1": (A2, 24, 48, 192 * MIB),
    "Ascend910B2": (A2, 24, 48, 192 * MIB),
    "Ascend910B3": (A2, 20, 40, 192 * MIB),
    "Ascend910B4": (A2, 20, 40, 96 * MIB),
    "Ascend910_9362": (A3, 20, 40, 168 * MIB),
    "Ascend910_9372": (A3, 20, 40, 192 * MIB),
    "Ascend910_9381": (A3, 24, 48, 192 * MIB),
    "Ascend910_9382": (A3, 24, 48, 192 * MIB),
    "Ascend910_9391": (A3, 24, 48, 192 * MIB),
    "Ascend910_9392": (A3, 24, 48, 192 * MIB),
}
OF_ALL = (192, 512, 64, 64, 128)  # KiB of the unified buffer, L1, L0A, L0B, L0C


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    program = tmp_path_factory.mktemp("chips") / "chip"
    linked = [f"-I{HOME}/include", f"-L{LIBRARIES}", "-lplatform", "-lascendcl", f"-Wl,-rpath,{LIBRARIES}"]
    source = Path(__file__).with_name("chip.cpp")
    subprocess.run(["g++", "-std=c++17", "-O0", source, "-o", program, *linked], check=True)

    def run(*named, **variables):
        done = subprocess.run([program, *named], env=variables, capture_output=True, text=True, check=True)
        return tuple(map(int, done.stdout.split())), done.stderr

    return run


@pytest.mark.parametrize("chip", CHIPS)
def test_tiling_functions_get_its_numbers(said, chip):
    assert said(CANN_CPU_SOC=chip) == (CHIPS[chip] + OF_ALL, "")


def test_a_program_may_name_another_one(said):
    assert said("Ascend910_9362", CANN_CPU_SOC="Ascend910B1") == (CHIPS["Ascend910_9362"] + OF_ALL, "")


@pytest.mark.parametrize(
    ("named", "variables", "who"),
    [((), {"CANN_CPU_SOC": "Ascend310P3"}, "CANN_CPU_SOC"), (("Ascend310P3",), {}, "PlatformAscendCManager::GetInst")],
)
def test_an_unknown_one_is_said(said, named, variables, who):
    numbers, message = said(*named, **variables)
    assert numbers == CHIPS["Ascend910B3"] + OF_ALL
    assert message.startswith(f"cann_cpu: {who}")
    assert "names Ascend310P3, which is unknown; it is Ascend910B3" in message
    assert all(chip in message for chip in CHIPS)


PROGRAM = """
import os
os.environ["CANN_CPU_SOC"] = "Ascend910_9362"
import torch, torch_npu
chip = torch.npu.get_device_properties(0)
print(chip.name, chip.cube_core_num, chip.vector_core_num, chip.L2_cache_size)
"""


def test_torch_npu_reports_it():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    _, cube, vector, l2 = CHIPS["Ascend910_9362"]
    assert done.stdout.split() == ["Ascend910_9362", str(cube), str(vector), str(l2 * 1024)], done.stderr
