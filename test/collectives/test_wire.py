# SPDX-License-Identifier: Apache-2.0
"""What listens while ranks connect, who may connect, and that nothing is left afterwards."""

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
import strangers
from strangers import come_new, descriptors, listening


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("stranger", strangers.ALL, ids=lambda stranger: stranger.__name__)
def test_a_stranger_neither_ends_nor_stalls_the_making_of_a_communicator(ranks, stranger, transport):
    process = ranks.processes[0].pid
    before = listening(process)
    ranks.ask(0, "set_transport", size=2, transport=transport)
    ranks.answer(0)
    ranks.ask(0, "root_info", size=2)
    _, root_info = ranks.answer(0)
    addresses = come_new(process, before)
    if transport == "auto":  # on this host alone, by a name
        assert all(isinstance(address, bytes) for address in addresses), addresses
    else:
        assert all(address[0] == "127.0.0.1" for address in addresses), addresses
    arguments = {"size": 2, "root_info": root_info, "transport": transport}
    ranks.ask(0, "sum_once", **arguments)
    kept = []
    knockers = [threading.Thread(target=lambda to=to: kept.append(stranger(to))) for to in addresses * 20]
    for knocker in knockers:
        knocker.start()
    for knocker in knockers:
        knocker.join()
    started = time.monotonic()
    ranks.ask(1, "sum_once", **arguments)
    assert [ranks.answer(rank) for rank in (0, 1)] == [("result", 3), ("result", 3)]
    assert time.monotonic() - started < 8
    assert sorted(map(str, listening(process))) == sorted(map(str, before))


@pytest.mark.nightly
def test_a_stranger_that_says_nothing_is_cut_off_after_ten_seconds(ranks):
    process = ranks.processes[0].pid
    before = listening(process)
    ranks.ask(0, "root_info", size=2)
    _, root_info = ranks.answer(0)
    arguments = {"size": 2, "root_info": root_info, "transport": "auto"}
    silent = strangers.says_nothing(come_new(process, before)[0])
    ranks.ask(0, "sum_once", **arguments)
    silent.settimeout(20)
    started = time.monotonic()
    assert len(silent.recv(100)) == 24 and silent.recv(1) == b""
    assert 9 < time.monotonic() - started < 15
    ranks.ask(1, "sum_once", **arguments)
    assert [ranks.answer(rank) for rank in (0, 1)] == [("result", 3), ("result", 3)]


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_failed_init_leaves_nothing(ranks, transport):
    process = ranks.processes[0].pid
    ranks.ask(0, "root_info", size=1)
    ranks.run("sum_once", 1, root_info=ranks.answer(0)[1], transport=transport)  # what is made once

    def state():
        return listening(process), len(descriptors(process)), len(list(Path(f"/proc/{process}/task").iterdir()))

    before = state()
    ranks.ask(0, "root_info", size=2)
    _, root_info = ranks.answer(0)
    ranks.ask(0, "alone", size=2, root_info=root_info, transport=transport)
    kind, text = ranks.answer(0)
    assert kind == "result" and "of 2 ranks, 1 did not come within 1 s (HCCL_CONNECT_TIMEOUT)" in text, text
    assert state() == before


def test_the_ranks_disagree_in_their_number(ranks):
    ranks.ask(0, "root_info", size=2)
    _, root_info = ranks.answer(0)
    for rank, size in enumerate((2, 3)):
        ranks.ask(rank, "init_error", size=size, root_info=root_info)
    for rank in range(2):
        _, text = ranks.answer(rank)
        assert "the ranks disagree in the number of ranks: 2 on rank 0, 3 on rank 1" in text, text


def test_a_rank_that_is_given_twice_is_told_so(ranks):
    ranks.ask(0, "root_info", size=3)
    _, root_info = ranks.answer(0)
    for rank, own in enumerate((0, 1, 1)):
        ranks.ask(rank, "sum_as", size=3, root_info=root_info, own=own)
    for _ in range(600):
        if notified := [rank for rank in (1, 2) if ranks.connections[rank].poll(0.1)]:
            break
    (rejected,) = notified
    assert "two processes claim rank 1" in ranks.answer(rejected)[1]
    ranks.ask(rejected, "sum_as", size=3, root_info=root_info, own=2)
    assert [ranks.answer(rank) for rank in range(3)] == [("result", 6)] * 3


def test_a_table_of_several_servers_needs_a_secret_and_the_same_one(ranks, free_port, tmp_path):
    path = tmp_path / "table.json"
    server = '{{"server_id": "{}", "device": [{{"device_id": "{}", "rank_id": "{}"}}]}}'
    path.write_text('{{"status": "completed", "version": "1.0", "server_count": "2", "server_list": [{}, {}]}}'.format(
        server.format("127.0.0.1", 0, 0), server.format("there", 1, 1)))  # fmt: skip
    (text,) = ranks.run("table_error", 1, path=str(path))
    assert "set CANN_CPU_HCCL_SECRET" in text, text
    port = free_port()
    for rank, secret in enumerate(("one", "another")):
        ranks.ask(rank, "table_with_secret", size=2, path=str(path), port=port, secret=secret)
    texts = [ranks.answer(rank)[1] for rank in range(2)]
    assert "of 2 ranks, 1 did not come" in texts[0] and "has another secret; CANN_CPU_HCCL_SECRET" in texts[1], texts


PRCTL = r"""
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int prctl(int option, ...) {
  va_list rest;
  va_start(rest, option);
  unsigned long a[4];
  for (int i = 0; i < 4; ++i) a[i] = va_arg(rest, unsigned long);
  va_end(rest);
  if (option != PR_SET_PTRACER) return (int)syscall(SYS_prctl, option, a[0], a[1], a[2], a[3]);
  char name[4096];
  snprintf(name, sizeof name, "%s/%d", getenv("PTRACERS"), getpid());
  FILE* file = fopen(name, "a");
  fprintf(file, "%d\n", (int)a[0]);
  return fclose(file);
}
"""


def test_the_peers_alone_may_read_a_process_and_no_longer_than_they_are_connected(ranks, tmp_path, monkeypatch):
    (tmp_path / "prctl.c").write_text(PRCTL)
    library = tmp_path / "prctl.so"
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", "-o", library, tmp_path / "prctl.c"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("PTRACERS", str(tmp_path))
    started = type(ranks)(3)
    monkeypatch.undo()

    def asked(rank):
        file = tmp_path / str(started.processes[rank].pid)
        found = list(map(int, file.read_text().split())) if file.exists() else []
        file.unlink(missing_ok=True)
        return found

    def make(size, transport):
        started.ask(0, "root_info", size=size)
        started.run("sum_once", size, root_info=started.answer(0)[1], transport=transport)
        return [asked(rank) for rank in range(size)]

    try:
        pids = [process.pid for process in started.processes]
        assert make(2, "auto") == [[pids[1], 0], [pids[0], 0]]
        launcher = os.getpid()  # that of all: Yama takes one process, with its descendants
        assert make(3, "auto") == [
            [pids[other], launcher, pids[another], 0] for other, another in ((1, 2), (0, 2), (0, 1))
        ]
        assert make(2, "tcp") == [[], []]
    finally:
        started.end()
