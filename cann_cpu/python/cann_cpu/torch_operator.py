# SPDX-License-Identifier: Apache-2.0
"""Calls operators that Python has registered with PyTorch, for the nodes TorchOperator of Graph Engine's graphs.

A node runs in its stream's thread, with inputs where they lie. Its operator runs there as well, on a separate stream,
for which the node waits. libge_runner imports this module when it compiles a graph with such a node.
"""

import ctypes
import functools
import json
import threading
from typing import Any

import torch
import torch_npu

from . import python_task

DTYPES: dict[int, torch.dtype] = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    8: torch.complex32,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
    15: torch.bfloat16,
}
"""Of the numbers of at::ScalarType."""
_NUMBERS = {dtype: number for number, dtype in DTYPES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("dims", ctypes.c_int32),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
    )


@ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.POINTER(_Tensor),
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
def _call(name: bytes, arguments: bytes, inputs, count: int, stream: int, results: int) -> int:
    try:
        device = torch.device("npu", torch.npu.current_device())
        tensors = [_on_npu(inputs[i], device) for i in range(count)]
        operator = overload(name.decode())
        with _beside(stream, device):
            given = operator(**{key: _value(value, tensors) for key, value in json.loads(arguments).items()})
            for tensor in torch.utils._pytree.tree_leaves(given):
                if isinstance(tensor, torch.Tensor):
                    tensors.append(tensor.contiguous())
        for tensor in tensors[count:]:
            sizes = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
            memory = _engine().cann_cpu_add_result(results, _NUMBERS[tensor.dtype], tensor.dim(), sizes)
            ctypes.memmove(memory, tensor.data_ptr(), tensor.numel() * tensor.element_size())
    except BaseException as error:
        return python_task.fail(error)
    return 0


def overload(name: str) -> torch._ops.OpOverload:
    """The operator "namespace::name.overload"."""
    namespace, _, rest = name.partition("::")
    packet, _, which = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), which or "default")


def _on_npu(tensor: _Tensor, device: torch.device) -> torch.Tensor | None:
    """The tensor of an NPU whose elements are a node's input."""
    dtype, sizes = DTYPES[tensor.dtype], tensor.sizes[: tensor.dims] if tensor.dims else []
    if not tensor.data:
        return torch.empty(sizes, dtype=dtype, device=device) if tensor.sizes else None
    strides = [1] * len(sizes)
    for i in reversed(range(len(sizes) - 1)):
        strides[i] = strides[i + 1] * max(sizes[i + 1], 1)
    elements = functools.reduce(lambda product, size: product * size, sizes, 1)
    bytes = elements * torch.empty(0, dtype=dtype).element_size()
    described = {
        "size": torch.Size(sizes),
        "stride": strides,
        "nbytes": bytes,
        "dtype": dtype,
        "data_ptr": tensor.data,
        "storage_offset": 0,
        "device": device,
        "npu_format": 2,  # ND
        "layout": torch.strided,
        "memory_format": torch.contiguous_format,
        "requires_grad": False,
    }
    storage = torch_npu._C._construct_storage_from_data_pointer(tensor.data, device, bytes)
    return torch_npu._C._construct_NPU_Tensor_From_Storage_And_Metadata(described, storage)


def _value(value: Any, tensors: list[torch.Tensor | None]) -> Any:
    """An argument as graph/python_operators.py writes it: a dictionary stands for what JSON does not have."""
    if not isinstance(value, dict):
        return [_value(each, tensors) for each in value] if isinstance(value, list) else value
    ((kind, it),) = value.items()
    if kind == "tensor":
        return tensors[it]
    if kind == "number":
        return tensors[it].item()
    if kind == "numbers":
        return tensors[it].tolist()
    return getattr(torch, it) if kind == "dtype" else float(it)


_streams: dict[int, torch.npu.SyncLaunchStream] = {}
_lock = threading.Lock()


class _beside:
    """Runs what follows on a stream beside that of the calling thread, after what this one has done, and waits for it.

    torch_npu gives that stream its work at once: its task queue may be waiting for the calling thread.
    """

    def __init__(self, stream: int, device: torch.device):
        self.outer = stream
        with _lock:
            if stream not in _streams:
                _streams[stream] = torch.npu.SyncLaunchStream(device=device)
        self.inner = _streams[stream]
        self.current = torch.npu.stream(self.inner)

    def __enter__(self) -> None:
        _order(self.outer, self.inner.npu_stream)
        self.current.__enter__()

    def __exit__(self, *raised) -> None:
        self.current.__exit__(*raised)
        self.inner.synchronize()
        _order(self.inner.npu_stream, self.outer)


def _order(first: int, second: int) -> None:
    """Lets a stream wait for another, as the checks see it: torch_npu's own functions go through its task queue."""
    runtime = ctypes.CDLL("libascendcl.so")
    event = ctypes.c_void_p()
    runtime.aclrtCreateEventExWithFlag(ctypes.byref(event), ctypes.c_uint32(1))
    runtime.aclrtRecordEvent(event, ctypes.c_void_p(first))
    runtime.aclrtStreamWaitEvent(ctypes.c_void_p(second), event)
    runtime.aclrtDestroyEvent(event)


@functools.cache
def _engine() -> ctypes.CDLL:
    engine = ctypes.CDLL("libge_runner.so")
    engine.cann_cpu_add_result.restype = ctypes.c_void_p
    engine.cann_cpu_add_result.argtypes = (
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.c_int32,
        ctypes.POINTER(ctypes.c_int64),
    )
    return engine


python_task.expect()
_engine().cann_cpu_set_torch_operator(_call)
