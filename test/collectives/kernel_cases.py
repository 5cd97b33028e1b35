# SPDX-License-Identifier: Apache-2.0
"""The cases that ranks run with operators whose Ascend C kernels call collectives (kernels/)."""

import os
import sys
import time
from pathlib import Path

import torch
from cases import equal, error_of
from matmul_cases import name_of_group

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import aclnn

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL_V, ALL_TO_ALL = 2, 6, 7, 8, 10
COMMANDS = [ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, ALL_TO_ALL_V]
# One; a prime; more than the ranks exchange in one message of one fold.
COUNTS = [1, 13, 20011]
UNWRITTEN = 77


def sent(command, rank, size, each, dtype):
    """What a rank gives to the collective, `each` elements in a block."""
    blocks = {ALL_REDUCE: 1, ALL_GATHER: 1, ALL_TO_ALL_V: size * (rank + 1)}.get(command, size)
    return torch.arange(blocks * each).remainder(19).add(rank * 3).to(dtype)


def expected(command, rank, size, each, dtype):
    given = [sent(command, other, size, each, dtype) for other in range(size)]
    if command == ALL_REDUCE:
        return sum(given)
    if command == ALL_GATHER:
        return torch.cat(given)
    mine = [one.view(size, -1)[rank] for one in given]
    return sum(mine) if command == REDUCE_SCATTER else torch.cat(mine)


def call(library, rank, size, command, count, repeat=1, dtype=torch.float32, group=None, **given):
    """The operator's two outputs, on the device."""
    attributes = {"commits": 1, "fault": 0, "type": -1, "keeps_own": 0, "steps": 0} | given
    x = sent(command, rank, size, count * repeat, dtype).npu()
    result = torch.full(expected(command, rank, size, count * repeat, dtype).shape, UNWRITTEN, dtype=dtype).npu()
    y = torch.zeros_like(result)
    numbers = (command, repeat, count, *attributes.values())
    aclnn.call(library, "aclnnCollectiveAdd", x, group or name_of_group(), *numbers, result, y)
    return result, y


def every_collective(rank, size, library):
    for command in COMMANDS:
        for count in COUNTS:
            for repeat in (1, 4):
                for commits in (0, 1):
                    dtype = (torch.float32, torch.float16, torch.int32)[(count + repeat + commits) % 3]
                    result, y = call(library, rank, size, command, count, repeat, dtype, commits=commits)
                    right = expected(command, rank, size, count * repeat, dtype)
                    equal(result, right)
                    equal(y, right + 1)


def beside_others(rank, size, library):
    """In the order of the group's calls, whatever the streams."""
    torch.distributed.all_reduce(torch.ones(1).npu())
    others = torch.full((3,), float(rank)).npu()
    for _ in range(4):
        with torch.npu.stream(torch.npu.Stream()):
            work = torch.distributed.all_reduce(others, async_op=True)
        equal(call(library, rank, size, ALL_GATHER, 5)[0], expected(ALL_GATHER, rank, size, 5, torch.float32))
        work.wait()


def own_part_left_out(rank, size, library):
    for command in (ALL_GATHER, ALL_TO_ALL):
        right = expected(command, rank, size, 6, torch.float32)
        right.view(size, -1)[rank] = UNWRITTEN
        equal(call(library, rank, size, command, 6, keeps_own=1)[0], right)


def products(rank, size, library):
    """A product of each rank's rows after their AllGather, on cube cores."""
    torch.manual_seed(5)
    rows = [torch.randint(-3, 4, (32, 48)).half() for _ in range(size)]
    right = torch.randint(-3, 4, (48, 32)).half()
    gathered = torch.zeros(size * 32, 48, dtype=torch.half).npu()
    out = torch.zeros(size * 32, 32, dtype=torch.half).npu()
    for _ in range(2):
        aclnn.call(library, "aclnnGatherMatmul", rows[rank].npu(), right.npu(), name_of_group(), gathered, out)
        equal(gathered, torch.cat(rows))
        equal(out, (torch.cat(rows).float() @ right.float()).half())


def fault_of(rank, size, arguments, stay=0):
    """What the call says; rank 1 stays in the group for some seconds more."""
    arguments = {"command": ALL_REDUCE, "count": 7, "repeat": 2, "checks": False} | arguments
    os.environ["ASCENDC_CPU_CHECKS"] = str(int(arguments.pop("checks")))
    try:
        return error_of(lambda: call(rank=rank, size=size, **arguments))
    finally:
        os.environ.pop("ASCENDC_CPU_CHECKS")
        time.sleep(stay * rank)


def checked(rank, size, library):
    """Under the checks, which see what the server reads and writes, as without them."""
    os.environ["ASCENDC_CPU_CHECKS"] = "1"
    for command in COMMANDS:
        equal(call(library, rank, size, command, 40, 3)[0], expected(command, rank, size, 120, torch.float32))
    os.environ.pop("ASCENDC_CPU_CHECKS")


def unknown_group(rank, size, library):
    try:
        call(library, rank, size, ALL_REDUCE, 3, group="nobody")
    except aclnn.Rejected as rejected:
        return str(rejected)
