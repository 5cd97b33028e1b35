# SPDX-License-Identifier: Apache-2.0
"""Operators in Python, with Triton kernels, a module each. Importing this defines them."""

from .rms_norm import rms_norm as rms_norm
