# SPDX-License-Identifier: Apache-2.0
"""Runs Python programs in processes of their own, which are forked from one that has imported torch.

    done = fresh.run([sys.executable, "-c", program, *arguments], env=..., cwd=..., timeout=60)

is `subprocess.run` with captured text.
"""

import contextlib
import os
import signal
import subprocess
import tempfile

from cann_cpu import activation
from cann_cpu.checks import fork_server

WITH_LIBRARIES = {"LD_LIBRARY_PATH": activation.LIBRARIES}
"""What `python -m cann_cpu run` adds to the environment."""


def run(command: list, *, input="", env=None, cwd=None, timeout=300, check=False) -> subprocess.CompletedProcess:
    """A program with other variables that take effect before it runs is started as usual, without a server."""
    command, env = list(map(str, command)), dict(os.environ if env is None else env)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(input.encode())
        files[0].seek(0)
        streams = [file.fileno() for file in files]
        usual = (dict(os.environ), os.environ | WITH_LIBRARIES)
        served = fork_server.read_at_start(env) in map(fork_server.read_at_start, usual)
        process = fork_server.start(command, env, streams, cwd, repeated=served)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            (os.killpg if served else os.kill)(process.pid, signal.SIGKILL)
            process.wait()
            raise subprocess.TimeoutExpired(command, timeout, *map(read, files[1:])) from error
        done = subprocess.CompletedProcess(command, code, *map(read, files[1:]))
    if check:
        done.check_returncode()
    return done


def read(file) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
