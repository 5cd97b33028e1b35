# SPDX-License-Identifier: Apache-2.0
"""Collectives between processes, against their mathematics, and what their errors say."""

import os
import re
import subprocess
import sys
import time

import pytest


def run_raw(ranks, case, size, transport):
    ranks.ask(0, "root_info", size=size)
    kind, root_info = ranks.answer(0)
    assert kind == "result", root_info
    return ranks.run(case, size, root_info=root_info, transport=transport)


@pytest.mark.parametrize(("size", "transport"), [(2, "auto"), (3, "auto"), (4, "tcp")])
def test_reductions_are_folded_in_the_order_of_ranks_and_give_the_same_bits_everywhere(ranks, size, transport):
    bits = run_raw(ranks, "reductions", size, transport)
    assert all(one == bits[0] for one in bits) and len(bits[0]) > 100_000


@pytest.mark.parametrize(("size", "transport"), [(2, "tcp"), (3, "auto"), (4, "auto")])
def test_every_type_is_moved(ranks, size, transport):
    run_raw(ranks, "moves", size, transport)


def test_communicators_of_some_ranks_groups_of_calls_and_what_is_refused(ranks):
    run_raw(ranks, "parts", 3, "auto")


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
        assert "of no more use" in again and DIFFERENCES[what] in again
    assert time.monotonic() - started < 30


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


def test_torch_npus_watchdog_ends_the_process_with_the_reason(tmp_path, free_port):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, time, torch, torch_npu, torch.distributed as dist\n"
        "rank = int(os.environ['RANK'])\n"
        "torch.npu.set_device(rank)\n"
        "dist.init_process_group('hccl')\n"
        "dist.all_reduce(torch.ones(4 + rank).npu())\n"
        "time.sleep(60)\n"
    )
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    environment.pop("TORCH_HCCL_ASYNC_ERROR_HANDLING", None)
    started = [
        subprocess.Popen([sys.executable, str(program)], env={**environment, "RANK": str(rank)}, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for process in started:
        said = process.communicate(timeout=50)[1].decode()
        assert process.returncode != 0
        assert "the ranks disagree in the count: 4 on rank 0; 5 on rank 1" in said, said


def test_a_rank_that_dies_is_named_and_the_others_go_on_without_it(ranks, free_port):
    started = type(ranks)(3)
    try:
        started.run("join", 3, port=free_port())
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
