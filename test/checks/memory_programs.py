# SPDX-License-Identifier: Apache-2.0
"""Programs for the check `memory`: wrong ones, with the lines that allocate and are at fault, and right ones."""

import ctypes
import functools
import gc
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch
import torchair
from cann_cpu.kernel import KernelFile

import custom_pypto

WRONG, STOPPED, RIGHT = {}, {}, []
N = 4096
acl = ctypes.CDLL("libascendcl.so")
acl.aclrtMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
acl.aclrtMemsetAsync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p]
acl.aclrtMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
DEVICE_TO_DEVICE, HOST_TO_DEVICE, DEVICE_TO_HOST = 3, 1, 2


def wrong(fault):
    return lambda function: WRONG.setdefault(function, fault) and function


def stopped(fault):
    """Marks a program that ends where it touches the memory."""
    return lambda function: STOPPED.setdefault(function, fault) and function


def right(function):
    RIGHT.append(function)
    return function


def address(tensor, elements=0):
    return ctypes.c_void_p(tensor.data_ptr() + elements * tensor.element_size())


def current_stream():
    return torch.npu.current_stream().npu_stream


def allocate(bytes_):
    pointer = ctypes.c_void_p()
    acl.aclrtMalloc(ctypes.byref(pointer), bytes_, 0)  # allocated
    return pointer


@functools.cache
def communicator():
    """A communicator of one rank."""
    made = ctypes.c_void_p()
    assert ctypes.CDLL("libhccl.so").HcclCommInitAll(1, (ctypes.c_int32 * 1)(0), ctypes.byref(made)) == 0
    return made


@functools.cache
def count():
    """A kernel that writes 0, 1, ..."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "count.cpp"
        source.write_text("""#include "kernel_operator.h"
