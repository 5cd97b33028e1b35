# SPDX-License-Identifier: Apache-2.0
"""The checks of one operator: a correct one passes them all, each error is a line with the file to fix."""

import dataclasses
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import fresh
import pytest
import torch
import torch_npu  # noqa: F401
import torch_versions

from custom_pypto.authoring import check, sources
from custom_pypto.authoring.check import Samples
from custom_pypto.graph import agreement

ROOT = Path(__file__).parents[2]
FORM, BEHAVIOUR = [*check.FORM], [*check.BEHAVIOUR]


def run(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "custom_pypto", "check", *arguments]
    return fresh.run(command, cwd=ROOT)


@pytest.mark.always
def test_an_operator_of_this_project_passes_every_line():
    result = run("add_custom")
    lines = result.stdout.splitlines()
    assert result.returncode == 0, result.stdout + result.stderr
    assert lines[0] == "custom_pypto::add_custom"
    assert [line[:16].rstrip() for line in lines[1:-1]] == FORM + BEHAVIOUR
    assert lines[-1] == f"{len(FORM + BEHAVIOUR)} of {len(FORM + BEHAVIOUR)} lines passed"
    assert "gradcheck of 3 calls" in result.stdout


def test_an_unknown_operator_is_an_error_that_lists_those_there_are(monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit, match="2"):
        check.main(["add_customs"])
    assert "custom_pypto::add_customs is not an operator; the operators are add_custom, " in capsys.readouterr().err


def test_a_package_that_is_not_installed_is_an_error_that_says_so(monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit, match="2"):
        check.main(["ops_of_nobody::f"])
    assert "ops_of_nobody is not installed: pip install --no-build-isolation" in capsys.readouterr().err


# ---- operators in C++, of another package, with a kernel and an error each

KERNEL_MISTAKES = {
    "correct": {},
    "other_dtype": {"Meta": "on Meta it gives [3, 5] float16, on an NPU [3, 5] float32 (a call): fix one of both in"},
    "other_shape": {"Meta": "on Meta it gives [5] float32, on an NPU [3, 5] float32 (a call): fix one of both in"},
    "scribbled": {"mutations": "it writes to argument 'self' (a call), which the schema does not declare: fix"},
    "overrun": {"kernel": "it writes 4 bytes after argument 'self', from 0 bytes away on (a call): fix"},
    "aliased": {"aliases": "result 0 shares memory with argument 'self' (a call, on npu): fix"},
    "stateful": {},
    "stateful_by_torch": {
        "autograd": "a backward through argument 'state' (a call) does not say that the derivative is not implemented, "
        "though others do: define it with custom_pypto::define in"
    },
}


