# SPDX-License-Identifier: Apache-2.0
"""The evaluator of output sizes against Python's own arithmetic."""

import ctypes
import json
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SYMBOLS = {"s0": 7, "s1": 12, "u2": 1, "v3": 100}


@pytest.fixture(scope="module")
def evaluate(rule_library):
    def run(expression, symbols=SYMBOLS):
        names = (ctypes.c_char_p * len(symbols))(*[name.encode() for name in symbols])
        values = (ctypes.c_int64 * len(symbols))(*symbols.values())
        result, text = ctypes.c_int64(), ctypes.create_string_buffer(500)
        if rule_library.evaluate(
            expression.encode(),
            names,
            values,
            ctypes.c_size_t(len(symbols)),
            ctypes.byref(result),
            text,
            ctypes.c_size_t(500),
        ):
            raise ValueError(text.value.decode())
        return result.value

    return run


@pytest.fixture(scope="module")
def apply(rule_library):
    def run(rule, numbers):
        values = (ctypes.c_int64 * len(numbers))(*numbers)
        output, text = (ctypes.c_int64 * 32)(), ctypes.create_string_buffer(500)
        if rule_library.apply(
            json.dumps(rule).encode(), values, ctypes.c_size_t(len(numbers)), output, text, ctypes.c_size_t(500)
        ):
            raise ValueError(text.value.decode())
        return output[0], list(output[2 : 2 + output[1]])

    return run


FUNCTIONS = {
    "Floor": math.floor,
    "Ceil": math.ceil,
    "Abs": abs,
    "Div": lambda a, b: Fraction(a) / b,
    "Mod": lambda a, b: Fraction(a) % b,
    "Max": max,
    "Min": min,
    "Add": lambda *terms: sum(terms),
    "Pow": lambda a, b: Fraction(a) ** b,
}


def expressions():
    leaves = st.one_of(st.integers(0, 50).map(str), st.sampled_from(list(SYMBOLS)))

    def extend(inner):
        pair = st.tuples(inner, inner)
        return st.one_of(
            st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(" ".join),
            inner.map(lambda e: f"({e})"),
            inner.map(lambda e: f"-{e}"),
            inner.map(lambda e: f"Abs({e})"),
            st.tuples(inner, st.integers(0, 3)).map(lambda p: f"({p[0]})**{p[1]}"),
            st.tuples(st.sampled_from(["Max", "Min", "Mod", "Add"]), pair).map(
                lambda p: f"{p[0]}({p[1][0]}, {p[1][1]})"
            ),
            st.tuples(st.sampled_from(["Floor", "Ceil"]), pair).map(lambda p: f"{p[0]}(Div({p[1][0]}, {p[1][1]}))"),
        )

    return st.recursive(leaves, extend, max_leaves=8)


@settings(max_examples=600, deadline=None)
@given(expressions())
def test_expressions_have_pythons_value(evaluate, expression):
    try:
        expected = eval(expression, {"__builtins__": {}}, {**FUNCTIONS, **SYMBOLS})
    except ZeroDivisionError:
        with pytest.raises(ValueError, match="division by zero"):
            evaluate(expression)
        return
    if abs(expected) < 2**31:
        assert evaluate(expression) == expected
    else:  # a part of it may be out of 64 bits
        try:
            assert evaluate(expression) == expected
        except ValueError as error:
            assert "64 bits" in str(error)


@pytest.mark.parametrize(
    "expression, value",
    [
        ("s0", 7),
        ("128", 128),
        ("s0*s1 + 3", 87),
        ("Floor(Div(s0, 2))", 3),
        ("Ceil(Div(s0, 2))", 4),
        ("Floor(Div(-s0, 2))", -4),
        ("Mod(-s0, 4)", 1),
        ("Pow(s0, 2)", 49),
        ("2**-1*4", 2),
        ("-2**2", -4),
        ("Div(s1, 4)", 3),
        ("Div(s0, 2)*2", 7),
        ("0.5*s1", 6),
        ("Max(s0, s1, 99)", 99),
        ("Min(s0, s1)", 7),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_expressions_that_torchair_writes(evaluate, expression, value):
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    "expression, message",
    [
        ("s9", "symbol 's9' is not among the inputs' dimensions"),
        ("Sin(s0)", "function 'Sin' is unknown"),
        ("Div(s0, 2)", "the result is not an integer"),
        ("s0 +", "it ends early"),
        ("s0 s1", "unexpected 's1'"),
        ("(s0", r"expected '\)'"),
        ("s0 // (u2 - 1)", "division by zero"),
        ("9223372036854775808", "out of 64 bits"),
        ("s1**60", "out of 64 bits"),
        ("(" * 5000, "nested too deeply"),
        ("-" * 5000 + "1", "nested too deeply"),
        ("Floor(1, 2)", "has 2 arguments"),
    ],
)
def test_bad_expressions_are_rejected(evaluate, expression, message):
    with pytest.raises(ValueError, match=message):
        evaluate(expression)


@pytest.mark.parametrize("expression", ["s0", "-s0", "Abs(s0)"])
def test_a_value_without_its_negative_is_rejected(evaluate, expression):
    with pytest.raises(ValueError, match="out of 64 bits"):
        evaluate(expression, {"s0": -(2**63)})


def rule(inputs, outputs, dtype=(0,)):
    return {"shape": {"inputs": inputs, "outputs": outputs}, "dtype": list(dtype)}


def test_a_rule_binds_dimensions_and_values(apply):
    assert apply(rule([["s0", "4"]], [["s0*2", "3"]], [27]), [5, 4]) == (27, [10, 3])
    assert apply(rule([["v0"]], [["v0", "2"]]), [6]) == (0, [6, 2])
    assert apply(rule([None], [[]]), [6]) == (0, [])


@pytest.mark.parametrize(
    "bad, message",
    [
        (rule([["s0"]], [["s0"]]), "expects 1 dimensions or values of input 0, got 2"),
        (rule([None, ["s0"]], [["s0"]]), "needs input 1, which is absent"),
        (rule([["s0", "s1"]], [["s0-s1-1"]]), "the dimension -1"),
        (rule([["s0", "s1"]], [["s0"]], []), "1 shapes and 0 dtypes"),
        ({"shape": {}}, 'no member "inputs"'),
        ([], "expected an object"),
    ],
)
def test_bad_rules_are_rejected(apply, bad, message):
    with pytest.raises(ValueError, match=message):
        apply(bad, [5, 5])
