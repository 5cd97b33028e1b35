# SPDX-License-Identifier: Apache-2.0
"""The checks of one operator: one without mistakes passes them all, each mistake is a line with the file to mend."""

import itertools
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
import torch_npu  # noqa: F401

from custom_pypto import check, definition
from custom_pypto.check import Samples

ROOT = Path(__file__).parents[2]
FORM, BEHAVIOUR = [*check.FORM], [*check.BEHAVIOUR]


def run(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "custom_pypto.check", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_an_operator_of_this_project_passes_every_line():
    result = run("add_custom")
    lines = result.stdout.splitlines()
    assert result.returncode == 0, result.stdout + result.stderr
    assert lines[0] == "custom_pypto::add_custom"
    assert [line[:16].rstrip() for line in lines[1:-1]] == FORM + BEHAVIOUR
    assert lines[-1] == f"{len(FORM + BEHAVIOUR)} of {len(FORM + BEHAVIOUR)} lines passed"
    assert "gradcheck of 3 calls" in result.stdout


def test_an_unknown_operator_is_an_error_that_lists_those_there_are():
    result = run("add_customs")
    assert result.returncode == 2
    assert "custom_pypto::add_customs is no operator: there are add_custom, " in result.stderr


# ---- operators in C++, of another package, with a kernel and a mistake each

KERNEL_MISTAKES = {
    "without_mistake": {},
    "other_dtype": {"Meta": "on Meta it gives [3, 5] float16, on an NPU [3, 5] float32 (a call): mend one of both in"},
    "other_shape": {"Meta": "on Meta it gives [5] float32, on an NPU [3, 5] float32 (a call): mend one of both in"},
    "scribbled": {"mutations": "it writes to argument 'self' (a call), which the schema does not declare: write"},
    "aliased": {"aliases": "result 0 lies in the memory of argument 'self' (a call, on npu): mend"},
}


@pytest.fixture(scope="module")
def tables(probe) -> dict:
    package, extension = probe
    result = subprocess.run(
        [sys.executable, Path(__file__).parent / "probe" / "checks.py", extension],
        env=os.environ | {"ASCEND_CUSTOM_OPP_PATH": package},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("operator", KERNEL_MISTAKES)
def test_a_mistake_in_cpp_is_one_line(operator, tables):
    found = {line: text for line, verdict, text in tables[operator] if verdict == "FAILED"}
    assert found.keys() == KERNEL_MISTAKES[operator].keys()
    for line, text in KERNEL_MISTAKES[operator].items():
        assert found[line].startswith(f"{text} ")
        assert "custom_pypto_probe/csrc/" in found[line]


# ---- an operator of another package: its functions are in Python, on operators of torch_npu

counter = itertools.count()


def require_floats(x):
    torch._check(x.is_floating_point(), lambda: f"scale: argument 'x' must be floating-point, but is {x.dtype}")
    torch._check(x.dim() == 2, lambda: f"scale: argument 'x' must have 2 dimensions, but its shape is {[*x.shape]}")


def scale(x, factor=2.0):
    require_floats(x)
    torch._check(x.device.type != "cpu", lambda: "scale: argument 'x' must be on an NPU")
    return x * factor


def scale_meta(x, factor=2.0):
    require_floats(x)
    return torch.empty_like(x)


def judge(results, written, arguments):
    assert check.same(results, [arguments["x"] * 2])


class Probe:
    """A package of one operator, scale, in a folder; every part of it can be another."""

    def __init__(self):
        self.schema = "scale(Tensor x, *, float factor=2.0) -> Tensor"
        self.functions = {"PrivateUse1": scale, "Meta": scale_meta, "CPU": scale}
        self.mistakes = []  # those that test/graph/test_definition.py makes
        self.samples = Samples({"ones": lambda: {"x": torch.ones(3, 5)}}, judge)

    def lines(self, folder, monkeypatch) -> dict[str, tuple[str, str]]:
        name = f"check_probe_{next(counter)}"
        self.library = torch.library.Library(name, "DEF")
        self.library.define(self.schema)
        for key, function in self.functions.items():
            self.library.impl("scale", function, key)
        package = types.ModuleType(name)
        mistakes = [mistake.replace("NAME", name) for mistake in self.mistakes]
        monkeypatch.setattr(definition, "mistakes", lambda package, folder: iter(mistakes))
        samples = {"scale": (self.samples, "test/NAME/calls.py")} if self.samples else {}
        monkeypatch.setattr(check, "load_samples", lambda package, folder: samples)
        found = {}
        for line, verdict, text in check.check(check.Operator(package, "scale", folder)):
            found[line] = verdict, text.replace(name, "NAME")
        return found


def failed(lines):
    return {line: text for line, (verdict, text) in lines.items() if verdict == "FAILED"}


def in_half(x, factor=2.0):
    return scale_meta(x, factor).half()


def transposed(x, factor=2.0):
    return scale_meta(x, factor).t()


def scribbling(x, factor=2.0):
    result = scale(x, factor)
    x[1:].zero_()
    return result


def in_place(x, factor=2.0):
    scale(x, factor)
    return x[:]


def nameless(x, factor=2.0):
    torch._check(x.is_floating_point(), lambda: "unsupported dtype")
    return scale(x, factor)


def writes_first(x, factor=2.0):
    if x.is_complex():
        x.zero_()
    return scale(x, factor)


FORM_MISTAKES = {
    "Meta's dtype differs": (
        {"Meta": in_half},
        "Meta",
        "on Meta it gives [3, 5] float16, on an NPU [3, 5] float32 (ones): mend one of both in NAME/csrc/scale.cpp",
    ),
    "Meta's shape differs": (
        {"Meta": transposed},
        "Meta",
        "on Meta it gives [5, 3] float32, on an NPU [3, 5] float32 (ones): mend one of both in NAME/csrc/scale.cpp",
    ),
    "a mutation is not declared": (
        {"PrivateUse1": scribbling},
        "mutations",
        "it writes to argument 'x' (ones), which the schema does not declare: write Tensor(a!) in "
        "NAME/csrc/ops_def_registration.cpp, or mend opp/op_api/aclnn_scale.cpp",
    ),
    "a result aliases an argument": (
        {"PrivateUse1": in_place},
        "aliases",
        "result 0 lies in the memory of argument 'x' (ones, on npu): mend NAME/csrc/scale.cpp",
    ),
    "a result on Meta aliases an argument": (
        {"Meta": lambda x, factor=2.0: x[:]},
        "aliases",
        "result 0 lies in the memory of argument 'x' (ones, on meta): mend NAME/csrc/scale.cpp",
    ),
}


@pytest.mark.parametrize(("functions", "line", "text"), FORM_MISTAKES.values(), ids=FORM_MISTAKES)
def test_a_mistake_in_the_form_is_one_line_with_the_file_to_mend(functions, line, text, tmp_path, monkeypatch):
    probe = Probe()
    probe.functions |= functions
    lines = probe.lines(tmp_path, monkeypatch)
    assert failed(lines) == {line: text}
    assert [name for name, (verdict, _) in lines.items() if verdict == "not run"] == (FORM + BEHAVIOUR)[
        (FORM + BEHAVIOUR).index(line) + 1 :
    ]


def behaviour(probe, name, folder, monkeypatch):
    """What one line of the table says of a probe, whose other lines of behaviour are left out."""
    monkeypatch.setattr(check, "BEHAVIOUR", {name: check.BEHAVIOUR[name]})
    lines = probe.lines(folder, monkeypatch)
    assert not {verdict for line, (verdict, _) in lines.items() if line != name} - {"ok"}
    return lines[name]


def test_other_strides_on_meta_are_what_opcheck_finds(tmp_path, monkeypatch):
    probe = Probe()
    probe.functions["Meta"] = lambda x, factor=2.0: scale_meta(x.t(), factor).contiguous().t()
    verdict, text = behaviour(probe, "opcheck", tmp_path, monkeypatch)
    assert verdict == "FAILED"
    assert "Strides are (5, 1) and (1, 3)" in text
    assert text.endswith(" (ones): mend NAME/csrc/scale.cpp")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("opcheck", "as torch.library.opcheck demands"),
        ("eager", "as the golden"),
        ("autograd", "it has no gradient"),
        ("bad input", "6 calls with one other argument, 4 refused, all as on Meta"),
    ],
)
def test_an_operator_of_another_package_passes(line, text, tmp_path, monkeypatch):
    assert behaviour(Probe(), line, tmp_path, monkeypatch) == ("ok", text)


