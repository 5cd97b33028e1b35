# SPDX-License-Identifier: Apache-2.0
"""Collectives between hosts: network namespaces with a wire between them."""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import strangers

HERE = Path(__file__).parent


def run_raw(ranks, case, size):
    ranks.ask(0, "root_info", size=size)
    kind, root_info = ranks.answer(0)
    assert kind == "result", root_info
    return ranks.run(case, size, root_info=root_info, transport="auto")


def test_reductions_give_the_same_bits_on_both_hosts(ranks_on_hosts):
    bits = run_raw(ranks_on_hosts, "reductions", 4)
    assert all(one == bits[0] for one in bits) and len(bits[0]) > 100_000


def test_parts_and_resumption(ranks_on_hosts):
    run_raw(ranks_on_hosts, "parts", 3)
    run_raw(ranks_on_hosts, "resumed", 3)


def test_models_are_trained(ranks_on_hosts):
    ranks_on_hosts.run_in_group("training", 4)


def test_the_example_decodes_the_tokens_of_one_rank(ranks_on_hosts):
    assert ranks_on_hosts.run_in_group("parallel_cases.example", 4) == [(0, 1)] * 4


def test_ranks_listen_for_the_other_host_alone_and_strangers_from_there_stay_out(ranks_on_hosts, hosts):
    processes = [process.pid for process in ranks_on_hosts.processes]
    ranks_on_hosts.ask(0, "root_info", size=4)
    _, root_info = ranks_on_hosts.answer(0)
    (address,) = [address for address in strangers.listening(processes[0]) if not isinstance(address, bytes)]
    ranks_on_hosts.ask(0, "sum_of_stay", size=4, root_info=root_info)
    assert address[0] == hosts.ADDRESSES[0]
    command = [*hosts.enter[1], sys.executable, HERE / "strangers.py", *map(str, address)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as come:
        assert come.stdout.readline() == "all have come\n"
        started = time.monotonic()
        for rank in range(1, 4):
            ranks_on_hosts.ask(rank, "sum_of_stay", size=4, root_info=root_info)
        assert [ranks_on_hosts.answer(rank) for rank in range(4)] == [("result", 10)] * 4
        assert time.monotonic() - started < 8
    for rank, process in enumerate(processes):
        ports = {address for address in strangers.listening(process) if not isinstance(address, bytes)}
        assert {address for address, _ in ports} <= {hosts.ADDRESSES[rank // 2]}, ports
        assert len(list(strangers.connections(process, "01"))) == 2  # the other two are on the same host
    ranks_on_hosts.run("leave", 4)


@pytest.mark.parametrize(
    ("is_waiting", "timeout", "words"),
    [(False, 5, "did not come within 5 s"),
     pytest.param(True, 90, "is no longer reached: its host or the network has gone", marks=pytest.mark.nightly)],
)  # fmt: skip
def test_a_host_that_vanishes_is_named_and_the_other_goes_on(ranks_on_hosts, hosts, is_waiting, timeout, words):
    with tempfile.TemporaryDirectory() as folder:
        ranks_on_hosts.run("join_and_reduce", 4, store=f"{folder}/store", timeout=timeout)
    if not is_waiting:
        hosts.cut()
    for rank in 0, 1:
        ranks_on_hosts.ask(rank, "reduce_then_leave", size=4)
    if is_waiting:
        time.sleep(2)
        hosts.cut()
    try:
        texts = [ranks_on_hosts.answer(rank)[1] for rank in (0, 1)]
        ranks_on_hosts.run_in_group("torch_collectives", 2)
    finally:
        hosts.mend()
    for text in texts:
        assert re.search(rf"rank [23] \(process \d+ on host1\).*{words}", text), text
    for rank in 2, 3:
        ranks_on_hosts.ask(rank, "reduce_then_leave", size=4)
    assert all("AllReduce (call 2)" in ranks_on_hosts.answer(rank)[1] for rank in (2, 3))


def test_a_root_that_knows_of_no_other_host_says_what_to_set(ranks_on_hosts):
    ranks_on_hosts.ask(0, "root_info", size=4, here=4)
    _, root_info = ranks_on_hosts.answer(0)
    ranks_on_hosts.ask(2, "init_error", size=4, root_info=root_info)
    assert "set HCCL_IF_IP or HCCL_SOCKET_IFNAME there" in ranks_on_hosts.answer(2)[1]


@pytest.mark.nightly
def test_processes_that_do_not_see_each_other_s_number_use_sockets(hosts, ranks):
    apart = [*hosts.here, "unshare", "--pid", "--fork", "--kill-child"]  # as a container that shares the network
    started = type(ranks)(2, lambda rank: apart if rank else hosts.here)
    try:
        bits = run_raw(started, "reductions", 2)
        assert bits[0] == bits[1] == run_raw(ranks, "reductions", 2)[0]
    finally:
        started.end()
