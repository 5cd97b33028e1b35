# SPDX-License-Identifier: Apache-2.0
"""What the tutorial shows is what there is, and `python -m cann_cpu kernel` does what it says."""

import re
import shutil
import signal
import subprocess
import sys
import time
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


@pytest.mark.parametrize("name", ["softmax", "histogram", "top64", "rotary", "matmul"])
@pytest.mark.parametrize("options", [[], ["--no-checks"]])
def test_the_examples_give_what_they_say(name, options):
    done = kernel_command(EXAMPLES / f"{name}.cpp", *options)
    assert re.fullmatch(r".*\n.* ms on the CPU\n(  \w+: as expected\n)+", done.stdout), done.stdout + done.stderr
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["scale.cpp", "scale.py", "scale_operator.py"])
def test_the_tutorial_shows_the_examples(name):
    text = re.sub("^.*SPDX.*\n", "", (EXAMPLES / name).read_text())
    assert f"\n{text}```\n" in TUTORIAL


def test_the_command_runs_a_kernel_as_its_description_says():
    for options in ([], [EXAMPLES / "scale.py"], ["--no-checks"]):
        done = kernel_command(EXAMPLES / "scale.cpp", *options)
        checks = "off" if options == ["--no-checks"] else "on"
        assert re.fullmatch(
            rf".*scale.cpp: compiled in .* s\nscale: 3 blocks, checks {checks}, .* ms on the CPU\n  y: as expected\n",
            done.stdout,
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_the_error_in_the_tutorial_is_reported_as_the_page_shows(scale):
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
        (('expected = {"y"', 'expected = {"z"'), "expected has z, which is not an array among the arguments"),
        (("arguments = {", "values = {"), r"no arguments; set `arguments = \{name: array or number, ...\}`"),
        (("x.size,", "'many',"), "^scale: count is a number, not str$"),
        (("x.size,", "-1,"), "^scale: count is -1, which its type, of 4 bytes, does not have$"),
        (('"x": x,', '"x": [1.0],'), "^x is an address; give a numpy array, a torch tensor or None, not list$"),
        (("x * np.float32(0.5)", "0.5"), "expected has for y an array, not float"),
        (("blocks = 3", "blocks = three"), "scale.py:10: NameError: name 'three' is not defined"),
        (("blocks = 3", "blocks = = 3"), "scale.py:10: SyntaxError: invalid syntax"),
    ],
)
def test_what_does_not_fit_is_said_and_ends_the_command_with_1(scale, change, output):
    done = scale(DESCRIPTION.replace(*change))
    assert done.returncode == 1
    assert re.search(output, done.stdout + done.stderr, flags=re.MULTILINE)
    assert "Traceback" not in done.stderr


def test_what_differs_is_said_by_its_place_and_by_what_was_written(scale):
    square = 'arguments["y"], expected["y"] = (a[:10000].reshape(100, 100) for a in (arguments["y"], expected["y"]))'
    described = DESCRIPTION.replace("x.size", "5000") + square + "\n"
    done = scale(described, SCALE)
    assert re.search(r"y: \d+ of 10000 elements differ; \[50, 0\] is 0.0, expected -0.", done.stdout)
    assert "y: wrote 20000 of 40000 bytes" in done.stdout
    assert done.returncode == 1


def test_an_output_that_is_written_in_part_fails_where_nothing_is_expected(scale):
    described = DESCRIPTION.replace('expected = {"y"', 'unused = {"y"')
    assert scale(described).returncode == 0
    done = scale(
        described, SCALE.replace("result, DataCopyExtParams{1, bytes,", "result, DataCopyExtParams{1, elements,")
    )
    assert done.returncode == 1
    assert "y: wrote 10007 of 40028 bytes; set `expected` if that is right" in done.stdout


