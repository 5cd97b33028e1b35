# SPDX-License-Identifier: Apache-2.0
"""Eight threads on eight streams: allocations, copies, operators, events, captures, replays, collectives.

Every thread counts on its stream what it has enqueued, so that a lost or repeated task shows in a sum. At the end the
device's memory, the threads of the process, its open files and, within 64 MiB, its host memory are what they were after
the first seconds. The collectives have a second rank, a process with a thread and a group for each thread here.

    python test/reliability/soak.py [--seconds N] [--warm-up N] [--threads N] [--seed N]
"""

import argparse
import gc
import os
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

os.environ |= {"CANN_CPU_DEVICES": "2", "TORCH_HCCL_ASYNC_ERROR_HANDLING": "0"}

import torch
import torch.distributed as dist

import custom_pypto  # noqa: F401

HOST_SLACK = 64 << 20  # bytes that the allocators of the host may keep
ELEMENTS = [1, 7, 1000, 40_000, 300_000]
CAPTURING = threading.Lock()


class Thread(threading.Thread):
    """Draws what it does next; `tasks` is what its counter must be. Pauses after each phase: they end at `ends`."""

    def __init__(self, seed: int, ends: list[float], pause: threading.Barrier, group: dist.ProcessGroup | None):
        super().__init__(daemon=True)
        self.random, self.ends, self.pause, self.group = random.Random(seed), ends, pause, group
        self.tasks, self.rounds, self.error = 0, 0, None
        self.actions = [self.copies, self.operators, self.orders, self.custom, self.captures]
        self.actions += [self.collectives] if group else []

    def run(self) -> None:
        try:
            torch.npu.set_device(0)
            self.stream, self.other = torch.npu.Stream(), torch.npu.Stream()  # PyTorch has 32
            with torch.npu.stream(self.stream):
                self.counter = torch.zeros(1, dtype=torch.int64, device="npu")
                for end in self.ends:
                    while time.monotonic() < end:
                        self.random.choice(self.actions)()
                        self.rounds += 1
                    counted = self.counter.item()
                    if counted != self.tasks:
                        raise AssertionError(f"{self.tasks} tasks were enqueued, {counted} have run")
                    self.pause.wait()  # everybody has finished the phase
                    self.pause.wait()  # and what the process holds has been looked at
                if self.group:
                    dist.broadcast(torch.zeros(1, dtype=torch.int64, device="npu"), 0, group=self.group)
        except BaseException as error:
            self.error = error
            self.pause.abort()

    def count(self) -> None:
        self.counter += 1
        self.tasks += 1

    def numbers(self) -> torch.Tensor:
        return torch.full((self.random.choice(ELEMENTS),), float(self.random.randrange(100)))

    def copies(self) -> None:
        x = self.numbers()
        if self.random.random() < 0.5:
            x = x.pin_memory()
        y = x.to("npu", non_blocking=True)
        self.count()
        assert torch.equal(y.cpu(), x)

    def operators(self) -> None:
        x = self.numbers()
        y = x.npu()
        for _ in range(self.random.randrange(1, 30)):
            y = y * 2 - y
            self.count()
        assert torch.equal(y.cpu(), x)

    def orders(self) -> None:
        """Another stream works in between."""
        x = self.numbers().npu()
        self.other.wait_stream(self.stream)
        with torch.npu.stream(self.other):
            x += 1
            x.record_stream(self.other)
        self.stream.wait_stream(self.other)
        self.count()
        assert (x - 1).min().item() == (x - 1).max().item()

    def custom(self) -> None:
        x = self.numbers().npu()
        y = torch.ops.custom_pypto.add_custom(x, x)
        self.count()
        assert torch.equal(y.cpu(), 2 * x.cpu())

    def captures(self) -> None:
        graph = torch.npu.NPUGraph()
        x = torch.zeros(self.random.choice(ELEMENTS), device="npu")
        self.stream.synchronize()
        # torch.npu.graph synchronises the device, which is illegal while another thread captures.
        with CAPTURING, torch.npu.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            x += 1
            self.counter += 1
        replays = self.random.randrange(1, 5)
        for _ in range(replays):
            graph.replay()
            self.tasks += 1
        assert x.min().item() == x.max().item() == replays

    def collectives(self) -> None:
        """The other rank learns how many elements there are, and adds 1 to each."""
        x = self.numbers()
        y = x.npu()
        dist.broadcast(torch.tensor([x.numel()]).npu(), 0, group=self.group)
        dist.all_reduce(y, group=self.group)
        self.count()
        assert torch.equal(y.cpu(), x + 1)


