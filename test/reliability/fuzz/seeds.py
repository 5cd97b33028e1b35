# SPDX-License-Identifier: Apache-2.0
"""Writes valid files for a reader to begin with: `seeds.py READER FOLDER`."""

import ctypes
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

TEST = Path(__file__).resolve().parents[2]


def binary() -> Iterator[bytes]:
    sys.path.insert(0, str(TEST / "support"))
    from device_binary import device_binary

    meta = [(1, struct.pack("<I", 2)), (3, b"\1\0\2\0")]
    yield device_binary(["scale_half_0", "mixed_12_mix_aic", "mixed_12_mix_aiv"], {"scale_half_0": meta})


def configuration() -> Iterator[str]:
    import torch_npu

    yield Path(torch_npu.__file__).with_name("acl.json").read_text()
    sizes = '["a\\/b\\u00e9", 1, -2.5e3, null]'
    yield f'{{"defaultDevice": {{"default_device": "1"}}, "StackSize": {{"aicore_stack_size": {sizes}}}}}'
    device = {"device_id": "0", "device_ip": "192.168.1.2", "rank_id": "0"}
    server = {"server_id": "10.0.0.1", "host_ip": "10.0.0.1", "device": [device]}
    other = {"server_id": "node", "device": [{"device_id": 3, "rank_id": 1}]}
    table = {"version": "1.0", "status": "completed", "server_count": "2", "server_list": [server, other]}
    yield json.dumps(table, indent=1)


def rule() -> Iterator[str]:
    for inputs, outputs, sizes in [
        ([["s0", "4"]], [["s0*2", "3"]], "5 4\n"),
        ([["s0", "s1"], None, ["v0"]], [["Floor(Div(s0, 2))", "v0 % s1"], ["Max(s0, s1, 3)**2"]], "5 4\n\n-7\n"),
        ([["s0"]], [["(s0 + 3)//2 + Abs(-s0)", "Ceil(0.5*s0)", "Mod(-s0, 4)", "Pow(s0, 2)"]], "4\n"),
        ([["s0"]], [["Max(s0, 0) + 1"]], f"{-(2**63) + 1}\n"),
    ]:
        yield sizes + json.dumps({"shape": {"inputs": inputs, "outputs": outputs}, "dtype": [27] * len(outputs)})


def package() -> Iterator[str | bytes]:
    import custom_pypto

    yield "load_priority=custom_pypto\n"
    yield "[vendors]\nload_priority=first,second \r\nother=1\n"
    kernels = Path(custom_pypto.__file__).parent.glob("opp/vendors/*/op_impl/ai_core/tbe/kernel/**/*.o")
    described = sorted(kernels, key=lambda file: file.stat().st_size)
    for file in described[:2]:
        description = ctypes.CDLL(str(file)).ascendc_cpu_operator
        description.restype = ctypes.c_char_p
        yield description()
    yield b"Kind\nkind\n0 2;1 2\n*\n5"
    yield elf()


NOTHING = 2**64 - 1


def call(kind: int, *counts: int, count: int = NOTHING, reduction: int = NOTHING) -> bytes:
    """The message by which one of two ranks announces a call with float32."""
    return struct.pack(f"={6 + len(counts)}Q", kind, 4, reduction, NOTHING, count, 1, *counts)


def message(kind: int, payload: bytes = b"") -> bytes:
    return struct.pack("=IIQQ", 0x4C43434D, kind, len(payload), 0) + payload


def wire() -> Iterator[bytes]:
    """What wire.cpp takes: a letter, and what it stands for."""
    info = b"a" * 40 + b"cann_cpu.1".ljust(40, b"\0") + b"10.0.0.1".ljust(16, b"\0")
    info += struct.pack("=Ii", 4711, 12) + b"host".ljust(64, b"\0")
    yield b"h" + struct.pack("=4I", 0x4C434348, 1, 2, 1) + b"b" * 40 + bytes(16) + info + b"c" * 40
    yield b"r" + struct.pack("=i", 4) + b"d" * 32 + bytes(4) + b"why not".ljust(256, b"\0") + b"e" * 40
    yield b"i" + b"CANNCPU2" + b"f" * 32 + bytes(4) + info
    yield b"c" + call(9, 3, 4, 3, 5)
    begin, data, done = 1, 2, 3
    one = message(begin, call(0, count=4, reduction=0)) + message(data, struct.pack("=4f", 1, 2, 3, 4))
    other = message(begin, call(12, count=2)) + message(data, bytes(8))
    for letter in b"s", b"d":
        yield letter + one + other + message(done)
        yield letter + one + message(done) + other


def elf() -> bytes:
    """A header, and one part that is to be loaded."""
    part = b"".join(
        n.to_bytes(size, "little")
        for n, size in [(1, 4), (5, 4), (0, 8), (0, 8), (0, 8), (120, 8), (120, 8), (4096, 8)]
    )
    fields = [
        (3, 2),
        (62, 2),
        (1, 4),
        (0, 8),
        (64, 8),
        (0, 8),
        (0, 4),
        (64, 2),
        (56, 2),
        (1, 2),
        (64, 2),
        (0, 2),
        (0, 2),
    ]
    return b"\x7fELF\x02\x01\x01" + bytes(9) + b"".join(n.to_bytes(size, "little") for n, size in fields) + part


def model() -> Iterator[str | bytes]:
    """One with every part that the reader knows, one that torchair exports, and one of a single operator. The nodes are
    built in: those of packages need the library."""
    sys.path.insert(0, str(TEST / "cann_cpu" / "graph_engine"))
    from cann_cpu.toolkit import atc
    from test_model import nested, sample

    yield sample()
    yield nested(24)  # as deep as may be
    yield exported()
    sizes = {"format": "ND", "type": "float16", "shape": [-1, 64], "shape_range": [[1, 4]]}
    attributes = [{"name": "alpha", "type": "list_float", "value": [0.1, 2]}]
    operator = {"op": "AddCustom", "input_desc": [sizes], "output_desc": [sizes], "attr": attributes}
    yield atc.model(operator, "Ascend910B3")


def exported() -> bytes:
    import tempfile

    import torch
    import torchair

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            return torch.softmax(self.layer(x)[:, None] + x.sum(1, keepdim=True), -1).clamp_(0.1, 0.9)

    with tempfile.TemporaryDirectory() as folder:
        torchair.dynamo_export(torch.ones(2, 4).npu(), model=Step().npu(), export_path=folder, dynamic=True)
        return Path(folder, "export.air").read_bytes()


if __name__ == "__main__":
    reader, folder = sys.argv[1:]
    for i, contents in enumerate(globals()[reader]()):
        Path(folder, str(i)).write_bytes(contents.encode() if isinstance(contents, str) else contents)
