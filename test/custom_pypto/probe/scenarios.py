# SPDX-License-Identifier: Apache-2.0
"""Runs what EXEC_NPU_CMD must stand, in one process, and prints what happened as JSON: {scenario: result}."""

import ctypes
import json
import os
import sys

import torch
import torch_npu

import custom_pypto  # noqa: F401

torch.ops.load_library(sys.argv[1])
probe = torch.ops.custom_pypto_probe
QUEUES = os.environ.get("TASK_QUEUE_ENABLE") in ("1", "2")


def numbers(*shape, device="npu:0"):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape).to(device)


def error_of(call) -> str:
    """The text of the RuntimeError that the call, or else the next synchronisation, raises."""
    for step in (call, torch.npu.synchronize):
        try:
            step()
        except RuntimeError as error:
            return f"{'call' if step is call else 'synchronize'}: {error}"
    return "no error"


def next_call_works() -> bool:
    """Both a custom operator and torch_npu's own run and give the right values."""
    x, out = numbers(3, 5), torch.zeros(3, 5, device="npu:0")
    probe.increment(x, out)
    return torch.equal((out * 2).cpu(), (x.cpu() + 1) * 2)


def failing(name: str):
    """The operator fails twice in the same way (the second call could be cached), and the next one works."""

    def scenario():
        x, out = numbers(4), numbers(4)
        errors = [error_of(lambda: getattr(probe, name)(x, out)) for _ in range(2)]
        return {"errors": errors, "next call works": next_call_works()}

    return scenario


def rejected(call):
    def scenario():
        return {"errors": [error_of(call)], "next call works": next_call_works()}

    return scenario


def emptied_storage():
    x = numbers(4)
    x.untyped_storage().resize_(0)
    probe.nothing(x, numbers(4), 1)


def two_devices():
    probe.nothing(numbers(4), numbers(4, device="npu:1"), 1)


def on_the_cpu():
    probe.nothing(numbers(4), numbers(4, device="cpu"), 1)


def runs_behind_what_was_queued_before() -> bool:
    """Each sees what the one before it wrote, torch_npu's operators and ours."""
    x, out = torch.zeros(1000, device="npu:0"), torch.zeros(1000, device="npu:0")
    for _ in range(50):
        x.add_(1)
        probe.increment(x, out)
        x.copy_(out)
    return torch.equal(x.cpu(), torch.full((1000,), 100.0))


def cached_executors_take_new_tensors() -> bool:
    """The same shapes at other addresses, then the same addresses with other strides and offsets."""
    good = True
    for value in range(3):
        x, out = torch.full((6, 4), float(value), device="npu:0"), torch.zeros(6, 4, device="npu:0")
        probe.increment(x, out)
        good &= torch.equal(out.cpu(), torch.full((6, 4), value + 1.0))
    base, out = numbers(6, 6), torch.zeros(3, 3, device="npu:0")
    for view in (base[:3, :3], base[3:, 3:], base[:3, :3].T, base[::2, ::2], base[:1, :3].expand(3, 3)):
        probe.increment(view, out)
        good &= torch.equal(out.cpu(), view.cpu() + 1)
    return good


def arguments() -> list:
    """Every kind of argument arrives, whether the executor is new or cached, and each is part of the cache's key."""
    call = {
        "tensor": numbers(3),
        "optional": None,
        "list": [numbers(2), numbers(3)],
        "scalar": 2.5,
        "ints": [4, 5, 6],
        "reals": [0.5, 2.25],
        "flags": [True, False, True],
        "dtype": torch.bfloat16,
        "text": "seven",
        "integer": 2**40,
        "real": 0.125,
        "flag": False,
    }
    changes = [{}, {"optional": numbers(4)}, {"list": [numbers(3)]}, {"list": []}, {"scalar": 3}, {"ints": []}]
    changes += [{"reals": []}, {"flags": [True]}, {"dtype": torch.int64}]
    changes += [{"text": ""}, {"integer": -1}, {"real": 1e300}, {"flag": True}, {}]
    results = []
    for change in changes:
        out = torch.zeros(12, dtype=torch.float64, device="npu:0")
        probe.arguments(*(call | change).values(), out)
        results.append(out.tolist())
    return results