extern "C" __global__ __aicore__ void count(GM_ADDR x, uint32_t size) {
  AscendC::GlobalTensor<float> values;
  values.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), size);
  for (uint32_t i = 0; i < size; ++i) values.SetValue(i, i);
  using namespace AscendC;
  DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE, DcciDst::CACHELINE_OUT>(values);
}
""")
        return KernelFile(source)["count"]


def all_reduce(buffer, elements):
    __tracebackhide__ = True
    float32, sums, stream = 4, 0, ctypes.c_void_p(current_stream())
    function = ctypes.CDLL("libhccl.so").HcclAllReduce
    assert function(buffer, buffer, ctypes.c_uint64(elements), float32, sums, communicator(), stream) == 0


# ---- the host touches device memory


@stopped("device memory read on the host")
def reads_with_ctypes():
    x = torch.ones(N).npu()  # allocated
    torch.npu.synchronize()
    ctypes.string_at(x.data_ptr(), 4)  # fault


@stopped("device memory written on the host")
def writes_with_ctypes():
    x = torch.zeros(N, device="npu")  # allocated
    torch.npu.synchronize()
    ctypes.memset(x.data_ptr(), 0, 16)  # fault


@stopped("device memory read on the host")
def sums_with_numpy():
    x = torch.ones(N).npu()  # allocated
    torch.npu.synchronize()
    view = np.ctypeslib.as_array((ctypes.c_float * N).from_address(x.data_ptr()))
    view.sum()  # fault


@stopped("device memory written on the host")
def fills_with_numpy():
    x = torch.ones(N).npu()  # allocated
    torch.npu.synchronize()
    np.ctypeslib.as_array((ctypes.c_float * N).from_address(x.data_ptr()))[:] = 1  # fault


@stopped("device memory read on the host")
def computes_on_the_cpu_at_a_device_address():
    x = torch.ones(N).npu()  # allocated
    torch.npu.synchronize()
    buffer = (ctypes.c_float * N).from_address(x.data_ptr())
    torch.frombuffer(buffer, dtype=torch.float32).sum()  # fault


# ---- use after free


@wrong("use after free")
def copies_from_a_tensor_that_is_gone():
    x = torch.ones(N).npu()  # allocated
    stale, y = address(x), torch.zeros(N, device="npu")
    del x
    torch.npu.synchronize()
    acl.aclrtMemcpy(address(y), 4 * N, stale, 4 * N, DEVICE_TO_DEVICE)  # fault


@wrong("use after free")
def replays_a_graph_whose_input_is_gone():
    x = torch.ones(N).npu()  # allocated
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.exp()
    graph.replay()
    torch.npu.synchronize()
    del x
    graph.replay()  # fault
    torch.npu.synchronize()


@wrong("use after free")
def fills_a_freed_buffer():
    buffer = allocate(4 * N)
    acl.aclrtFree(buffer)
    acl.aclrtMemsetAsync(buffer, 4, 0, 4, current_stream())  # fault
    torch.npu.synchronize()


@wrong("use after free")
def frees_while_a_task_is_yet_to_use_it():
    buffer = allocate(4 * N)
    gate = threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait(60))
    acl.aclrtLaunchHostFunc(ctypes.c_void_p(current_stream()), function, None)
    acl.aclrtMemsetAsync(buffer, 4, 0, 4, current_stream())  # fault
    acl.aclrtFree(buffer)
    gate.set()
    torch.npu.synchronize()


@wrong("freed while another stream uses it")
def samples_without_record_stream():
    side = torch.npu.Stream()
    with torch.npu.stream(side):
        q = torch.ones(N, device="npu")  # allocated
    torch.npu.current_stream().wait_stream(side)
    torch.ones(N, device="npu").div_(q)
    del q  # fault
    torch.npu.synchronize()


@wrong("freed while another stream uses it")
def prefetches_without_record_stream():
    x = torch.ones(N, device="npu")  # allocated
    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        x.exp()
    x = None  # fault
    torch.npu.synchronize()


@wrong("use after free")
def reduces_a_freed_buffer():
    buffer = allocate(4 * N)
    acl.aclrtFree(buffer)
    all_reduce(buffer, N)  # fault
    torch.npu.synchronize()


@wrong("freed while another stream uses it")
def reduces_on_a_side_stream_without_record_stream():
    x = torch.ones(N, device="npu")  # allocated
    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        all_reduce(address(x), N)
    del x  # fault
    torch.npu.synchronize()


# ---- frees


@wrong("double free")
def frees_twice():
    buffer = allocate(64)
    acl.aclrtFree(buffer)
    acl.aclrtFree(buffer)  # fault


@wrong("free of an address inside a buffer")
def frees_a_slice():
    x = torch.ones(N, device="npu")  # allocated
    torch.npu.synchronize()
    acl.aclrtFree(address(x, 8))  # fault


@wrong("free of memory that was never allocated")
def frees_memory_of_the_host():
    x = torch.ones(N)
    acl.aclrtFree(address(x))  # fault


@wrong("free of another device's memory")
def frees_on_another_device():
    buffer = allocate(64)
    acl.aclrtSetDevice(1)
    acl.aclrtFree(buffer)  # fault
    acl.aclrtSetDevice(0)


@wrong("never freed")
def leaks():
    acl.aclrtMalloc(ctypes.byref(ctypes.c_void_p()), 1 << 20, 0)  # allocated # fault


# ---- out of bounds


@wrong("out of bounds")
def copies_one_element_too_many():
    x, y = torch.ones(N + 1).npu(), torch.zeros(N, device="npu")  # allocated
    torch.npu.synchronize()
    acl.aclrtMemcpy(address(y), 4 * (N + 1), address(x), 4 * (N + 1), DEVICE_TO_DEVICE)  # fault


@wrong("out of bounds")
def fills_one_element_in_front():
    x = torch.ones(9).npu()  # allocated
    acl.aclrtMemsetAsync(address(x, -1), 4, 0, 4, current_stream())  # fault
    torch.npu.synchronize()


def exp_at(pointer, size, out):
    """aclnnExp of elements at an address, as an operator that is given a wrong shape or offset reads them."""
    opapi = ctypes.CDLL("libopapi.so")
    create = opapi.aclCreateTensor
    create.restype = ctypes.c_void_p

    def tensor(at, elements):
        dims, strides = (ctypes.c_int64 * 1)(elements), (ctypes.c_int64 * 1)(1)
        return ctypes.c_void_p(
            create(dims, ctypes.c_uint64(1), 0, strides, ctypes.c_int64(0), 2, dims, ctypes.c_uint64(1), at)
        )

    workspace, executor = ctypes.c_uint64(), ctypes.c_void_p()
    arguments = tensor(pointer, size), tensor(address(out), size), ctypes.byref(workspace), ctypes.byref(executor)
    assert opapi.aclnnExpGetWorkspaceSize(*arguments) == 0
    return opapi.aclnnExp, (None, ctypes.c_uint64(0), executor, ctypes.c_void_p(current_stream()))


@wrong("out of bounds")
def reads_one_element_behind():
    x, y = torch.ones(N).npu(), torch.zeros(N + 1, device="npu")  # allocated
    function, arguments = exp_at(address(x), N + 1, y)
    function(*arguments)  # fault
    torch.npu.synchronize()


@wrong("out of bounds")
def reads_one_element_in_front():
    x, y = torch.ones(9).npu(), torch.zeros(9, device="npu")  # allocated
    function, arguments = exp_at(address(x, -1), 9, y)
    function(*arguments)  # fault
    torch.npu.synchronize()


@wrong("out of bounds")
def reduces_one_element_too_many():
    x = torch.ones(N).npu()  # allocated
    all_reduce(address(x), N + 1)  # fault
    torch.npu.synchronize()


@wrong("out of bounds")
def calls_a_kernel_with_one_element_too_many():
    x = torch.ones(9).npu()  # allocated
    count()(x, 10, checks=False)  # fault


# ---- what nobody has written


@wrong("use of uninitialized memory")
def computes_with_an_empty_tensor():
    x = torch.empty(N, device="npu")  # allocated
    x.exp()  # fault
    torch.npu.synchronize()


@wrong("use of uninitialized memory")
def lets_go_of_an_empty_tensor_before_the_task_runs():
    late = torch.npu.Stream()
    ones = torch.ones(1024, N).npu()
    with torch.npu.stream(late):
        for _ in range(10):
            ones.sin_()
        x = torch.empty(N, device="npu")  # allocated
        x.exp()  # fault
        del x
    torch.npu.synchronize()


@wrong("use of uninitialized memory")
def accumulates_into_an_empty_tensor():
    total = torch.empty(N, device="npu")  # allocated
    total.add_(1)  # fault
    torch.npu.synchronize()


@wrong("use of uninitialized memory")
def reads_a_result_that_nobody_computed():
    x = torch.empty(N, device="npu")  # allocated
    x.cpu()  # fault


@wrong("use of uninitialized memory")
def forgets_a_weight():
    weight = torch.nn.Parameter(torch.empty(8, 8, device="npu"))  # allocated
    torch.nn.functional.linear(torch.ones(2, 8).npu(), weight)  # fault
    torch.npu.synchronize()


@wrong("use of uninitialized memory")
def reduces_an_empty_tensor():
    x = torch.empty(N, device="npu")  # allocated
    all_reduce(address(x), N)  # fault
    torch.npu.synchronize()


# ---- right


@right
def frees_what_is_being_used():
    x = torch.ones(N).npu()
    for _ in range(50):
        x = x + 1
    assert x.cpu()[0] == 51


@right
def records_the_stream():
    side = torch.npu.Stream()
    x = torch.ones(N, device="npu")
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        x.exp()
        x.record_stream(side)
    del x
    torch.npu.synchronize()


@right
def waits_before_it_frees():
    side = torch.npu.Stream()
    x = torch.ones(N, device="npu")
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        x.exp()
    torch.npu.current_stream().wait_stream(side)
    del x
    torch.npu.synchronize()


@right
def fills_a_part_of_a_cache():
    cache = torch.empty(4, N, device="npu")
    cache[1].fill_(2)
    assert cache[1].sum().item() == 2 * N
    cache.clone()


@right
def computes_with_bytes_like_the_poison():
    for start in range(2):
        x = torch.tensor([-91, -1, -91, -1], dtype=torch.int8).npu()  # what an empty tensor is filled with
        assert (x[start:] + 1).sum().item() == sum([-90, 0, -90, 0][start:])


@right
def calls_an_operator_that_torch_npu_computes_on_the_cpu():
    x, index = torch.ones(N).npu(), torch.arange(N).npu()
    assert torch.scatter(x, 0, index, x, reduce="add").sum().item() == 2 * N


@right
def loads_weights_into_empty_ones():
    model = torch.nn.utils.skip_init(torch.nn.Linear, 8, 8, device="npu")
    model.half()
    model.load_state_dict({"weight": torch.ones(8, 8), "bias": torch.zeros(8)})
    assert model(torch.ones(1, 8).npu().half()).sum().item() == 64


@right
def writes_views_of_many_runs():
    x = torch.empty(64, 64, 64, device="npu")
    for i in range(64):
        x[:, :, i] = i
    assert x.sum().item() == 64 * 64 * sum(range(64))


@right
def replays_a_graph():
    x = torch.ones(N).npu()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = x.exp() + 1
        z = (y * 2).sum()
        del y
    for value in range(3):
        x.fill_(value)
        graph.replay()
    assert abs(z.item() / N - 2 * (np.exp(2) + 1)) < 1e-3


@right
def makes_many_graphs():
    mib = 1 << 20
    x = torch.ones(8 * mib).npu()

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    before = resident()
    for _ in range(20):
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            (x + 1).exp()
        graph.replay()
        torch.npu.synchronize()
        del graph
    torch.ones(1).npu()
    assert resident() - before < 10 * 2 * x.nbytes


@right
def allocates_by_hand():
    buffer = allocate(64)
    host = (ctypes.c_char * 64)()
    acl.aclrtMemcpy(buffer, 64, host, 64, HOST_TO_DEVICE)
    acl.aclrtMemcpy(host, 64, buffer, 64, DEVICE_TO_HOST)
    acl.aclrtFree(buffer)


@right
def asks_for_statistics():
    x = torch.ones(N, device="npu")
    assert torch.npu.memory_allocated() >= 4 * N
    assert torch.npu.max_memory_allocated() >= x.nbytes
    torch.npu.empty_cache()


@right
def trains():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).npu()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 8, device="npu")).sum().backward()
        optimizer.step()
    torch.npu.synchronize()


@right
def trains_in_a_graph():
    graph = torch.compile(custom_pypto.add_custom, backend=torchair.get_npu_backend(), dynamic=False)
    x = torch.ones(4, 3).npu().requires_grad_()
    graph(x, torch.ones(3).npu()).backward(torch.ones(4, 3).npu())
    assert x.grad.sum().item() == 12


@right
def calls_a_kernel():
    x = torch.ones(100).npu()
    count()(x, 100)
    assert x.sum().item() == 4950


@right
def has_a_fault_handler():
    import faulthandler

    faulthandler.enable()
    assert torch.ones(N).npu().add_(1).sum().item() == 2 * N


if __name__ == "__main__":
    all_ = {"wrong": WRONG, "right": RIGHT}.get(sys.argv[1]) or [f for f in STOPPED if f.__name__ == sys.argv[1]]
    for program in all_:
        program()
        torch.npu.synchronize()
        gc.collect()
