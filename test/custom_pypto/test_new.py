# SPDX-License-Identifier: Apache-2.0
"""New operators of many kinds: what is written builds and passes every check, as it is and filled in."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import fresh
import new_package
import pytest

from custom_pypto.authoring import new, new_project
from custom_pypto.authoring.schema import Rejected

HERE = Path(__file__).parent
PACKAGE = "new_probe"
FACTOR = (
    "pads.size() + i + f + b + s.size() + lf[0] + n + scale + flag + text.size() + dims.size() + weights.size() + "
    "flags.size()"
)


@dataclass
class Case:
    """A schema, and the implementation with which its files are filled in: parts of them, and those in their place."""

    schema: str
    autograd: bool = False
    aten: bool = False
    edits: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    reference: str = ""

    @property
    def name(self) -> str:
        return self.schema.partition("(")[0]

    def write(self, folder: Path) -> None:
        new.create(folder, self.schema, self.autograd, self.aten)
        for file, edits in self.edits.items():
            source = folder / "opp" / file
            source.write_text(re.sub(r"/\*(\w+)\*/", r"\1", source.read_text()))  # the names that were not used
            for pattern, text in edits:
                replace(source, pattern, text)
        if self.reference:
            replace(
                folder / f"test/{PACKAGE}/{self.name}_calls.py", r"(?<=\n)    return .*(?=\n)", f"    {self.reference}"
            )


def replace(file: Path, pattern: str, text: str) -> None:
    source, count = re.subn(pattern, lambda _: text, file.read_text())
    assert count == 1, f"{pattern} is {count} times in {file}"
    file.write_text(source)


def instead(of: str, *statements: str) -> tuple[str, str]:
    return re.escape(f"{of}\n"), "\n".join(statements) + "\n"


FILLED = [
    Case(
        "scaled(Tensor x, *, float alpha=1.0, int power=2, bool twice=True) -> (Tensor, Tensor scale)",
        True,
        edits={
            "op_kernel/scaled.cpp": [
                instead("Muls(out0, x, 1.0f, count);", "Muls(out0, x, tiling.alpha * (1 + tiling.twice), count);"),
                instead("Muls(scale, x, 1.0f, count);", "Mul(scale, x, x, count);"),
            ],
            "op_kernel/scaled_grad.cpp": [
                instead(
                    "Add(grad_x, grad_out0, grad_scale, count);",
                    "Mul(grad_x, grad_scale, x, count);",
                    "Muls(grad_x, grad_x, static_cast<float>(tiling.power), count);",
                    "Axpy(grad_x, grad_out0, tiling.alpha * (1 + tiling.twice), count);",
                )
            ],
        },
        reference="return x.double() * alpha * (1 + twice), x.double() ** power",
    ),
    Case(
        "npu_attributes(Tensor[] parts, int[2] pads=1, *, int i=2, float f=1e-6, bool b=True, str s='a', "
        "float[] lf=[0.5], int? n=3, float? scale=None, bool? flag=None, str? text=None, "
        "int[]? dims=None, float[]? weights=None, bool[]? flags=None) -> Tensor[]",
        True,
        True,
        {
            "cpu/attributes.cpp": [instead("out[k].copy_(parts[k]);", f"out[k].copy_(parts[k].mul({FACTOR}));")],
            "cpu/attributes_grad.cpp": [
                instead("grad_parts[k].copy_(grad_out[k]);", f"grad_parts[k].copy_(grad_out[k].mul({FACTOR}));")
            ],
        },
        "n = 3 if n is None else n\n"
        "    lists = sum(len(each or ()) for each in (pads, s, text, dims, weights, flags))\n"
        "    numbers = i + f + b + lf[0] + n + (scale or 0) + bool(flag)\n"
        "    return [part * (lists + numbers) for part in parts]",
    ),
]
FRESH = [
    Case("copied(Tensor x, Tensor? bias=None, *, float alpha=1.0, str s='a', int[] dims=[1]) -> Tensor", True),
    Case("written(Tensor(a!) state, Tensor(b!) cache, Tensor x) -> ()"),
    Case("decay(Tensor(a!) state, Tensor x) -> Tensor"),
    Case("fresh(Tensor[] parts, Tensor? mask=None) -> Tensor", True, True),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A package with all of them, in folder/build, which is importable there."""
    folder = tmp_path_factory.mktemp("new") / PACKAGE
    new_project.make(PACKAGE, folder)
    for case in FILLED + FRESH:
        case.write(folder)
    new_package.build(folder, PACKAGE)
    return folder


