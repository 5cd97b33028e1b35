# SPDX-License-Identifier: Apache-2.0
"""What all tests share. CANN_CPU_CAPABILITY=avx2 bash run.sh test runs them on a machine that has no more."""

import collections
import datetime
import gc
import importlib.metadata
import json
import math
import os
import platform
import sys
import tempfile
import zlib
from pathlib import Path

import pytest
from machines import NOT_HERE, THIS_CAN_BE, held_to, of_cpuinfo

if level := os.environ.get("CANN_CPU_CAPABILITY"):
    os.environ.update(held_to(level))  # before torch reads its own


HERE = Path(__file__).parent
# Folders whose tests share what is compiled or started for them: where several processes test, one has all of such a
# folder.
TOGETHER = ("ascendc", "cann_cpu/graph_engine", "cann_cpu/runtime", "collectives", "graph", "toolkit")
DURATIONS = HERE / "durations.json"
"""The seconds of each group of tests, and of each slow test, as `--nightly --record-durations` last wrote them. The
longest groups run first, so that no process is left with one at the end."""
SLOW = 2
"""Seconds from which on a test is left out of a run of all tests without `--nightly`, unless it is marked `always`."""


def pytest_addoption(parser):
    parser.addoption("--nightly", action="store_true", help="with the slow tests, and those that rarely find a fault")
    parser.addoption("--edit-this-clone", action="store_true", help="follow the guide in this clone and environment")
    parser.addoption("--record-durations", action="store_true", help=f"with --nightly: write {DURATIONS.name}")


def group_of(nodeid: str) -> str:
    """What one process tests: a file of tests, or a folder of those in TOGETHER."""
    module = nodeid.partition("::")[0].removeprefix(f"{HERE.name}/")
    folder = os.path.dirname(module)
    return folder if folder in TOGETHER else module


def pytest_collection_modifyitems(config, items):
    durations = json.loads(DURATIONS.read_text())
    seconds, of_tests = collections.defaultdict(lambda: math.inf, durations["groups"]), durations["tests"]
    if not config.getoption("--nightly"):
        slow = of_tests if selects_all(config) else {}
        nightly = {item for item in items if is_nightly(item, slow)}
        for item in nightly:
            seconds[group_of(item.nodeid)] -= of_tests.get(item.nodeid, 0)
        config.hook.pytest_deselected(items=list(nightly))
        items[:] = [item for item in items if item not in nightly]
    for item in items:
        leave_out_of_checks(item)
    items.sort(key=lambda item: -seconds[group_of(item.nodeid)])


def is_nightly(item, slow: dict[str, float]) -> bool:
    is_left_out = item.nodeid in slow and item.get_closest_marker("always") is None
    return is_left_out or item.get_closest_marker("nightly") is not None


def selects_all(config) -> bool:
    is_selected = config.option.keyword or config.option.markexpr or getattr(config.option, "lf", False)
    return [Path(argument).resolve() for argument in config.args] == [HERE] and not is_selected


measured = collections.Counter()


def pytest_runtest_logreport(report):
    measured[report.nodeid] += report.duration


def runs_all(config) -> bool:
    """Whether this process starts a run of all tests."""
    is_run = not (config.option.collectonly or hasattr(config, "workerinput"))
    return selects_all(config) and config.getoption("--nightly") and is_run


def pytest_configure(config):
    is_worker = hasattr(config, "workerinput")
    if config.getoption("--record-durations") and not is_worker and not runs_all(config):
        raise pytest.UsageError("--record-durations measures all tests: give --nightly, and select none")
    if runs_all(config):
        calls = Path(tempfile.mkdtemp(), "aclnn_calls")
        os.environ["CANN_CPU_CALLS"] = str(calls)  # of every process that the tests start


uncalled = set()


