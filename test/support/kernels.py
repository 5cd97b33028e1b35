# SPDX-License-Identifier: Apache-2.0
"""What the tests of the kernels share: calls through torch.ops on npu tensors, views, and separate processes."""

import ctypes
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import fresh
import pytest
import torch
import torch_npu
from cann_cpu.activation import operator_packages
from hypothesis import strategies as st

import custom_pypto  # noqa: F401  (registers the operators)

VENDOR = operator_packages()["custom_pypto"]
DTYPES = [torch.bfloat16, torch.float16]
LAYOUTS = [("BSND", "PA_BSND"), ("BSND", "BSND"), ("TND", "PA_BSND"), ("TND", "TND")]
LENGTHS = [0, 1, 2, 127, 128, 129, 2047, 2048, 2049, 8192]  # with 3 queries 2 is one too few
FRACTAL_NZ = 29


def to_npu(inputs):
    """The inputs on the device, where one tensor under two names stays one."""
    moved = {id(value): value.npu() for value in inputs.values() if isinstance(value, torch.Tensor)}
    return {name: moved.get(id(value), value) for name, value in inputs.items()}


@dataclass(frozen=True)
class Operator:
    """An operator by its name, and the arguments that it writes to."""

    name: str
    caches: tuple = ()

    def __call__(self, npu, **options):
        """The operator on arguments that lie on the device."""
        return getattr(torch.ops.custom_pypto, self.name)(**npu, **options)

    def with_caches(self, npu, **options):
        """Its results, and the caches after the call, on the host."""
        out = self(npu, **options)
        results = (out,) if isinstance(out, torch.Tensor) else out
        return [tensor.cpu() for tensor in (*results, *(npu[name] for name in self.caches))]

    def rejects(self, inputs, message, **options):
        """Makes a call that the kernel rejects: the next synchronisation raises, and nothing is written."""
        npu = to_npu(inputs)
        function = "aclnn" + "".join(word.capitalize() for word in self.name.removeprefix("npu_").split("_"))
        where = "(the kernel failed: .* does not hold: )?"  # in an Ascend C kernel
        with pytest.raises(RuntimeError, match=f"{function}: {where}{message}"):
            self(npu, **options)
            torch.npu.synchronize()
        for name in self.caches:
            assert torch.equal(npu[name].cpu(), inputs[name])


def any_sequences(draw):
    """Queries and keys of any layout, for the inputs of a reference."""
    torch.manual_seed(draw(st.integers(0, 2**32)))
    layout_query, layout_key = draw(st.sampled_from(LAYOUTS))
    key_heads, batch, queries = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    return dict(
        key_lengths=draw(st.lists(st.integers(0, 300), min_size=batch, max_size=batch)),
        queries=queries,
        query_lengths=draw(st.lists(st.integers(0, queries), min_size=batch, max_size=batch)),
        heads=key_heads * draw(st.integers(1, 20)),
        key_heads=key_heads,
        layout_query=layout_query,
        layout_key=layout_key,
        block_size=draw(st.sampled_from([1, 16, 32, 128, 144])),
        dtype=draw(st.sampled_from(DTYPES)),
    )


def with_value(inputs, name, index, value):
    changed = inputs[name].clone()
    changed[index] = value
    return inputs | {name: changed}


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def in_blocks(npu, names):
    """The arguments with those of these names in FRACTAL_NZ."""
    cast = {name: torch_npu.npu_format_cast(npu[name], FRACTAL_NZ) for name in names}
    assert all(torch_npu.get_npu_format(tensor) == FRACTAL_NZ for tensor in cast.values())
    return npu | cast


# ---- views with other strides, equal to the tensor


def columns_of_a_wider(tensor):
    return torch.stack([tensor, tensor + 1], -1)[..., 0]


def rows_of_a_wider(tensor):
    return torch.cat([tensor + 1, tensor], -1)[..., tensor.shape[-1] :]


def dimensions_swapped(tensor):
    return tensor.transpose(0, 1).contiguous().transpose(0, 1) if tensor.dim() > 1 else tensor


def heads_before_tokens(tensor):
    return tensor.transpose(1, 2).contiguous().transpose(1, 2) if tensor.dim() > 2 else tensor


VIEWS = [columns_of_a_wider, rows_of_a_wider, dimensions_swapped, heads_before_tokens]


def viewed(npu, view):
    """The arguments, each tensor as this view of other memory."""
    return {name: view(value) if isinstance(value, torch.Tensor) else value for name, value in npu.items()}


# ---- separate processes

CANN_VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_CUSTOM_OPP_PATH", "LD_LIBRARY_PATH", "CANN_CPU")


def clean_environment(**variables):
    """The environment of a user who has set none of CANN's variables."""
    return {k: v for k, v in os.environ.items() if k not in CANN_VARIABLES} | variables


def in_a_process(function, **environment):
    """The last line that a function of a test's file prints in a separate process."""
    file = Path(function.__code__.co_filename)
    support = Path(__file__).parent
    paths = [str(support), str(support.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    program = f"""
import faulthandler, torch, custom_pypto, {file.stem} as t
faulthandler.enable()  # where Python was when the process aborts
torch.manual_seed(1)
t.{function.__name__}()
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | environment
    done = fresh.run([sys.executable, "-c", program], cwd=file.parent, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


def print_memory_beside_the_result(call):
    """How far a call takes memory of this process above what there is, and above its result."""
    torch.npu.synchronize()
    ctypes.CDLL(None).malloc_trim(0)  # give back what is free, so that taking it again shows
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _resident("VmRSS")
    out = call()
    torch.npu.synchronize()
    print(_resident("VmHWM") - before - out.nbytes)


def _resident(kind):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))
