# SPDX-License-Identifier: Apache-2.0
"""Checks operators of the probe, all but their registration, and prints the tables as JSON: {operator: lines}."""

import json
import sys
import types
from pathlib import Path

import torch
import torch_npu  # noqa: F401

from custom_pypto.authoring import check

torch.ops.load_library(sys.argv[1])


def judge(results, written, arguments):
    assert check.same(results, [arguments["self"] + 1])


def lines(operator: str) -> list:
    probe = check.Operator(types.ModuleType("custom_pypto_probe"), operator, Path())
    return [*check.check(probe)]


OPERATORS = ["without_mistake", "other_dtype", "other_shape", "scribbled", "overrun", "aliased"]
samples = check.Samples({"a call": lambda: {"self": torch.randn(3, 5)}}, judge)
check.load_samples = lambda package, folder: dict.fromkeys(OPERATORS, (samples, "calls.py"))
del check.FORM["build"], check.FORM["registration"]  # of a package, and this is a library alone
check.BEHAVIOUR = {name: check.BEHAVIOUR[name] for name in ("opcheck", "eager", "autograd")}
print(json.dumps({operator: lines(operator) for operator in OPERATORS}))
