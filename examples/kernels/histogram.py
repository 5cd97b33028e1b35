# SPDX-License-Identifier: Apache-2.0
"""What `python -m cann_cpu kernel examples/kernels/histogram.cpp` calls the kernel with."""

import numpy as np

bins = 100
x = np.random.default_rng(0).integers(0, bins, 10_007, dtype=np.int32)

arguments = {"x": x, "counts": np.zeros(bins, np.int32), "count": x.size, "bins": bins}
expected = {"counts": np.bincount(x, minlength=bins).astype(np.int32)}
blocks = 8
