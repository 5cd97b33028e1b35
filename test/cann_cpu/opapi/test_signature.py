# SPDX-License-Identifier: Apache-2.0
"""The tables of dtypes that phase one checks calls with, and the errors that it makes of them."""

import sys
from pathlib import Path

import pytest
import torch
from aclnn import INVALID, NULL_POINTER, Out, Rejected, written_by

sys.path.insert(0, str(Path(__file__).parents[3] / "docs"))
import functions

FLOATS = {"float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "hifloat8"}
INTEGERS = {"int4", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
DTYPES = {*FLOATS, *INTEGERS, "bool", "complex64", "complex128"}


@pytest.mark.parametrize("name", sorted(name for name, (_, dtypes) in functions.tables().items() if dtypes))
def test_a_table_names_parameters_of_its_function_and_dtypes(name):
    parameters, dtypes = functions.tables()[name]
    assert set(dtypes) <= set(parameters)
    for given in dtypes.values():
        like, _, other = given.partition(" ")
        assert other in parameters if like == "as" else set(given.split()) <= DTYPES, given


def test_every_function_is_listed_with_its_parameters():
    tables = functions.tables()
    assert tables["aclnnAdd"] == (["self", "other", "alpha", "out"], {})
    assert set(tables) == functions.coverage.served_functions()


X = torch.ones(2, 8, dtype=torch.half)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (
            [X.float(), None, Out((2, 8), torch.int8), Out((2,))],
            INVALID,
            r"aclnnDynamicQuant: x has dtype float32; expected .*float16 or bfloat16",
        ),
        ([None, None, Out((2, 8), torch.int8), Out((2,))], NULL_POINTER, r"argument 1 \(x\) is a null pointer"),
    ],
)
def test_an_error_of_phase_one_names_function_and_argument(arguments, status, message):
    with pytest.raises(Rejected, match=message) as rejection:
        written_by("aclnnDynamicQuant", *arguments)
    assert rejection.value.args[0] == status
