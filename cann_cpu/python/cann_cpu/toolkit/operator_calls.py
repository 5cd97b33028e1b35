# SPDX-License-Identifier: Apache-2.0
"""Calls the operators of an installed package as their definitions allow: what `python -m cann_cpu project` runs.

    python -m cann_cpu.toolkit.operator_calls describe PACKAGE            its definitions, once its libraries are loaded
    python -m cann_cpu.toolkit.operator_calls infer PACKAGE TYPE SOC      what inference says of each drawn call
    python -m cann_cpu.toolkit.operator_calls run PACKAGE TYPE SOC FIRST  the calls from one on; it reads the shapes of
                                                                          the outputs

Each prints a line of JSON for each call as soon as it is done: a crash ends the process, and leaves the others' lines.
"""

import ctypes
import hashlib
import json
import math
import os
import random
import struct
import sys
from pathlib import Path

from ..activation import LIBRARIES
from ..names import DTYPES, FORMATS
from .op_build import definitions_of

SHAPES = ([8, 2048], [32], [3, 17], [256, 256], [2, 3, 64], [2, 3, 16, 16])
ROWS = {"ND", "NCHW", "NHWC", "NCDHW", "NDHWC", "HWCN"}
BFLOAT16 = 27
LETTERS = {0: "f", 1: "e", 2: "b", 3: "i", 4: "B", 6: "h", 7: "H", 8: "I", 9: "q", 10: "Q", 11: "d", 12: "B"}
LETTERS[BFLOAT16] = "H"  # of struct, by dtype
SIZES = {type: struct.calcsize(f"<{letter}") for type, letter in LETTERS.items()}
POISON = 0xA5
BLOCK = 32  # bytes to which a kernel may round up what it writes: the device's memory has them
MARGIN = 4096  # bytes after a tensor that are checked for writes


def tiling_library(package: Path) -> Path:
    (library,) = package.glob("op_impl/ai_core/tbe/op_tiling/lib/linux/*/libcust_opmaster_rt2.0.so")
    return library


def open_libraries(package: Path) -> ctypes.CDLL:
    for name in ("libregister.so", "libexe_graph.so", "libplatform.so", "libtiling_api.so"):
        ctypes.CDLL(os.path.join(LIBRARIES, name), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(package / "op_api/lib/libcust_opapi.so"), mode=os.RTLD_NOW)


def describe(package: Path) -> list[dict]:
    """Its definitions; raises OSError or RuntimeError where a library does not load or has no function of one."""
    functions = open_libraries(package)
    operators = definitions_of(str(tiling_library(package)))["operators"]
    for operator in operators:
        for name in (f"aclnn{operator['type']}GetWorkspaceSize", f"aclnn{operator['type']}"):
            if not hasattr(functions, name):
                raise RuntimeError(f"libcust_opapi.so has no function {name}")
    return operators


# ---- drawn calls


def drawn(operator: dict, soc: str) -> list[dict]:
    """The calls: of each combination of dtypes the first shapes, of the first combination all."""
    here = operator["socs"].get(soc) or next(iter(operator["socs"].values()))
    calls = []
    for index, (types, formats) in enumerate(here["combinations"]):
        if any(FORMATS.get(each, "ND") not in ROWS for each in formats) or not set(types) <= set(SIZES):
            continue
        for shape in SHAPES if index == 0 else SHAPES[:2]:
            inputs = [{**each, "type": type, "shape": shape} for each, type in zip(here["inputs"], types, strict=False)]
            outputs = types[len(inputs) :]
            outputs = [
                {**each, "type": type, "shape": shape} for each, type in zip(here["outputs"], outputs, strict=True)
            ]
            calls.append({"inputs": inputs, "outputs": outputs})
    return calls


def text_of(call: dict) -> str:
    return ", ".join(f"{each['name']} {DTYPES[each['type']].info}{each['shape']}" for each in call["inputs"])


