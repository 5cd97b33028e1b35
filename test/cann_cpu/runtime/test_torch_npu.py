# SPDX-License-Identifier: Apache-2.0
"""The runtime as torch.npu shows it: streams, events, memory, devices, processes, captured graphs."""

import gc
import os
import sys
import textwrap
import threading
from contextlib import contextmanager

import fresh
import pytest
import torch
import torch_versions

MIB = 1 << 20


def run_program(program, code=0, **variables):
    result = fresh.run([sys.executable, "-c", textwrap.dedent(program)], env=os.environ | variables)
    assert result.returncode == code, result.stderr


def test_sleeps_of_torch_npus_threads_may_stretch_and_not_those_of_the_program():
    """Its release thread sleeps in an endless loop of microseconds; threads inherit how far Linux stretches that."""
    run_program(
        """
        import ctypes, os, time, torch
        PR_SET_TIMERSLACK, PR_GET_TIMERSLACK = 29, 30
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(70_000))
        for device in range(2):
            torch.ones(1).npu(device)
            torch.npu.synchronize(device)
            assert libc.prctl(PR_GET_TIMERSLACK) == 70_000, device
        def read(path):
            return open(path).read().strip()
        of_devices = []
        while len(of_devices) < 2:  # a thread names itself once it runs
            time.sleep(0.01)
            threads = os.listdir("/proc/self/task")
            of_devices = [thread for thread in threads if read(f"/proc/self/task/{thread}/comm") == "release_thread"]
        assert {read(f"/proc/{thread}/timerslack_ns") for thread in of_devices} == {"1000000"}
        """
    )


QUEUES = ["1", *(pytest.param(queue, marks=pytest.mark.nightly) for queue in "02")]
"""TASK_QUEUE_ENABLE; 1 is the default."""


@pytest.fixture(params=[0, 1], ids=["npu:0", "npu:1"])
def device(request):
    with torch.npu.device(request.param):
        yield torch.device("npu", request.param)


@pytest.fixture
def clean_memory():
    gc.collect()
    torch.npu.empty_cache()


def test_the_machine_has_two_devices():
    assert torch.npu.is_available()
    assert torch.npu.device_count() == 2
    properties = torch.npu.get_device_properties(1)
    assert properties.name == "Ascend910B3"
    assert properties.total_memory == torch.npu.mem_get_info(1)[1]


def test_values_go_to_the_device_and_come_back(device):
    x = torch.arange(1000, dtype=torch.int32).reshape(10, 100)
    assert torch.equal(x.to(device).cpu(), x)
    assert torch.equal(x.pin_memory().to(device, non_blocking=True).to("cpu"), x)
    other = torch.device("npu", 1 - device.index)
    assert torch.equal(x.to(device).to(other).cpu(), x)


@pytest.mark.usefixtures("clean_memory")
def test_memory_counts_add_up_and_come_back(device):
    before = torch.npu.mem_get_info()
    torch.npu.reset_peak_memory_stats()
    allocated = torch.npu.memory_allocated()
    x = torch.empty(64 * MIB, dtype=torch.uint8, device=device)
    assert 64 * MIB <= torch.npu.memory_allocated() - allocated < 65 * MIB
    assert 64 * MIB <= before[0] - torch.npu.mem_get_info()[0] <= 96 * MIB
    del x
    assert torch.npu.max_memory_allocated() >= 64 * MIB + allocated
    torch.npu.empty_cache()
    assert torch.npu.memory_allocated() == allocated
    assert torch.npu.mem_get_info() == before


