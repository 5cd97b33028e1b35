# SPDX-License-Identifier: Apache-2.0
"""The compiled module: it registers the operators when it is imported."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

def add_custom(self: Tensor, other: Tensor) -> Tensor: ...
def checked(call: Callable[[], Any]) -> list[tuple[str, str, list[str], list[str]]]: ...
def library_of(aclnn_name: str, package: str) -> str | None: ...