def run(folder: Path, *arguments, where="") -> subprocess.CompletedProcess:
    """Python on the package that was built, in the folder of its sources or one of that."""
    vendor = folder / "build" / PACKAGE / "opp/vendors" / PACKAGE
    environment = os.environ | {"ASCEND_CUSTOM_OPP_PATH": str(vendor), "PYTHONPATH": str(folder / "build")}
    command = [sys.executable, *arguments]
    return fresh.run(command, cwd=folder / where, env=environment)


@pytest.fixture(scope="module")
def tables(built) -> dict[str, dict[str, tuple[str, str]]]:
    """{operator: {line: (verdict, what was found)}} of `check`."""
    result = run(built, HERE / "new_package_checks.py", PACKAGE)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    return {operator: {line: (verdict, text) for line, verdict, text in lines} for operator, lines in found.items()}


def operators(cases: list[Case]) -> list[str]:
    return [name for case in cases for name in (case.name, *[f"{case.name}_backward"] * case.autograd)]


@pytest.mark.nightly
@pytest.mark.parametrize("operator", operators(FRESH + FILLED))
def test_a_fresh_operator_passes_every_line_and_so_does_one_that_is_filled_in(operator, tables):
    assert {line: text for line, (verdict, text) in tables[operator].items() if verdict != "ok"} == {}
    gradient = tables[operator]["autograd"][1]
    assert gradient.startswith("gradcheck of") == (operator in [case.name for case in FRESH + FILLED if case.autograd])


@pytest.mark.nightly
def test_lists_on_the_cpu_and_second_gradients_are_rejected_and_writes_counted(built):
    result = run(
        built,
        "-c",
        f"""
import torch, {PACKAGE}
ops, state, cache, x = torch.ops.{PACKAGE}, *(torch.ones(3).npu() for _ in range(3))
ops.written(state, cache, x)
print([tensor._version for tensor in (state, cache, x)])
for call in (lambda: ops.fresh([torch.ones(3)]), lambda: ops.npu_attributes([])):
    try:
        call()
    except (RuntimeError, NotImplementedError) as error:
        print(str(error).splitlines()[0])
y = torch.ones(3).npu().requires_grad_()
(gradient,) = torch.autograd.grad(ops.scaled(y)[1].sum(), y, create_graph=True)
try:
    gradient.sum().backward()
except RuntimeError as error:
    print(str(error).splitlines()[0])
""",
        where="build",  # -c looks for packages where it is
    )
    versions, on_cpu, empty, twice = result.stdout.splitlines()
    assert versions == "[1, 1, 0]"
    assert on_cpu == f"{PACKAGE}::fresh: argument 'parts' must be on an NPU, but is on cpu; move it there with .npu()"
    assert "npu_attributes" in empty
    assert "scaled_backward" in twice and "not implemented" in twice


# ---- what is rejected


@pytest.fixture
def package(tmp_path) -> Path:
    """The sources of a separate package."""
    new_project.make("my_probe", tmp_path / "my_probe")
    return tmp_path / "my_probe"


def texts(folder: Path) -> dict[Path, str]:
    return {file: file.read_text() for file in folder.rglob("*") if file.is_file()}


