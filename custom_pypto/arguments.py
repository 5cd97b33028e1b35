# SPDX-License-Identifier: Apache-2.0
"""What an operator's checks require of the arguments of a call, from its table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import custom_pypto_lib


@dataclass(frozen=True)
class Row:
    """A tensor, "read", "matrix" (which may lie in FRACTAL_NZ), "written", "scalar" (which may be a CPU tensor without
    dimensions) or a "result", with its dtypes, "" being that of the first, and the names of its sizes, none being any;
    or an attribute, "one of" some values or "at least" one."""

    argument: str
    use: str
    dtypes: tuple[str, ...]
    names: tuple[str, ...]


def checked(call: Callable[[], Any]) -> dict[str, Row]:
    """What is checked while a call runs in this thread, by argument, in the order of the table; nothing of operators
    that have no table."""
    rows: dict[str, Row] = {}
    for argument, use, dtypes, names in custom_pypto_lib.checked(call):
        rows.setdefault(argument, Row(argument, use, tuple(dtypes), tuple(names)))
    return rows
