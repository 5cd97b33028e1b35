# SPDX-License-Identifier: Apache-2.0
"""Programs for the check `cost`: with one costly habit each, whose line says what is counted there, and without any.

Each is a generator that goes on step by step, so that all of one process reach their steady state together.
"""

import os
import sys

import torch

import custom_pypto  # noqa: F401

HABITS, ALONE, RIGHT = [], [], []
N = 4096
STEPS = 32


def habit(function):
    HABITS.append(function)
    return function


def alone(function):
    """It changes what the allocator does for all the process."""
    ALONE.append(function)
    return function


def right(function):
    RIGHT.append(function)
    return function


# ---- with a habit


@habit
def reads_a_value_each_step():
    x = torch.ones(N, device="npu")
    while True:
        x.mul_(0.5)
        x.sum().item()  # pageable_to_host
        yield


@habit
def copies_its_result_to_the_host_each_step():
    x = torch.ones(N, device="npu")
    while True:
        y = x.exp()
        y.cpu()  # pageable_to_host
        yield


@habit
def makes_a_list_each_step():
    x = torch.arange(8, device="npu")
    while True:
        x.tolist()  # pageable_to_host
        yield


@habit
def decides_on_the_host():
    x = torch.ones(N, device="npu")
    while True:
        done = (x > 2).any()
        if done:  # pageable_to_host
            x.zero_()
        yield


@habit
def prints_a_tensor():
    x = torch.ones(4, device="npu")
    with open(os.devnull, "w") as nowhere:
        while True:
            print(x, file=nowhere)  # pageable_to_host
            yield


@habit
def fills_a_buffer_that_is_not_pinned():
    x, buffer = torch.ones(N, device="npu"), torch.empty(N)
    while True:
        buffer.copy_(x, non_blocking=True)  # pageable_to_host
        yield


@habit
def copies_a_batch_that_is_not_pinned():
    batch = torch.ones(1 << 16)
    while True:
        x = batch.to("npu", non_blocking=True)  # pageable_to_device
        x.exp_()
        yield


@habit
def makes_a_tensor_of_a_list_each_step():
    step = 0
    while True:
        step += 1
        torch.tensor([step, step + 1], device="npu")  # pageable_to_device
        yield


@habit
def copies_an_array_each_step():
    while True:
        x = torch.arange(N).numpy()
        torch.from_numpy(x).npu()  # pageable_to_device
        yield


@habit
def asks_where_it_is_not_zero():
    x = torch.eye(8, device="npu")
    while True:
        x.nonzero()  # waits
        yield


@habit
def selects_by_a_mask():
    x = torch.ones(N, device="npu")
    mask = x > 0
    while True:
        x[mask]  # waits
        yield


@habit
def synchronises_the_device_each_step():
    x = torch.ones(N, device="npu")
    while True:
        x.mul_(0.5)
        torch.npu.synchronize()  # waits
        yield


@habit
def synchronises_the_stream_each_step():
    x = torch.ones(N, device="npu")
    while True:
        x.mul_(0.5)
        torch.npu.current_stream().synchronize()  # waits
        yield


@habit
def synchronises_an_event_each_step():
    x = torch.ones(N, device="npu")
    event = torch.npu.Event()
    while True:
        x.mul_(0.5)
        event.record()
        event.synchronize()  # waits
        yield


@habit
def scales_parameters_one_by_one():
    parameters = [torch.ones(16, device="npu") for _ in range(40)]
    while True:
        for each in parameters:
            each.mul_(0.5)  # launches
        yield


@habit
def optimises_parameters_one_by_one():
    parameters = [torch.ones(16, device="npu", requires_grad=True) for _ in range(40)]
    for each in parameters:
        each.grad = torch.ones(16, device="npu")
    optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=False)
    while True:
        optimizer.step()  # launches
        yield


@alone
def grows_a_tensor_each_step():
    size = 12 << 20
    x = torch.ones(N, device="npu")
    while True:
        size += 2 << 20
        torch.empty(size, dtype=torch.int8, device="npu")  # allocations
        x.mul_(0.5)
        yield


@alone
def empties_the_cache_each_step():
    while True:
        x = torch.zeros(1 << 24, dtype=torch.int8, device="npu")  # allocations
        del x
        torch.npu.empty_cache()  # frees
        yield


# ---- without


@right
def feeds_pinned_batches():
    batch = torch.ones(1 << 16).pin_memory()
    total = torch.zeros((), device="npu")
    for _ in range(STEPS - 1):
        x = batch.to("npu", non_blocking=True)
        total += x.sum()
        yield
    print(total.item())
    yield


@right
def logs_now_and_then():
    x = torch.ones(N, device="npu")
    for step in range(STEPS):
        loss = x.mul_(0.5).sum()
        if step % 8 == 0:
            print(loss.item())
        yield


@right
def collects_results_in_pinned_memory():
    x, buffer, event = torch.ones(N, device="npu"), torch.empty(N).pin_memory(), torch.npu.Event()
    for step in range(STEPS):
        buffer.copy_(x, non_blocking=True)
        event.record()
        if step == STEPS - 1:
            event.synchronize()
        yield


@right
def makes_its_tensors_on_the_device():
    while True:
        torch.full((N,), 2.0, device="npu") + torch.arange(N, device="npu")
        yield


@right
def masks_with_where():
    x = torch.ones(N, device="npu")
    while True:
        torch.where(x > 0, x, torch.zeros_like(x))
        yield


@right
def scales_parameters_as_a_list():
    parameters = [torch.ones(16, device="npu") for _ in range(40)]
    while True:
        torch._foreach_mul_(parameters, 0.5)
        yield


@right
def optimises_parameters_as_a_list():
    parameters = [torch.ones(16, device="npu", requires_grad=True) for _ in range(40)]
    for each in parameters:
        each.grad = torch.ones(16, device="npu")
    optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=True)
    while True:
        optimizer.step()
        yield


@right
def lets_streams_wait():
    x, side = torch.ones(N, device="npu"), torch.npu.Stream()
    while True:
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            x.mul_(0.5)
        torch.npu.current_stream().wait_stream(side)
        yield


@right
def replays_a_graph():
    x = torch.ones(N, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.mul_(0.5)
    while True:
        graph.replay()
        yield


@right
def calls_layers_in_a_row():
    layers = [torch.nn.Linear(16, 16).npu() for _ in range(40)]
    x = torch.ones(2, 16, device="npu")
    while True:
        y = x
        with torch.no_grad():
            for layer in layers:
                y = layer(y)
        yield


if __name__ == "__main__":
    named = {"habits": HABITS, "right": RIGHT, **{function.__name__: [function] for function in ALONE}}
    programs = [function() for function in named[sys.argv[1]]]
    for _ in range(STEPS):
        for program in programs:
            next(program)
