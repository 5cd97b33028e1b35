# SPDX-License-Identifier: Apache-2.0
"""Reading, compiling and running models: hand-written ones, broken ones, and thousands of mutations."""

import ctypes
import random

import numpy
import pytest
from models import ModelWriter


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
            "node 'n' of type NoSuchType: it is no built-in node type",
        ),
        (lambda w, x: w.output(w.node("Const", "c")), "no tensor in its attribute 'value'"),
        (lambda w, x: w.output(w.data(2, [2])), "not 0, 1, 2"),
        (lambda w, x: w.output(w.data(2**63 - 1, [2])), "not 0, 1, 2"),
        (lambda w, x: w.output(""), "an output has no source"),
    ],
)
def test_a_broken_graph_is_rejected(compile_model, change, message):
    assert message in compile_model(broken(change))


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
