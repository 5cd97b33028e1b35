# SPDX-License-Identifier: Apache-2.0
"""Programs of several ranks for the checks: right ones, and one whose result depends on the order.

torchrun starts them; where it does not, this forks two ranks, from a process that may have imported torch already.
"""

import os
import signal
import socket
import sys


def fork_ranks(size):
    """Returns in each rank, with torchrun's variables. The first rank that fails ends the others."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listener.getsockname()[1])}
    ranks = set()
    for rank in range(size):
        process = os.fork()
        if process == 0:
            variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
            os.environ.update(address | {name: str(value) for name, value in variables.items()})
            return
        ranks.add(process)
    code = 0
    while ranks:
        process, status = os.wait()
        ranks.remove(process)
        if status and not code:
            code = 1
            for other in ranks:
                os.kill(other, signal.SIGKILL)
    sys.exit(code)


if __name__ == "__main__" and "LOCAL_RANK" not in os.environ:
    fork_ranks(2)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

N = 1 << 18  # a rank reads so much from the other's memory


def ones(*shape):
    return torch.ones(*shape, device="npu")


def reduces():
    x = ones(N)
    dist.all_reduce(x)
    return x


def waits_for_what_it_began():
    x, y = ones(N), ones(N)
    work = dist.all_reduce(x, async_op=True)
    y.mul_(3)
    work.wait()
    return x + y


def moves_parts():
    rank, size = dist.get_rank(), dist.get_world_size()
    x, gathered = ones(N) * rank, torch.empty(size * N, device="npu")
    dist.all_gather_into_tensor(gathered, x)
    exchanged, part = torch.empty_like(gathered), torch.empty(N, device="npu")
    dist.all_to_all_single(exchanged, gathered)
    dist.reduce_scatter_tensor(part, exchanged)
    root = part if rank == 0 else torch.empty(N, device="npu")
    dist.broadcast(root, 0)
    return root


def sends_around():
    rank, size = dist.get_rank(), dist.get_world_size()
    x, y = ones(N) * rank, torch.empty(N, device="npu")
    sends = dist.P2POp(dist.isend, x, (rank + 1) % size), dist.P2POp(dist.irecv, y, (rank - 1) % size)
    for work in dist.batch_isend_irecv(list(sends)):
        work.wait()
    dist.all_reduce(y)
    return y


def reduces_in_a_graph():
    x = ones(N)
    dist.all_reduce(x)
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        dist.all_reduce(x)
    graph.replay()
    return x


def trains():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).npu()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.npu.current_device()])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(ones(4, 64)).sum().backward()
        optimizer.step()
    return next(model.parameters()).detach()


def does_not_wait_for_what_it_began():
    x = ones(N)
    torch.npu.synchronize()
    work = dist.all_reduce(x, async_op=True)
    y = x * 2  # here
    work.wait()
    return y


RIGHT = [reduces, waits_for_what_it_began, moves_parts, sends_around, reduces_in_a_graph, trains]

if __name__ == "__main__":
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("hccl")
    for program in RIGHT if sys.argv[1] == "right" else [globals()[sys.argv[1]]]:
        total = program().double().sum().item()
        if dist.get_rank() == 0:
            print(program.__name__, total, flush=True)
        torch.npu.synchronize()
    dist.destroy_process_group()
