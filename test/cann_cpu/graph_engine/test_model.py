# SPDX-License-Identifier: Apache-2.0
"""Reading, compiling and running models: hand-written ones, broken ones, and thousands of mutations."""

import ctypes
import random
import re
import subprocess
import sys

import numpy
import pytest
import torch
from google.protobuf.message import DecodeError
from models import ModelDef, ModelWriter


def sample():
    """A model with every part that the reader knows: constants, attributes of all kinds, control edges.

    The attributes' names are those of a compiler's own: others must be the node type's.
    """
    writer = ModelWriter()
    x = writer.data(0, [-1, 3])
    two = writer.const("two", [2.0], dtype=1)
    doubled = writer.node("Mul", "doubled", x, two)
    axes = writer.const("axes", [1])
    total = writer.node("ReduceSum", "total", doubled, axes, "doubled:-1", keep_dims=True)
    for node in writer.graph.op:
        node.attr["_ints"].list.i.extend([1, -2, 300])
        node.attr["_floats"].list.f.extend([1.5, 2.5])
        node.attr["_bools"].list.b.extend([True, False])
        node.attr["_strings"].list.s.extend([b"a", b"b"])
        node.attr["_nested"].list_list_int.list_list_i.add().list_i.extend([1, 2])
        node.attr["_type"].dt = 27
    return writer.output(total)


def field(number, size):
    """What stands before so many bytes of a field."""
    key, length = [number << 3 | 2], []
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([*key, *length, size])


def nested(times):
    """A model with an attribute whose tensor's description has an attribute, and so on: four messages each time."""
    parts, size = [], 0
    for number in [2, 5, 1, 12] * (times - 1) + [2]:
        name = b"\x0a\x01_" if number == 2 else b""  # of an attribute, before its value
        parts += [field(number, size), name]
        size += len(parts[-1]) + len(parts[-2])
    writer = ModelWriter()
    writer.output(writer.node("Exp", "e", writer.data(0, [2])))
    graph = writer.graph.SerializeToString() + field(11, size) + b"".join(reversed(parts))
    return field(7, len(graph)) + graph


@pytest.fixture
def compile_model(session_library):
    def run(model):
        text = ctypes.create_string_buffer(2000)
        failed = session_library.compile(model, ctypes.c_size_t(len(model)), text, ctypes.c_size_t(2000))
        return text.value.decode(errors="replace") if failed else None

    return run


@pytest.fixture
def run_model(session_library):
    def run(way, model, x):
        x = numpy.ascontiguousarray(x, dtype=numpy.float32)
        dims = (ctypes.c_int64 * max(x.ndim, 1))(*x.shape)
        output_dims, output = (ctypes.c_int64 * 26)(), numpy.zeros(4096, dtype=numpy.float32)
        text = ctypes.create_string_buffer(2000)
        if session_library.run(
            way,
            model,
            ctypes.c_size_t(len(model)),
            x.ctypes.data_as(ctypes.c_void_p),
            dims,
            ctypes.c_size_t(x.ndim),
            output_dims,
            output.ctypes.data_as(ctypes.c_void_p),
            text,
            ctypes.c_size_t(2000),
        ):
            raise RuntimeError(text.value.decode())
        shape = tuple(output_dims[1 : 1 + output_dims[0]])
        return output[: int(numpy.prod(shape))].reshape(shape)

    return run


@pytest.mark.parametrize("way", [0, 1], ids=["RunGraph", "RunGraphWithStreamAsync"])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_model_runs(run_model, session_library, way, rows):
    x = numpy.arange(rows * 3, dtype=numpy.float32).reshape(rows, 3)
    numpy.testing.assert_array_equal(run_model(way, sample(), x), (x * 2).sum(1, keepdims=True))
    assert session_library.live_blocks() == 0


def test_a_model_is_loaded_from_a_file(session_library, tmp_path):
    file = tmp_path / "export.air"
    text = ctypes.create_string_buffer(2000)

    def compile_file():
        return session_library.compile(str(file).encode(), ctypes.c_size_t(0), text, ctypes.c_size_t(2000))

    assert compile_file() != 0
    assert text.value.decode() == f"cannot read {file}"
    file.write_bytes(sample())
    assert compile_file() == 0
    file.write_bytes(b"nonsense")
    assert compile_file() != 0


