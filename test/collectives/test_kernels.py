# SPDX-License-Identifier: Apache-2.0
"""Operators whose Ascend C kernels call collectives by Hccl, from a project as msopgen makes it."""

import os
import shutil
import sys
from pathlib import Path

import fresh
import pytest
from author import install, project
from operator_project import run

HERE = Path(__file__).parent / "kernels"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The library of the installed package's aclnn functions."""
    folder = project(tmp_path_factory.mktemp("kernels") / "project", "collectives", CollectiveAdd={}, GatherMatmul={})
    shutil.copytree(HERE, folder, dirs_exist_ok=True)
    return str(install(folder, folder.parent / "opp") / "op_api/lib/libcust_opapi.so")


@pytest.mark.parametrize("size", [2, 4])
def test_every_collective_in_one_and_in_four_turns(ranks, library, size):
    ranks.run_in_group("kernel_cases.every_collective", size, library=library)


@pytest.mark.parametrize("case", ["beside_others", "own_part_left_out", "products", "checked"])
def test_kernels_with_collectives(ranks, library, case):
    ranks.run_in_group(f"kernel_cases.{case}", 2, library=library)


def test_a_group_that_the_process_does_not_have_is_rejected_in_phase_one(ranks, library):
    for said in ranks.run_in_group("kernel_cases.unknown_group", 2, library=library):
        assert "161002" in said and "aclnnCollectiveAdd: group: the process has no communicator named 'nobody'" in said


# By the number of the fault in kernels/op_kernel/collective_add_tiling.h; what the call says on both ranks.
FAULTS = {
    "no commit": (1, {"commits": 0}, "Wait(0) for AllReduce, committed 0 of 2 times: the block waits indefinitely"),
    "bad handle": (2, {"commits": 0}, "Commit(5): no Prepare function of this core has returned that handle"),
    "commits": (3, {}, "Commit(0): AllReduce was committed 2 times, as often as its repeat says"),
    "waits": (4, {}, "Wait(0): the core has waited for AllReduce 2 times, as often as its repeat says"),
    "no Finalize": (5, {}, "collective_add: Hccl: the kernel has ended without Finalize after AllReduce in line"),
    "early Finalize": (6, {"commits": 0}, "Finalize: AllReduce in line"),
    "no tiling": (7, {}, "AllReduce: SetCcTilingV2 was not called with a Mc2CcTiling of its opType, 2"),
    "no Init": (8, {}, "AllReduce: the Hccl object is not initialised; call InitV2 first"),
    "product": (9, {}, "AllReduce: there is no product of float32"),
    "dtype": (0, {"type": 5}, "AllReduce: there is no sum of int64"),
    "no dtype": (0, {"type": 13}, "AllReduce: dataType is 13, which is not an HcclDataType"),
    "8-bit floats": (0, {"type": 15, "command": 6}, "AllGather: float8_e4m3fn"),
    "stride": (10, {"command": 6}, "AllGather: strideCount is 6, less than the 7 elements of each rank"),
    "repeat": (0, {"repeat": 0}, "AllReduce: repeat is 0; expected 1 to 255"),
    "steps": (0, {"steps": 1}, "SetCcTilingV2: SetStepSize(1) is not supported"),
    "count": (11, {}, "the ranks disagree in the count: 7 on rank 0; 8 on rank 1"),
    "reads early": (14, {"checks": True}, "of result, which the other one writes in line"),
    "apart": (15, {"checks": True}, "of x, which the other one writes in line"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_kernel_does_wrong_is_named(ranks, library, name):
    number, given, message = FAULTS[name]
    arguments = {"library": library, "fault": number} | given
    for said in ranks.run_in_group("kernel_cases.fault_of", 2, arguments=arguments):
        assert message in said and "collective_add" in said, said


def test_a_rank_whose_kernel_fails_tells_the_others(ranks, library):
    arguments = {"library": library, "fault": 12}
    one, other = ranks.run_in_group("kernel_cases.fault_of", 2, arguments=arguments)
    assert "rank 1 is no good" in other
    assert "AllReduce (call 1) of communicator" in one and "rank 1: " in one and "rank 1 is no good" in one


def test_a_rank_that_does_not_come_is_named_after_the_time_out(ranks, library):
    arguments = {"library": library, "fault": 13}
    one, other = ranks.run_in_group("kernel_cases.fault_of", 2, timeout=2, arguments=arguments, stay=6)
    assert "Wait(0) for AllReduce" in one and "rank 1 (process" in one and "did not come within 2 s" in one
    assert other == ""


# In a launch that has no communicator, and on chips.
@pytest.mark.parametrize(
    ("soc", "server", "message"),
    [
        ("Ascend910B3", "AICPU", "Hccl: the context is null: the launch has no communicator"),
        ("Ascend910B3", "CCU", "Hccl: Ascend910B3 only has the server HCCL_SERVER_TYPE_AICPU"),
        ("Ascend310P3", "AICPU", "Hccl: Ascend310P3 has no collectives in kernels"),
    ],
)
def test_a_launch_without_a_communicator(tmp_path, soc, server, message):
    source = tmp_path / "alone.cpp"
    source.write_text(
        '#include "kernel_operator.h"\n'
        'extern "C" __global__ __aicore__ void alone(GM_ADDR x) {\n'
        f"  AscendC::Hccl<AscendC::HCCL_SERVER_TYPE_{server}> hccl;\n"
        "  hccl.InitV2(AscendC::GetHcclContext<0>(), x);\n"
        "}\n"
    )
    call = f"import numpy, cann_cpu.kernel as k; k.KernelFile({str(source)!r})['alone'](numpy.zeros(8, numpy.uint8))"
    done = fresh.run([sys.executable, "-c", call], env={**os.environ, "CANN_CPU_SOC": soc})
    assert done.returncode != 0 and f"alone.cpp:4: alone, block 0: {message}" in done.stderr, done.stderr


def test_a_definition_whose_group_is_no_attribute_is_rejected(tmp_path, library):
    folder = project(tmp_path / "project", "wrong", CollectiveAdd={})
    shutil.copytree(HERE, folder, dirs_exist_ok=True)
    host = folder / "op_host/collective_add.cpp"
    host.write_text(host.read_text().replace('HcclGroup("group")', 'HcclGroup("team")'))
    assert 'MC2().HcclGroup("team")' in run("bash", folder / "build.sh", fails=True)