def formats() -> list:
    """A tensor in rows and one in blocks of the same sizes, bytes and strides, by turns; then a view of the blocks."""
    torch.npu.config.allow_internal_format = True
    rows = numbers(32, 48).half()
    blocks = torch_npu.npu_format_cast(rows, 29)
    results = []
    for tensor in (rows, blocks, rows, blocks, blocks.t()):
        out = torch.zeros(5, device="npu:0")
        probe.format(tensor, out)
        results.append(out.tolist())
    sums = torch.zeros(32, 48, dtype=torch.half, device="npu:0")
    probe.increment(blocks, sums)
    torch.npu.config.allow_internal_format = False
    return [*results, torch.equal(sums.cpu(), rows.cpu() + 1)]


def the_tensors_device_is_used() -> dict:
    """With npu:0 current, tensors on npu:1 are worked on there, and npu:0 stays current."""
    torch.npu.set_device(0)
    x, out = numbers(8, device="npu:1"), torch.zeros(8, device="npu:1")
    probe.increment(x, out)
    current = torch.npu.current_device()
    torch.npu.current_stream(1).synchronize()
    return {"current": current, "right": torch.equal(out.cpu(), x.cpu() + 1)}


def the_current_stream_is_used() -> bool:
    """On another stream the operator waits for that stream's work only."""
    stream = torch.npu.Stream()
    x, out = torch.zeros(500, 500, device="npu:0"), torch.zeros(500, 500, device="npu:0")
    torch.npu.synchronize()
    with torch.npu.stream(stream):
        for _ in range(20):
            x.add_(1)
        probe.increment(x, out)
    stream.synchronize()
    return torch.equal(out.cpu(), torch.full((500, 500), 21.0))


def determinism_is_asked_for_as_torch_says() -> list:
    """The value of ACL_OPT_DETERMINISTIC after calls under torch.use_deterministic_algorithms."""
    acl, option, values = ctypes.CDLL("libascendcl.so"), ctypes.c_int64(-1), []
    x, out = numbers(4), numbers(4)
    for wanted in (True, False, True, False):
        torch.use_deterministic_algorithms(wanted)
        probe.increment(x, out)
        status = acl.aclrtCtxGetSysParamOpt(0, ctypes.byref(option))
        values.append(option.value if status == 0 else f"error {status}")
    return values


def copies_beside_the_queue() -> dict:
    """A copy that an author enqueues directly: after torch_npu's queue, or before what the queue still holds."""
    x, out = torch.zeros(1000, device="npu:0"), torch.zeros(1000, device="npu:0")
    seen = {}
    for drains in (True, False):
        x.zero_()
        torch.npu.synchronize()
        if QUEUES:
            probe.hold_the_queue(x)
        x.add_(1)
        probe.copy_directly(x, out, drains)
        torch.npu.synchronize()
        seen["drained" if drains else "not drained"] = out[0].item()
    return seen


def tasks_of_the_queue_allocate() -> bool:
    """More of them than the queue holds."""
    x = numbers(4)
    probe.allocate_in_the_queue(x, 10_000)
    torch.npu.synchronize()
    return next_call_works()


def workspace() -> dict:
    """There is not that much memory; the executor that was to use it is destroyed."""
    destroyed = ctypes.CDLL(f"{sys.argv[2]}/op_api/lib/libcust_opapi.so").destroyedExecutors
    before = destroyed()
    error = error_of(lambda: probe.workspace(numbers(7), numbers(7)))
    return {"errors": [error], "destroyed": destroyed() - before, "next call works": next_call_works()}


SCENARIOS = {
    "missing": failing("missing"),
    "phase one": failing("phase_one_fails"),
    "kernel": failing("kernel_fails"),
    "undefined": rejected(lambda: probe.undefined(numbers(4))),
    "emptied storage": rejected(emptied_storage),
    "two devices": rejected(two_devices),
    "on the CPU": rejected(on_the_cpu),
    "order": runs_behind_what_was_queued_before,
    "cache": cached_executors_take_new_tensors,
    "arguments": arguments,
    "formats": formats,
    "device": the_tensors_device_is_used,
    "stream": the_current_stream_is_used,
    "determinism": determinism_is_asked_for_as_torch_says,
    "beside the queue": copies_beside_the_queue,
    "allocation in the queue": tasks_of_the_queue_allocate,
    "workspace": workspace,
}

print(json.dumps({name: scenario() for name, scenario in SCENARIOS.items()}))
