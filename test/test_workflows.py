# SPDX-License-Identifier: Apache-2.0
"""The workflows of .github call scripts of this tree, and the index page of a release serves pip."""

import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in sorted(ROOT.glob(".github/workflows/*.yml"))}
JOBS = {f"{name}:{job}": steps for name, flow in WORKFLOWS.items() for job, steps in flow["jobs"].items()}


@pytest.mark.parametrize("job", JOBS)
def test_a_job_runs_scripts_of_this_tree_only(job):
    commands = [step["run"].split() for step in JOBS[job]["steps"] if "run" in step]
    assert commands
    for program, script, *_ in commands:
        assert program in ("bash", "python3")
        assert (ROOT / script).is_file(), script


def test_a_release_is_for_every_supported_python_and_torch():
    versions = runpy.run_path(ROOT / "cann_cpu" / "backend" / "versions.py")
    matrix = JOBS["release.yml:wheels"]["strategy"]["matrix"]
    oldest, newest = (int(part.partition(".")[2]) for part in versions["PYTHON"].split(","))
    assert matrix["python"] == [f"3.{minor}" for minor in range(oldest, newest)]
    assert matrix["torch"] == list(versions["TORCH_NPU"])


def write_wheel(folder: Path, name: str, version: str) -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_pip_installs_from_the_index_page(tmp_path):
    write_wheel(tmp_path, "sample_package", "1.0+torch2.13.0")
    subprocess.run([sys.executable, ROOT / ".ci" / "index.py", tmp_path], check=True)
    page = (tmp_path / "index.html").as_uri()
    pip = [sys.executable, "-m", "pip", "--quiet", "--isolated", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "install", "--no-index", "--find-links", page, "--target", tmp_path / "target", "sample_package"],
        check=True,
    )
    assert (tmp_path / "target" / "sample_package-1.0+torch2.13.0.dist-info").is_dir()


def test_a_folder_without_wheels_is_an_error(tmp_path):
    done = subprocess.run([sys.executable, ROOT / ".ci" / "index.py", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "there is no wheel in" in done.stderr
