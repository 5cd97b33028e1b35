# SPDX-License-Identifier: Apache-2.0
"""EXEC_NPU_CMD: what it passes on, what it rejects, and how every failure is reported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import fresh
import pytest

PROBE = Path(__file__).parent / "probe"


def run_scenarios(probe, **environment) -> dict:
    package, extension = probe
    run = fresh.run(
        [sys.executable, PROBE / "scenarios.py", extension, package],
        env=os.environ | {"ASCEND_CUSTOM_OPP_PATH": package} | environment,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


QUEUED = pytest.mark.unchecked(reason="torch_npu's task queue is off")


@pytest.fixture(
    scope="session",
    params=[
        "0",
        pytest.param("1", marks=QUEUED),
        pytest.param("2", marks=[QUEUED, pytest.mark.nightly]),
        pytest.param("blocking", marks=pytest.mark.nightly),
    ],
)
def results(probe, request) -> dict:
    """What scenarios.py saw under each TASK_QUEUE_ENABLE, and under ASCEND_LAUNCH_BLOCKING."""
    blocking = request.param == "blocking"
    variables = {"ASCEND_LAUNCH_BLOCKING": "1"} if blocking else {"TASK_QUEUE_ENABLE": request.param}
    facts = {"is blocking": blocking, "queues": request.param in ("1", "2")}
    return run_scenarios(probe, **variables) | facts


FAILURES = {
    "missing": [
        "aclnnProbeMissing: the function aclnnProbeMissingGetWorkspaceSize is in no operator library",
        "libcust_opapi.so of the operator packages of ASCEND_CUSTOM_OPP_PATH=",
        "libopapi.so",
        "Deploy the operator package of the wheel",
        "docs/device_build.md",
    ],
    "phase one": [
        "aclnnProbePhaseOneFails failed in phase one: aclnnProbePhaseOneFailsGetWorkspaceSize returned 161002",
        "phase one rejects every call",
    ],
    "undefined": ["aclnnProbeNothing: a tensor is undefined (null)"],
    "emptied storage": ["aclnnProbeNothing: a tensor of shape [4] reaches 16 bytes into its storage, which has 0"],
    "two devices": [
        "aclnnProbeNothing: all tensors must be on one NPU, but the first is on npu:0 and another on npu:1"
    ],
    "on the CPU": ["aclnnProbeNothing: all tensors must be on an NPU, but one is on cpu"],
}


@pytest.mark.parametrize("scenario", FAILURES)
def test_a_failure_is_reported_at_the_call_and_the_next_call_works(scenario, results):
    for error in results[scenario]["errors"]:
        assert error.startswith("call: ")
        for part in FAILURES[scenario]:
            assert part in error
    assert results[scenario]["next call works"]


PHASE_TWO_FAILS = """
import faulthandler, sys, torch, custom_pypto
faulthandler.enable()
torch.ops.load_library(sys.argv[1])
x = torch.zeros(4).npu()
torch.npu.synchronize()
fails = lambda: torch.ops.custom_pypto_probe.phase_two_fails(x, x)
failed = []
for step in (fails, fails, torch.npu.synchronize):  # the second call could be cached
    try:
        step()
    except RuntimeError as error:
        failed.append(step)
        print(error)
if sys.argv[2:] == ["and goes on"]:
    assert failed == [fails, fails] and (x + 1).tolist() == [1] * 4
