# SPDX-License-Identifier: Apache-2.0
"""The names in CANN's builds of operators: of files and parameters, dtypes, formats."""

import re
from collections.abc import Iterable
from typing import NamedTuple


class DType(NamedTuple):
    """A dtype: DT_x of GE, the kernel's type or `unknown`, the name in lists of operators and in msopgen's JSON."""

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
    13: DType("STRING", "unknown", "string"),
    16: DType("COMPLEX64", "complex64", "complex64"),
    17: DType("COMPLEX128", "unknown", "complex128"),
    18: DType("QINT8", "unknown", "qint8"),
    19: DType("QINT16", "unknown", "qint16"),
    20: DType("QINT32", "unknown", "qint32"),
    21: DType("QUINT8", "unknown", "quint8"),
    22: DType("QUINT16", "unknown", "quint16"),
    27: DType("BF16", "bfloat16_t", "bfloat16"),
    29: DType("INT4", "int4b_t", "int4"),
    30: DType("UINT1", "uint1b_t", "uint1"),
    31: DType("INT2", "int2b_t", "int2"),
    33: DType("COMPLEX32", "complex32", "complex32"),
    34: DType("HIFLOAT8", "hifloat8_t", "hifloat8"),
    35: DType("FLOAT8_E5M2", "fp8_e5m2_t", "float8_e5m2"),
    36: DType("FLOAT8_E4M3FN", "fp8_e4m3fn_t", "float8_e4m3fn"),
    37: DType("FLOAT8_E8M0", "fp8_e8m0_t", "float8_e8m0"),
    40: DType("FLOAT4_E2M1", "fp4x2_e2m1_t", "float4_e2m1"),
    41: DType("FLOAT4_E1M2", "fp4x2_e1m2_t", "float4_e1m2"),
}
BY_INFO = {dtype.info: number for number, dtype in DTYPES.items()} | {"float": 0, "fp16": 1, "bf16": 27}

FORMATS = {0: "NCHW", 1: "NHWC", 2: "ND", 3: "NC1HWC0", 4: "FRACTAL_Z", 16: "HWCN", 27: "NDHWC", 29: "FRACTAL_NZ",
           30: "NCDHW", 32: "NDC1HWC0", 33: "FRACTAL_Z_3D"}  # fmt: skip


def check_identifiers(what: str, names: Iterable, error: type[Exception]) -> None:
    """Raises the error for a name that is none: names become those of files, and words of C++, scripts and models."""
    for name in names:
        if not (isinstance(name, str) and re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)):
            raise error(f"{what} is {name!r}: expected letters, digits and _, and no digit first")


def snake_case(name: str) -> str:
    """AddCustom -> add_custom, GRUCell -> gru_cell."""
    return re.sub(r"(?<=[^A-Z])(?=[A-Z])|(?<=[A-Za-z0-9])(?=[A-Z][a-z])", "_", name).lower()


def lower_camel(name: str) -> str:
    """block_table -> blockTable"""
    first, *others = [part for part in name.split("_") if part]
    return first + "".join(part[0].upper() + part[1:] for part in others)
