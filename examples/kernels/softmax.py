# SPDX-License-Identifier: Apache-2.0
"""What `python -m cann_cpu kernel examples/kernels/softmax.cpp` calls the kernel with."""

import numpy as np

x = np.random.default_rng(0).standard_normal((37, 1000)).astype(np.float32)
e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))

arguments = {"x": x, "y": np.zeros_like(x), "rows": x.shape[0], "columns": x.shape[1]}
expected = {"y": (e / e.sum(axis=1, keepdims=True)).astype(np.float32)}
tolerance = 1e-7
blocks = 4
