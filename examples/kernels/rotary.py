# SPDX-License-Identifier: Apache-2.0
"""What `python -m cann_cpu kernel examples/kernels/rotary.cpp` calls the kernel with."""

import numpy as np

tokens, heads, dim = 29, 8, 64
x = np.random.default_rng(0).standard_normal((tokens, heads, dim)).astype(np.float32)
angles = np.arange(tokens)[:, None] / 10_000 ** (np.arange(dim) % (dim // 2) * 2 / dim)
cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
turned = np.concatenate([-x[..., dim // 2 :], x[..., : dim // 2]], axis=-1)

arguments = {
    "x": x,
    "cos": cos,
    "sin": sin,
    "y": np.zeros_like(x),
    "tokens": tokens,
    "heads": heads,
    "dim": dim,
}
expected = {"y": x * cos[:, None] + turned * sin[:, None]}
blocks = 5
