# SPDX-License-Identifier: Apache-2.0
"""Reports which library has the aclnn function of each of a package's operators."""

from . import custom_pypto_lib
from .graph.prototypes import ge_type, operators
from .graph.python_operators import PYTHON_OPERATORS


def routes(package: str) -> dict[str, str]:
    """For each operator of a package, by its full name, the aclnn function that an eager call takes, and its library,
    or the file of an operator in Python.

    ``custom_pypto.routes()``, and the like of every package that ``custom_pypto.load`` has loaded, gives it without an
    argument; ``python -m cann_cpu info`` prints it for each installed package.
    """
    compiled = {f"{package}::{name}": _route(f"aclnn{ge_type(name)}", package) for name in operators(package)}
    in_python = {name: f"Python, {PYTHON_OPERATORS[name].source}" for name in compiled.keys() & PYTHON_OPERATORS.keys()}
    return compiled | in_python


def _route(function: str, package: str) -> str:
    if library := custom_pypto_lib.library_of(function, package):
        return f"{function}, {library}"
    return f"none: {function} is not deployed"
