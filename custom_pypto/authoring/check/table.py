# SPDX-License-Identifier: Apache-2.0
"""Runs every check of one operator and prints a table: a line for each, which names the file to fix."""

import argparse
import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from ...graph import prototypes
from ...modes import MODES, late_warnings
from . import checks
from .operator import CheckFailure, Operator, described, line_of, operator_of

COLUMNS = "{:<16} {:<8} {}"

# What the others need comes first: where it fails, they are not run.
FORM = {"build": checks.build, "registration": checks.registration, "Meta": checks.meta}
FORM |= {"prototype": checks.prototype, "kernel": checks.kernel, "mutations": checks.mutations}
FORM |= {"aliases": checks.aliases}
BEHAVIOUR = {"opcheck": checks.opcheck, "eager": checks.eager, "layouts": checks.layouts}
BEHAVIOUR |= {"autograd": checks.autograd}
BEHAVIOUR |= {mode: partial(checks.in_mode, mode) for mode in MODES if mode != "eager"}
BEHAVIOUR |= {"bad input": checks.bad_input}


def check(operator: Operator) -> Iterator[tuple[str, str, str]]:
    """Runs the checks; yields a line each: its name, "ok", "FAILED" or "not run", and what it has found."""
    import torchair  # noqa: F401  (lets the package register its converters)

    malformed = False
    for name, run in (FORM | BEHAVIOUR).items():
        if malformed:
            yield name, "not run", "fix the above first"
            continue
        try:
            yield name, "ok", run(operator)
        except Exception as error:
            malformed = name in FORM
            if isinstance(error, CheckFailure):
                yield name, "FAILED", str(error)
            else:
                fix = operator.kernel if line_of(error).startswith("aclnn") else operator.source
                yield name, "FAILED", f"{described(error)}: fix {fix}"


def _import_operator(package: str, name: str) -> str:
    """Imports the package, and its operators in Python if the operator may be one; returns why those are missing."""
    importlib.import_module(package)
    if name in prototypes.operators(package) or importlib.util.find_spec(f"{package}.triton_ops") is None:
        return ""
    try:
        importlib.import_module(f"{package}.triton_ops")
    except ImportError as error:
        return f"; {error}"
    return ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m custom_pypto check", description=__doc__.splitlines()[0])
    parser.add_argument("operator", help="its name, with that of its package in front unless that is custom_pypto")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="of the package's sources; default: here")
    options = parser.parse_args(arguments)
    package, _, name = options.operator.rpartition("::")
    with contextlib.suppress(ValueError):
        sys.path.remove(str(Path.cwd()))  # of the sources: the installed package is checked
    package = package or "custom_pypto"
    if not (options.folder / package / "csrc").exists() and importlib.util.find_spec(package) is None:
        sys.path.insert(0, str(options.folder.resolve()))  # a package in Python alone needs no build
    try:
        missing = _import_operator(package, name)
        operator = operator_of(importlib.import_module(package), name, options.folder)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            error = f"{package} is not installed: pip install --no-build-isolation FOLDER, that of its sources"
        parser.error(str(error))
    names = prototypes.operators(operator.package.__name__)
    if name not in names:
        parser.error(f"{operator.full_name} is not an operator; the operators are {', '.join(names)}{missing}")
    torch.manual_seed(0)
    print(operator.full_name)
    verdicts = []
    with late_warnings():
        for line in check(operator):
            print(COLUMNS.format(*line), flush=True)
            verdicts.append(line[1])
    print(f"{verdicts.count('ok')} of {len(verdicts)} lines passed")
    return 0 if set(verdicts) == {"ok"} else 1
