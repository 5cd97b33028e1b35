# SPDX-License-Identifier: Apache-2.0
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fresh
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import hosts as _hosts
import ranks as _ranks

HERE = Path(__file__).resolve().parent


# They end with the tests of this folder: a process that has used an NPU takes 1 % of a core for torch_npu's threads.
@pytest.fixture(scope="package")
def ranks():
    """Four ranks; a test uses the first two, three or all of them."""
    started = _ranks.Ranks(4)
    yield started
    started.end()


@pytest.fixture(scope="package")
def hosts():
    try:
        made = _hosts.Hosts()
    except _hosts.NoHosts as reason:
        text = f"no hosts can be made here, so that collectives between hosts are NOT TESTED: {reason}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(text)
    yield made
    made.end()


@pytest.fixture(scope="package")
def ranks_on_hosts(hosts):
    """Two ranks on each host, as the launcher sets in the environment."""
    started = _ranks.Ranks(4, lambda rank: hosts.enter[rank // 2], **hosts.variables(2))
    yield started
    started.end()


@pytest.fixture
def free_port():
    return _ranks.free_port


@pytest.fixture
def run_program(tmp_path):
    """Runs a program as two separate ranks: the exit code and stderr of each."""

    def run(text, **environment):
        program = tmp_path / "program.py"
        program.write_text(text)
        environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_ranks.free_port()),
                       "WORLD_SIZE": "2", **environment}  # fmt: skip

        def of_rank(rank):
            done = fresh.run([sys.executable, program], env=environment | {"RANK": str(rank)}, timeout=100)
            return done.returncode, done.stderr

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(of_rank, range(2)))

    return run
