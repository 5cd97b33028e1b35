# SPDX-License-Identifier: Apache-2.0
"""Ranks: processes that stay, one device each, and run functions of cases.py all at once."""

import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import traceback
from multiprocessing.connection import Connection

# No watchdog that takes the process down; ATen's own threads would only take the cores from the ranks.
ENVIRONMENT = {"CANN_CPU_DEVICES": "4", "OMP_NUM_THREADS": "1", "TORCH_HCCL_ASYNC_ERROR_HANDLING": "0",
               "HCCL_CONNECT_TIMEOUT": "60", "HCCL_EXEC_TIMEOUT": "100"}  # fmt: skip


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def serve(rank, connection):
    """Runs what it is asked to run, until there is nobody to ask."""
    import cases
    import torch
    import torch_npu  # noqa: F401

    torch.npu.set_device(rank)
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        try:
            connection.send(("result", getattr(cases, name)(rank, **arguments)))
        except Exception:
            connection.send(("error", traceback.format_exc()))


class Ranks:
    """`size` processes; `enter` gives the command in front of each, as one that enters another host."""

    def __init__(self, size, enter=lambda rank: [], **environment):
        self.connections, self.processes = [], []
        for rank in range(size):
            ours, theirs = multiprocessing.Pipe()
            command = [*enter(rank), sys.executable, __file__, str(rank), str(theirs.fileno())]
            variables = {**os.environ, **ENVIRONMENT, **environment}
            self.processes.append(subprocess.Popen(command, env=variables, pass_fds=[theirs.fileno()]))
            theirs.close()
            self.connections.append(ours)

    def ask(self, rank, name, **arguments):
        self.connections[rank].send((name, arguments))

    def answer(self, rank, patience=240):
        if not self.connections[rank].poll(patience):
            raise TimeoutError(f"rank {rank} has not answered within {patience} s")
        return self.connections[rank].recv()

    def run(self, name, size=None, **arguments):
        """The results of all ranks (of the first `size`); raises what one of them raised."""
        size = size or len(self.connections)
        for rank in range(size):
            self.ask(rank, name, size=size, **arguments)
        answers = [self.answer(rank) for rank in range(size)]
        for rank, (kind, value) in enumerate(answers):
            assert kind == "result", f"rank {rank}: {value}"
        return [value for _, value in answers]

    def run_in_group(self, name, size=None, **arguments):
        """The same, inside a process group of these ranks."""
        with tempfile.TemporaryDirectory() as folder:
            return self.run("in_group", size, case=name, store=f"{folder}/store", **arguments)

    def end(self):
        for connection in self.connections:
            connection.close()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Connection(int(sys.argv[2])))