def infer(package: Path, operator: dict, call: dict) -> dict:
    library = ctypes.CDLL(os.path.join(LIBRARIES, "libnnopbase.so"))
    library.cann_cpu_infer.restype = ctypes.c_bool
    numbers = []
    for each in call["inputs"]:
        numbers += [1, each["type"], len(each["shape"]), *each["shape"]]
    numbers += [each["type"] for each in call["outputs"]]
    found, error = (ctypes.c_int64 * 1024)(), ctypes.c_char_p()
    path = str(tiling_library(package)).encode()
    given = (ctypes.c_int64 * (len(numbers) + 1))(*numbers)
    if not library.cann_cpu_infer(path, operator["type"].encode(), given, found, 1024, ctypes.byref(error)):
        return {"call": text_of(call), "rejected": error.value.decode(errors="replace")}
    shapes, at = [], 0
    for _ in call["outputs"]:
        rank = found[at + 1]
        shapes.append(found[at + 2 : at + 2 + rank])
        at += 2 + rank
    return {"call": text_of(call), "shapes": shapes}


def values(type: int, count: int, numbers: random.Random) -> bytes:
    if type == BFLOAT16:  # the upper halves of floats
        halves = (struct.pack("<f", numbers.uniform(-2, 2))[2:] for _ in range(count))
        return b"".join(halves)
    if type in (0, 1, 11):
        drawn_values = [numbers.uniform(-2, 2) for _ in range(count)]
    else:
        drawn_values = [numbers.randrange(2) for _ in range(count)]
    return struct.pack(f"<{count}{LETTERS[type]}", *drawn_values)


class Device:
    """The runtime as a C program calls it."""

    def __init__(self, package: Path):
        self.acl = ctypes.CDLL(os.path.join(LIBRARIES, "libascendcl.so"))
        self.base = ctypes.CDLL(os.path.join(LIBRARIES, "libnnopbase.so"))
        self.functions = open_libraries(package)
        self.acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
        self.check(self.acl.aclrtSetDevice(0))
        self.kept = []

    def message(self) -> str:
        return (self.acl.aclGetRecentErrMsg() or b"").decode(errors="replace")

    def check(self, code: int) -> None:
        if code != 0:
            raise RuntimeError(f"{code}: {self.message()}")

    def memory(self, content: bytes) -> ctypes.c_void_p:
        address = ctypes.c_void_p()
        self.check(self.acl.aclrtMalloc(ctypes.byref(address), ctypes.c_size_t(len(content)), 0))
        self.check(self.acl.aclrtMemcpy(address, len(content), content, len(content), 1))
        return address

    def read(self, address: ctypes.c_void_p, count: int) -> bytes:
        content = ctypes.create_string_buffer(count)
        self.check(self.acl.aclrtMemcpy(content, count, address, count, 2))
        return content.raw

    def make(self, kind: str, *arguments) -> ctypes.c_void_p:
        create = getattr(self.base, f"aclCreate{kind}")
        create.restype = ctypes.c_void_p
        made = ctypes.c_void_p(create(*arguments))
        if not made:
            raise RuntimeError(self.message())
        return made

    def tensor(self, shape: list[int], type: int, address: ctypes.c_void_p) -> ctypes.c_void_p:
        sizes = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        strides = (ctypes.c_int64 * max(len(shape), 1))(*(math.prod(shape[i + 1 :]) for i in range(len(shape))))
        rank = ctypes.c_uint64(len(shape))
        return self.make("Tensor", sizes, rank, type, strides, ctypes.c_int64(0), 2, sizes, rank, address)

    def argument(self, parameter: dict, address: ctypes.c_void_p) -> ctypes.c_void_p:
        """A tensor at the address, or for a dynamic parameter a list of this one."""
        tensor = self.tensor(parameter["shape"], parameter["type"], address)
        if parameter["presence"] != "dynamic":
            return tensor
        return self.make("TensorList", (ctypes.c_void_p * 1)(tensor), ctypes.c_uint64(1))

    def array(self, type: int, count: int) -> ctypes.c_void_p:
        """An array of ones, for an input with ValueDepend."""
        kind, name = {0: (ctypes.c_float, "Float"), 12: (ctypes.c_bool, "Bool")}.get(type, (ctypes.c_int64, "Int"))
        return self.make(f"{name}Array", (kind * count)(*[1] * count), ctypes.c_uint64(count))


