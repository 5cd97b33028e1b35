# SPDX-License-Identifier: Apache-2.0
"""The loops of libopapi share their work among OpenMP's threads."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import pathlib, torch, torch_npu

def times():
    "The nanoseconds that each thread has been running."
    tasks = pathlib.Path("/proc/self/task").iterdir()
    return {task.name: int((task / "schedstat").read_text().split()[0]) for task in tasks}

def ones(*shape):
    return torch.ones(shape, dtype=torch.bfloat16, device="npu")

sequences, heads, size = 64, 8, 128
tokens = sequences * 8
state = ones(tokens, heads, size, size)
tensors = [ones(tokens, heads, size), ones(tokens, heads, size), ones(tokens, heads, size), state]
named = dict(
    beta=ones(tokens, heads), scale=1.0, actual_seq_lengths=torch.full((sequences,), 8, dtype=torch.int32).npu(),
    ssm_state_indices=torch.arange(tokens, dtype=torch.int32).npu(),
)

def run():  # a loop of ours over the heads, without ATen's operators, which have threads as well
    for _ in range(4):  # far longer than this thread takes to call it
        torch_npu.npu_recurrent_gated_delta_rule(*tensors, **named)
    torch.npu.synchronize()

run()
before = times()
run()
spent = sorted((now - before.get(thread, 0) for thread, now in times().items()), reverse=True)
print(sum(each > spent[0] // 4 for each in spent))
"""


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_large_call_runs_on_as_many_threads_as_there_are(threads):
    """Each has a part of the heads, so that it runs for that time on however loaded a machine."""
    environment = os.environ | {"OMP_NUM_THREADS": threads}
    command = [sys.executable, "-c", PROGRAM]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout == f"{threads}\n"