@pytest.fixture(scope="module")
def tables(probe) -> dict:
    package, extension = probe
    result = fresh.run(
        [sys.executable, Path(__file__).parent / "probe" / "checks.py", extension],
        env=os.environ | {"ASCEND_CUSTOM_OPP_PATH": package},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("operator", KERNEL_MISTAKES)
def test_an_error_in_cpp_is_one_line(operator, tables):
    found = {line: text for line, verdict, text in tables[operator] if verdict == "FAILED"}
    assert found.keys() == KERNEL_MISTAKES[operator].keys()
    for line, text in KERNEL_MISTAKES[operator].items():
        assert found[line].startswith(f"{text} ")
        assert ("custom_pypto_probe/csrc/" if line != "kernel" else "opp/op_kernel/") in found[line]


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
        self.disagreements = []  # as in test/graph/test_agreement.py
        self.samples = Samples({"ones": lambda: {"x": torch.ones(3, 5)}}, judge)

    def lines(self, folder, monkeypatch) -> dict[str, tuple[str, str]]:
        name = f"check_probe_{next(counter)}"
        self.library = torch.library.Library(name, "DEF")
        self.library.define(self.schema)
        for key, function in self.functions.items():
            self.library.impl("scale", function, key)
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        disagreements = [disagreement.replace("NAME", name) for disagreement in self.disagreements]
        monkeypatch.setattr(agreement, "disagreements", lambda package, folder: iter(disagreements))
        samples = {"scale": (self.samples, "test/NAME/calls.py")} if self.samples else {}
        monkeypatch.setattr(check.operator, "load_samples", lambda package, folder: samples)
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
        "on Meta it gives [3, 5] float16, on an NPU [3, 5] float32 (ones): fix one of both in NAME/csrc/scale.cpp",
    ),
    "Meta's shape differs": (
        {"Meta": transposed},
        "Meta",
        "on Meta it gives [5, 3] float32, on an NPU [3, 5] float32 (ones): fix one of both in NAME/csrc/scale.cpp",
    ),
    "a mutation is not declared": (
        {"PrivateUse1": scribbling},
        "mutations",
        "it writes to argument 'x' (ones), which the schema does not declare: fix opp/op_kernel/scale.cpp, or "
        "where this is meant write Tensor(a!) in NAME/csrc/ops_def_registration.cpp",
    ),
    "a result aliases an argument": (
        {"PrivateUse1": in_place},
        "aliases",
        "result 0 shares memory with argument 'x' (ones, on npu): fix NAME/csrc/scale.cpp",
    ),
    "a result on Meta aliases an argument": (
        {"Meta": lambda x, factor=2.0: x[:]},
        "aliases",
        "result 0 shares memory with argument 'x' (ones, on meta): fix NAME/csrc/scale.cpp",
    ),
}


@pytest.mark.parametrize(("functions", "line", "text"), FORM_MISTAKES.values(), ids=FORM_MISTAKES)
def test_an_error_in_the_form_is_one_line_with_the_file_to_fix(functions, line, text, tmp_path, monkeypatch):
    probe = Probe()
    probe.functions |= functions
    lines = probe.lines(tmp_path, monkeypatch)
    assert failed(lines) == {line: text}
    assert [name for name, (verdict, _) in lines.items() if verdict == "not run"] == (FORM + BEHAVIOUR)[
        (FORM + BEHAVIOUR).index(line) + 1 :
    ]


def behaviour(probe, name, folder, monkeypatch):
    """What one line of the table says of a probe, whose other lines of behaviour are left out."""
    monkeypatch.setattr(check.table, "BEHAVIOUR", {name: check.BEHAVIOUR[name]})
    lines = probe.lines(folder, monkeypatch)
    assert not {verdict for line, (verdict, _) in lines.items() if line != name} - {"ok"}
    return lines[name]


@pytest.mark.skipif(not torch_versions.OPCHECK_COMPARES_STRIDES, reason="this opcheck does not compare strides")
def test_other_strides_on_meta_are_what_opcheck_finds(tmp_path, monkeypatch):
    probe = Probe()
    probe.functions["Meta"] = lambda x, factor=2.0: scale_meta(x.t(), factor).contiguous().t()
    verdict, text = behaviour(probe, "opcheck", tmp_path, monkeypatch)
    assert verdict == "FAILED"
    assert "Strides are (5, 1) and (1, 3)" in text
    assert text.endswith(" (ones): fix NAME/csrc/scale.cpp")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("opcheck", "as torch.library.opcheck demands"),
        ("eager", "matches the reference"),
        ("layouts", "4 calls as with whole tensors"),
        ("bad input", "6 calls with one other argument, 4 rejected, all as on Meta"),
    ],
)
def test_an_operator_of_another_package_passes(line, text, tmp_path, monkeypatch):
    assert behaviour(Probe(), line, tmp_path, monkeypatch) == ("ok", text)


def test_what_differs_from_the_reference_is_a_line(tmp_path, monkeypatch):
    probe = Probe()
    probe.functions["PrivateUse1"] = lambda x, factor=2.0: scale(x, factor) + 1
    verdict, text = behaviour(probe, "eager", tmp_path, monkeypatch)
    assert verdict == "FAILED"
    assert text.startswith("differs from the reference: ")
    assert text.endswith(" (ones): fix opp/op_kernel/scale.cpp")