def attribute(device: Device, each: dict):
    """Its default, or where it has none a 1 of its type."""
    value = each["value"]
    listed = None if value is None else [part for part in value.strip("{}").split(",") if part.strip()]
    match each["type"]:
        case "Int":
            return ctypes.c_int64(int(float(value or 1)))
        case "Float":
            return ctypes.c_double(float((value or "1").rstrip("fF")))
        case "Bool":
            return ctypes.c_bool(value == "true")
        case "String":
            return ctypes.c_char_p((value or '""')[1:-1].encode())
        case "ListInt":
            numbers = [1] if listed is None else [int(part) for part in listed]
            return device.make("IntArray", (ctypes.c_int64 * len(numbers))(*numbers), ctypes.c_uint64(len(numbers)))
        case "ListFloat":
            reals = [1.0] if listed is None else [float(part.rstrip("fF")) for part in listed]
            return device.make("FloatArray", (ctypes.c_float * len(reals))(*reals), ctypes.c_uint64(len(reals)))
    flags = [True] if listed is None else [part.strip() == "true" for part in listed]
    return device.make("BoolArray", (ctypes.c_bool * len(flags))(*flags), ctypes.c_uint64(len(flags)))


def run(device: Device, operator: dict, call: dict) -> dict:
    """What became of a call: a code and its message, a digest of all outputs, and which of them nothing has written."""
    numbers, arguments, written, inputs = random.Random(text_of(call)), [], [], {}
    for each in call["inputs"]:
        count = math.prod(each["shape"])
        if each["value_depends"]:
            arguments.append(device.array(each["type"], len(each["shape"])))
            continue
        content = values(each["type"], count, numbers)
        address = device.memory(content + bytes(MARGIN))
        inputs[each["name"]] = (address, len(content))
        arguments.append(device.argument(each, address))
    arguments += [attribute(device, each) for each in operator["attributes"]]
    for each in call["outputs"]:
        if each["name"] in inputs:
            written.append((each["name"], *inputs[each["name"]], False))
            continue
        count = math.prod(each["shape"]) * SIZES[each["type"]]
        address = device.memory(bytes([POISON]) * (count + MARGIN))
        written.append((each["name"], address, count, True))
        arguments.append(device.argument(each, address))
    size, executor, name = ctypes.c_uint64(), ctypes.c_void_p(), f"aclnn{operator['type']}"
    phase_one = getattr(device.functions, f"{name}GetWorkspaceSize")
    code = phase_one(*arguments, ctypes.byref(size), ctypes.byref(executor))
    result = {"call": text_of(call), "code": code}
    if code == 0:
        workspace = device.memory(bytes(size.value)) if size.value else ctypes.c_void_p()
        code = getattr(device.functions, name)(workspace, size, executor, None)
        code = code or device.acl.aclrtSynchronizeDevice()
        result["code"] = code
    if code != 0:
        return result | {"message": device.message()}
    digest, untouched, overrun = hashlib.sha256(), [], []
    for output, address, count, is_new in written:
        content = device.read(address, count + MARGIN)
        digest.update(content[:count])
        if is_new and count and content[:count] == bytes([POISON]) * count:
            untouched.append(output)
        rounded = (count + BLOCK - 1) // BLOCK * BLOCK
        if is_new and content[rounded:] != bytes([POISON]) * (count + MARGIN - rounded):
            overrun.append(output)
    return result | {"digest": digest.hexdigest(), "untouched": untouched, "overrun": overrun}


def main() -> int:
    action, package = sys.argv[1], Path(sys.argv[2])
    try:
        operators = describe(package)
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    if action == "describe":
        print(json.dumps(operators))
        return 0
    type, soc = sys.argv[3:5]
    operator = next(each for each in operators if each["type"] == type)
    calls = drawn(operator, soc)
    if action == "infer":
        for call in calls:
            print(json.dumps(infer(package, operator, call)), flush=True)
        return 0
    first, shapes = int(sys.argv[5]), json.load(sys.stdin)
    device = Device(package)
    for call, of_outputs in zip(calls[first:], shapes[first:], strict=True):
        for each, shape in zip(call["outputs"], of_outputs or [], strict=False):
            each["shape"] = shape
        result = run(device, operator, call)
        print(json.dumps(result), flush=True)
        if result["code"] and result["code"] not in range(161000, 562000):
            return 0  # a kernel has failed, and its stream with it
    return 0


if __name__ == "__main__":
    sys.exit(main())
