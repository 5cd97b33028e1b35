# SPDX-License-Identifier: Apache-2.0
"""Triton kernels on the NPUs of cann_cpu: a backend of the installed triton, plain or triton-ascend.

`import triton` finds it by its entry point in the group `triton.backends`; triton-ascend 3.2 looks only in its own
folder, so activation.py calls register() when `triton.backends` is imported. A launch is a task of the current stream;
the kernel's Python function runs there, for many programs at once (engine.py), in place.

| module | what |
|---|---|
| driver.py, compiler.py | what triton asks of a backend |
| kernel.py | a launch: its arguments, its task |
| rewrite.py | the kernel's function, rewritten for groups of programs |
| engine.py, control.py | runs it: operators and calls; branches, loops, returns |
| builder.py, values.py | operations and values in NumPy |
| memory.py | loads, stores, atomics |
| language.py, extension.py | the installed triton's language, and the operations of triton-ascend |
| diagnostics.py | what is reported of a wrong kernel, and what is always looked for |
"""

from .. import activation
from . import extension


def register(backends):
    """Adds the backend to the module triton.backends, if it is not there.

    Where cann_cpu is the CANN in use it takes the place of triton-ascend's own, which needs the compiler of a real one.
    """
    if activation.choose().cann != "cpu":
        return
    extension.install()
    backends.backends.pop("ascend", None)
    if "cann_cpu" not in backends.backends:
        from . import compiler, driver

        backends.backends["cann_cpu"] = backends.Backend(compiler.Backend, driver.Driver)