def test_without_a_gradient_an_operator_says_so(tmp_path, monkeypatch):
    text = "it has no gradient, and a backward must report that: define it with custom_pypto::define in NAME/csrc/"
    found = behaviour(Probe(), "autograd", tmp_path, monkeypatch)
    assert found == ("FAILED", text + "ops_def_registration.cpp")


DIFFERENCES = {
    "one of many": (
        torch.tensor([[1.0, 2.0], [3.0, 4.5]]).half(),
        torch.tensor([[1.0, 2.0], [3.0, 4.0]]).half(),
        "(float16) differs in 1 of 4 elements by more than torch.float16 allows (rtol 0.001, atol 1e-05), most at "
        "[1, 1]: 4.5 instead of 4.0",
    ),
    "one step of float16": (torch.tensor([1.0009765625]).half(), torch.ones(1).half(), None),
    "three steps of float16": (
        torch.tensor([1.0029296875]).half(),
        torch.ones(1).half(),
        "(float16) differs in 1 of 1 elements by more than torch.float16 allows (rtol 0.001, atol 1e-05), most at [0]: "
        "1.0029296875 instead of 1.0",
    ),
    "NaN": (
        torch.tensor([1.0, torch.nan]),
        torch.tensor([1.5, 2.0]),
        "(float32) differs in 2 of 2 elements by more than torch.float32 allows (rtol 1.3e-06, atol 1e-05), most at "
        "[1]: nan instead of 2.0",
    ),
    "a NaN that is wanted": (torch.tensor([torch.nan]), torch.tensor([torch.nan]), None),
    "integers": (
        torch.tensor([5, 6]),
        torch.tensor([5, 9]),
        "(int64) differs in 1 of 2 elements, most at [1]: 6 instead of 9",
    ),
    "no dimensions": (
        torch.tensor(True),
        torch.tensor(False),
        "(bool) differs in 1 of 1 elements, most: True instead of False",
    ),
    "shapes": (torch.ones(3), torch.ones(3, 1), "is [3] float32, and not [3, 1] float32"),
}


@pytest.mark.parametrize("case", DIFFERENCES)
def test_a_difference_says_where_and_how_much(case):
    got, want, text = DIFFERENCES[case]
    assert check.samples.difference(got, want, *check.samples.TOLERANCES.get(got.dtype, (0.0, 0.0))) == text
    if text is not None and got.shape == want.shape:
        with pytest.raises(AssertionError) as caught:
            check.close_to(lambda: [torch.zeros(2), want])((torch.zeros(2), got), (), {})
        assert str(caught.value) == f"result 1 {text}"


def test_close_to_judges_written_arguments_behind_results():
    judge = check.close_to(lambda x: [x * 2, x + 1])
    x = torch.ones(3)
    judge((x * 2,), (x + 1,), {"x": x})
    with pytest.raises(AssertionError, match=r"written argument 0 \(float32\) differs in 3 of 3 elements"):
        judge((x * 2,), (x + 2,), {"x": x})
    with pytest.raises(AssertionError, match="it gives 1 tensors, the reference 2"):
        judge((x * 2,), (), {"x": x})


def as_if_whole(x, factor=2.0):
    return scale(x.as_strided(x.shape, torch.empty(x.shape).stride()), factor)


def always_on_the_first(x, factor=2.0):
    return scale(x, factor).to("npu:0")


def rejects_views(x, factor=2.0):
    torch._check(x.is_contiguous(), lambda: "scale: argument 'x' must be contiguous")
    return scale(x, factor)


def rejects_views_namelessly(x, factor=2.0):
    torch._check(x.is_contiguous(), lambda: "not contiguous")
    return scale(x, factor)


