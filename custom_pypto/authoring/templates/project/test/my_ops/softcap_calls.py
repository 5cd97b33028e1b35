"""Small calls of softcap, with tensors on the CPU, and their reference."""

import torch

from custom_pypto.authoring.check import Samples

CALLS = {
    "float32": lambda: {"x": torch.randn(3, 5) * 50},
    "float16": lambda: {"x": (torch.randn(127) * 50).half(), "cap": 5.0},
    "transposed": lambda: {"x": (torch.randn(33, 2) * 50).bfloat16().t()},
    "no elements": lambda: {"x": torch.randn(0, 3)},
}


def reference(x, cap=30.0):
    return cap * torch.tanh(x.double() / cap)


def judge(results, written, arguments):
    (out,) = results
    torch.testing.assert_close(out, reference(**arguments).to(out.dtype))


SAMPLES = {"softcap": Samples(CALLS, judge)}
