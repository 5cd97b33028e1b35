# SPDX-License-Identifier: Apache-2.0
"""Collectives between processes, against their mathematics, and what their errors say."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest


def run_raw(ranks, case, size, transport, **arguments):
    ranks.ask(0, "root_info", size=size)
    kind, root_info = ranks.answer(0)
    assert kind == "result", root_info
    return ranks.run(case, size, root_info=root_info, transport=transport, **arguments)


@pytest.mark.parametrize(("size", "transport"), [(2, "auto"), (3, "auto"), (4, "tcp")])
def test_reductions_are_folded_in_the_order_of_ranks_and_give_the_same_bits_everywhere(ranks, size, transport):
    bits = run_raw(ranks, "reductions", size, transport)
    assert all(one == bits[0] for one in bits) and len(bits[0]) > 100_000


# In a separate process: the chip is determined once per process.
@pytest.mark.parametrize(
    ("soc", "int64"),
    [("Ascend910B1", "5: HcclReduceScatterV: there is no sum of int64 on Ascend910B1"), ("Ascend910_9391", "")],
)
def test_what_a_chip_neither_reduces_nor_moves_is_rejected_by_name(soc, int64):
    call = f"import cases; cases.not_served(0, 1, cases.root_info(0, 1), {soc!r}, {int64!r})"
    environment = {**os.environ, "CANN_CPU_SOC": soc}
    run = subprocess.run([sys.executable, "-c", call], cwd=Path(__file__).parent, env=environment, capture_output=True)
    assert run.returncode == 0, run.stderr.decode()


@pytest.mark.parametrize(("size", "transport"), [(2, "tcp"), (3, "auto"), (4, "auto")])
def test_every_type_is_moved(ranks, size, transport):
    run_raw(ranks, "moves", size, transport)


def test_communicators_of_some_ranks_groups_of_calls_and_what_is_rejected(ranks):
    run_raw(ranks, "parts", 3, "auto")


def table_of(*servers, **changes):
    """A rank table: of each server its name and its ranks, which are devices of the same numbers."""
    described = [
        {"server_id": name, "device": [{"device_id": str(rank), "device_ip": f"192.168.0.{rank}", "rank_id": str(rank)}
                                       for rank in ranks]}
        for name, ranks in servers
    ]  # fmt: skip
    return {"status": "completed", "version": "1.0", "server_count": str(len(servers)), "server_list": described,
            **changes}  # fmt: skip


# With two servers only this machine's address is a valid one; both are here.
@pytest.mark.parametrize(
    "table", [table_of(("here", [2, 0, 1])), table_of(("127.0.0.1", [0]), ("there", [1, 2]), version="1.2")]
)
def test_communicators_of_a_rank_table(ranks, free_port, tmp_path, table):
    path = tmp_path / "table.json"
    path.write_text(json.dumps(table, indent=1))
    ranks.run("rank_table", 3, path=str(path), port=free_port(), secret=str(tmp_path))


WRONG_TABLES = {
    "status is 'initializing'; expected 'completed'": table_of(("a", [0]), status="initializing"),
    "version is '2.0'; expected '1.0' or '1.2'": table_of(("a", [0]), version="2.0"),
    "server_count is 2, and server_list has 1": table_of(("a", [0]), server_count="2"),
    "server_count is 'two'; expected a number": table_of(("a", [0]), server_count="two"),
    "server_list is not a list": table_of(("a", [0]), server_list={}),
    "an element of server_list is not an object": table_of(("a", [0]), server_list=["a"]),
    "server_id '127.0.0.1' is there twice": table_of(("127.0.0.1", [0]), ("127.0.0.1", [1])),
    "server 'a' has device_id 0 twice": table_of(("a", [0, 0])),
    "rank_id 0 is there twice": table_of(("127.0.0.1", [0]), ("b", [0])),
    "rank_id 1 is missing": table_of(("a", [0, 2])),
    "device_id is '4294967295'; expected a number": table_of(("a", [2**32 - 1])),
    "it has no ranks": table_of(("a", [])),
    "status is missing": {},
    "it is not an object": [],
    "rank 0's server has server_id 'a', which is not an IPv4 address; the other servers reach it by host_ip": table_of(
        ("a", [0]), ("b", [1])
    ),
    "it is not JSON: line 2, column 9: syntax error while parsing object": '{"status": "completed"\n"version": "1.0"}',
    "the key 'status' is there twice": '{"status": "completed", "status": "completed"}',
    "it is not JSON: line 1, column 4: syntax error while parsing value - unexpected end of input": "[1,",
    "it is not JSON: line 1, column 4: syntax error while parsing value - unexpected '{'": "{} {}",
    "it is nested in more than 32 levels": "[" * 100,
    "has rank 0 on device 3; the current device is 0": json.dumps(table_of(("a", [0]))).replace(
        '"device_id": "0"', '"device_id": "3"'
    ),
}


def test_wrong_rank_tables_are_rejected(ranks, free_port, tmp_path):
    path = tmp_path / "table.json"
    for words, table in WRONG_TABLES.items():
        path.write_text(table if isinstance(table, str) else json.dumps(table))
        (text,) = ranks.run("table_error", 1, path=str(path))
        assert f"rank table '{path}'" in text and words in text, text
    (text,) = ranks.run("table_error", 1, path=str(tmp_path / "none.json"))
    assert "cannot be read: No such file or directory" in text
    path.write_text(json.dumps(table_of(("a", [0]))))
    (text,) = ranks.run("table_error", 1, path=str(path), asked=1)
    assert "rank is 1; the communicator has 1 ranks" in text


def test_several_roots(ranks):
    for rank in 0, 2:
        ranks.ask(rank, "root_info", size=3)
    infos = [ranks.answer(rank)[1] for rank in (0, 2)]
    ranks.run("several_roots", 3, root_infos=infos)


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_broken_or_suspended_communicator_is_resumed(ranks, transport):
    alone = run_raw(ranks, "resumed", 3, transport)[0]
    assert re.search(r"of 3 ranks, 1, 2 did not come within 1 s|cannot", alone), alone


ALGORITHMS = {
    "level0:NA;level1:ring": "",
    "allreduce=level0:NA;level1:NHR/alltoall=level0:NA;level1:pairwise": "",
    "fast": "hcclAlgo has 'fast'; expected level0:NA;level1:ring, or of operators allreduce=",
    "a" * 1599: f"hcclAlgo has '{'a' * 80}'",
    "allreduce=level0:NA/ring": "hcclAlgo has 'ring'",
}


@pytest.mark.parametrize("text", ALGORITHMS, ids=lambda text: text[:20])
def test_the_text_of_algorithms_is_read(ranks, text):
    ranks.ask(0, "root_info", size=1)
    (found,) = ranks.run("algorithm_error", 1, root_info=ranks.answer(0)[1], text=text)
    assert ALGORITHMS[text] in found and bool(found) == bool(ALGORITHMS[text]), found


def test_torch_npu_makes_its_process_groups_of_a_rank_table(run_program, tmp_path, free_port):
    table = tmp_path / "table.json"
    table.write_text(json.dumps(table_of(("here", [0, 1]))))
    ended = run_program(
        "import os, torch, torch_npu, torch.distributed as dist\n"
        "rank = int(os.environ['RANK'])\n"
        "torch.npu.set_device(rank)\n"
        "dist.init_process_group('hccl')\n"
        "x = torch.full((3,), rank + 1.0).npu()\n"
        "dist.all_reduce(x)\n"
        "part = dist.new_group([1, 0])\n"
        "dist.all_reduce(x, group=part)\n"
        "assert x.tolist() == [6.0] * 3, x\n"
        "dist.destroy_process_group()\n",
        RANK_TABLE_FILE=str(table),
        HCCL_IF_BASE_PORT=str(free_port()),
    )
    for code, said in ended:
        assert code == 0, said


def test_two_devices_in_one_process(ranks):
    ranks.run("two_devices", 1)


def test_models_are_trained_and_tensors_distributed(ranks):
    ranks.run_in_group("training", 2)


def test_a_checkpoint_of_two_ranks_is_loaded_on_one_and_on_three(ranks, tmp_path):
    folder = str(tmp_path / "checkpoint")
    saved = ranks.run_in_group("save", 2, folder=folder)
    for size in 1, 3:
        for losses in ranks.run_in_group("load", size, folder=folder):
            assert losses == saved[0] == saved[1]


@pytest.mark.parametrize("size", [2, 3])
def test_the_collectives_of_torch(ranks, size):
    ranks.run_in_group("torch_collectives", size)


def test_asynchronous_work_on_groups_that_cross(ranks):
    ranks.run_in_group("asynchronous", 4)


def test_a_captured_graph_is_replayed(ranks):
    ranks.run_in_group("captured", 2)


GRAPHS = ["GE static", "GE dynamic", "reduce-overhead", "npugraph_ex"]


@pytest.mark.parametrize("mode", GRAPHS)
def test_collectives_in_graphs_are_eagers_to_the_bit(ranks, mode):
    ranks.run_in_group("in_graphs", 2, mode=mode)


def test_torchair_puts_the_functions_of_torch_into_a_graph(ranks):
    ranks.run_in_group("patched_in_graphs", 3)


def test_a_graph_that_differs_between_ranks_is_an_error_on_all_of_them(ranks):
    for text in ranks.run_in_group("disagreeing_graphs", 2):
        assert "of type HcomAllReduce" in text, text
        assert "the ranks disagree in the count: 4 on rank 0; 8 on rank 1" in text, text


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 200), *[pytest.param(seed, 1000, marks=pytest.mark.nightly) for seed in (2, 3)]]
)
def test_random_sequences(ranks, seed, count):
    ranks.run_in_group("random_sequences", 3, seed=seed, count=count)


DIFFERENCES = {
    "size": r"the ranks disagree in the count: 4 on ranks 0, 2; 8 on rank 1",
    "dtype": r"the ranks disagree in the data type: float32 on ranks 0, 2; int32 on rank 1",
    "reduction": r"the ranks disagree in the reduction: sum on ranks 0, 2; maximum on rank 1",
    "root": r"the ranks disagree in the root: 0 on ranks 0, 2; 1 on rank 1",
    "order": r"the ranks disagree in the collective: AllReduce on ranks 0, 2; Broadcast on rank 1",
}


@pytest.mark.parametrize("what", DIFFERENCES)
def test_a_call_that_differs_between_ranks_is_an_error_on_all_of_them(ranks, what):
    started = time.monotonic()
    for rank, (first, again) in enumerate(ranks.run_in_group("differing", 3, what=what)):
        collective = "Broadcast" if what == "root" or (what == "order" and rank == 1) else "AllReduce"
        assert re.search(rf"{collective} \(call 2\) of communicator \S+ on rank {rank}: {DIFFERENCES[what]}", first), (
            first
        )
        assert "the communicator failed before" in again and DIFFERENCES[what] in again
    assert time.monotonic() - started < 30


def test_a_rank_that_leaves_early_hides_no_disagreement_and_its_reason_is_heard(ranks):
    call = r"Broadcast \(call 1\) of communicator \S+ on rank "
    for text, rank in zip(run_raw(ranks, "leaves_early", 3, "tcp", late_root=0)[1:], (1, 2), strict=True):
        assert re.search(rf"{call}{rank}: the ranks disagree in the root: 1 on ranks 0, 1; 0 on rank 2", text), text
    text = run_raw(ranks, "leaves_early", 3, "tcp", late_root=1)[1]
    assert re.search(rf"{call}1: rank 0 in Broadcast \(call 1\): it is suspended", text), text


def test_a_message_of_another_size_is_an_error_on_both_ranks(ranks):
    for text in ranks.run_in_group("sizes_of_pairs", 2):
        assert "rank 0 sends 4 float32 to rank 1, which expects 6 float32 as message 1 between them" in text


def test_a_rank_that_does_not_come_is_named_within_the_timeout(ranks):
    started = time.monotonic()
    texts = ranks.run_in_group("absent", 3, timeout=2)
    assert time.monotonic() - started < 30
    for rank in (0, 2):
        assert re.search(r"AllReduce \(call 2\)", texts[rank]) and re.search(
            r"rank 1 \(process \d+ on \S+\) did not come within 2 s|rank 1 has destroyed communicator", texts[rank]
        ), texts[rank]


def test_torch_npus_watchdog_ends_the_process_with_the_reason(run_program, monkeypatch):
    monkeypatch.delenv("TORCH_HCCL_ASYNC_ERROR_HANDLING", raising=False)
    ended = run_program(
        "import os, sys, time, torch, torch_npu, torch.distributed as dist\n"
        "rank = int(os.environ['RANK'])\n"
        "torch.npu.set_device(rank)\n"
        "dist.init_process_group('hccl')\n"
        "dist.all_reduce(torch.ones(4 + rank).npu())\n"
        "time.sleep(60)\n"
    )
    for code, said in ended:
        assert code != 0
        assert "the ranks disagree in the count: 4 on rank 0; 5 on rank 1" in said, said


def test_a_rank_that_dies_is_named_and_the_others_go_on_without_it(ranks, tmp_path):
    started = type(ranks)(3)
    try:
        started.run("join_and_reduce", 3, store=str(tmp_path / "store"))
        started.ask(2, "die", size=3)
        started.processes[2].wait(10)
        texts = started.run("reduce_then_leave", 2)
        for text in texts:
            assert re.search(r"AllReduce \(call 2\).*rank 2 \(process \d+ on \S+\) has closed its connection", text), (
                text
            )
        started.run_in_group("torch_collectives", 2)
    finally:
        started.end()
