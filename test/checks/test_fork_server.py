# SPDX-License-Identifier: Apache-2.0
"""Programs that are forked from a process with torch run as if they had been started."""

import os
import signal
import subprocess
import sys

import fresh
import pytest
from cann_cpu.checks import fork_server


def run(*arguments, **options):
    return fresh.run([sys.executable, *arguments], **options)


def test_a_program_is_forked_and_loads_the_backends_of_torch():
    program = (
        "import sys; print('torch' in sys.modules, 'torch._dynamo' in sys.modules); import torch; print(torch.npu)"
    )
    here, preloaded = run("-c", program).stdout.split("\n")[0].split()
    assert (here, preloaded) == ("False", "True")
    assert run("-c", program).stdout.split("\n")[1].startswith("<module 'torch_npu.npu'")


def test_it_ends_without_the_destructors_of_the_backends():
    """The destructors of torch_npu free a logger that its thread acl_thread reads afterwards."""
    program = """
import ctypes
libc = ctypes.CDLL(None)
libc.strdup.restype = ctypes.c_void_p
libc.__cxa_atexit(libc.puts, ctypes.c_void_p(libc.strdup(b"the backends' destructors have run")), None)
import torch
torch.ones(1).npu() + 1
print("done")
"""
    done = run("-c", program)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("how", ["-c", "-m", "file"])
def test_it_has_its_arguments_streams_folder_and_variables(how, tmp_path):
    program = """
import os, sys
print(sys.argv[1:], input(), os.getcwd(), os.environ["X"], __name__)
print("e", file=sys.stderr)
"""
    (tmp_path / "shown.py").write_text(program)
    arguments = {"-c": ["-c", program], "-m": ["-m", "shown"], "file": [tmp_path / "shown.py"]}[how]
    done = run(*arguments, "a", input="line", cwd=tmp_path, env=os.environ | {"X": "1", "PYTHONPATH": str(tmp_path)})
    assert (done.stdout, done.stderr) == (f"['a'] line {tmp_path} 1 __main__\n", "e\n")


@pytest.mark.parametrize(
    ("program", "code"),
    [("raise SystemExit(3)", 3), ("1 / 0", 1), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL), ("", 0)],
)
def test_its_exit_code_is_that_of_a_process(program, code):
    assert run("-c", program).returncode == code


def test_after_its_time_it_is_killed_with_what_it_has_said():
    with pytest.raises(subprocess.TimeoutExpired) as expired:
        run("-c", "import os, time; print(os.getpid(), flush=True); time.sleep(100)", timeout=3)
    with pytest.raises(ProcessLookupError):
        os.kill(int(expired.value.output), 0)


@pytest.mark.parametrize("command", [["true"], [sys.executable, "-B", "-c", ""], [sys.executable]])
def test_other_commands_are_started_as_usual(command):
    with open(os.devnull) as null:
        process = fork_server.start(command, dict(os.environ), [null.fileno(), 1, 2], repeated=True)
    assert isinstance(process, subprocess.Popen)
    assert process.wait() == 0


def test_a_program_with_another_variable_that_is_read_at_start_is_not_forked():
    program = "import os, sys; print('torch._dynamo' in sys.modules, os.environ['MALLOC_ARENA_MAX'])"
    assert run("-c", program, env=os.environ | {"MALLOC_ARENA_MAX": "1"}).stdout == "False 1\n"


def test_a_server_imports_nothing_from_the_folders_of_a_program(tmp_path):
    (tmp_path / "networkx.py").write_text("raise ImportError")
    assert fork_server._start_server({**os.environ, "PYTHONPATH": str(tmp_path)})