def crashes_on_views(x, factor=2.0):
    torch._check(x.is_contiguous(), lambda: "op_kernel/scale.cpp:7: scale, block 0: out of range")
    return scale(x, factor)


def without_strides(x, factor=2.0):
    return scale(x.as_strided(x.shape, torch.empty(x.shape).stride(), x.storage_offset()), factor)


def writes_beside(x, factor=2.0):
    x.as_strided((2,), (1,), 0).fill_(factor)
    return torch.full_like(x, factor)


ONES = {"ones": lambda: {"x": torch.ones(3, 5)}}


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (without_strides, "'x' with gaps between its elements (ones): result 0 (float32) differs in "),
        (writes_beside, "'x' with gaps between its elements (ones): it writes beside its elements: fix"),
    ],
)
def test_arguments_whose_elements_are_all_the_same_show_it_too(function, text, tmp_path, monkeypatch):
    probe = Probe()
    probe.functions["PrivateUse1"] = function
    probe.samples = Samples(ONES, judge)
    monkeypatch.setattr(check.table, "FORM", {})
    found = behaviour(probe, "layouts", tmp_path, monkeypatch)
    assert found[0] == "FAILED"
    assert found[1].startswith(text)


@pytest.mark.parametrize(
    ("function", "verdict", "text"),
    [
        (rejects_views, "ok", "2 calls as with whole tensors"),
        (crashes_on_views, "FAILED", "'x' with gaps between its elements (random) gives op_kernel/scale.cpp:7: scale"),
        (rejects_views_namelessly, "FAILED", "'x' with gaps between its elements (random) gives not contiguous: fix"),
        (
            as_if_whole,
            "FAILED",
            "'x' with gaps between its elements (random): result 0 (float32) differs in ",
        ),
        (always_on_the_first, "FAILED", "on npu:1 (random) it gives tensors on npu:0: fix NAME/csrc/scale.cpp"),
    ],
)
def test_views_and_the_second_device(function, verdict, text, tmp_path, monkeypatch):
    probe = Probe()
    probe.functions["PrivateUse1"] = function
    probe.samples = Samples({"random": lambda: {"x": torch.randn(3, 5)}}, judge)
    found = behaviour(probe, "layouts", tmp_path, monkeypatch)
    assert found[0] == verdict
    assert found[1].startswith(text)


# ---- prototypes, the build


HOST = "opp/op_host/scale.cpp"


def prototype_of(dtypes: str, of_result: str, monkeypatch):
    """The API of a prototype with input x and output out, as the generator makes it."""
    from torchair._ge_concrete_graph.compat_ir import IrDef

    ir = IrDef("Scale").input("x", dtypes).output("out", of_result)
    monkeypatch.setattr(check.checks, "_ge_ir", lambda operator: ir)
    monkeypatch.setattr(check.Operator, "converter", HOST)


def in_float_and_half(x):
    torch._check(x.dtype in (torch.float16, torch.float32), lambda: "scale: argument 'x' must be float16 or float32")


def narrow(x, factor=2.0):
    in_float_and_half(x)
    return scale(x, factor)


def narrow_meta(x, factor=2.0):
    in_float_and_half(x)
    return scale_meta(x, factor)


@pytest.mark.parametrize(
    ("dtypes", "of_result", "widens", "text"),
    [
        ("DT_FLOAT16, DT_FLOAT", "DT_FLOAT16, DT_FLOAT", False, None),
        (
            "DT_FLOAT",
            "DT_FLOAT",
            False,
            f"'x' is float16 (ones, in float16), but the definition has it in DT_FLOAT: fix {HOST}, or",
        ),
        ("DT_FLOAT16, DT_FLOAT", "DT_FLOAT", True, None),
        (
            "DT_FLOAT16, DT_FLOAT",
            "DT_FLOAT16",
            True,
            f"'out' is float32 (ones), but the definition has it in DT_FLOAT16: fix {HOST}, or",
        ),
    ],
)
def test_dtypes_that_the_prototype_does_not_have_are_a_line(dtypes, of_result, widens, text, tmp_path, monkeypatch):
    prototype_of(dtypes, of_result, monkeypatch)
    probe = Probe()
    probe.functions |= {"PrivateUse1": narrow, "Meta": narrow_meta}
    if widens:
        probe.functions |= {
            "PrivateUse1": lambda x, factor=2.0: narrow(x, factor).float(),
            "Meta": lambda x, factor=2.0: narrow_meta(x, factor).float(),
        }
    monkeypatch.setattr(check.table, "BEHAVIOUR", {})
    found = failed(probe.lines(tmp_path, monkeypatch))
    assert [*found] == (["prototype"] if text else [])
    if text:
        assert found["prototype"].startswith(text)


