# SPDX-License-Identifier: Apache-2.0
"""What `python -m cann_cpu kernel examples/kernels/top64.cpp` calls the kernel with."""

import numpy as np

x = np.random.default_rng(0).standard_normal((13, 2048)).astype(np.float32)
places = np.argsort(-x, axis=1, kind="stable")[:, :64].astype(np.uint32)

arguments = {
    "x": x,
    "values": np.zeros((13, 64), np.float32),
    "places": np.zeros((13, 64), np.uint32),
    "rows": x.shape[0],
}
expected = {"values": np.take_along_axis(x, places.astype(np.int64), axis=1), "places": places}
blocks = 3
