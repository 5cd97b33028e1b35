# SPDX-License-Identifier: Apache-2.0
"""Runs the kernels of triton_kernels.py with triton's own interpreter, on the CPU: plain_triton.py FILE

FILE gets what each has written, by name; a kernel that the interpreter does not run is left out, with the reason.
"""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton_kernels

written = {}
for name, make in triton_kernels.CASES.items():
    case = make()
    arguments = case.on("cpu")
    try:
        case.kernel[case.grid](**arguments)
    except Exception as error:
        written[name] = f"{type(error).__name__}: {error}"
    else:
        written[name] = {key: arguments[key] for key in case.expected}
torch.save(written, sys.argv[1])