def test_sources_that_are_not_those_of_the_installed_build_are_said_first(tmp_path, monkeypatch):
    folder, installed = tmp_path / "sources", tmp_path / "installed"
    source = folder / "stale_probe/csrc/x.cpp"
    for file in (source, folder / "opp/CMakeLists.txt"):
        file.parent.mkdir(parents=True)
        file.write_text("as it was built")
    installed.mkdir()
    sources.record(sources.hashes("stale_probe", folder), installed)
    assert sources.changed_since_build("stale_probe", folder, installed) == []
    os.utime(source, (source.stat().st_mtime + 10,) * 2)  # only touched
    assert sources.changed_since_build("stale_probe", folder, installed) == []
    source.write_text("another")
    assert sources.changed_since_build("stale_probe", folder, installed) == ["stale_probe/csrc/x.cpp"]
    package = types.ModuleType("stale_probe")
    package.__path__ = [str(installed)]
    line, *others = check.check(check.Operator(package, "scale", folder))
    assert line[:2] == ("build", "FAILED")
    assert line[2].startswith("stale_probe/csrc/x.cpp changed after the build that is installed")
    assert {verdict for _, verdict, _ in others} == {"not run"}
    source.rename(source.with_name("y.cpp"))
    (folder / "stale_probe/converter.py").write_text("new")
    changed = ["stale_probe/converter.py", "stale_probe/csrc/x.cpp", "stale_probe/csrc/y.cpp"]
    assert sources.changed_since_build("stale_probe", folder, installed) == changed


def broken():
    raise LookupError("there is none")


def test_what_fails_in_the_calls_or_the_reference_is_a_line_with_their_file(tmp_path, monkeypatch):
    probe = Probe()
    probe.samples = Samples({"ones": lambda: {"x": torch.ones(3, 5)}}, lambda *_: broken())
    text = "its reference fails: LookupError: there is none (ones): fix test/NAME/calls.py"
    assert behaviour(probe, "eager", tmp_path, monkeypatch) == ("FAILED", text)

    probe = Probe()
    probe.samples = Samples({"ones": broken}, judge)
    text = "call 'ones' cannot be made: LookupError: there is none: fix test/NAME/calls.py"
    assert failed(probe.lines(tmp_path, monkeypatch)) == {"Meta": text}

    probe = Probe()
    probe.samples = Samples({"ones": lambda: {"y": torch.ones(3)}}, judge)
    text = "no overload of the schema has the arguments y of call 'ones': fix test/NAME/calls.py or NAME/csrc/"
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
    [
        (0.0, "ok", "gradcheck of 1 calls"),
        (
            0.5,
            "FAILED",
            "the gradient of result 0 by floating-point argument 0 at [0, 0] (FLOAT) differs in 1 of 15 elements by "
            "more than torch.FLOAT allows (TOLERANCES), most at [0, 0]: 2.5 instead of 2.0 (ones): fix the backward in "
            "NAME/csrc/scale.cpp",
        ),
    ],
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
    tolerances = "rtol 0.001, atol 1e-05" if takes_float64 else "rtol 0.01, atol 0.01"
    text = text.replace("FLOAT", "float64" if takes_float64 else "float32").replace("TOLERANCES", tolerances)
    said = re.sub(r"\d\.\d{4,}", lambda number: f"{float(number[0]):.1f}", found[1])
    assert said == text