def test_what_differs_from_the_golden_is_a_line(tmp_path, monkeypatch):
    probe = Probe()
    probe.functions["PrivateUse1"] = lambda x, factor=2.0: scale(x, factor) + 1
    verdict, text = behaviour(probe, "eager", tmp_path, monkeypatch)
    assert verdict == "FAILED"
    assert text.startswith("not as the golden: ")
    assert text.endswith(" (ones): mend opp/op_api/aclnn_scale.cpp")


def broken():
    raise LookupError("there is none")


def test_what_fails_in_the_calls_or_the_golden_is_a_line_with_their_file(tmp_path, monkeypatch):
    probe = Probe()
    probe.samples = Samples({"ones": lambda: {"x": torch.ones(3, 5)}}, lambda *_: broken())
    text = "its golden fails: LookupError: there is none (ones): mend test/NAME/calls.py"
    assert behaviour(probe, "eager", tmp_path, monkeypatch) == ("FAILED", text)

    probe = Probe()
    probe.samples = Samples({"ones": broken}, judge)
    text = "call 'ones' cannot be made: LookupError: there is none: mend test/NAME/calls.py"
    assert failed(probe.lines(tmp_path, monkeypatch)) == {"Meta": text}

    probe = Probe()
    probe.samples = Samples({"ones": lambda: {"y": torch.ones(3)}}, judge)
    text = "no overload of the schema has the arguments y of call 'ones': mend test/NAME/calls.py or NAME/csrc/"
    assert failed(probe.lines(tmp_path, monkeypatch)) == {"Meta": text + "ops_def_registration.cpp"}


