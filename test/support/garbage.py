# SPDX-License-Identifier: Apache-2.0
"""Garbage that tells which thread frees it."""

import gc
import threading


class _Garbage:
    """Refers to itself, so that only the garbage collector frees it."""

    def __init__(self, freed_in: list[threading.Thread]):
        self.itself, self.freed_in = self, freed_in

    def __del__(self):
        self.freed_in.append(threading.current_thread())


def leave_garbage(freed_in: list[threading.Thread]) -> None:
    """Leaves an object whose thread is appended when it is freed, and allocates enough to start the collector."""
    [[] for _ in range(3 * gc.get_threshold()[0])]
    _Garbage(freed_in)
    [[] for _ in range(3 * gc.get_threshold()[0])]
