# SPDX-License-Identifier: Apache-2.0
"""Operators in Python: the page, the example in every mode, what errors say."""

import gc
import subprocess
import sys
import threading
from pathlib import Path

import fresh
import guide
import pytest
import torch
import torch_npu  # noqa: F401
from checks.commands import checked
from garbage import leave_garbage
from triton_folder import triton_in_programs  # noqa: F401

import custom_pypto.triton_ops
from custom_pypto.authoring import check, new
from custom_pypto.authoring.schema import Rejected
from custom_pypto.graph.python_operators import PYTHON_OPERATORS
from custom_pypto.modes import MODES
from custom_pypto.triton import operator, tl, triton

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCE = ROOT / "custom_pypto/triton_ops/rms_norm.py"
rms_norm = torch.ops.custom_pypto.rms_norm


class Follower(guide.Follower):
    """Runs each command in a process that is forked from one with torch."""

    def started(self, command) -> subprocess.CompletedProcess:
        arguments = command if isinstance(command, list) else guide.shlex.split(command)
        assert arguments[0] == "python"
        return fresh.run([sys.executable, *arguments[1:]], cwd=self.folder, timeout=300)


def test_the_page_leads_to_an_operator_that_passes_every_check(tmp_path):
    blocks = guide.blocks(ROOT / "docs/triton.md")
    assert [block.info for block in blocks].count("console") == 2
    Follower(tmp_path, {}).follow(blocks)


def lines_of(name, *lines):
    subject = check.operator_of(custom_pypto, name, ROOT)
    for line in lines:
        (check.FORM | check.BEHAVIOUR)[line](subject)


@pytest.mark.parametrize("name", ["rms_norm", "rms_norm_backward"])
def test_the_example_passes_the_checks_that_need_no_graph(name):
    lines_of(name, "registration", "Meta", "mutations", "aliases", "eager", "layouts", "autograd", "bad input")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["rms_norm", "rms_norm_backward"])
def test_the_example_passes_every_check(name):
    lines = check.check(check.operator_of(custom_pypto, name, ROOT))
    assert [line for line in lines if line[1] != "ok"] == []


def values(*shape):
    return torch.randn(shape).npu()


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "eager"])
def test_forward_and_backward_in_graphs_are_bitwise_equal_to_eager(mode):
    torch._dynamo.reset()

    def step(x, weight):
        return (rms_norm(x * 2, weight, eps=1e-3) + 1) * x

    graph = MODES[mode](step)
    for rows in (3, 5):
        x, weight = values(rows, 6), values(6)
        given = []
        for function in (step, graph):
            leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
            out = function(*leaves)
            out.sum().backward()
            given.append([out.detach(), *(leaf.grad for leaf in leaves)])
        assert all(map(torch.equal, *given))


@pytest.mark.parametrize("mode", ["GE static", "GE dynamic", "reduce-overhead"])
def test_a_graph_writes_to_what_the_schema_declares(mode):
    torch._dynamo.reset()

    def step(x, count, values):
        torch.ops.triton_probe.add_to(x, values[:2], [1.5, 2.0], count=count)
        return x + 1

    graph = MODES[mode](step)
    for count in (2, 3):
        x, others = values(2, 3), values(3, 3)
        expected = torch.add(x, others[:2], alpha=count * 1.5)
        assert torch.equal(graph(x, count, others), expected + 1)
        assert torch.equal(x, expected)


@operator("triton_probe::add_to(Tensor(a!) x, Tensor y, float[] factors, *, int count) -> ()")
def add_to(x, y, factors, *, count):
    x.add_(y, alpha=count * factors[0])


add_to.register_fake(lambda x, y, factors, *, count: None)


@operator("triton_probe::leaves_garbage(Tensor x) -> Tensor")
def leaves_garbage(x):
    leave_garbage(freed_in)
    return x + 1


leaves_garbage.register_fake(torch.empty_like)
freed_in = []


def test_garbage_is_collected_outside_of_a_graph_s_operators():
    """What is freed may be a graph that waits for the stream in which the operator runs."""
    torch._dynamo.reset()
    x = values(3)
    assert torch.equal(MODES["GE static"](lambda x: torch.ops.triton_probe.leaves_garbage(x))(x), x + 1)
    torch.npu.synchronize()
    assert gc.isenabled()
    gc.collect()
    assert {*freed_in} == {threading.current_thread()}


def test_a_replay_of_a_graph_takes_what_the_tensors_hold_then():
    x, weight = torch.zeros(4, 8).npu(), values(8)
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out = rms_norm(x + 1, weight)
    for _ in range(2):
        x.copy_(values(4, 8))
        graph.replay()
        assert torch.equal(out, rms_norm(x + 1, weight))


