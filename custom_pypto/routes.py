# SPDX-License-Identifier: Apache-2.0
"""Reports the aclnn functions that a package's operators call: their own, or CANN's if these are not deployed."""

from . import custom_pypto_lib
from .graph.prototypes import ge_type, operators


def routes(package: str) -> dict[str, str]:
    """For each operator of a package, by its full name, the function that an eager call takes, and its library.

    ``custom_pypto.routes()``, and the like of every package that ``custom_pypto.load`` has loaded, gives it without an
    argument; ``python -m cann_cpu info`` prints it for each installed package.
    """
    return {f"{package}::{name}": _route(f"aclnn{ge_type(name)}", package) for name in operators(package)}


def _route(function: str, package: str) -> str:
    if library := custom_pypto_lib.library_of(function, package):
        return f"{function}, {library}"
    cann = custom_pypto_lib.cann_routes().get(function)
    library = cann and custom_pypto_lib.library_of(cann, "")
    return f"CANN's {cann}, {library}: {function} is not deployed" if library else f"none: {function} is not deployed"
