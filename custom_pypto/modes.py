# SPDX-License-Identifier: Apache-2.0
"""The ways in which an operator can be called: eagerly, and in graphs of each of torchair's compilers."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch


def _ge_backend() -> Callable[..., Any]:
    import torchair

    return torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())


def _aclgraph_backend() -> Callable[..., Any]:
    import torchair

    config = torchair.CompilerConfig()
    config.mode = "reduce-overhead"
    return torchair.get_npu_backend(compiler_config=config)


@dataclass(frozen=True)
class Mode:
    """One way of calling a function: ``MODES["GE static"](function)`` gives the function, called that way."""

    backend: Callable[[], Any] | None
    """Makes the backend of torch.compile; None calls eagerly. torchair is imported only when it is called."""
    dynamic: bool
    """One graph serves every shape (symbolic sizes); otherwise there is a graph for each shape."""

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self.backend is None:
            return function
        return torch.compile(function, backend=self.backend(), dynamic=self.dynamic, fullgraph=True)


MODES = {
    "eager": Mode(None, dynamic=False),
    "GE static": Mode(_ge_backend, dynamic=False),
    "GE dynamic": Mode(_ge_backend, dynamic=True),
    "reduce-overhead": Mode(_aclgraph_backend, dynamic=False),
    "npugraph_ex": Mode(lambda: "npugraph_ex", dynamic=False),
}
"""Every mode by name. "GE" is torchair's default, "max-autotune"; the last two capture an aclgraph.

The order matters in one process: torch_npu 2.13 cannot set up torchair after npugraph_ex, since both register the same
functions.
"""


@contextlib.contextmanager
def late_warnings() -> Iterator[None]:
    """Shows the warnings that come meanwhile when it ends, each once: torchair lets its own, which come as it compiles,
    through Python's filters, and they would cut the table or the progress bar that is being printed."""
    caught = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            yield
    finally:
        for warning in {str(each.message): each for each in caught}.values():
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