def test_torch_func_does_not_differentiate_it():
    with pytest.raises(RuntimeError, match="functorch transforms"):
        torch.func.grad(lambda x: rms_norm(x, values(5)).sum())(values(3, 5))


def test_bad_arguments_are_named():
    x, weight = values(3, 5), values(5)
    for arguments, message in {
        (x.short(), weight): "custom_pypto::rms_norm: argument 'x' must be of",
        (x, weight[:4]): r"custom_pypto::rms_norm: argument 'weight' must be of shape \[5\]; it is of shape \[4\]",
        (x, weight.cpu()): "custom_pypto::rms_norm: argument 'weight' must be on npu:0; it is on cpu",
        (x.cpu(), weight): "custom_pypto::rms_norm: argument 'x' must be on npu:0; it is on cpu",
        (x, None): "custom_pypto::rms_norm: argument 'weight' must be a tensor; it is None",
    }.items():
        with pytest.raises(RuntimeError, match=message):
            rms_norm(*arguments)


def test_under_the_checks_a_launch_has_the_kernels_name_and_the_line(tmp_path):
    program = HERE / "triton_programs.py"
    code, reports, stderr = checked(tmp_path, sys.executable, program, "right", checks="race,memory")
    assert (code, reports) == (0, []), stderr
    code, reports, stderr = checked(tmp_path, sys.executable, program, "race", checks="race")
    assert code == 66, stderr
    (first,) = {each["first"] for each in reports}
    assert first.startswith("rms_norm_kernel on stream")
    assert "triton_ops/rms_norm.py:" in first


@triton.jit
def broken_kernel(x, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK))
    tl.store(x + tl.arange(0, BLOCK), values + undefined_name)  # noqa: F821


def test_an_error_in_a_kernel_names_it_and_its_line():
    broken_kernel[1,](values(16), BLOCK=16)
    with pytest.raises(RuntimeError, match=r"(?s)broken_kernel.*undefined_name.*test_triton.py:"):
        torch.npu.synchronize()


@triton.jit
def printing_kernel(x, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK))
    breakpoint()
    print("loaded", values)


def test_breakpoint_and_print_work_in_a_kernel(capsys, monkeypatch):
    stops = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(sys._getframe(1).f_code.co_name))
    printing_kernel[1,](torch.arange(16).npu(), BLOCK=16)
    torch.npu.synchronize()
    assert stops
    assert "loaded" in capsys.readouterr().out


WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
from custom_pypto.authoring import check
"""


@pytest.mark.parametrize("line", ["import custom_pypto.triton_ops", "check.main(['rms_norm'])"])
def test_without_triton_the_error_says_what_to_install(line):
    done = fresh.run([sys.executable, "-c", WITHOUT_TRITON + line])
    assert done.returncode != 0
    assert "operators in Python need Triton" in done.stderr
    assert "pip install triton==" in done.stderr


def test_without_triton_operators_in_cpp_can_be_checked():
    line = "print(check.main(['add_custom', 'a_folder_without_sources']))"
    assert "custom_pypto::add_custom\nbuild " in fresh.run([sys.executable, "-c", WITHOUT_TRITON + line]).stdout


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("my_ops::f(Tensor[] x) -> Tensor", "'x' is a Tensor"),
        ("my_ops::f(Tensor x, *, Tensor? y=None) -> Tensor", "'y' is a keyword-only tensor"),
        ("f(Tensor x) -> Tensor", "is not an operator package"),
    ],
)
def test_a_schema_for_which_no_file_is_written_is_an_error(schema, message, tmp_path):
    with pytest.raises(Rejected, match=message):
        new.create(tmp_path, schema, autograd=False, triton=True)
    assert not [*tmp_path.iterdir()]


def test_a_schema_without_a_namespace_is_rejected():
    with pytest.raises(ValueError, match="namespace::name"):
        operator("f(Tensor x) -> Tensor")


def test_its_route_is_its_file():
    assert custom_pypto.routes()["custom_pypto::rms_norm"] == "Python, custom_pypto/triton_ops/rms_norm.py"
    assert PYTHON_OPERATORS["custom_pypto::rms_norm"].source == SOURCE.relative_to(ROOT)


def test_another_graph_engine_rejects_it_when_a_graph_is_compiled(monkeypatch):
    from torchair._ge_concrete_graph import compat_ir

    torch._dynamo.reset()
    monkeypatch.setattr(compat_ir, "is_cann_compat", lambda *_: "no such type")
    with pytest.raises(Exception, match=r"custom_pypto::rms_norm is an operator in Python.*'reduce-overhead'"):
        MODES["GE static"](lambda x, weight: rms_norm(x, weight))(values(2, 4), values(4))