@pytest.mark.parametrize("key", ["AutogradPrivateUse1", "Autograd"])
def test_a_gradient_that_is_lost_is_a_line(key, tmp_path, monkeypatch):
    def below_autograd(x, factor=2.0):
        with torch._C._AutoDispatchBelowAutograd():
            return x * factor

    probe = Probe()
    probe.functions[key] = below_autograd
    verdict, text = behaviour(probe, "autograd", tmp_path, monkeypatch)
    assert verdict == "FAILED"
    assert text.endswith(" (ones): fix the backward in NAME/csrc/scale.cpp")


def test_a_gradient_that_is_an_operator_is_named_by_its_kernel(tmp_path, monkeypatch):
    of_gradient = property(lambda operator: dataclasses.replace(operator, name="scale_backward"))
    monkeypatch.setattr(check.Operator, "gradient", of_gradient)
    monkeypatch.setattr(Gradient, "off", 0.5)
    probe = Probe()
    probe.functions["AutogradPrivateUse1"] = lambda x, factor=2.0: Gradient.apply(x, factor)
    _, text = behaviour(probe, "autograd", tmp_path, monkeypatch)
    assert text.endswith(" (ones): fix opp/op_kernel/scale_grad.cpp, or the backward in NAME/csrc/scale.cpp")


def test_an_operator_that_rejects_to_be_differentiated_has_no_gradient(tmp_path, monkeypatch):
    class Rejection(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            with torch._C._AutoDispatchBelowAutograd():
                return x * factor

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError(f"derivative for check_probe_{next(counter) - 1}::scale is not implemented")

    probe = Probe()
    probe.functions["AutogradPrivateUse1"] = lambda x, factor=2.0: Rejection.apply(x, factor)
    found = behaviour(probe, "autograd", tmp_path, monkeypatch)
    assert found == ("ok", "it has no gradient, and a backward reports that")


@pytest.mark.parametrize(
    ("functions", "text"),
    [
        ({"PrivateUse1": nameless}, "'x' of dtype torch.complex64 (ones): an NPU says unsupported dtype, Meta scale: "),
        ({"PrivateUse1": nameless, "Meta": nameless}, "'x' of dtype torch.complex64 (ones): the error does not name"),
        ({"Meta": lambda x, factor=2.0: torch.empty_like(x)}, "Meta ['[3, 5] complex64']: fix NAME/csrc/scale.cpp"),
        (
            {"PrivateUse1": writes_first},
            "'x' of dtype torch.complex64 (ones): it is rejected, but something is written",
        ),
        ({"CPU": lambda x, factor=2.0: x * factor}, "'x' on the CPU (ones) gives ['[3, 5] float32']"),
    ],
)
def test_bad_input_that_is_rejected_otherwise_than_on_meta_or_not_by_name_is_a_line(
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
        (lambda function: function, ("ok", "bitwise equal to eager")),
        (Graph, ("FAILED", "something else than eagerly (random): result 0 (float32) differs in 15 of 15 elements")),
    ],
)
def test_what_a_graph_gives_otherwise_than_eager_at_any_call_is_a_line(mode, expected, tmp_path, monkeypatch):
    probe = Probe()
    probe.samples = Samples({"random": lambda: {"x": torch.randn(3, 5)}}, judge)
    monkeypatch.setattr(check.checks, "MODES", {"GE static": mode})
    monkeypatch.setattr(check.Operator, "converter", "converter.py")
    verdict, text = behaviour(probe, "GE static", tmp_path, monkeypatch)
    assert verdict == expected[0] and text.startswith(expected[1])
    assert verdict == "ok" or text.endswith(": fix opp/op_kernel/scale.cpp or converter.py")


