"""The operators as typed Python functions: what each takes, computes and rejects."""

import inspect

import torch
from torch import Tensor


def softcap(x: Tensor, *, cap: float = 30.0) -> Tensor:
    """Keeps values between ``-cap`` and ``cap``, smoothly: ``out = cap * tanh(x / cap)``.

    Args:
        x: of any shape; float16, bfloat16 or float32.
        cap: the limit, more than 0.

    Returns:
        A new contiguous tensor of the shape and dtype of ``x``, computed in float32 and rounded once.

    Nothing is mutated. It has no gradient.

    Raises:
        RuntimeError: a dtype is not one of the above, ``x`` is not on an NPU, ``cap`` is not a number above 0.
    """
    return torch.ops.my_ops.softcap(x, cap=cap)


# Type checkers, which cannot compute it, are not to see it: they take every function then.
globals()["__all__"] = sorted(n for n, value in vars().items() if inspect.isfunction(value) and not n.startswith("_"))
