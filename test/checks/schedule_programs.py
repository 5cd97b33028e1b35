# SPDX-License-Identifier: Apache-2.0
"""Programs for the check `schedule`: wrong ones, whose results depend on the order of the streams, and right ones.

A program returns its result, which is compared with that of the tasks in the order of their launches.
"""

import sys
from pathlib import Path

import torch

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


# ---- wrong: what the marked line computes depends on the order first, where there is such a line


@wrong
def reads_on_a_side_stream_without_waiting(side):
    x = torch.zeros(N, device="npu")
    torch.npu.synchronize()
    x.add_(1)
    with on(side):
        y = x * 2  # here
    torch.npu.synchronize()
    return y.sum().item()


@wrong
def reads_the_side_streams_result_without_waiting(side):
    x, y = torch.zeros(N, device="npu"), torch.zeros(N, device="npu")
    torch.npu.synchronize()
    with on(side):
        torch.add(x, 3, out=y)
    z = y * 2  # here
    torch.npu.synchronize()
    return z.sum().item()


@wrong
def frees_without_record_stream(side):
    x = torch.ones(N, device="npu")
    side.wait_stream(torch.npu.current_stream())
    with on(side):
        y = x * 2  # here
    del x
    torch.empty(N, device="npu").fill_(5)
    torch.npu.synchronize()
    return y.sum().item()


@wrong
def records_the_event_on_the_wrong_stream(side):
    x = torch.zeros(N, device="npu")
    torch.npu.synchronize()
    event = torch.npu.Event()
    with on(side):
        x.add_(1)
    event.record()
    torch.npu.current_stream().wait_event(event)
    y = x * 2  # here
    torch.npu.synchronize()
    return y.sum().item()


@wrong
def records_the_event_too_early(side):
    x = torch.zeros(N, device="npu")
    event = torch.npu.Event()
    event.record()
    x.add_(1)
    side.wait_event(event)
    with on(side):
        y = x * 2  # here
    torch.npu.synchronize()
    return y.sum().item()


@wrong
def reads_a_pinned_buffer_before_it_was_copied(side):
    x = torch.ones(N, device="npu")
    torch.npu.synchronize()
    buffer = torch.zeros(N).pin_memory()
    with on(side):
        buffer.copy_(x, non_blocking=True)
    torch.npu.current_stream().synchronize()
    result = buffer.sum().item()
    torch.npu.synchronize()
    return result


@wrong
def refills_a_pinned_batch_that_is_being_copied(side):
    batch = torch.ones(N).pin_memory()
    with on(side):
        x = batch.to("npu", non_blocking=True)  # here
    batch.fill_(7)
    torch.npu.synchronize()
    return x.sum().item()


@wrong
def swaps_buffers_and_waits_for_the_one_before_last(side):
    main, buffers = torch.npu.current_stream(), [torch.zeros(N, device="npu") for _ in range(2)]
    torch.npu.synchronize()
    sums, ready = [], [torch.npu.Event(), torch.npu.Event()]
    for step in range(4):
        with on(side):
            buffers[step % 2].fill_(step + 1)
            ready[step % 2].record()
        main.wait_event(ready[(step + 1) % 2])
        sums.append(buffers[step % 2].sum())  # here
    torch.npu.synchronize()
    return [one.item() for one in sums]


@wrong
def replays_a_graph_beside_its_inputs_update(side):
    x = torch.zeros(N, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = x * 2
    torch.npu.synchronize()
    x.fill_(3)
    with on(side):
        graph.replay()  # here
    torch.npu.synchronize()
    return y.sum().item()


@wrong
def adds_up_on_two_streams(side):
    x = torch.ones(N, device="npu")
    torch.npu.synchronize()
    for _ in range(3):
        with on(side):
            x.mul_(3)
        x.add_(1)
    torch.npu.synchronize()
    return x.sum().item()


@wrong
def polls_another_event(side):
    x = torch.zeros(N, device="npu")
    torch.npu.synchronize()
    event = torch.npu.Event()
    event.record()
    with on(side):
        x.add_(1)
    while not event.query():
        pass
    y = x * 2  # here
    torch.npu.synchronize()
    return y.sum().item()


@wrong
def waits_for_the_host_where_the_stream_should_wait(side):
    x, sums = torch.zeros(N, device="npu"), []
    torch.npu.synchronize()
    for _ in range(4):
        with on(side):
            x.add_(1)
        torch.npu.current_stream().synchronize()
        y = x * 2  # here
        torch.npu.synchronize()
        sums.append(y.sum().item())
    return sums


# ---- right


@right
def waits_for_the_stream(side):
    x = torch.zeros(N, device="npu")
    side.wait_stream(torch.npu.current_stream())
    with on(side):
        x.add_(1)
    torch.npu.current_stream().wait_stream(side)
    return (x * 2).sum().item()


@right
def waits_for_an_event(side):
    x, event = torch.zeros(N, device="npu"), torch.npu.Event()
    event.record()
    side.wait_event(event)
    with on(side):
        x.add_(1)
        event.record()
    event.synchronize()
    return (x * 2).sum().item()


@right
def polls_an_event_and_a_stream(side):
    x, event = torch.zeros(N, device="npu"), torch.npu.Event()
    torch.npu.synchronize()
    with on(side):
        x.add_(1)
        event.record()
    while not event.query():
        pass
    y = x * 2
    while not torch.npu.current_stream().query():
        pass
    return y.sum().item()


@right
def records_the_stream(side):
    x = torch.ones(N, device="npu")
    side.wait_stream(torch.npu.current_stream())
    with on(side):
        y = x * 2
        x.record_stream(side)
    del x
    torch.empty(N, device="npu").fill_(5)
    torch.npu.synchronize()
    return y.sum().item()


@right
def forks_and_joins_in_a_graph(side):
    x = torch.zeros(N, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        main = torch.npu.current_stream()
        side.wait_stream(main)
        with on(side):
            y = x + 1
        z = x * 2
        main.wait_stream(side)
        out = y + z
    for value in range(3):
        x.fill_(value)
        graph.replay()
    return out.sum().item()


@right
def passes_a_value_through_many_streams(side):
    streams = [torch.npu.Stream() for _ in range(5)]
    x = torch.zeros(N, device="npu")
    before = torch.npu.current_stream()
    for stream in streams * 3:
        stream.wait_stream(before)
        with on(stream):
            x.mul_(2).add_(1)
        before = stream
    before.synchronize()
    return x.sum().item()


@right
def trains(side):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(4, 8, device="npu")).sum().backward()
        optimizer.step()
    return [p.sum().item() for p in model.parameters()]


def line_of(function) -> str:
    """Where the mark is, as the check writes it; empty where the program has none."""
    code, lines = function.__code__, Path(__file__).read_text().splitlines()
    for number in range(code.co_firstlineno + 1, len(lines) + 1):
        if lines[number - 1].startswith("def ") and not lines[number - 1].startswith(f"def {code.co_name}"):
            return ""
        if lines[number - 1].endswith("  # here"):
            return f"{__file__}:{number} in {code.co_name}"
    return ""


if __name__ == "__main__":
    chosen = {f.__name__: f for f in WRONG + RIGHT}
    names = {"wrong": [f.__name__ for f in WRONG], "right": [f.__name__ for f in RIGHT]}.get(sys.argv[1], sys.argv[1:])
    for name in names:
        print(name, chosen[name](torch.npu.Stream()), flush=True)
        torch.npu.synchronize()