def pytest_sessionfinish(session):
    if session.config.getoption("--record-durations") and runs_all(session.config):
        groups = collections.Counter()
        for nodeid, total in measured.items():
            groups[group_of(nodeid)] += total
        durations = {
            "groups": {group: round(total) for group, total in groups.most_common()},
            "tests": {nodeid: round(total, 1) for nodeid, total in measured.most_common() if total >= SLOW},
        }
        DURATIONS.write_text(json.dumps(durations, indent=1, ensure_ascii=False) + "\n")
    if runs_all(session.config) and session.exitstatus == pytest.ExitCode.OK:
        import torch_versions
        from cann_cpu import coverage

        called = set(Path(os.environ["CANN_CPU_CALLS"]).read_text().split())
        uncalled.update(coverage.served_functions() - called - torch_versions.UNCALLED)
        if uncalled:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def leave_out_of_checks(item):
    """Skips a test that is not meant for a check under it, as in python -m cann_cpu run --check=memory -- pytest."""
    checks = {name.partition(":")[0] for name in os.environ.get("CANN_CPU_CHECK", "").split(",") if name}
    for marker in item.iter_markers("unchecked"):
        if under := checks & set(marker.args or checks):
            item.add_marker(pytest.mark.skip(reason=f"under {', '.join(sorted(under))}: {marker.kwargs['reason']}"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

    return Scheduling(config, log)


def pytest_report_header(config):
    not_run = [f"{name} ({reason})" for name, reason in NOT_HERE.items()]
    not_run += ["the nightly tests"] * (not config.getoption("--nightly"))
    return [f"not run: {', '.join(not_run) or 'nothing'}"]


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    """After a run of all tests, the row for README.md's table of what was run, or the functions that no test calls."""
    if uncalled:
        terminalreporter.write_line(f"aclnn functions that no test calls: {', '.join(sorted(uncalled))}", red=True)
    elif exitstatus == 0 and selects_all(config):
        versions = [importlib.metadata.version(name).partition("+")[0] for name in ("torch", "torch_npu")]
        processor = of_cpuinfo("model name") or platform.machine()
        counts = [f"{len(terminalreporter.stats.get(kind, []))} {kind}" for kind in ("passed", "skipped")]
        not_run = [*NOT_HERE, *["nightly tests"] * (not config.getoption("--nightly"))]
        row = [platform.python_version(), *versions, f"{processor} ({[*THIS_CAN_BE][-1]})", ", ".join(counts)]
        row += [", ".join(not_run), datetime.date.today().isoformat()]
        terminalreporter.write_line(f"| {' | '.join(row)} |")


@pytest.fixture(autouse=True)
def random_numbers_are_the_test_s_own(request):
    """The same whenever and beside whatever else the test runs."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed_of(request.node))


def no_latency(*_):
    return 0.0


@pytest.fixture(autouse=True)
def compilations_are_quick():
    guards = sys.modules.get("torch._dynamo.guards")
    if guards and guards.profile_guard_manager is not no_latency:
        guards.profile_guard_manager = no_latency  # it empties the processor's caches, for a line of a log
        gc.collect()
        gc.freeze()  # what torch's modules hold is not looked through again and again


def seed_of(test):
    return zlib.crc32(test.nodeid.encode())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        report.sections.append(("Random numbers", f"torch.manual_seed({seed_of(item)})"))
    return report


@pytest.fixture(autouse=True)
def errors_show_in_their_own_test():
    """Waits for asynchronous kernels, so that an error of a stream fails the test that caused it."""
    yield
    torch, torch_npu = sys.modules.get("torch"), sys.modules.get("torch_npu")
    if torch_npu is not None and torch.npu.is_initialized():
        for device in range(torch.npu.device_count()):
            # Not the others: a device that was synchronised but never used makes torch_npu abort in the next backward.
            if torch_npu._C._npu_hasPrimaryContext(device):
                torch.npu.synchronize(device)


@pytest.fixture
def internal_formats():
    """torch_npu makes tensors in FRACTAL_NZ only where the program has allowed it."""
    config = sys.modules["torch"].npu.config
    config.allow_internal_format = True
    yield
    config.allow_internal_format = False