"""


def run_phase_two_that_fails(probe, *given, **environment) -> subprocess.CompletedProcess:
    package, extension = probe
    command = [sys.executable, "-c", PHASE_TWO_FAILS, extension, *given]
    run = fresh.run(command, env=os.environ | {"ASCEND_CUSTOM_OPP_PATH": package} | environment)
    assert run.returncode == 0, run.stdout + run.stderr
    return run


@pytest.mark.parametrize("variable", ["TASK_QUEUE_ENABLE=0", "ASCEND_LAUNCH_BLOCKING=1"])
def test_an_error_of_phase_two_is_raised_by_the_call_and_the_next_call_works(variable, probe):
    run = run_phase_two_that_fails(probe, "and goes on", **dict([variable.split("=")]))
    reason = "aclnnProbePhaseTwoFails failed in phase two: aclnnProbePhaseTwoFails returned 561000"
    assert run.stdout.count(reason) == run.stdout.count("phase two rejects every call") == 2


@QUEUED
@pytest.mark.parametrize("queue", ["1", pytest.param("2", marks=pytest.mark.nightly)])
def test_torch_npu_raises_an_error_of_phase_two_in_its_queue_and_prints_the_reason(queue, probe):
    run = run_phase_two_that_fails(probe, TASK_QUEUE_ENABLE=queue)
    assert "aclnnProbePhaseTwoFails" in run.stdout
    assert "aclnnProbePhaseTwoFails failed in phase two: aclnnProbePhaseTwoFails returned 561000" in run.stderr
    assert "phase two rejects every call" in run.stderr


def test_without_memory_for_its_workspace_a_call_fails_and_its_executor_is_destroyed(results):
    (error,) = results["workspace"]["errors"]
    assert error.startswith("call: ") and "out of memory" in error.lower()
    assert results["workspace"]["destroyed"] == 1
    assert results["workspace"]["next call works"]


def test_a_failing_kernel_is_reported_by_name_and_the_next_call_works(results):
    where = "call" if results["is blocking"] else "synchronize"
    for error in results["kernel"]["errors"]:
        assert error.startswith(f"{where}: ")
        assert "aclnnProbeKernelFails" in error
        assert "the kernel gives up" in error
    assert results["kernel"]["next call works"]


def test_operators_run_in_the_order_of_their_calls(results):
    assert results["order"]


def test_a_cached_executor_is_used_for_its_own_shapes_only(results):
    assert results["cache"]


def test_every_kind_of_argument_arrives(results):
    plain = [3.0, -1.0, 13.0, 2.5, 456.0, 4.75, 23.0, 15.0, 5.0, 2.0**40, 0.125, 0.0]
    changes = [(1, 6.0), (2, 3.0), (2, 0.0), (3, 3.0), (4, 0.0), (5, 0.0), (6, 11.0), (7, 4.0)]
    changes += [(8, 0.0), (9, -1.0), (10, 1e300), (11, 1.0)]
    expected = [[new if i == place else old for i, old in enumerate(plain)] for place, new in changes]
    assert results["arguments"] == [plain, *expected, plain]


def test_the_format_arrives_and_is_part_of_the_caches_key(results):
    rows, blocks, view = [2, 32, 48, 0, 0], [29, 3, 2, 16, 16], [2, 48, 32, 0, 0]
    assert results["formats"] == [rows, blocks, rows, blocks, view, True]


def test_the_device_of_the_tensors_is_used(results):
    assert results["device"] == {"current": 0, "right": True}


def test_the_current_stream_is_used(results):
    assert results["stream"]


def test_what_does_not_wait_for_the_queue_comes_before_what_the_queue_holds(results):
    assert results["beside the queue"]["drained"] == 1
    assert results["beside the queue"]["not drained"] == (0 if results["queues"] else 1)


def test_tasks_of_the_queue_may_allocate(results):
    assert results["allocation in the queue"]


def test_determinism_is_asked_for_as_torch_says(results):
    assert results["determinism"] == [1, 0, 1, 0]


MISMATCHES = {
    "one too few": "EXEC_NPU_CMD(aclnnProbeNothing, tensor);",
    "one too many": "EXEC_NPU_CMD(aclnnProbeNothing, tensor, tensor, tensor);",
    "a number for a tensor": "EXEC_NPU_CMD(aclnnProbeNothing, tensor, int64_t{1});",
    "a float for an integer": "EXEC_NPU_CMD(aclnnProbeMixed, tensor, 1.0, 1.0, std::string());",
    "an integer for a float": "EXEC_NPU_CMD(aclnnProbeMixed, tensor, int64_t{1}, int64_t{1}, std::string());",
    "a tensor for a string": "EXEC_NPU_CMD(aclnnProbeMixed, tensor, int64_t{1}, 1.0, tensor);",
}
FITS = "EXEC_NPU_CMD(aclnnProbeMixed, tensor, int64_t{1}, 1.0, std::string());"


def test_arguments_that_are_not_those_of_the_header_are_an_error_of_the_compiler_each(tmp_path):
    sys.path.insert(0, str(PROBE))
    try:
        import build
    finally:
        sys.path.remove(str(PROBE))
    lines = ['#include "aclnn_probe.h"', '#include "ops_common.h"']
    lines += [
        'extern "C" int aclnnProbeMixedGetWorkspaceSize(aclTensor* selfRef, int64_t count, double scale, char* mode,'
    ]
    lines += ["uint64_t* workspaceSize, aclOpExecutor** executor);"]
    before = len(lines) + 2
    lines += [
        f"void call{i}(const at::Tensor& tensor) {{ {call} }}" for i, call in enumerate([FITS, *MISMATCHES.values()])
    ]
    (tmp_path / "calls.cpp").write_text("\n".join(lines))
    command = ["g++", "-std=c++20", "-fsyntax-only", f"-I{PROBE}", *build.extension_includes().split()]
    result = subprocess.run([*command, tmp_path / "calls.cpp"], capture_output=True, text=True, timeout=300)
    errors = [line for line in result.stderr.splitlines() if " error: " in line]
    assert len(errors) == len(MISMATCHES)
    for line, (error, call) in enumerate(zip(errors, MISMATCHES.values(), strict=True), before):
        called = call.partition(",")[0]
        assert f"{tmp_path}/calls.cpp:{line}: the arguments of {called}, ...) are not those" in error
    assert "(2 == 0)" in result.stderr  # the number of the first argument that does not fit