MACRO = """
#define DECLARE(Name, T) \\
  extern "C" __global__ __aicore__ void Name(GM_ADDR x, GM_ADDR /*y*/, GM_ADDR, const uint32_t count) { \\
    ASSERT(count == sizeof(T)); \\
  }
#include "value.h"
DECLARE(of_float, float)
DECLARE(of_x, DTYPE_X)
#if 0
DECLARE(of_nobody, int)
#endif
static_assert(VALUE == 3 && __CCE_AICORE__ == 220);
// by <<<>>>
extern "C" void launch(void* x) { of_float<<<2, nullptr, nullptr>>>((GM_ADDR)x, nullptr, nullptr, 4); }
"""


def test_kernels_of_macros_are_found_and_headers_and_macros_given(tmp_path):
    (tmp_path / "include").mkdir()
    (tmp_path / "include/value.h").write_text("#define VALUE 2 + ONE\n")
    (tmp_path / "macro.cpp").write_text('#include "kernel_operator.h"\n' + MACRO)
    described = """import numpy as np
arguments = {"x": np.zeros(8, np.float16), "y": np.zeros(8), "argument 3": None, "count": %d}
kernel = "%s"
"""
    options = ["-I", tmp_path / "include", "-D", "ONE=1"]
    for kernel, size in {"of_float": 4, "of_x": 2}.items():
        (tmp_path / "macro.py").write_text(described % (size, kernel))
        done = kernel_command(tmp_path / "macro.cpp", *options)
        assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "macro.py").write_text(described % (4, "of_nobody"))
    assert "no kernel of_nobody; there is of_float, of_x" in kernel_command(tmp_path / "macro.cpp", *options).stderr


def test_a_kernel_that_never_ends_is_interrupted(tmp_path):
    source = SCALE.replace(
        "const uint32_t elements =", 'while (factor != 0) asm volatile("");\n    const uint32_t elements ='
    )
    (tmp_path / "scale.cpp").write_text(source)
    (tmp_path / "scale.py").write_text(DESCRIPTION)
    command = [sys.executable, "-m", "cann_cpu", "kernel", str(tmp_path / "scale.cpp")]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the command would inherit an ignored signal
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        assert "compiled" in process.stdout.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert error == f"{tmp_path / 'scale.cpp'}: interrupted\n"


def test_a_crash_is_said_in_a_line(scale):
    crash = "out.EnQue(result);\n    *reinterpret_cast<volatile int*>(GetBlockIdx() + 8) = 1;"
    done = scale(DESCRIPTION, SCALE.replace("out.EnQue(result);", crash))
    assert done.returncode == 139
    assert re.fullmatch(r"scale, block \d: crashed \(Segmentation fault\) after line 31 of .*scale.cpp\n", done.stderr)


DEBUGGER = """
break 38
continue
print source
set print elements 2
print result
print small
print wide
delete
continue
"""


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_a_kernel_is_stopped_in_a_debugger_that_shows_its_tensors(tmp_path):
    source = SCALE.replace("  TPipe pipe;\n", "  half small = 0.1f;\n  bfloat16_t wide = -2.5f;\n  TPipe pipe;\n")
    (tmp_path / "scale.cpp").write_text(source)
    (tmp_path / "scale.py").write_text(DESCRIPTION)
    command = [sys.executable, "-m", "cann_cpu", "kernel", "--debug", "scale.cpp"]
    done = subprocess.run(command, cwd=tmp_path, input=DEBUGGER, capture_output=True, text=True)
    assert re.search(
        r"Breakpoint 1, scale \(.*count=10007, factor=0.5\)\s+at .*scale.cpp:1\d\n", done.stdout, re.DOTALL
    )
    assert "= 2048 of float = {-3, -2.99940038, -2.99880075," in done.stdout
    assert "= 2048 of float = {-1.5, -1.49970019...}" in done.stdout
    assert "= 0.0999755859\n" in done.stdout
    assert "= -2.5\n" in done.stdout
    assert "  y: as expected\n" in done.stdout
    assert (done.returncode, (tmp_path / "scale.so").exists()) == (0, True)


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
