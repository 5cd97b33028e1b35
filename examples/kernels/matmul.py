# SPDX-License-Identifier: Apache-2.0
"""What `python -m cann_cpu kernel examples/kernels/matmul.cpp` calls the kernel with."""

import numpy as np

m, n, k = 300, 500, 200
generator = np.random.default_rng(0)
a, b = generator.normal(size=(m, k)).astype(np.float16), generator.normal(size=(k, n)).astype(np.float16)

arguments = {"a": a, "b": b, "c": np.zeros((m, n), np.float16), "m": m, "n": n, "k": k}
expected = {"c": a.astype(np.float64) @ b.astype(np.float64)}
tolerance = 0.05
blocks = 4
