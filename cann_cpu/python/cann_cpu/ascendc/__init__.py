# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels in Ascend C."""