class OfOneShape:
    """Stands for the graphs of a mode that are dynamic and still keep the shape of their first call."""

    dynamic = True

    def __call__(self, function):
        shapes = []

        def graph(**arguments):
            shapes.append(arguments["x"].shape)
            result = function(**arguments)
            return result if shapes[-1] == shapes[0] else result[: shapes[0][0]]

        return graph


class OfEveryShape(OfOneShape):
    def __call__(self, function):
        return function


@pytest.mark.parametrize(
    ("mode", "verdict", "text"),
    [
        (OfEveryShape(), "ok", "bitwise equal to eager, also 1 of the calls with other sizes"),
        (
            OfOneShape(),
            "FAILED",
            "something else than eagerly (ones, 6 for 3): result 0 is [3, 5] float32, and not [6, 5]",
        ),
    ],
)
def test_a_dynamic_graph_is_called_with_other_sizes(mode, verdict, text, tmp_path, monkeypatch):
    monkeypatch.setattr(check.checks, "MODES", {"GE dynamic": mode})
    monkeypatch.setattr(check.Operator, "converter", "converter.py")
    found = behaviour(Probe(), "GE dynamic", tmp_path, monkeypatch)
    assert found[0] == verdict
    assert found[1].startswith(text)


def test_what_no_graph_runs_is_a_line_with_the_prototype(tmp_path, monkeypatch):
    def rejects(function):
        def graph(**arguments):
            raise RuntimeError("input 'x' has type float32, which the prototype does not allow\nand more")

        return graph

    monkeypatch.setattr(check.checks, "MODES", {"GE static": rejects})
    monkeypatch.setattr(check.Operator, "converter", HOST)
    text = "no graph: RuntimeError: input 'x' has type float32, which the prototype does not allow (ones): fix "
    assert behaviour(Probe(), "GE static", tmp_path, monkeypatch) == ("FAILED", text + HOST)


def test_a_signal_while_a_graph_is_compiled_is_no_error_of_the_graph(tmp_path, monkeypatch):
    from torchair.core import _backend

    def interrupted(function):
        def compiler(graph, inputs):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)

        signal.signal(signal.SIGINT, _backend._signal_handler)  # as importing torchair for the first time does
        return torch.compile(function, backend=compiler)

    monkeypatch.setattr(check.checks, "MODES", {"GE static": interrupted})
    with pytest.raises(KeyboardInterrupt):
        behaviour(Probe(), "GE static", tmp_path, monkeypatch)


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

    expected = ("ok", "5 calls with one other argument, 5 rejected, all as on Meta")
    assert behaviour(probe(), "bad input", tmp_path, monkeypatch) == expected
    lax = probe()
    lax.functions["Meta"] = lambda parts: torch.empty_like(parts[0])
    verdict, text = behaviour(lax, "bad input", tmp_path, monkeypatch)
    assert (verdict, text.partition(":")[0]) == ("FAILED", "'parts' [0] of dtype torch.complex64 (two)")


def test_what_is_missing_of_the_operator_is_a_line_and_of_others_is_not(tmp_path, monkeypatch):
    probe = Probe()
    probe.disagreements = ["NAME::scale: no test names it", "NAME::scale_too: it has no Meta function"]
    lines = probe.lines(tmp_path, monkeypatch)
    assert failed(lines) == {"registration": "no test names it"}
    assert {verdict for line, (verdict, _) in lines.items() if line not in ("build", "registration")} == {"not run"}


def test_the_samples_of_a_package_are_those_of_its_files_of_calls(tmp_path):
    tests = tmp_path / "test" / "samples_probe"
    tests.mkdir(parents=True)
    (tests.parent / "samples_probe_references.py").write_text("def reference(x): return x")
    for name in ("double", "triple"):
        (tests / f"samples_probe_{name}_calls.py").write_text(
            "from custom_pypto.authoring.check import Samples\nfrom samples_probe_references import reference\n"
            f"SAMPLES = {{'{name}': Samples({{'plain': dict}}, reference)}}\n"
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
