# SPDX-License-Identifier: Apache-2.0
"""Shows kernels' tensors in gdb by their elements, and half and bfloat16_t as numbers: `gdb -x gdb_printers.py`."""

import struct

import gdb
import gdb.printing

UNBOUNDED = 2**63 - 1


class Tensor:
    """A LocalTensor or a GlobalTensor; gdb shows as many elements as `set print elements` says."""

    def __init__(self, value):
        type_ = value.type.strip_typedefs()
        memory = value["memory_"] if "GlobalTensor" in type_.name else value["address_"]["logicPos"]["memory"]
        self.type = type_.template_argument(0)
        self.data = memory["data"].reinterpret_cast(self.type.pointer())
        self.bytes = int(memory["bytes"])

    def to_string(self):
        if self.bytes == UNBOUNDED:
            return f"{self.type}s from {int(self.data):#x} on"
        return f"{self.bytes // self.type.sizeof} of {self.type}"

    def children(self):
        count = self.bytes // self.type.sizeof if self.bytes != UNBOUNDED and int(self.data) else 0
        for i in range(count):
            yield f"[{i}]", self.data[i]

    def display_hint(self):
        return "array"


class Number:
    """A number of 16 bits: as a float's upper half, or in the format of Python's struct."""

    def __init__(self, value):
        bits = struct.pack("<H", int(value["bits"]))
        is_half = int(value.type.strip_typedefs().template_argument(0)) == 5
        (self.number,) = struct.unpack("<e", bits) if is_half else struct.unpack("<f", bytes(2) + bits)

    def to_string(self):
        return f"{self.number:.9g}"


printers = gdb.printing.RegexpCollectionPrettyPrinter("cann_cpu")
printers.add_printer("tensor", "^AscendC::(Local|Global)Tensor<", Tensor)
printers.add_printer("number", "^AscendC::cpu::Float16<", Number)
gdb.printing.register_pretty_printer(None, printers, replace=True)