REJECTED = {
    "f(Tensro x) -> Tensor": "is not a valid schema: unknown type specifier",
    "f(Tensor x)": "is not a valid schema: expected arrow but found 'eof' here. Write it like \"my_op(",
    "": "is not a valid schema",
    "other::f(Tensor x) -> Tensor": "'other::f' is not a valid operator name",
    "f.out(Tensor x) -> Tensor": "f.out is an overload: give it a separate name, such as f_out",
    "MyOp(Tensor x) -> Tensor": "'MyOp' is not a valid operator name: write it in small letters",
    "f(Tensor x, ...) -> Tensor": "a fixed number of arguments",
    "f(Tensor x, SymInt n) -> Tensor": "argument 'n' is a SymInt, for which a definition (OpDef) has no attribute",
    "f(Tensor x, ScalarType n) -> Tensor": "argument 'n' is a ScalarType, for which a definition",
    "f(Tensor x, Scalar n) -> Tensor": "argument 'n' is a number, for which a definition",
    "f(Tensor x, str[] n) -> Tensor": "argument 'n' is a List[str], for which a definition",
    "f(Tensor?[] x, Tensor y) -> Tensor": "argument 'x' is a List[Optional[Tensor]], for which a definition",
    "f(Tensor[]? x, Tensor y) -> Tensor": "argument 'x' is a Optional[List[Tensor]], for which a definition",
    "f(Tensor[] x) -> Tensor": "argument 'x' is a Tensor[], for which the kernel in Ascend C is by hand: add --aten",
    "f(Tensor x) -> Tensor[]": "result 'out' is a Tensor[], for which the kernel in Ascend C is by hand: add --aten",
    "f(Tensor x, float? a) -> Tensor": "argument 'a' may be None but has no default: write a=None",
    "f(Tensor x, int n=1, int m) -> Tensor": "an argument without a default follows one with a default",
    "f(Tensor x, int n=1, int[] m) -> Tensor": "argument 'm' has no default, but one before it has: put it in front",
    "f(Tensor x, Tensor(a!)? y=None) -> Tensor": "argument 'y' is written and no Tensor(a!), but Optional[Tensor]",
    "f(Tensor x, Tensor(a!)[] y) -> Tensor": "argument 'y' is written and no Tensor(a!), but List[Tensor]",
    "f(Tensor(a) x) -> Tensor": "argument 'x' is marked as aliased and not as written",
    "f(Tensor(a!) x) -> Tensor(a!)": "a result is an argument: return nothing for what is written, or a new tensor",
    "f(Tensor x) -> int": "result 'out' is a int: an operator gives Tensor and Tensor[]",
    "f(Tensor x) -> ()": "it gives nothing and writes to nothing",
    "f(Tensor x, Tensor x) -> Tensor": "two arguments or results have the name 'x'",
    "f(Tensor x) -> (Tensor x)": "two arguments or results have the name 'x'",
    "f(Tensor? x=None) -> Tensor": "give it a Tensor that is not optional",
    "f(int n) -> Tensor": "give it a Tensor that is not optional",
    "f(Tensor x, float lambda) -> Tensor": "argument 'lambda' has a name that is taken",
    "f(Tensor x, int template) -> Tensor": "argument 'template' has a name that is taken",
    "f(Tensor checks) -> Tensor": "argument 'checks' has a name that is taken",
    "f(Tensor x, int numSeqs) -> Tensor": "'numSeqs' is not a valid argument name",
    "softcap(Tensor x) -> Tensor": "my_probe::softcap exists, in",
    "npu_softcap(Tensor x) -> Tensor": "has Softcap, which npu_softcap would be: choose another name",
    "npu_softmax_v2(Tensor x) -> Tensor": "CANN has an operator SoftmaxV2, which npu_softmax_v2 would hide",
}
REJECTED_GRADIENTS = {
    "f(Tensor(a!) x, Tensor y) -> Tensor": "f writes to 'x', and what is written has no gradient: leave out --autograd",
    "f(Tensor[] x, Tensor[] y) -> Tensor": "f has several lists of tensors: --autograd is for one",
    "f(Tensor x) -> (Tensor, Tensor[])": "f gives tensors and lists: --autograd is for one kind",
    "f(Tensor x, Tensor grad_out) -> Tensor": "two arguments or results have the name 'grad_out'",
}


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [(schema, (False,), message) for schema, message in REJECTED.items()]
    + [(schema, (True, True), message) for schema, message in REJECTED_GRADIENTS.items()],
)
def test_what_cannot_be_made_is_rejected_in_a_line_and_nothing_is_written(schema, options, message, package):
    before = texts(package)
    with pytest.raises(Rejected) as rejection:
        new.create(package, schema, *options)
    assert message in str(rejection.value)
    assert "\n" not in str(rejection.value)
    assert texts(package) == before


