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


def judge_stateful(results, written, arguments):
    assert check.same((results, written), [arguments["x"], arguments["state"] + 1])


OF_ONE_TENSOR = ["correct", "other_dtype", "other_shape", "scribbled", "overrun", "aliased"]
STATEFUL = ["stateful", "stateful_by_torch"]
OPERATORS = OF_ONE_TENSOR + STATEFUL
samples = check.Samples({"a call": lambda: {"self": torch.randn(3, 5)}}, judge)
stateful = check.Samples({"a call": lambda: {"x": torch.randn(3), "state": torch.randn(3)}}, judge_stateful)
found = dict.fromkeys(OF_ONE_TENSOR, (samples, "calls.py")) | dict.fromkeys(STATEFUL, (stateful, "calls.py"))
check.operator.load_samples = lambda package, folder: found
del check.FORM["build"], check.FORM["registration"]  # of a package, and this is a library alone
check.table.BEHAVIOUR = {name: check.BEHAVIOUR[name] for name in ("opcheck", "eager", "autograd")}
print(json.dumps({operator: lines(operator) for operator in OPERATORS}))
