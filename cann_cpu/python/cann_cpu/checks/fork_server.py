# SPDX-License-Identifier: Apache-2.0
"""Starts Python programs in processes that need not import torch: they are forked from a server that has imported it.

`import torch` in such a program loads torch's backends, among them torch_npu.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import importlib.abc
import importlib.machinery
import os
import pickle
import re
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Iterable

PRELOADED = ("torch", "torch._inductor.compile_fx", "torch.distributed.tensor", "torch.onnx", "networkx")
"""Modules that torch_npu and torchair import, and that do not depend on torch's backends."""
READ_AT_START = re.compile("(LD|MALLOC|GLIBC|GOMP|OMP|KMP|MKL|DNNL|ONEDNN|ATEN|TORCH|PYTORCH|PYTHON|CUDA)")
"""Prefixes of variables that take effect before a program runs. A server serves programs with its values."""
servers: dict[frozenset, str] = {}
"""The addresses of servers, by those variables. A process that was forked from a server can use the same server."""
starting = threading.Lock()


class Forked:
    """A process that a server has forked. It has `args`, `pid`, `returncode` and `wait`, as a Popen has."""

    def __init__(self, arguments: list[str], variables: dict[str, str], folder: str, streams: list[int], address: str):
        self.args = [sys.executable, *arguments]
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(address)
        request = pickle.dumps((arguments, variables, folder))
        size = len(request).to_bytes(4, "big")
        socket.send_fds(self._connection, [size], streams)
        self._connection.sendall(request)
        self._replies = self._connection.makefile("rb", buffering=0)
        self.pid = int(self._replies.readline())

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code, which is negative for a signal."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = int(self._replies.readline())
            self._replies.close()
            self._connection.close()
        return self.returncode


def read_at_start(variables: dict[str, str]) -> frozenset:
    """The variables that take effect before a program runs. A forked process applies PYTHONPATH itself."""
    return frozenset(each for each in variables.items() if READ_AT_START.match(each[0]) and each[0] != "PYTHONPATH")


def start(
    command: list[str],
    variables: dict[str, str],
    streams: list[int],
    folder: str | os.PathLike | None = None,
    repeated: bool = False,
) -> subprocess.Popen | Forked:
    """Starts a command, with file descriptors for its standard input, output and error.

    A program for this Python is forked if there is a server for it. `repeated` starts this server, which ends with this
    process; it also gives the command a process group.
    """
    address = _address(variables, repeated) if _is_for_this_python(command, variables) else None
    if address:
        return Forked(command[1:], variables, os.fspath(folder or os.getcwd()), streams, address)
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        command, env=variables, cwd=folder, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=repeated
    )


def _is_for_this_python(command: list[str], variables: dict[str, str]) -> bool:
    path = shutil.which(command[0], path=variables.get("PATH"))
    if not path or len(command) == 1 or (command[1].startswith("-") and command[1] not in ("-c", "-m")):
        return False
    same_environment = os.path.dirname(os.path.abspath(path)) == os.path.dirname(sys.executable)
    return same_environment and os.path.realpath(path) == os.path.realpath(sys.executable)


def _address(variables: dict[str, str], repeated: bool) -> str | None:
    key = read_at_start(variables)
    with starting:
        if repeated and key not in servers:
            servers[key] = _start_server(variables)
        return servers.get(key)


def _start_server(variables: dict[str, str]) -> str:
    """Returns its address, or an empty one where torch is not installed: there is nothing to import ahead."""
    folder = tempfile.TemporaryDirectory(prefix="fork_server-")
    address = os.path.join(folder.name, "socket")
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, address],
        env={name: value for name, value in variables.items() if name != "PYTHONPATH"},  # each program's is another
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    @atexit.register
    def stop() -> None:
        with process:  # closes its standard input, and it ends
            folder.cleanup()

    return address if process.stdout.readline() == b"listening\n" else ""


def _serve(address: str) -> None:
    """Returns in each process that is to run a program, with sys.argv, the environment and the streams set."""
    key = read_at_start(dict(os.environ))
    paths = [path for path in sys.path[1:] if path not in os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    before = set(sys.modules)
    atexit.register(lambda: _leave_whole(preloaded))  # before the modules register theirs, so that it is the last
    for module in PRELOADED:
        importlib.import_module(module)
    preloaded = sys.modules.keys() - before
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        print("listening", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks for the exit codes of supervisors
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:  # whoever started this has ended
                sys.exit()
            connection, _ = listener.accept()
            if not os.fork():
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection:
        size, streams, _, _ = socket.recv_fds(connection, 4, 3, socket.MSG_WAITALL)
        request = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
        if process := os.fork():
            connection.sendall(b"%d\n" % process)
            _, status = os.waitpid(process, 0)
            with contextlib.suppress(BrokenPipeError):  # it has been killed after its time
                connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
            os._exit(0)
    _end_before_libraries()
    os.setsid()
    for stream, target in zip(streams, (0, 1, 2), strict=True):
        os.dup2(stream, target)
        os.close(stream)
    arguments, variables, folder = pickle.loads(request)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.argv = arguments
    sys.path = [*filter(None, variables.get("PYTHONPATH", "").split(os.pathsep)), *paths]
    importlib.import_module(__spec__.name).servers[key] = address


def _leave_whole(names: Iterable[str]) -> None:
    """Keeps Python from clearing modules when it ends, which would copy the memory that this process shares with the
    server. They cannot be imported from then on, as always when Python ends."""
    modules = [sys.modules[name] for name in names if sys.modules.get(name)]
    sys.modules.update(dict.fromkeys(names))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(modules))  # for ever


def _end_before_libraries() -> None:
    """Lets this process end without the destructors of the libraries that the server has loaded: those of torch remove
    its operators from tables one by one, in memory that is copied for it. What is registered later is still called."""
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)  # with the exit code
    libc.__cxa_atexit(libc.fflush, None, None)


def _end_before_backends() -> None:
    """Lets this process end without the destructors of torch's backends. The destructors of torch_npu free a logger
    that its thread acl_thread reads afterwards, which can abort the process."""
    with contextlib.suppress(OSError, AttributeError):  # the runtime in use is not cann_cpu
        ctypes.CDLL(None).on_exit(ctypes.CDLL("libascendcl.so").cann_cpu_end_before_backends, None)


class Backends(importlib.abc.Loader, importlib.abc.MetaPathFinder):
    """Makes the next `import torch` load torch's backends, which the server has not loaded."""

    def __init__(self):
        self.torch = sys.modules.pop("torch")
        self.spec = self.torch.__spec__

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec("torch", self, is_package=True) if name == "torch" else None

    def create_module(self, spec):
        return self.torch

    def exec_module(self, module):
        module.__spec__ = self.spec
        sys.meta_path.remove(self)
        if module._is_device_backend_autoload_enabled():
            module._import_device_backends()
            _end_before_backends()


def main() -> None:
    _serve(sys.argv[1])
    sys.meta_path.insert(0, Backends())
    what, *rest = sys.argv
    if what == "-m":
        sys.argv, sys.path[:0] = rest, [os.getcwd()]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif what == "-c":
        sys.argv, sys.path[:0] = ["-c", *rest[1:]], [""]
        sys.modules["__main__"] = module = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(module))
    else:
        sys.path[:0] = [os.path.dirname(os.path.abspath(what))]
        runpy.run_path(os.path.abspath(what), run_name="__main__")


if __name__ == "__main__":
    main()
