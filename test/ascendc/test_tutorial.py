# SPDX-License-Identifier: Apache-2.0
"""What the tutorial shows is what there is, and `python -m cann_cpu kernel` does what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs/ascendc_kernels.md").read_text()
EXAMPLES = ROOT / "examples/kernels"
SCALE = (EXAMPLES / "scale.cpp").read_text()
DESCRIPTION = (EXAMPLES / "scale.py").read_text()


def kernel_command(*arguments):
    command = [sys.executable, "-m", "cann_cpu", "kernel", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def scale(tmp_path):
    """scale(description, source) is the command on these texts."""

    def run(description=DESCRIPTION, source=SCALE, *options):
        (tmp_path / "scale.cpp").write_text(source)
        (tmp_path / "scale.py").write_text(description)
        return kernel_command(tmp_path / "scale.cpp", *options)

    return run


@pytest.mark.parametrize("name", ["scale.cpp", "scale.py", "scale_operator.py"])
def test_the_tutorial_shows_the_examples(name):
    text = re.sub("^.*SPDX.*\n", "", (EXAMPLES / name).read_text())
    assert f"\n{text}```\n" in TUTORIAL


def test_the_command_runs_a_kernel_as_its_description_says():
    for options in ([], [EXAMPLES / "scale.py"], ["--no-checks"]):
        done = kernel_command(EXAMPLES / "scale.cpp", *options)
        checks = "off" if options == ["--no-checks"] else "on"
        assert re.fullmatch(
            rf".*scale.cpp: compiled in .* s\nscale: 3 blocks, checks {checks}, .* ms\n  y: as expected\n", done.stdout
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_the_mistake_in_the_tutorial_is_reported_as_it_says(scale):
    done = scale(DESCRIPTION, SCALE.replace("    source = in.DeQue<float>();\n", ""))
    shown = re.search(r"^\.\.\.(/examples.*?)^```", TUTORIAL, flags=re.MULTILINE | re.DOTALL)[1]
    said = " ".join(shown.split()).removeprefix("/examples/kernels")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith(said)


@pytest.mark.parametrize(
    ("change", "output"),
    [
        (("0.5)}", "0.25)}"), r"y: 10007 of 10007 elements differ; \[0\] is -1.5, expected -0.75"),
        (("blocks = 3", "blocks = 0"), "scale: blocks must be at least 1, but is 0"),
        (('"count": x.size, ', ""), "scale has the parameters x, y, count, factor; missing or too many .*: count"),
        (('expected = {"y"', 'expected = {"z"'), "expected has z, which is no array among the arguments"),
        (("arguments = {", "values = {"), r"no arguments; set `arguments = \{name: array or number, ...\}`"),
    ],
)
def test_what_does_not_fit_is_said_and_ends_the_command_with_1(scale, change, output):
    done = scale(DESCRIPTION.replace(*change))
    assert done.returncode == 1
    assert re.search(output, done.stdout + done.stderr)
    assert "Traceback" not in done.stderr


def test_a_result_within_the_tolerance_is_as_expected(scale):
    described = DESCRIPTION.replace("0.5)}", "0.5000001)}")
    assert "differ" in scale(described).stdout
    assert "y: as expected" in scale(described + "tolerance = 1e-6\n").stdout


def test_a_file_of_several_kernels_needs_the_name_of_one(scale):
    source = SCALE + SCALE[SCALE.index('extern "C"') :].replace("void scale", "void other")
    done = scale(DESCRIPTION, source)
    assert re.search("scale.cpp has several kernels; set `kernel` to one of scale, other", done.stderr)
    assert "other: 3 blocks" in scale(DESCRIPTION + 'kernel = "other"\n', source).stdout


def test_a_kernel_without_a_description_is_rejected(tmp_path):
    (tmp_path / "alone.cpp").write_text(SCALE)
    done = kernel_command(tmp_path / "alone.cpp")
    assert done.returncode == 1
    assert "alone.py does not exist; a kernel FILE.cpp has its arguments in FILE.py beside it" in done.stderr
