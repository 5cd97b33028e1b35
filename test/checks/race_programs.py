# SPDX-License-Identifier: Apache-2.0
"""Programs for the check `race`: wrong ones, with the two lines that nothing orders, and right ones."""

import sys

import torch
import torch.distributed as dist

import custom_pypto  # noqa: F401

WRONG, RIGHT = [], []
N = 4096


def wrong(function):
    WRONG.append(function)
    return function


def right(function):
    RIGHT.append(function)
    return function


def on(stream):
    return torch.npu.stream(stream)


def ones():
    """A tensor that every stream may use."""
    x = torch.ones(N, device="npu")
    torch.npu.synchronize()
    return x


def group():
    """A process group of one rank."""
    if not dist.is_initialized():
        dist.init_process_group("hccl", rank=0, world_size=1, store=dist.HashStore())
    return dist


# ---- wrong


@wrong
def reads_on_a_side_stream_what_the_main_stream_writes(side):
    x = ones()
    x.add_(1)  # first
    with on(side):
        x.exp()  # second


@wrong
def reads_on_the_main_stream_what_a_side_stream_writes(side):
    x = ones()
    with on(side):
        x.mul_(2)  # first
    x.sum()  # second


@wrong
def writes_on_both(side):
    x = ones()
    with on(side):
        x.fill_(1)  # first
    x.fill_(2)  # second


@wrong
def writes_what_a_side_stream_still_reads(side):
    x = torch.ones(N, device="npu")
    side.wait_stream(torch.npu.current_stream())
    with on(side):
        x.exp()  # first
    x.zero_()  # second


@wrong
def records_the_event_too_early(side):
    x = torch.ones(N, device="npu")
    event = torch.npu.Event()
    event.record()
    x.add_(1)  # first
    side.wait_event(event)
    with on(side):
        x.exp()  # second


@wrong
def waits_for_another_event(side):
    x = ones()
    ready, other = torch.npu.Event(), torch.npu.Event()
    other.record()
    x.add_(1)  # first
    ready.record()
    side.wait_event(other)
    with on(side):
        x.exp()  # second


@wrong
def frees_without_record_stream(side):
    x = torch.ones(N, device="npu")
    side.wait_stream(torch.npu.current_stream())
    with on(side):
        x.exp()  # first
    del x
    torch.empty(N, device="npu").fill_(1)  # second


@wrong
def uses_a_batch_before_it_was_copied(side):
    batch = torch.ones(N).pin_memory()
    with on(side):
        x = batch.to("npu", non_blocking=True)  # first
    x.exp()  # second


@wrong
def copies_to_the_host_what_is_being_written(side):
    x = ones()
    with on(side):
        x.add_(1)  # first
    x.cpu()  # second


@wrong
def fills_a_pinned_buffer_twice(side):
    x, y = torch.ones(N, device="npu"), torch.ones(N, device="npu")
    buffer = torch.empty(N).pin_memory()
    torch.npu.synchronize()
    with on(side):
        buffer.copy_(x, non_blocking=True)  # first
    buffer.copy_(y, non_blocking=True)  # second