class Gradient(torch.autograd.Function):
    off = 0.0

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        with torch._C._AutoDispatchBelowAutograd():
            return x * factor

    @staticmethod
    def backward(ctx, grad):
        return grad * (ctx.factor + Gradient.off), None


@pytest.mark.parametrize(
    ("off", "verdict", "text"),
    [(0.0, "ok", "gradcheck of 1 calls"), (0.5, "FAILED", "mend the backward in NAME/csrc/scale.cpp")],
)
@pytest.mark.parametrize("takes_float64", [True, False])
def test_gradients_are_compared_with_differences(off, verdict, text, takes_float64, tmp_path, monkeypatch):
    def differentiable(x, factor=2.0):
        torch._check(takes_float64 or x.dtype != torch.float64, lambda: "scale: argument 'x' must not be float64")
        return Gradient.apply(x, factor)

    monkeypatch.setattr(Gradient, "off", off)
    probe = Probe()
    probe.functions["AutogradPrivateUse1"] = differentiable
    found = behaviour(probe, "autograd", tmp_path, monkeypatch)
    assert found[0] == verdict
    assert found[1].endswith(text)


def test_an_operator_that_refuses_to_be_differentiated_has_no_gradient(tmp_path, monkeypatch):
    class Refusal(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            with torch._C._AutoDispatchBelowAutograd():
                return x * factor

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError(f"derivative for check_probe_{next(counter) - 1}::scale is not implemented")

    probe = Probe()
    probe.functions["AutogradPrivateUse1"] = lambda x, factor=2.0: Refusal.apply(x, factor)
    assert behaviour(probe, "autograd", tmp_path, monkeypatch) == ("ok", "it has no gradient, and says so")


@pytest.mark.parametrize(
    ("functions", "text"),
    [
        ({"PrivateUse1": nameless}, "'x' of dtype torch.complex64 (ones): an NPU says unsupported dtype, Meta scale: "),
        ({"PrivateUse1": nameless, "Meta": nameless}, "'x' of dtype torch.complex64 (ones): the error does not name"),
        ({"Meta": lambda x, factor=2.0: torch.empty_like(x)}, "Meta ['[3, 5] complex64']: mend NAME/csrc/scale.cpp"),
        ({"PrivateUse1": writes_first}, "'x' of dtype torch.complex64 (ones): it is refused, but something is written"),
        ({"CPU": lambda x, factor=2.0: x * factor}, "'x' on the CPU (ones) earns ['[3, 5] float32']"),
    ],
)
def test_bad_input_that_is_refused_otherwise_than_on_meta_or_not_by_name_is_a_line(
    functions, text, tmp_path, monkeypatch
):
    probe = Probe()
    probe.functions |= functions
    verdict, found = behaviour(probe, "bad input", tmp_path, monkeypatch)
    assert verdict == "FAILED"
    assert text in found


class Graph:
    """Stands for a compiled function: it is right the first time, as a graph that keeps its first inputs would be."""

    def __init__(self, function):
        self.function, self.kept = function, None

    def __call__(self, **arguments):
        self.kept = self.kept or arguments
        return self.function(**self.kept)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (lambda function: function, ("ok", "to the bit as eagerly")),
        (Graph, ("FAILED", "something else than eagerly (random): mend opp/op_api/aclnn_scale.cpp or converter.py")),
    ],
)
def test_what_a_graph_gives_otherwise_than_eager_at_any_call_is_a_line(mode, expected, tmp_path, monkeypatch):
    probe = Probe()
    probe.samples = Samples({"random": lambda: {"x": torch.randn(3, 5)}}, judge)
    monkeypatch.setattr(check, "MODES", {"GE static": mode})
    monkeypatch.setattr(check.Operator, "converter", "converter.py")
    assert behaviour(probe, "GE static", tmp_path, monkeypatch) == expected


