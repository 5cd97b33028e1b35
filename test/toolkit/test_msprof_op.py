# SPDX-License-Identifier: Apache-2.0
"""msprof op: what a program's kernels cost, in the files that scripts look for."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cann_cpu import activation

BIN = Path(activation.PROFILER)
BASIC_INFO = ["Op Name", "Op Type", "Task Duration(us)", "Block Dim", "Mix Block Dim", "Device Id", "Pid",
              "Current Freq", "Rated Freq"]  # fmt: skip


def msprof_op(*words, tool=("msprof", "op"), cwd=None, **variables):
    command = [BIN / tool[0], *tool[1:], *words]
    variables = os.environ | {"CANN_CPU_SOC": "Ascend910B1"} | variables
    return subprocess.run([str(word) for word in command], env=variables, cwd=cwd, capture_output=True, text=True)


def rows(file):
    with file.open() as text:
        return list(csv.DictReader(text))


@pytest.fixture(scope="module")
def program(project):
    """Launches scale, scale and scale_by, on 4 blocks each."""
    return project("launch") / "program"


def saved(done):
    assert done.returncode == 0, done.stdout + done.stderr
    [folder] = re.findall(r"Profiling results saved in (\S+)\n", done.stdout)
    assert re.fullmatch(r"OPPROF_\d{14}_[A-Z]{16}", Path(folder).name)
    return Path(folder)


def test_the_first_launch_has_its_tables_in_the_folder(program, tmp_path):
    done = msprof_op(f"--output={tmp_path / 'new'}", "--warm-up", "5", program)
    folder = saved(done)
    assert list((tmp_path / "new").iterdir()) == [folder]
    [info] = rows(folder / "OpBasicInfo.csv")
    assert list(info) == BASIC_INFO
    assert [info[name] for name in ("Op Name", "Op Type", "Block Dim", "Mix Block Dim")] == [
        "scale",
        "vector",
        "4",
        "N/A",
    ]
    assert info["Current Freq"] == info["Rated Freq"] == "1850"
    summary = json.loads((folder / "summary.json").read_text())
    assert float(info["Task Duration(us)"]) == summary["microseconds"] > 0
    cores = rows(folder / "PipeUtilization.csv")
    assert [(core["block_id"], core["sub_block_id"]) for core in cores] == [(str(i), "vector0") for i in range(4)]
    # 4 tiles of 256 bytes in and out, a multiplication and an addition of each, at least: docs/ascendc_cost.md.
    least = {"vec": 4 * 2 * (22 + 1), "mte2": 4 * (30 + 256 / 64), "mte3": 4 * (30 + 256 / 64)}
    for core in cores:
        assert core["aic_time(us)"] == core["aic_cube_ratio"] == "N/A"
        total = float(core["aiv_total_cycles"])
        assert float(core["aiv_time(us)"]) == pytest.approx(total / 1850, abs=1e-3)
        for unit, cycles in least.items():
            busy, ratio = float(core[f"aiv_{unit}_time(us)"]), float(core[f"aiv_{unit}_ratio"])
            assert cycles / 1850 - 1e-3 <= busy < 1.1 * cycles / 1850
            assert ratio == pytest.approx(1850 * busy / total, abs=1e-2)
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert "scale: 4 blocks" in done.stdout and "roofline: " in done.stdout


def test_several_launches_have_folders_by_kernel_and_number(program, tmp_path):
    folder = saved(msprof_op(f"--output={tmp_path}", "--launch-count=100", program))
    stamp = folder.name.split("_")[1]
    tables = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("OpBasicInfo*"))
    assert tables == [f"{kernel}/OpBasicInfo_{stamp}.csv" for kernel in ("scale/0", "scale/1", "scale_by/0")]


@pytest.mark.parametrize(
    ("options", "kernels"),
    [
        (["--kernel-name=scale_by"], ["scale_by"]),
        (["--kernel-name=*_by"], ["scale_by"]),
        (["--kernel-name", "other|scale", "--launch-count", "2"], ["scale", "scale"]),
        (["--launch-skip-before-match=1", "--launch-count=9"], ["scale", "scale_by"]),
        (["--aic-metrics=PipeUtilization,Roofline", "--launch-skip-before-match=2"], ["scale_by"]),
    ],
)
def test_options_choose_launches(program, tmp_path, options, kernels):
    folder = saved(msprof_op(*options, f"--application={program}", f"--output={tmp_path}"))
    assert [row["Op Name"] for file in sorted(folder.rglob("OpBasicInfo*")) for row in rows(file)] == kernels


def test_a_program_of_the_folder_has_its_arguments_and_the_environment_of_the_caller(tmp_path):
    script = "import os, sys; print(sys.argv[1:], os.environ.get('PYTHONPATH'))"
    for path, shown in (("", None), ("/a:/b", "/a:/b")):
        done = msprof_op(sys.executable, "-c", script, "--output=x", "a b", PYTHONPATH=path, cwd=tmp_path)
        assert done.stdout == f"['--output=x', 'a b'] {shown}\n"
        assert done.returncode == 1 and "has launched no Ascend C kernel" in done.stderr
    shutil.copy("/bin/false", tmp_path / "own_program")
    done = msprof_op("own_program", tool=["msopprof"], cwd=tmp_path)
    assert done.returncode == 1 and "own_program has ended with 1" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--replay-mode=kernel", "true"], "unrecognized arguments: --replay-mode=kernel"),
        (["--launch", "2", "true"], "--launch"),
        (["--aic-metrics=PipeUtilization,L2Cache", "true"], "--aic-metrics=L2Cache"),
        (["--launch-count=0", "true"], "--launch-count=0"),
        (["--launch-count=many", "true"], "--launch-count: invalid int value: 'many'"),
        (["--application=true", "false"], "the program false is given as well"),
        (["--output=."], "no program"),
        (["simulator", "--soc-version=Ascend910B1", "true"], "msprof op simulator is not implemented"),
        (["./none"], "./none: no such program"),
    ],
)
def test_what_is_not_right_is_named(tmp_path, words, said):
    done = msprof_op(*words, cwd=tmp_path)
    assert done.returncode != 0 and said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_that_does_not_run_is_told_with_those_that_do(program, tmp_path):
    done = msprof_op(f"--output={tmp_path}", "--kernel-name=add", program)
    assert (
        done.returncode == 1 and "none of the 3 launches is asked for; the kernels are scale, scale_by" in done.stderr
    )
