# SPDX-License-Identifier: Apache-2.0
"""A file of kernels, preprocessed, read and compiled, over the functions of KernelFile."""

import os
from functools import cached_property
from pathlib import Path

from . import device_rules
from .activation import LIBRARIES
from .kernel import KernelError, KernelFile, _kernels_of, _with_entries

CompileError = KernelError


class Source(KernelFile):
    def __init__(self, path, options):
        self.path = Path(path)
        self._command = [os.environ.get("CXX", "g++"), "-std=c++20", "-fPIC", "-O2", "-g", "-Wall", "-ffp-contract=off"]
        self._command += map(device_rules.compiler_option, options)

    @cached_property
    def text(self):
        return self._preprocess()

    @cached_property
    def kernels(self):
        return _kernels_of(self.text)

    def check(self):
        if broken := device_rules.broken(self.text):
            raise CompileError("\n".join([f"{self.path}: the device's compiler would not take it", *broken]))

    def compile(self, options, more=""):
        text = _with_entries(self.text, self.kernels) + more
        linked = [f"-L{LIBRARIES}", "-lascendc_cpu", f"-Wl,-rpath,{LIBRARIES}"]
        return self._run_compiler(["-x", "c++-cpp-output", "-", *options, *linked], text).stderr