def groups(rank: int, port: int, threads: int) -> list[dist.ProcessGroup]:
    """One for each thread, of two ranks."""
    torch.npu.set_device(rank)
    dist.init_process_group("hccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    return [dist.new_group([0, 1]) for _ in range(threads)]


def answer(group: dist.ProcessGroup) -> None:
    """A thread of the other rank."""
    torch.npu.set_device(1)
    with torch.npu.stream(torch.npu.Stream()):
        count = torch.zeros(1, dtype=torch.int64, device="npu")
        while dist.broadcast(count, 0, group=group) is None and count.item():
            dist.all_reduce(torch.ones(count.item(), device="npu"), group=group)


def serve(port: int, threads: int) -> None:
    torch.set_num_threads(1)
    workers = [threading.Thread(target=answer, args=(group,)) for group in groups(1, port, threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    dist.destroy_process_group()


def state() -> dict[str, int]:
    """What the process holds once nothing is under way."""
    gc.collect()
    torch.npu.synchronize()
    torch.npu.empty_cache()
    free, total = torch.npu.mem_get_info()
    host = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return {
        "bytes of the device": total - free,
        "open files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "bytes of the host": int(host.split()[1]) * 1024,
    }


def work(
    threads: int, warm_up: float, seconds: float, seed: int, groups: list[dist.ProcessGroup] | None = None
) -> tuple[list[Thread], list[dict[str, int]]]:
    """The threads, and what the process held when they had warmed up and at the end."""
    groups = groups or [None] * threads
    start = time.monotonic()
    ends, pause = [start + warm_up, start + warm_up + seconds], threading.Barrier(threads + 1)
    workers = [Thread(seed * 1000 + i, ends, pause, groups[i]) for i in range(threads)]
    for worker in workers:
        worker.start()
    held = []
    for end in ends:
        while time.monotonic() < end and not pause.broken:
            if sys.stderr.isatty():
                tasks, left = sum(worker.tasks for worker in workers), max(ends[-1] - time.monotonic(), 0)
                print(f"\r\033[K{tasks} tasks, {left:.0f} s left", end="", file=sys.stderr, flush=True)
            time.sleep(0.2)
        try:
            pause.wait()
            held.append(state())
            pause.wait()
        except threading.BrokenBarrierError:
            errors = [worker.error for worker in workers if not isinstance(worker.error, threading.BrokenBarrierError)]
            raise next(filter(None, errors)) from None
    for worker in workers:
        worker.join()
    return workers, held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--warm-up", type=float, default=10, metavar="SECONDS")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.threads)
        return 0
    torch.set_num_threads(1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [sys.executable, __file__, f"--serve={port}", f"--threads={options.threads}"]
    with subprocess.Popen(command) as other:
        try:
            made = groups(0, port, options.threads)
            workers, (before, after) = work(options.threads, options.warm_up, options.seconds, options.seed, made)
            dist.destroy_process_group()
        except BaseException:
            other.kill()
            raise
    rounds, tasks = sum(worker.rounds for worker in workers), sum(worker.tasks for worker in workers)
    print(f"\n{options.threads} threads, {options.seconds:.0f} s: {rounds} rounds, {tasks} tasks counted, none lost")
    grown = False
    for what, count in before.items():
        print(f"{what:24}{count:16}{after[what]:16}")
        grown |= after[what] > count + (HOST_SLACK if what == "bytes of the host" else 0)
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