@pytest.mark.parametrize("way", [0, 1], ids=["RunGraph", "RunGraphWithStreamAsync"])
def test_a_failing_node_is_named(run_model, way):
    with pytest.raises(RuntimeError, match=r"graph 'hand_written': node 'total' of type ReduceSum: .*[Dd]imension"):
        run_model(way, sample(), numpy.ones(4))
    assert run_model(way, sample(), numpy.ones((1, 3))).tolist() == [[6]]


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("ge.exec.staticMemoryPolicy", "2", None),
        ("ge.topoSortingMode", "1", None),
        ("ge.aicoreNum", "4|8", None),
        ("ge.aicoreNum", "99|8", r"option ge.aicoreNum is '99\|8'; AI cores and vector cores, at most '20\|40'"),
        ("ge.aicoreNum", "4", "option ge.aicoreNum is '4'; AI cores"),
        ("ge.exec.enableDump", "0", None),
        ("ge.exec.enableDump", "1", "option ge.exec.enableDump of '1' is not supported; it may be '0'"),
        (
            "ge.exec.precision_mode",
            "allow_fp32_to_fp16",
            "option ge.exec.precision_mode of 'allow_fp32_to_fp16' is not",
        ),
        ("ge.exec.dumpPath", "/tmp", "option ge.exec.dumpPath of '/tmp' is not supported"),
        ("ge.made_up", "x", "option ge.made_up of 'x' is not supported"),
        ("clone_input", "1", None),  # torchair's own
    ],
)
def test_options_are_known_or_rejected(session_library, name, value, message):
    text, model = ctypes.create_string_buffer(2000), sample()
    arguments = (model, ctypes.c_size_t(len(model)), name.encode(), value.encode(), text, ctypes.c_size_t(2000))
    failed = session_library.compile_with(*arguments)
    assert (failed == 0) == (message is None), text.value
    assert message is None or re.search(message, text.value.decode())


BEFORE_THE_ENGINE = """
import ctypes, sys, torch, torch_npu
torch.npu.set_device(0)
torch.npu.synchronize()
library, model = ctypes.CDLL(sys.argv[1]), bytes.fromhex(sys.argv[2])
statuses, text = (ctypes.c_uint32 * 3)(), ctypes.create_string_buffer(2000)
library.add_at_all_times(model, ctypes.c_size_t(len(model)), statuses, text, ctypes.c_size_t(2000))
print(*statuses, text.value.decode())
"""


def test_a_graph_is_added_between_initialize_and_finalize(session_library):
    library, model = session_library._name, sample().hex()
    printed = subprocess.check_output([sys.executable, "-c", BEFORE_THE_ENGINE, library, model], text=True)
    not_initialized = 1343229963
    assert printed.strip() == (
        f"{not_initialized} 0 {not_initialized} the Graph Engine is not initialized; call ge::GEInitialize first"
    )


def test_a_graph_is_compiled_then_loaded_then_run(session_library):
    model, text = sample(), ctypes.create_string_buffer(2000)
    session_library.take_steps(model, ctypes.c_size_t(len(model)), text, ctypes.c_size_t(2000))
    assert text.value.decode() == ""


def test_memory_for_a_graph_is_the_devices(session_library):
    text, model = ctypes.create_string_buffer(2000), sample()

    def given(address, size):
        arguments = (model, ctypes.c_size_t(len(model)), ctypes.c_void_p(address), ctypes.c_size_t(size))
        return session_library.give_memory(*arguments, text, ctypes.c_size_t(2000))

    assert given(torch.ones(128, device="npu").data_ptr(), 512) == 0
    assert given(None, 0) == 0
    for address in (None, torch.ones(128).data_ptr()):
        assert given(address, 512) != 0
        assert text.value.startswith(b"the memory for graph 4 is not a device's memory")


@pytest.mark.parametrize(
    "address, dims, message",
    [
        (0, [3], "attribute 'addr': the address is null"),
        (4096, [3], "attribute 'addr': the address 0x1000 should be device memory"),
        ("host", [3], "attribute 'addr': the address .* should be device memory and is host memory"),
        ("device", [2**30], "attribute 'addr': the address .* left in its allocation, .* are needed"),
        ("device", [2**40, 2**40], ".*[Oo]verflow"),
        ("device", [-3], "has a negative dimension"),
    ],
)
def test_a_frozen_parameter_lies_in_device_memory(compile_model, address, dims, message):
    tensors = {"host": torch.ones(3), "device": torch.ones(3).npu()}
    writer = ModelWriter()
    x = writer.data(0, [-1, 3])
    frozen = writer.node("ConstPlaceHolder", "frozen")
    node = writer.graph.op[-1]
    node.attr["addr"].i = tensors[address].data_ptr() if address in tensors else address
    node.attr["dtype"].dt = 1
    node.attr["origin_shape"].list.i.extend(dims)
    said = compile_model(writer.output(writer.node("Mul", "product", x, frozen)))
    assert re.search(f"node 'frozen' of type ConstPlaceHolder:? {message}", said), said


