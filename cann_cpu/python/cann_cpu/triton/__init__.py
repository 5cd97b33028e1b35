# SPDX-License-Identifier: Apache-2.0
"""Triton kernels on the NPUs of cann_cpu: a backend of the installed triton, plain or triton-ascend.

`import triton` finds it by its entry point in the group `triton.backends`. A launch is a task of the current stream;
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