@pytest.mark.usefixtures("clean_memory")
def test_out_of_memory_is_torchs_error_and_memory_serves_again(device):
    free, total = torch.npu.mem_get_info()
    with pytest.raises(torch.OutOfMemoryError, match=r"NPU out of memory\. Tried to allocate"):
        torch.empty(total + 1, dtype=torch.uint8, device=device)
    x = torch.empty(free // 2, dtype=torch.uint8, device=device)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(free // 2 + 4 * MIB, dtype=torch.uint8, device=device)
    del x
    y = torch.empty(free // 2 + 4 * MIB, dtype=torch.uint8, device=device)
    del y
    assert torch.zeros(3, device=device).tolist() == [0, 0, 0]


def test_pinned_memory_is_known_as_pinned():
    x = torch.arange(10)
    assert x.pin_memory().is_pinned() and not x.is_pinned()
    assert torch.empty(5, pin_memory=True).is_pinned()


def test_a_non_blocking_copy_is_ordered_by_its_stream(device):
    stream = torch.npu.Stream()
    host = torch.empty(1000, dtype=torch.int32, pin_memory=True)
    x = torch.zeros(1000, dtype=torch.int32, device=device)
    torch.npu.synchronize()
    with torch.npu.stream(stream):
        for value in range(20):
            x.fill_(value)
        host.copy_(x, non_blocking=True)
    stream.synchronize()
    assert host.eq(19).all()


def test_streams_wait_for_each_other(device):
    first, second = torch.npu.Stream(), torch.npu.Stream()
    x = torch.zeros(100, device=device)
    torch.npu.synchronize()
    for _ in range(20):
        with torch.npu.stream(first):
            x.add_(1)
        second.wait_stream(first)
        with torch.npu.stream(second):
            x.mul_(1)
        first.wait_stream(second)
    torch.npu.synchronize()
    assert x.cpu().eq(20).all()
    assert first.query() and second.query()


def test_a_stream_waits_for_an_event_of_another_device():
    streams = [torch.npu.Stream(device=d) for d in range(2)]
    values = []
    for d in range(2):
        with torch.npu.device(d):
            values.append(torch.zeros(10, device=f"npu:{d}"))
            torch.npu.synchronize()
    with torch.npu.stream(streams[0]):
        for _ in range(50):
            values[0].add_(1)
        event = streams[0].record_event()
    # torch_npu has a task queue for each device: the record must have left one before the wait leaves the other.
    _ = streams[0].npu_stream
    streams[1].wait_event(event)
    with torch.npu.stream(streams[1]):
        values[1].copy_(values[0])
    streams[1].synchronize()
    assert values[1].cpu().eq(50).all()


def test_events_time_what_is_between_them(device):
    start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.zeros(10, device=device).add_(1)
    end.record()
    end.synchronize()
    assert start.query() and end.query()
    assert start.elapsed_time(end) >= 0


def test_threads_have_devices_of_their_own():
    seen = {}

    def work(index):
        torch.npu.set_device(index)
        x = torch.full((50,), float(index), device="npu")
        for _ in range(20):
            x += 1
        seen[index] = (x.device.index, x.sum().item())

    threads = [threading.Thread(target=work, args=[index]) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {0: (0, 1000.0), 1: (1, 1050.0)}


def test_a_host_function_runs_in_its_place(device):
    seen = []
    stream = torch.npu.Stream()
    x = torch.zeros(4, device=device)
    host = torch.empty(4, pin_memory=True)
    torch.npu.synchronize()
    torch.npu._subscribe_report(stream)
    with torch.npu.stream(stream):
        x.add_(5)
        host.copy_(x, non_blocking=True)
        torch.npu._launch_host_func(stream, lambda tensor: seen.append(tensor.tolist()), host)
        host.copy_(x.zero_(), non_blocking=True)
    stream.synchronize()
    torch.npu._unsubscribe_report(stream)
    assert seen == [[5, 5, 5, 5]]


FAILING_TASK = """
    import ctypes, torch
    tasks = ctypes.CDLL({library!r})
    x = torch.ones(5, device="npu")
    torch.npu.synchronize()
    ways = {{
        "cpu": lambda: x.cpu(),
        "item": lambda: x[0].item(),
        "str": lambda: str(x),
        "bool": lambda: bool((x > 0).all()),
        "nonzero": lambda: x.nonzero(),
        "to the device": lambda: torch.ones(3).npu(),
        "synchronize": lambda: torch.npu.synchronize(),
        "stream.synchronize": lambda: torch.npu.current_stream().synchronize(),
        "event.synchronize": lambda: torch.npu.current_stream().record_event().synchronize(),
        "strided": lambda: torch.ones(4, 4, device="npu").t()[1:].cpu(),
    }}
    for name, way in ways.items():
        stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
        tasks.launch_failing(stream, b"BadKernel", 561000, b"block number 9 is out of range")
        try:
            way()
        except RuntimeError as error:
            assert "BadKernel" in str(error) and "block number 9 is out of range" in str(error), (name, str(error))
        else:
            raise AssertionError(name)
        assert (x + 1).cpu().tolist() == [2] * 5, name
"""


@pytest.mark.parametrize("queue", QUEUES)
def test_a_failed_task_is_a_runtime_error_with_its_message_and_the_process_goes_on(tasks, queue):
    run_program(FAILING_TASK.format(library=tasks._name), TASK_QUEUE_ENABLE=queue)


NOT_SERVED = """
    import torch, torch_npu
    torch.npu.config.allow_internal_format = True
    x = torch.zeros(1, 4, 4, 4, device="npu")
    for way in (lambda y: y.cpu(), lambda y: torch.npu.synchronize()):
        try:
            way(torch_npu.npu_format_cast(x, 3))
        except RuntimeError as error:
            assert "the aclop path" in str(error) and "operator " in str(error), str(error)
        else:
            raise AssertionError("the cast was served")
        assert (x + 1).cpu().eq(1).all()
"""


@pytest.mark.parametrize("queue", QUEUES)
def test_an_operator_that_is_not_served_is_an_error_that_names_it_and_the_next_one_works(queue):
    run_program(NOT_SERVED, TASK_QUEUE_ENABLE=queue)


@contextmanager
def captured(**options):
    """torch.npu.graph on a stream of the current device; its own default is one stream for all devices."""
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, stream=torch.npu.Stream(), **options):
        yield graph


class TestGraphs:
    """torch.npu.NPUGraph."""

    def test_a_replay_computes_on_what_its_inputs_hold_then(self, device):
        x = torch.zeros(8, device=device)
        with captured() as graph:
            y = x * 2
            y += 1
        for value in (1.0, 5.0):
            x.fill_(value)
            graph.replay()
            assert y.cpu().eq(2 * value + 1).all()

    def test_side_streams_join_the_graph(self, device):
        x, side = torch.ones(8, device=device), torch.npu.Stream()
        with captured() as graph:
            main = torch.npu.current_stream()
            side.wait_stream(main)
            with torch.npu.stream(side):
                y = x + 10
            z = x + 100
            main.wait_stream(side)
            z = z + y
        x.fill_(2)
        graph.replay()
        assert z.cpu().eq(114).all()

    @pytest.mark.usefixtures("clean_memory")
    def test_graphs_share_a_pool_and_release_it(self, device):
        before = torch.npu.mem_get_info()
        x = torch.zeros(MIB, device=device)
        with captured() as first:
            y = x + 1
        with captured(pool=first.pool()) as second:
            z = y + 1
        first.replay()
        second.replay()
        assert z.cpu().eq(2).all()
        del y, z, x, first, second
        gc.collect()
        torch.npu.synchronize()
        torch.npu.empty_cache()
        assert torch.npu.mem_get_info() == before

    @pytest.mark.skipif(
        not torch_versions.FAILED_CAPTURE_IS_CLEARED, reason="this torch_npu does not clear a capture that failed"
    )
    def test_an_illegal_call_is_an_exception_and_the_next_capture_works(self, device):
        x = torch.zeros(8, device=device)
        message = "the capture was invalidated: the host asked for the state"
        # torch_npu leaves the capture's stream current where a capture fails.
        with torch.npu.stream(torch.npu.current_stream()), pytest.raises(RuntimeError, match=message), captured():
            x.add_(1)
            torch.npu.current_stream().synchronize()
        with captured() as graph:
            x.add_(1)
        graph.replay()
        assert x.cpu().eq(1).all()


WRITES = {
    "index_put, adding": lambda x, index, source: x.index_put_((index,), source, accumulate=True),
    "index_put": lambda x, index, source: x.index_put_((index,), source),
    "put, adding": lambda x, index, source: x.put_(index, source, accumulate=True),
    "put": lambda x, index, source: x.put_(index, source),
    "index_copy": lambda x, index, source: x.index_copy_(0, index, source),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_elements_that_are_written_twice_are_written_in_order_where_acls_option_asks_for_it(acl, write):
    """As by ATen in one thread; the option is that of the launch, not of the time when the task runs."""
    rows, count = 1000, 1 << 20
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(rows, (count,), generator=generator)
    source = torch.randn(count, generator=generator)
    with torch.npu.device(0):
        x, index_there, source_there = torch.zeros(rows).npu(), index.npu(), source.npu()
        results = []
        for _ in range(3):
            y = x.clone()
            torch.npu.synchronize()
            acl.call("aclrtCtxSetSysParamOpt", acl.OPT_DETERMINISTIC, 1)
            write(y, index_there, source_there)
            assert torch.npu.current_stream().npu_stream  # torch_npu's queue has launched it
            acl.call("aclrtCtxSetSysParamOpt", acl.OPT_DETERMINISTIC, 0)
            results.append(y.cpu())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        expected = write(torch.zeros(rows), index, source)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(result, expected) for result in results)


PROGRAMS = {
    "an exception ends the program as it ends any": ("torch.ones(3).npu(); raise SystemExit(7)", 7),
    "work is underway at the end": ("x = torch.ones(1000, 1000).npu()\nfor _ in range(50): y = x @ x", 0),
    "a graph is alive at the end": (
        """
        x, graph = torch.zeros(8, device="npu"), torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            x.add_(1)
        graph.replay()
        """,
        0,
    ),
    "a forked child that only ends": (
        """
        import os, sys
        torch.ones(3).npu().cpu()
        if os.fork() == 0:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        """,
        0,
    ),
    "expandable segments": (
        """
        x = [torch.full((n * 100_000,), n, device="npu") for n in range(1, 30)]
        assert all(t.cpu().eq(n + 1).all() for n, t in enumerate(x))
        used = torch.npu.mem_get_info()
        del x[::2]
        torch.npu.empty_cache()
        assert torch.npu.mem_get_info()[0] >= used[0]
        try:
            torch.empty(used[1] + 1, dtype=torch.uint8, device="npu")
        except torch.OutOfMemoryError:
            print("out of memory")
        assert all(t.cpu().eq(2 * n + 2).all() for n, t in enumerate(x))
        """,
        0,
    ),
    "a tensor of the second device starts no other": (
        """
        import torch_npu
        x = torch.ones(3, device="npu:1") + 1
        assert [torch_npu._C._npu_hasPrimaryContext(i) for i in range(2)] == [False, True]
        assert x.cpu().eq(2).all()
        """,
        0,
    ),
}


@pytest.mark.parametrize("program, code", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_program_ends_as_it_should(program, code):
    variables = {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"} if "used = " in program else {}
    run_program("import torch\n" + textwrap.dedent(program), code, **variables)


@pytest.mark.parametrize("limit", [100, 101])
def test_a_capture_without_streams_left_says_so_and_leaves_none_underway(limit):
    """As a server that captures a graph for each of many batch sizes, some of their work on a side stream."""
    run_program(
        """
        import torch
        x, side, graphs = torch.ones(4).npu(), torch.npu.Stream(), []

        def capture():
            graph = torch.npu.NPUGraph()
            with torch.npu.graph(graph):
                side.wait_stream(torch.npu.current_stream())
                with torch.npu.stream(side):
                    y = x + 1
                torch.npu.current_stream().wait_stream(side)
            return graph, y

        message = None
        while message is None and len(graphs) < 100:
            try:
                graphs.append(capture())
            except RuntimeError as error:
                message = str(error)
        assert "EL0009" in message and "The stream resources are insufficient" in message, message
        assert 2 < len(graphs) < 50 and not torch.npu.is_current_stream_capturing()
        torch.npu.synchronize()
        for graph, y in graphs:
            y.zero_()
            graph.replay()
            assert (y == 2).all()
        del graph, y
        graphs.clear()
        graphs.append(capture())
        """,
        CANN_CPU_STREAMS=str(limit),
    )


def test_static_kernels_of_torchair_are_rejected_by_name(tmp_path):
    program = f"""
        import torch, torch_npu
        from torch_npu.dynamo import torchair
        config = torchair.CompilerConfig()
        config.mode = "reduce-overhead"
        config.experimental_config.aclgraph._aclnn_static_shape_kernel = True
        config.experimental_config.aclgraph._aclnn_static_shape_kernel_build_dir = {str(tmp_path)!r}
        backend = torchair.get_npu_backend(compiler_config=config)
        torch.compile(lambda x: x * 2, backend=backend)(torch.ones(4).npu())
        """
    result = fresh.run([sys.executable, "-c", textwrap.dedent(program)], env=os.environ)
    assert result.returncode != 0
    assert "_aclnn_static_shape_kernel" in result.stderr and "not implemented" in result.stderr
    assert "AclopStartDumpArgs execute failed" in result.stderr


@pytest.mark.parametrize("blocking", ["0", "1"])
def test_an_error_names_the_variable_that_raises_it_at_its_call(blocking):
    run_program(
        f"""
        import torch
        weight, index = torch.ones(4, 8).npu(), torch.tensor([9]).npu()
        where = "call"
        try:
            torch.nn.functional.embedding(index, weight)
            where = "synchronization"
            torch.npu.synchronize()
        except RuntimeError as error:
            text = str(error)
        assert where == ("call" if {blocking} else "synchronization"), where
        assert "index out of range" in text, text
        assert ("ASCEND_LAUNCH_BLOCKING=1" in text) != {blocking}, text
        """,
        ASCEND_LAUNCH_BLOCKING=blocking,
    )
