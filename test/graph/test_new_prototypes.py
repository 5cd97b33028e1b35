# SPDX-License-Identifier: Apache-2.0
"""The prototype that custom_pypto.authoring.new makes of a schema agrees with it, whatever the schema."""

import itertools
import os
import subprocess
from pathlib import Path

import torch
import torch_npu  # noqa: F401
from cann_cpu.toolkit import op_build
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from custom_pypto.authoring import new
from custom_pypto.authoring.schema import Operator, Rejected, gradient_of
from custom_pypto.graph import agreement, prototypes

floats = st.floats(-1e9, 1e9, width=32).map(repr)
integers = st.integers(-(2**62), 2**62).map(str)
DEFAULTS = {
    "int": integers,
    "float": floats,
    "bool": st.sampled_from(["True", "False"]),
    "str": st.text(st.characters(codec="ascii", categories=["L", "N", "P"], exclude_characters="'\\"), max_size=9).map(
        lambda text: f"'{text}'"
    ),
    "int[]": st.lists(integers, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    "int[2]": integers,
    "float[]": st.lists(floats, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    "bool[]": st.nothing(),
}


@st.composite
def arguments(draw) -> tuple[str, str]:
    """An argument's type and default."""
    kind = draw(st.sampled_from(["Tensor", "Tensor?", "Tensor[]", "Tensor(a!)", *DEFAULTS]))
    if kind.startswith("Tensor"):
        return kind, draw(st.sampled_from(["", "=None"])) if kind == "Tensor?" else ""
    if kind != "int[2]" and draw(st.booleans()):
        return f"{kind}?", "=None"
    return kind, draw(st.just("") | DEFAULTS[kind].map("={}".format))


@st.composite
def schemas(draw) -> str:
    """A schema of an operator with two words that stand for its name's."""
    listed = draw(st.lists(arguments(), max_size=8))
    positional = [each for each in listed if not each[1]]
    by_keyword = [each for each in listed if each[1]]
    names = (f"a{i}" for i in itertools.count())
    parts = ["Tensor x", *(f"{kind} {next(names)}" for kind, _ in positional)]
    parts += ["*"] * bool(by_keyword) + [f"{kind} {next(names)}{default}" for kind, default in by_keyword]
    results = draw(st.lists(st.sampled_from(["Tensor", "Tensor[]", "Tensor named"]), min_size=1, max_size=3))
    results = [result.replace("named", f"named{i}") for i, result in enumerate(results)]
    return f"({', '.join(parts)}) -> ({', '.join(results)})"


def with_gradient(text: str) -> list[Operator]:
    op = Operator(text, aten=True)
    try:
        return [op, gradient_of(op)]
    except Rejected:
        return [op]


DEFINITIONS = Path(__file__).parents[2] / "opp/op_host"
HEADERS = '#include "definition.h"\n'
"""All that the definitions include; each definition is then in a separate namespace."""


# Each example is compiled: a failing one is not made smaller.
@settings(max_examples=2, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=[*HealthCheck])
@given(st.lists(schemas(), min_size=20, max_size=30))
@example(["(Tensor x, *, float a0=1e-45, float a1=-3.4028234663852886e+38, float[] a2=[1e-40, 1e-5]) -> (Tensor)"])
@example(["(Tensor x, *, str a0='say \"no\"?') -> (Tensor)"])
def test_a_prototype_agrees_with_the_schema_that_it_is_made_of(ge_api, tmp_path_factory, signatures):
    made = [*itertools.chain(*(with_gradient(f"op_{i}{signature}") for i, signature in enumerate(signatures)))]
    template = new.environment().get_template("definition.cpp.jinja")
    directory = tmp_path_factory.mktemp("prototypes")
    texts = [f"namespace of_{op.file} {{\n{template.render(op=op)}}}\n" for op in made]
    (directory / "all.cpp").write_text(
        HEADERS + "".join(texts).replace("namespace ops {", "namespace ops {\nusing namespace ::ops;")
    )
    library = directory / "all.so"
    home = Path(os.environ["ASCEND_HOME_PATH"])
    command = ["g++", "-std=c++17", "-O0", "-shared", "-fPIC", f"-I{DEFINITIONS}", f"-isystem{home / 'include'}"]
    command += [directory / "all.cpp", "-o", library, f"-L{home / 'lib64'}", f"-Wl,-rpath,{home / 'lib64'}"]
    subprocess.run([*command, "-lregister", "-lexe_graph", "-lplatform", "-lascendcl"], check=True, timeout=120)
    op_build.build(str(library), str(directory))
    declared = ge_api(directory / "op_proto.h", directory).IR
    for op in made:
        found = agreement.mismatches([torch._C.parse_schema(op.text)], prototypes.Prototype.of(declared[op.type]))
        assert found == [], op.text
