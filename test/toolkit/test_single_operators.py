# SPDX-License-Identifier: Apache-2.0
"""atc makes models of single operators, and aclopExecute runs an operator that there is one for, and no other."""

import ctypes
import json
import subprocess
from pathlib import Path

import pytest
from cann_cpu import activation
from cann_cpu.toolkit.atc import ModelError, write

INVALID, TYPE, INPUT, OUTPUT, ATTRIBUTE, LOAD = 100000, 100020, 100021, 100022, 100023, 100025


def tensor(shape, dtype="float16", **more):
    return {"format": "ND", "shape": shape, "type": dtype} | more


def described(**parts):
    return {"op": "Modelled", "input_desc": [tensor([8, 64])], "output_desc": [tensor([8, 64])]} | parts


@pytest.fixture
def made(tmp_path):
    """The folder of the models that atc makes of descriptions."""

    def make(*operators, soc="Ascend910B3"):
        (tmp_path / "operators.json").write_text(json.dumps(operators))
        write(str(tmp_path / "operators.json"), str(tmp_path / "models"), soc)
        return tmp_path / "models"

    return make


@pytest.fixture
def execute(acl):
    """execute(type, input, output, attributes) without a buffer; a tensor is its dims, of float16 or as it says."""
    base, compiler = acl.library, acl.op_compiler
    for function in (base.aclCreateTensorDesc, base.aclCreateDataBuffer, compiler.aclopCreateAttr):
        function.restype = ctypes.c_void_p

    def run(kind, taken, given, alpha=None):
        attributes = ctypes.c_void_p(compiler.aclopCreateAttr())
        if alpha is not None:
            acl.check(compiler.aclopSetAttrFloat(attributes, b"alpha", ctypes.c_float(alpha)))
        operands = []
        for dims in (taken, given):
            sizes = (ctypes.c_int64 * len(dims))(*dims)
            buffer = ctypes.c_void_p(base.aclCreateDataBuffer(None, ctypes.c_size_t(0)))
            desc = ctypes.c_void_p(base.aclCreateTensorDesc(1, len(dims), sizes, 2))
            operands += [1, (ctypes.c_void_p * 1)(desc), (ctypes.c_void_p * 1)(buffer)]
        acl.check(acl.status(compiler.aclopExecuteV2, kind.encode(), *operands, attributes, None))

    return run


