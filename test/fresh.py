# SPDX-License-Identifier: Apache-2.0
"""Runs Python programs in processes that need not import torch: they are forked from a server that has imported it.

    done = fresh.run([sys.executable, "-c", program, *arguments], env=..., cwd=..., timeout=60)

is `subprocess.run` with captured text. `import torch` in the program loads torch's backends, among them torch_npu.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import os
import pickle
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types

PRELOADED = ("torch", "torch._inductor.compile_fx", "torch.distributed.tensor", "torch.onnx", "networkx")
"""Modules that torch_npu and torchair import, and that do not depend on torch's backends."""
READ_AT_START = re.compile("(LD|MALLOC|GLIBC|GOMP|OMP|KMP|MKL|DNNL|ONEDNN|ATEN|TORCH|PYTORCH|PYTHON|CUDA)")
"""The beginnings of variables that take effect before a program runs. A forked process applies PYTHONPATH itself."""
AT_START = dict(os.environ)


def run(command: list, *, input=None, env=None, cwd=None, timeout=300, check=False) -> subprocess.CompletedProcess:
    """A program whose environment differs in what is read at start gets a process of the usual kind."""
    interpreter, *arguments = map(str, command)
    environment = dict(os.environ if env is None else env)
    differing = [name for name in {*environment, *AT_START} if environment.get(name) != AT_START.get(name)]
    if any(READ_AT_START.match(name) for name in differing if name != "PYTHONPATH"):
        options = {"input": input, "env": env, "cwd": cwd, "timeout": timeout, "check": check}
        return subprocess.run([interpreter, *arguments], capture_output=True, text=True, **options)
    if interpreter != sys.executable:
        raise ValueError(f"{interpreter} is not this Python, {sys.executable}")
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write((input or "").encode())
        files[0].seek(0)
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        connection.connect(server())
        request = pickle.dumps((arguments, environment, os.fspath(cwd or os.getcwd())))
        socket.send_fds(connection, [len(request).to_bytes(4, "big")], [file.fileno() for file in files])
        connection.sendall(request)
        replies = stack.enter_context(connection.makefile("rb", buffering=0))
        process = int(replies.readline())
        connection.settimeout(timeout)
        try:
            code = int(replies.readline())
        except TimeoutError:
            os.killpg(process, signal.SIGKILL)
            raise subprocess.TimeoutExpired(command, timeout, *map(read, files[1:])) from None
        done = subprocess.CompletedProcess(command, code, *map(read, files[1:]))
    if check:
        done.check_returncode()
    return done


def read(file) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


@functools.cache
def server() -> str:
    """The address of this process's server, which is started at the first call and ends with the process."""
    folder = tempfile.TemporaryDirectory(prefix="fresh-")
    address = os.path.join(folder.name, "socket")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, __file__, address], env=AT_START, **pipes)
    atexit.register(folder.cleanup)
    if process.stdout.readline() != b"listening\n":
        raise RuntimeError(f"the server of {__file__} did not start")
    return address


def serve(address: str) -> None:
    """Returns in each process that is to run a program, with sys.argv, the environment and the streams set."""
    paths = sys.path[1:]
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    for module in PRELOADED:
        importlib.import_module(module)
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
    os.setsid()
    for stream, target in zip(streams, (0, 1, 2), strict=True):
        os.dup2(stream, target)
        os.close(stream)
    arguments, environment, folder = pickle.loads(request)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = arguments
    sys.path = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *paths]


class Backends(importlib.abc.Loader, importlib.abc.MetaPathFinder):
    """Imports torch as if it had not been: what is left to do is to load its backends."""

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


def main() -> None:
    serve(sys.argv[1])
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