def test_an_operator_is_rejected_where_it_is_already_and_outside_of_a_package(package, tmp_path):
    new.create(package, "f(Tensor x) -> Tensor", False)
    before = texts(package)
    with pytest.raises(Rejected, match="my_probe::f exists"):
        new.create(package, "my_probe::f(Tensor x) -> Tensor", False)
    (package / "my_probe/csrc/g.cpp").touch()
    with pytest.raises(Rejected, match=r"g\.cpp exists: remove it, or choose another name"):
        new.create(package, "g(Tensor x) -> Tensor", False)
    (package / "my_probe/csrc/g.cpp").unlink()
    assert texts(package) == before
    with pytest.raises(Rejected, match="is not an operator package: run this where there is one"):
        new.create(tmp_path, "f(Tensor x) -> Tensor", False)


@pytest.mark.parametrize("case", FILLED + FRESH, ids=lambda case: case.name)
def test_no_line_is_too_long_and_what_was_there_stays(case, package):
    before = texts(package)
    new.create(package, case.schema, case.autograd, case.aten)
    for file, text in texts(package).items():
        there, lines = before.get(file, "").splitlines(), text.splitlines()
        assert set(there) <= set(lines)
        assert not [line for line in set(lines) - set(there) if len(line) > 120]


def test_the_command_says_what_to_fill_in(package, monkeypatch, capsys):
    monkeypatch.chdir(package)
    assert new.main(["f(Tensor x) -> Tensor"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "my_probe::f, in a graph F. It copies, until you fill in:"
    assert all(Path(line.split()[0]).exists() for line in said[1:-1])
    assert said[-1] == "Then build, and: python -m custom_pypto check my_probe::f"
    assert new.main(["f(Tensor x) -> Tensor"]) == 1
    assert capsys.readouterr().err.startswith("error: my_probe::f exists, in my_probe/csrc/ops_def_registration.cpp")


@pytest.mark.parametrize("command", ["", "new", "new_project", "check"])
def test_each_command_says_what_it_takes(command):
    said = fresh.run([sys.executable, "-m", "custom_pypto", *command.split(), "--help"])
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith(f"usage: python -m custom_pypto {command}".rstrip())


def test_without_the_extra_that_it_needs_it_says_so(package, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(Rejected, match=r"templates need jinja2: pip install 'custom_pypto\[new\]'"):
        new.create(package, "f(Tensor x) -> Tensor", False)


def test_new_files_begin_with_the_licence_of_the_package_s_own(package):
    registration = package / "my_probe/csrc/ops_def_registration.cpp"
    registration.write_text(f"// SPDX-License-Identifier: MIT\n{registration.read_text()}")
    before = texts(package)
    new.create(package, "f(Tensor x) -> Tensor", False)
    made = {file: text for file, text in texts(package).items() if file not in before}
    begin = {".cpp": "// SPDX-License-Identifier: MIT\n// ", ".py": '# SPDX-License-Identifier: MIT\n"""'}
    assert [file for file, text in made.items() if not text.startswith(begin[file.suffix.replace(".h", ".cpp")])] == []
    assert len(made) == 5
