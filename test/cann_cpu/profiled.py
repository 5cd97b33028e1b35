# SPDX-License-Identifier: Apache-2.0
"""A program for the profiler: `profiled.py FOLDER STEPS`. It prints when each step began and ended."""

import sys
import time

import torch
import torch_npu.profiler as profiler
import torchair
from cann_cpu import python_task


def sum_of_products(x, y):
    return torch.sum(x * y)


def main(folder, steps):
    x = torch.ones(8, 16, dtype=torch.float16, device="npu")
    y = torch.ones(4, device="npu")
    side = torch.npu.Stream()

    captured = torch.npu.NPUGraph()
    with torch.npu.graph(captured):
        z = x.sin()
        z.cos_()
    compiled = torch.compile(sum_of_products, backend=torchair.get_npu_backend(), dynamic=False)
    compiled(x, x)
    torch.npu.synchronize()

    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=1, warmup=1, active=steps, repeat=2),
        on_trace_ready=profiler.tensorboard_trace_handler(folder),
        record_shapes=True,
        experimental_config=profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1),
    ) as profile:
        for _ in range(2 * (2 + steps)):
            begin = time.time_ns()
            x.exp()
            python_task.launch("double_kernel", lambda: None)
            torch.add(y, y, alpha=2)
            with torch.npu.stream(side):
                torch.matmul(x, x.t())
            torch.npu.synchronize()
            captured.replay()
            compiled(x, x)
            y.cpu()
            print("step", begin, time.time_ns())
            profile.step()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
