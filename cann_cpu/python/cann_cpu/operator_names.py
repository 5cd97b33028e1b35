# SPDX-License-Identifier: Apache-2.0
"""How CANN's builds of operators name things: files and parameters, dtypes, formats."""

import re
from typing import NamedTuple


class DType(NamedTuple):
    """A dtype: DT_x of GE, the kernel's type, the name in lists of operators and in msopgen's JSON."""

    ge: str
    kernel: str
    info: str


DTYPES = {
    0: DType("FLOAT", "float", "float32"),
    1: DType("FLOAT16", "half", "float16"),
    2: DType("INT8", "int8_t", "int8"),
    3: DType("INT32", "int32_t", "int32"),
    4: DType("UINT8", "uint8_t", "uint8"),
    6: DType("INT16", "int16_t", "int16"),
    7: DType("UINT16", "uint16_t", "uint16"),
    8: DType("UINT32", "uint32_t", "uint32"),
    9: DType("INT64", "int64_t", "int64"),
    10: DType("UINT64", "uint64_t", "uint64"),
    11: DType("DOUBLE", "double", "double"),
    12: DType("BOOL", "bool", "bool"),
    27: DType("BF16", "bfloat16_t", "bfloat16"),
    29: DType("INT4", "int4b_t", "int4"),
}
BY_INFO = {dtype.info: number for number, dtype in DTYPES.items()} | {"float": 0, "fp16": 1, "bf16": 27}

FORMATS = {0: "NCHW", 1: "NHWC", 2: "ND", 3: "NC1HWC0", 4: "FRACTAL_Z", 16: "HWCN", 27: "NDHWC", 29: "FRACTAL_NZ",
           30: "NCDHW", 32: "NDC1HWC0", 33: "FRACTAL_Z_3D"}  # fmt: skip


def snake_case(name: str) -> str:
    """AddCustom -> add_custom, GRUCell -> gru_cell."""
    return re.sub(r"(?<=[^A-Z])(?=[A-Z])|(?<=[A-Za-z0-9])(?=[A-Z][a-z])", "_", name).lower()


def lower_camel(name: str) -> str:
    """block_table -> blockTable"""
    first, *others = [part for part in name.split("_") if part]
    return first + "".join(part[0].upper() + part[1:] for part in others)
