# SPDX-License-Identifier: Apache-2.0
"""CANN on the CPU: the libraries below torch_npu and torchair, served without an NPU."""

from ._version import __version__

__all__ = ["__version__"]