@wrong
def writes_halves_that_overlap(side):
    x = ones()
    with on(side):
        x[: N // 2 + 1].add_(1)  # first
    x[N // 2 :].add_(1)  # second


@wrong
def refills_the_input_of_a_replay(side):
    x = ones()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.exp()
    torch.npu.synchronize()
    with on(side):
        graph.replay()  # first
    x.fill_(2)  # second


@wrong
def replays_a_graph_on_two_streams(side):
    x = ones()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.add_(1)
    torch.npu.synchronize()
    with on(side):
        graph.replay()  # first
    graph.replay()  # second


@wrong
def forks_inside_a_graph_and_writes_on_both(side):
    x = ones()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        main = torch.npu.current_stream()
        side.wait_stream(main)
        with on(side):
            x.add_(1)  # first
        x.mul_(2)  # second
        main.wait_stream(side)


@wrong
def writes_a_cache_that_is_being_read(side):
    key, cache = torch.ones(2, 1, 16, device="npu").half(), torch.zeros(4, 16, 1, 16, device="npu").half()
    slots = torch.tensor([0, 17], dtype=torch.int32).npu()
    torch.npu.synchronize()
    with on(side):
        torch.ops.custom_pypto.reshape_and_cache(key, None, cache, None, slots)  # first
    cache.sum()  # second


@wrong
def refills_what_is_being_reduced(side):
    x = ones()
    work = group().all_reduce(x, async_op=True)  # first
    x.fill_(2)  # second
    work.wait()


@wrong
def reads_what_is_being_gathered(side):
    x, gathered = ones(), ones()
    work = group().all_gather_into_tensor(gathered, x, async_op=True)  # first
    gathered.sum()  # second
    work.wait()


@wrong
def overwrites_a_collective_s_buffer_on_a_side_stream(side):
    x = ones()
    group().all_reduce(x)  # first
    with on(side):
        x.fill_(2)  # second


@wrong
def reduces_what_a_side_stream_computes(side):
    x = ones()
    with on(side):
        x.mul_(2)  # first
    group().all_reduce(x)  # second


# ---- right


@right
def waits_for_the_stream(side):
    x = torch.ones(N, device="npu")
    side.wait_stream(torch.npu.current_stream())
    with on(side):
        x.add_(1)
    torch.npu.current_stream().wait_stream(side)
    x.exp()


@right
def waits_for_an_event(side):
    x = torch.ones(N, device="npu")
    event = torch.npu.Event()
    event.record()
    side.wait_event(event)
    with on(side):
        x.add_(1)
        event.record()
    event.synchronize()
    x.exp()


@right
def polls_an_event(side):
    x = ones()
    event = torch.npu.Event()
    with on(side):
        x.add_(1)
        event.record()
    while not event.query():
        pass
    x.exp()


@right
def synchronises_the_device(side):
    x = ones()
    with on(side):
        x.add_(1)
    torch.npu.synchronize()
    x.exp()


@right
def waits_by_way_of_a_third_stream(side):
    third = torch.npu.Stream()
    x = torch.ones(N, device="npu")
    third.wait_stream(torch.npu.current_stream())
    side.wait_stream(third)
    with on(side):
        x.add_(1)
    torch.npu.current_stream().wait_stream(side)


@right
def reads_on_both(side):
    x = torch.ones(N, device="npu")
    side.wait_stream(torch.npu.current_stream())
    with on(side):
        x.exp()
    x.sin()
    torch.npu.synchronize()


@right
def writes_halves(side):
    x = ones()
    with on(side):
        x[: N // 2].add_(1)
    x[N // 2 :].add_(1)
    torch.npu.synchronize()


@right
def writes_columns(side):
    x = torch.ones(64, 64, device="npu")
    torch.npu.synchronize()
    with on(side):
        x[:, :32].add_(1)
    x[:, 32:].add_(1)
    torch.npu.synchronize()


@right
def records_the_stream(side):
    x = torch.ones(N, device="npu")
    side.wait_stream(torch.npu.current_stream())
    with on(side):
        x.exp()
        x.record_stream(side)
    del x
    torch.empty(N, device="npu").fill_(1)
    torch.npu.synchronize()


@right
def replays_in_order(side):
    x = ones()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        main = torch.npu.current_stream()
        side.wait_stream(main)
        with on(side):
            x.add_(1)
        main.wait_stream(side)
        x.mul_(2)
    graph.replay()
    x.fill_(2)
    graph.replay()
    torch.npu.synchronize()


@right
def prefetches_batches(side):
    for _ in range(3):
        batch = torch.ones(N).pin_memory()
        with on(side):
            x = batch.to("npu", non_blocking=True)
        torch.npu.current_stream().wait_stream(side)
        x.record_stream(torch.npu.current_stream())
        x.exp().cpu()


@right
def waits_for_collectives(side):
    x, y = ones(), ones()
    work = group().all_reduce(x, async_op=True)
    y.add_(1)
    work.wait()
    x.add_(y)


@right
def reduces_on_a_side_stream(side):
    x = torch.ones(N, device="npu")
    side.wait_stream(torch.npu.current_stream())
    with on(side):
        group().all_reduce(x)
    torch.npu.current_stream().wait_stream(side)
    x.exp()


@right
def moves_parts(side):
    x, y = ones(), torch.empty(N, device="npu")
    group().broadcast(x, 0)
    group().all_gather([y], x)
    group().all_to_all_single(x, y)
    group().reduce_scatter_tensor(y, x)
    y.exp()


@right
def trains(side):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).npu()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 8, device="npu")).sum().backward()
        optimizer.step()
    torch.npu.synchronize()


if __name__ == "__main__":
    for program in {"wrong": WRONG, "right": RIGHT}[sys.argv[1]]:
        program(torch.npu.Stream())
        torch.npu.synchronize()
    if dist.is_initialized():
        dist.destroy_process_group()
