# SPDX-License-Identifier: Apache-2.0
"""Tilings of the Matmul library, as matmul_tiling.cpp makes them on the host."""

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from cann_cpu.activation import HOME

SOURCE = Path(__file__).with_suffix(".cpp")
TYPES = {"float32": (0, 4), "float16": (1, 2), "int8": (2, 1), "int32": (3, 4), "bfloat16": (27, 2)}
"""matmul_tiling::DataType, and its bytes."""
DEFAULTS = {
    "kind": 0,
    "shape": (-1,) * 3,
    "org": (-1,) * 4,
    "single": (-1,) * 3,
    "fixed": (-1,) * 3,
    "type": "float16",
    "c_type": "float32",
    "bias_type": "float32",
    "trans_a": 0,
    "trans_b": 0,
    "c_in_ub": 0,
    "bias": 0,
    "dim": 1,
    "split_k": 0,
    "traverse": 0,
    "align": (-1,) * 3,
    "most": (-1,) * 3,
    "least": (-1,) * 3,
    "most_base": (-1,) * 3,
    "least_base": (-1,) * 3,
    "buffers": (-1,) * 4,
    "double_c": 0,
    "mad": 0,
    "sparse": 0,
    "schedule": 0,
    "batch": (0, 0),
}
"""The members of Request in matmul_tiling.cpp, in its order."""


@functools.cache
def library():
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/tiling.so"
        command = ["g++", "-std=c++11", "-D_GLIBCXX_USE_CXX11_ABI=0", "-O1", "-Wall", "-Wextra", "-Werror", "-shared"]
        libraries = [f"-L{HOME}/lib64", f"-Wl,-rpath,{HOME}/lib64", "-ltiling_api", "-lregister", "-lplatform"]
        command += ["-fPIC", f"-I{HOME}/include", str(SOURCE), "-o", path, *libraries]
        subprocess.run(command, check=True)
        return ctypes.CDLL(path)


@functools.cache
def fields():
    names = library().tiling_fields
    names.restype = ctypes.c_char_p
    return np.dtype([(name, np.int32) for name in names().decode().strip(",").split(",")])


def make(**given):
    """A tiling as a numpy struct, and the cores that it is for (all, along M, along N); None if there is none."""
    numbers = []
    for name, default in DEFAULTS.items():
        value = given.pop(name, default)
        value = TYPES[value][0] if isinstance(value, str) else value
        numbers += value if isinstance(value, tuple) else [value]
    assert not given
    request = np.array(numbers, np.int32)
    tiling, cores = np.zeros(1, fields()), np.zeros(3, np.int32)
    function = library().make_tiling
    function.restype = ctypes.c_int64
    status = function(*(array.ctypes.data_as(ctypes.c_void_p) for array in (request, tiling, cores)))
    assert status in (0, -1), status
    return (tiling, tuple(map(int, cores))) if status == 0 else None