def test_the_names_and_shapes_of_a_model_are_read(made, acl, execute):
    range_of_rows = tensor([-1, 64], shape_range=[[1, 4]])
    attributes = [{"name": "alpha", "type": "float", "value": 0.1}]
    operators = [
        described(op="InRange", input_desc=[range_of_rows], output_desc=[tensor([-1, -1])]),
        described(op="WithAlpha", attr=attributes),
    ]
    folder = made(*operators)
    assert sorted(path.name for path in folder.iterdir()) == [
        "0_InRange_1_2_-1_1_4_64_1_2_-1_-1.om",
        "1_WithAlpha_1_2_8_64_1_2_8_64.om",
    ]
    acl.check(acl.op_compiler.aclopSetModelDir(str(folder).encode()))
    for kind, taken, given, alpha in [("InRange", (4, 64), (9, 9), None), ("WithAlpha", (8, 64), (8, 64), 0.1)]:
        with pytest.raises(acl.AclError, match=f"operator {kind} .* does not serve"):  # it gets as far as the stream
            execute(kind, taken, given, alpha)
    for kind, taken, given, alpha, code, message in [
        (
            "InRange",
            (5, 64),
            (9, 9),
            None,
            INPUT,
            r"input 0 is float16\[5,64\] .*, and that of the model float16\[-1,64\]",
        ),
        ("WithAlpha", (8, 64), (8, 63), 0.1, OUTPUT, r"output 0 is float16\[8,63\]"),
        ("WithAlpha", (8, 64), (8, 64), 0.2, ATTRIBUTE, "the attribute alpha is 0.2.*, and that of the model 0.1"),
        ("WithAlpha", (8, 64), (8, 64), None, ATTRIBUTE, "the attribute alpha is not set"),
        ("InRange", (4, 64), (9, 9), 1.0, ATTRIBUTE, "the model has no attribute alpha"),
        ("Other", (4, 64), (9, 9), None, TYPE, "Other: no model is of this operator; atc --singleop makes one"),
    ]:
        with pytest.raises(acl.AclError, match=message) as raised:
            execute(kind, taken, given, alpha)
        assert raised.value.code == code


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (b"PK\x03\x04 of another", LOAD, r"foreign\.om is not a model of cann_cpu"),
        (b"cann_cpu single operator 1\nsoc Ascend910B1\n", LOAD, "was made for Ascend910B1, and this is Ascend910B3"),
        (b"cann_cpu single operator 1\nweights 3\n", LOAD, "a line begins with weights"),
        (b"cann_cpu single operator 1\nsoc Ascend910B3\n", LOAD, r"foreign\.om names no operator"),
        *(
            (
                b"cann_cpu single operator 1\nop A\n" + line,
                LOAD,
                rf"'{line.decode()}' is not \w+ DTYPE FORMAT DIM\.\.\.",
            )
            for line in [
                *(b"input float16 2 1", b"output 1", b"input 99999999999 2 1", b"input 1 2 x", b"input 1 2 -2"),
                *(b"input 1 2 -1:2", b"input 1 2 8:1:2", b"input 1 2 -1:1:", b"input 1 2 -1:1:99999999999999999999"),
            ]
        ),
        (None, INVALID, "is not a folder"),
    ],
)
def test_what_is_no_model_of_ours_is_named(tmp_path, acl, content, code, message):
    if content is not None:
        (tmp_path / "foreign.om").write_bytes(content)
    folder = tmp_path if content is not None else tmp_path / "none"
    with pytest.raises(acl.AclError, match=message) as raised:
        acl.check(acl.op_compiler.aclopSetModelDir(str(folder).encode()))
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("parts", "soc", "message"),
    [
        ({}, "Ascend610", "--soc_version=Ascend610; there is Ascend310B1"),
        ({"input_desc": [tensor([8], "float12")]}, "Ascend910B3", "Modelled: input 0: type is float12; there is"),
        ({"output_desc": [tensor([8], format="NZ")]}, "Ascend910B3", "Modelled: output 0: format is NZ; there is"),
        ({"input_desc": [tensor([-1, -1, 4], shape_range=[[1, 2]])]}, "Ascend910B3", "a range for each dim of -1"),
        ({"attr": [{"name": "a", "type": "tensor", "value": 1}]}, "Ascend910B3", "the type of an attribute is tensor"),
        ({"input_desc": [{"format": "ND"}]}, "Ascend910B3", "an operator has no 'type'"),
        ({"op": "../Evil"}, "Ascend910B3", "the type of an operator is '../Evil': expected letters, digits and _"),
        ({"attr": [{"name": "a b", "type": "int", "value": 1}]}, "Ascend910B3", "the name of an attribute is 'a b'"),
        ({"attr": [{"name": "a", "type": "string", "value": "1\nop B"}]}, "Ascend910B3", "a model has a line for each"),
    ],
)
def test_atc_rejects_what_no_model_can_say(made, parts, soc, message):
    with pytest.raises(ModelError) as raised:
        made(described(**parts), soc=soc)
    assert message in str(raised.value)


def test_the_command(tmp_path):
    command = [Path(activation.HOME, "bin/atc"), "--model=model.onnx", "--framework=5", "--soc_version=Ascend910B3"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "atc: --model=model.onnx --framework=5: models of single operators are made" in done.stderr


def test_scripts_find_what_is_known_of_the_chip():
    name = ctypes.create_string_buffer(64)
    runtime = ctypes.CDLL(f"{activation.LIBRARIES}/libruntime.so")
    assert runtime.rtGetSocVersion(name, 64) == 0
    assert runtime.rtGetSocVersion(name, 4) != 0
    config = Path(activation.HOME, f"data/platform_config/{name.value.decode()}.ini").read_text()
    assert "Short_SoC_version=Ascend910B\n" in config