@pytest.mark.parametrize(
    "attributes, inputs", [({"offset_x": 1}, []), ({"made_up": 1}, []), ({}, ["", "scale:0"])], ids=str
)
def test_what_a_product_of_an_addmm_asks_for_is_not_dropped(run_model, attributes, inputs):
    writer = ModelWriter()
    x = writer.data(0, [-1, 2])
    w, scale, bias = (writer.const(*c, dtype=1) for c in [("w", numpy.eye(2)), ("scale", 2.0), ("bias", [1.0, 0.0])])
    product = writer.node("MatMulV2", "product", x, w, *inputs, **attributes)
    model = writer.output(writer.node("Add", "sum", writer.node("Mul", "scaled", product, scale), bias))
    named = next(iter(attributes), "input 3")
    with pytest.raises(RuntimeError, match=f"node 'product' of type MatMulV2: .*{named}.* is not implemented"):
        run_model(0, model, numpy.ones((1, 2)))


def test_a_graph_whose_stream_is_destroyed_before_it_runs_says_so(run_model):
    with pytest.raises(RuntimeError, match="graph 'hand_written': its stream was destroyed before it ran"):
        run_model(2, sample(), numpy.ones((1, 3)))


def broken(change):
    writer = ModelWriter()
    x = writer.data(0, [2])
    change(writer, x)
    return writer.model.SerializeToString()


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda w, x: w.output(w.node("Exp", "e", "nobody:0")), "'nobody:0' names no node"),
        (lambda w, x: w.output(w.node("Exp", "e", "data_0:x")), "is not written as node:output"),
        (lambda w, x: w.output(w.node("Add", "a", x, "b:0"), w.node("Add", "b", x, "a:0")), "a cycle"),
        (lambda w, x: w.output(w.node("Exp", "e", "e:0")), "a cycle"),
        (lambda w, x: w.output(w.node("Exp", "e", x), w.node("Exp", "e", x)), "two nodes are named 'e'"),
        (
            lambda w, x: w.output(w.node("NoSuchType", "n", x)),
            "node 'n' of type NoSuchType: it is not a built-in node type",
        ),
        (lambda w, x: w.output(w.node("Const", "c")), "no tensor in its attribute 'value'"),
        (lambda w, x: w.output(w.data(2, [2])), "not 0, 1, 2"),
        (lambda w, x: w.output(w.data(2**63 - 1, [2])), "not 0, 1, 2"),
        (lambda w, x: w.output(""), "an output has no source"),
    ],
)
def test_a_broken_graph_is_rejected(compile_model, change, message):
    assert message in compile_model(broken(change))


def test_a_model_is_nested_as_deep_as_protobuf_reads_it(compile_model):
    assert compile_model(nested(24)) is None
    for times in (26, 7500):
        assert "messages are nested in more than 100 others" in compile_model(nested(times))
    with pytest.raises(DecodeError):
        ModelDef.FromString(nested(26))
    assert ModelDef.FromString(nested(24)).graph[0].attr["_"].t.desc.attr["_"].WhichOneof("value") == "t"


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("func", 10),
        ("td", 11),
        ("g", 13),
        ("list.bt", 7),
        ("list.td", 8),
        ("list.t", 9),
        ("list.g", 10),
        ("list.na", 11),
    ],
)
def test_an_attribute_of_a_kind_that_is_not_read_is_named(compile_model, kind, number):
    def change(writer, x):
        writer.output(writer.node("Exp", "e", x))
        value = writer.graph.op[1].attr["odd"]
        if kind == "list.bt":
            value.list.bt.append(b"a")
        elif kind.startswith("list"):
            getattr(value.list, kind.partition(".")[2]).add()
        else:
            getattr(value, kind).SetInParent()

    text = "list with elements" if "list" in kind else "value"
    assert f"attribute 'odd' is a {text} of field {number}, which is not read" in compile_model(broken(change))


def test_all_unknown_types_are_listed(compile_model):
    text = compile_model(broken(lambda w, x: w.output(w.node("First", "a", x), w.node("Second", "b", x))))
    assert "node 'a' of type First" in text
    assert "node 'b' of type Second" in text


def test_a_constant_whose_bytes_do_not_fit_is_rejected(compile_model):
    def change(writer, x):
        constant = writer.const("c", [1, 2, 3])
        writer.graph.op[-1].attr["value"].t.desc.shape.dim[0] = 2**40
        writer.output(constant)

    assert "its shape and dtype do not need" in compile_model(broken(change))


def test_no_mutation_of_a_model_crashes_the_compiler(compile_model):
    model, generator = sample(), random.Random(7)
    assert compile_model(model) is None
    outcomes = {"compiled": 0, "rejected": 0}
    for _ in range(4000):
        mutated = bytearray(model)
        for _ in range(generator.randint(1, 4)):
            mutated[generator.randrange(len(mutated))] = generator.randrange(256)
        outcomes["rejected" if compile_model(bytes(mutated)) else "compiled"] += 1
    assert min(outcomes.values()) > 100