def test_what_no_graph_runs_is_a_line_with_the_prototype(tmp_path, monkeypatch):
    def refuses(function):
        def graph(**arguments):
            raise RuntimeError("input 'x' has type float32, which the prototype does not allow\nand more")

        return graph

    monkeypatch.setattr(check, "MODES", {"GE static": refuses})
    monkeypatch.setattr(check.Operator, "converter", definition.PROTOTYPES)
    text = "no graph: RuntimeError: input 'x' has type float32, which the prototype does not allow (ones): mend "
    assert behaviour(Probe(), "GE static", tmp_path, monkeypatch) == ("FAILED", text + "graph/custom_reg_op.h")


def sums(parts):
    require_parts(parts)
    return parts[0] + parts[-1]


def sums_meta(parts):
    require_parts(parts)
    return torch.empty_like(parts[0])


def require_parts(parts):
    torch._check(len(parts) == 2, lambda: f"scale: argument 'parts' must be 2 tensors, but is {len(parts)}")
    for i, part in enumerate(parts):
        allowed = (torch.float32, torch.float64)
        torch._check(part.device.type != "cpu", lambda: "scale: argument 'parts' must be on an NPU")
        torch._check(part.dtype in allowed, lambda: f"scale: argument 'parts'[{i}] must be float32")  # noqa: B023
        torch._check(part.shape == parts[0].shape, lambda: "scale: argument 'parts' must be of one shape")


def two_parts():
    return Samples({"two": lambda: {"parts": [torch.ones(3), torch.ones(3)]}}, judge)


def test_lists_of_tensors_are_bad_input_too(tmp_path, monkeypatch):
    def probe():
        probe = Probe()
        probe.schema = "scale(Tensor[] parts) -> Tensor"
        probe.samples = two_parts()
        probe.functions = {"PrivateUse1": sums, "Meta": sums_meta, "CPU": sums}
        return probe

    expected = ("ok", "5 calls with one other argument, 5 refused, all as on Meta")
    assert behaviour(probe(), "bad input", tmp_path, monkeypatch) == expected
    lax = probe()
    lax.functions["Meta"] = lambda parts: torch.empty_like(parts[0])
    verdict, text = behaviour(lax, "bad input", tmp_path, monkeypatch)
    assert (verdict, text.partition(":")[0]) == ("FAILED", "'parts' [0] of dtype torch.complex64 (two)")


def test_what_is_missing_of_the_operator_is_a_line_and_of_others_is_not(tmp_path, monkeypatch):
    probe = Probe()
    probe.mistakes = ["NAME::scale: no test names it", "NAME::scale_too: it has no Meta function"]
    lines = probe.lines(tmp_path, monkeypatch)
    assert failed(lines) == {"registration": "no test names it"}
    assert {verdict for line, (verdict, _) in lines.items() if line != "registration"} == {"not run"}


def test_the_samples_of_a_package_are_those_of_its_files_of_calls(tmp_path):
    tests = tmp_path / "test" / "samples_probe"
    tests.mkdir(parents=True)
    (tests.parent / "samples_probe_goldens.py").write_text("def golden(x): return x")
    for name in ("double", "triple"):
        (tests / f"samples_probe_{name}_calls.py").write_text(
            "from custom_pypto.check import Samples\nfrom samples_probe_goldens import golden\n"
            f"SAMPLES = {{'{name}': Samples({{'plain': dict}}, golden)}}\n"
        )
    before = [*sys.path]
    found = check.load_samples("samples_probe", tmp_path)
    assert {name: file for name, (_, file) in found.items()} == {
        name: f"test/samples_probe/samples_probe_{name}_calls.py" for name in ("double", "triple")
    }
    assert sys.path == before


def test_an_operator_without_samples_is_told_where_to_put_them(tmp_path, monkeypatch):
    probe = Probe()
    probe.samples = None
    lines = probe.lines(tmp_path, monkeypatch)
    expected = "there are no calls of it: add SAMPLES['scale'] to test/NAME/scale_calls.py"
    assert failed(lines) == {"registration": expected}
