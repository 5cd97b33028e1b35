# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a kernel, named: the line, the program, the lane, the offset, and what to do.

These are always looked for:

- a load or a store outside its tensor (before, behind, between two tensors of one allocation): the bounds are those of
  the tensor that was given to the launch, from its first to its last element in memory. With
  `CANN_CPU_TRITON_LOADS=memory` a load is only warned of, if there is device memory;
- an offset of int32 that wrapped, where an element that is not masked uses it;
- two programs that store different values to one element, in kernels without atomics;
- more blocks in one instruction than the chip's unified buffer holds;
- grids of more than 65,535 programs, when the kernel is launched.

Only under `--check=memory`, which fills new memory with poison: a load of an element that is still poison, which
nobody has written. Integers of two bytes and elements of one may well have the value of poison and are not checked.
"""

import sys
from dataclasses import dataclass

import numpy as np


class KernelError(RuntimeError):
    """What is wrong with a kernel."""


KERNELS = {}
"""Code objects of rewritten kernels, and the names of the functions."""


@dataclass
class Where:
    """The innermost line of the kernel that runs now, and the lines that called it."""

    lines: list

    def __str__(self):
        name, file, line = self.lines[0]
        text = f"{name}, line {line} of {file}"
        return text + "".join(f"\n  called by {name}, line {line} of {file}" for name, file, line in self.lines[1:])


def where() -> Where:
    lines = []
    frame = sys._getframe(1)
    while frame is not None:
        name = KERNELS.get(frame.f_code)
        if name and "site-packages/triton/language/" not in frame.f_code.co_filename:
            lines.append((name, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return Where(lines or [("the kernel", "?", 0)])


class Lanes:
    """Of an array with programs as the first axis, those elements that are wrong."""

    def __init__(self, engine, wrong: np.ndarray):
        self.engine = engine
        self.wrong = wrong
        self.at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        self.count = int(np.count_nonzero(wrong))

    @property
    def program(self) -> tuple:
        group = self.engine.group.programs
        return self.engine.index_of(int(group[self.at[0] if len(group) > 1 else 0]))

    def __str__(self):
        lane = ", ".join(str(int(axis)) for axis in self.at[1:])
        text = f"program {self.program}" + (f", lane {lane}" if lane else "")
        return text + (f" (and {self.count - 1} more)" if self.count > 1 else "")

    def of(self, data: np.ndarray):
        """The element of another array, whose axes may be 1, at this place."""
        at = tuple(min(index, size - 1) for index, size in zip(self.at, data.shape, strict=True))
        return data[at]


def outside(engine, kind, region, offsets, wrong, masked):
    lanes = Lanes(engine, wrong)
    offset = int(lanes.of(offsets))
    if offset < 0:
        how = f"{-offset} element{'s' if offset < -1 else ''} before the start"
    else:
        behind = offset - region.elements + 1
        how = f"{behind} element{'s' if behind > 1 else ''} behind the end"
    text = f"{where()}: tl.{kind} outside of `{region.name}`, {how}\n"
    text += f"  {lanes}, offset {offset} of {region.elements} elements of {region.type.name}\n"
    if region.in_storage(offset):
        text += f"  The element lies in the same storage, but not in the tensor that was given for `{region.name}`.\n"
    rest = wrong.reshape(len(wrong), -1)[lanes.at[0]] if offset > 0 else np.ones(1, bool)
    if not masked and offset > 0 and not rest.all():
        text += f"  There is no mask, and the last block is not full: pass mask=offsets < size to tl.{kind}."
    elif not masked:
        text += "  There is no mask."
    else:
        text += "  The mask lets this element pass: compare it with the tensor's shape and strides."
    raise KernelError(text)


def wrapped(engine, kind, region, offsets, wrong):
    lanes = Lanes(engine, wrong)
    text = f"{where()}: an offset to `{region.name}` in tl.{kind} wrapped in int32\n"
    text += f"  {lanes}, offset {int(lanes.of(offsets))}\n"
    raise KernelError(
        text + "  Compute it in 64 bits: cast one factor before the product, as in row.to(tl.int64) * stride."
    )


def conflict(engine, region, offsets, wrong, others, old, new):
    lanes = Lanes(engine, wrong)
    other = int(lanes.of(others))
    text = f"{where()}: two programs store different values to one element of `{region.name}`\n"
    text += f"  {lanes}, offset {int(lanes.of(offsets))}: {lanes.of(new)}\n"
    text += f"  program {engine.index_of(other)} stored {lanes.of(old)} before\n"
    raise KernelError(text + "  On an NPU either may win: give each program separate elements, or use tl.atomic_add.")


def unwritten(engine, region, offsets, wrong):
    lanes = Lanes(engine, wrong)
    text = f"{where()}: tl.load of an element of `{region.name}` that nobody has written\n"
    text += f"  {lanes}, offset {int(lanes.of(offsets))} of {region.elements} elements of {region.type.name}\n"
    raise KernelError(text + "  Write the tensor first, with torch.zeros for example, or mask the load.")


CAPACITY = "the operands of one instruction take {} bytes of a program, and the unified buffer has {}"


def too_big(engine, bytes, capacity):
    text = f"{where()}: {CAPACITY.format(bytes, capacity)}\n"
    raise KernelError(text + "  Take a smaller BLOCK, and a loop over the parts of a row.")
