# SPDX-License-Identifier: Apache-2.0
"""What `python -m cann_cpu kernel examples/kernels/scale.cpp` calls the kernel with."""

import numpy as np

x = np.linspace(-3, 3, 10_007, dtype=np.float32)

arguments = {"x": x, "y": np.zeros_like(x), "count": x.size, "factor": 0.5}
expected = {"y": x * np.float32(0.5)}
blocks = 3
