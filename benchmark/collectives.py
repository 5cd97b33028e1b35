# SPDX-License-Identifier: Apache-2.0
"""Times AllReduce and AllGather between two ranks of one machine, beside Gloo on CPU tensors and a copy.

All in the same two processes, in turns, medians; the bytes are those of the result. The copy, of as many bytes by both
ranks at once, is what the memory allows. The host's cost is what a call takes until it has returned to the caller.
Exit code 1 if HCCL is slower than Gloo at any size.
"""

import os
import socket
import statistics
import subprocess
import sys
import time

SIZES = [2**power for power in range(16, 29, 2)]  # 64 KiB to 256 MiB
ROUNDS = 15
ROW = "{:<10} {:>8} {:>10} {:>10} {:>10} {:>12} {:>12} {:>10}"


def rank(number: int) -> None:
    import torch
    import torch.distributed as dist
    import torch_npu  # noqa: F401

    torch.npu.set_device(number)
    torch.set_num_threads(1)
    dist.init_process_group("hccl")
    gloo = dist.new_group(backend="gloo")

    def seconds(call, calls: int) -> float:
        """The time of a call until its result is there, on the slower rank, averaged over consecutive calls."""
        dist.barrier(group=gloo)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        torch.npu.synchronize()
        taken = torch.tensor([(time.perf_counter() - start) / calls])
        dist.all_reduce(taken, dist.ReduceOp.MAX, group=gloo)
        return taken.item()

    is_slower = False
    if number == 0:
        print(ROW.format("", "bytes", "HCCL, us", "Gloo, us", "copy, us", "HCCL / Gloo", "HCCL / copy", "host, us"))
    for size in SIZES:
        whole, part = torch.ones(size // 4), torch.ones(size // 8)
        npu_whole, npu_part, copied = whole.npu(), part.npu(), torch.empty_like(whole)
        works = {
            "AllReduce": {
                "HCCL": lambda npu_whole=npu_whole: dist.all_reduce(npu_whole, dist.ReduceOp.MAX),
                "Gloo": lambda whole=whole: dist.all_reduce(whole, dist.ReduceOp.MAX, group=gloo),
            },
            "AllGather": {
                "HCCL": lambda a=npu_whole, b=npu_part: dist.all_gather_into_tensor(a, b),
                "Gloo": lambda a=whole, b=part: dist.all_gather_into_tensor(a, b, group=gloo),
            },
        }
        calls = max(1, min(50, 2**22 // size))
        for name, candidates in works.items():
            candidates["copy"] = lambda copied=copied, whole=whole: copied.copy_(whole)
            times = {candidate: [] for candidate in candidates}
            host = []
            for _ in range(ROUNDS if size < 2**24 else 5):
                for candidate, call in candidates.items():
                    seconds(call, 1)
                    times[candidate].append(seconds(call, calls))
                start = time.perf_counter()
                for _ in range(calls):
                    candidates["HCCL"]()
                host.append((time.perf_counter() - start) / calls)
                torch.npu.synchronize()
            ours, theirs, copy = (statistics.median(times[candidate]) for candidate in ("HCCL", "Gloo", "copy"))
            is_slower = is_slower or ours > theirs
            if number == 0:
                text = f"{size >> 10} KiB" if size < 2**20 else f"{size >> 20} MiB"
                numbers = [f"{1e6 * value:.0f}" for value in (ours, theirs, copy)]
                ratios = [f"{ours / theirs:.2f}", f"{ours / copy:.1f}"]
                print(ROW.format(name, text, *numbers, *ratios, f"{1e6 * statistics.median(host):.0f}"), flush=True)
    dist.destroy_process_group()
    sys.exit(number == 0 and is_slower)


def main() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    started = [subprocess.Popen([sys.executable, __file__, str(i)], env={**common, "RANK": str(i)}) for i in range(2)]
    return max([process.wait() for process in started])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rank(int(sys.argv[1]))
    else:
        sys.exit(main())
