# SPDX-License-Identifier: Apache-2.0
"""Sorted runs, masks that are set apart from the instruction, lists of tensors, and what a kernel says."""

from pathlib import Path

import numpy as np
import pytest
from cann_cpu.ascendc import api_names
from cann_cpu.kernel import KernelError

PAIR = np.dtype([("score", np.float32), ("index", np.uint32)])
HALF_PAIR = np.dtype([("score", np.float16), ("filler", np.uint16), ("index", np.uint32)])


def sorted_runs(generator, lengths, pair=PAIR):
    """Runs of pairs in descending order, with equal scores among them, and the pairs merged as they should be."""
    runs, number = [], 0
    for length in lengths:
        run = np.zeros(length, pair)
        run["score"] = np.sort(generator.integers(-20, 20, length))[::-1]
        run["index"] = np.arange(number, number + length)
        number += length
        runs.append(run)
    pairs = np.concatenate(runs)
    return pairs, pairs[np.argsort(-pairs["score"], kind="stable")]


def merge(kernels, pairs, lengths, valid, stops=False, repeats=1):
    x = pairs.view(np.float32)
    y = np.zeros(len(x) + 8, np.float32)
    kernels("api")["merge"](x, y, len(x), *lengths, valid, stops, repeats, pairs.dtype == HALF_PAIR)
    return y[: len(x)].view(pairs.dtype), y[len(x) : len(x) + 4].astype(int).tolist()


LENGTHS = [(4, 4, 4, 4), (32, 8, 4, 20), (0, 12, 4, 0), (64, 64, 0, 0), (8, 16, 8, 0), (1500, 4, 700, 36)]


@pytest.mark.parametrize("pair", [PAIR, HALF_PAIR], ids=["float32", "float16"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_sorted_runs_are_merged(kernels, lengths, pair):
    pairs, expected = sorted_runs(np.random.default_rng(0), lengths, pair)
    valid = 15 if lengths[3] or not lengths[0] else 7 if lengths[2] else 3
    merged, taken = merge(kernels, pairs, lengths, valid)
    assert (merged == expected).all()
    assert taken == list(lengths)


def test_several_times_four_runs_are_merged(kernels):
    generator = np.random.default_rng(1)
    parts = [sorted_runs(generator, (8, 8, 8, 8)) for _ in range(3)]
    merged, _ = merge(kernels, np.concatenate([part[0] for part in parts]), (8, 8, 8, 8), 15, repeats=3)
    assert (merged == np.concatenate([part[1] for part in parts])).all()


@pytest.mark.parametrize("lengths", [(4, 32, 32, 32), (32, 4, 4, 4), (8, 8, 8, 8), (300, 32, 500, 8), (0, 8, 16, 8)])
def test_a_merge_stops_where_a_run_ends(kernels, lengths):
    pairs, expected = sorted_runs(np.random.default_rng(2), lengths)
    merged, taken = merge(kernels, pairs, lengths, 15, stops=True)
    ends = np.cumsum(lengths)
    run_of = np.searchsorted(ends, expected["index"], side="right")
    counts = np.cumsum(run_of[:, None] == np.arange(4), axis=0)  # of each run, after each pair
    stop = next(i for i, row in enumerate(counts) if (row == lengths).any())
    assert taken == counts[stop].tolist()
    assert (merged[: stop + 1] == expected[: stop + 1]).all()
    assert (merged[stop + 1 :] == np.zeros(1, PAIR)).all()


def test_a_merge_of_one_run_is_rejected(kernels):
    pairs, _ = sorted_runs(np.random.default_rng(3), (4, 4, 4, 4))
    with pytest.raises(KernelError, match="MrgSort: validBit 1; it is 0b11, 0b111 or 0b1111"):
        merge(kernels, pairs, (4, 4, 4, 4), 1)


@pytest.mark.parametrize("count", [32, 128, 2048])
@pytest.mark.parametrize("whole", [True, False])
def test_scores_are_sorted_with_their_indices(kernels, count, whole):
    x = np.random.default_rng(count).integers(-50, 50, count).astype(np.float32)
    y = np.zeros(2 * count, np.float32)
    kernels("api")["sort"](x, y, count, whole)
    rows = x.reshape(1, count) if whole else x.reshape(-1, 32)
    places = np.argsort(-rows, axis=1, kind="stable")
    assert (y[:count] == np.take_along_axis(rows, places, axis=1).reshape(-1)).all()
    if not whole:
        places = places + 32 * np.arange(count // 32)[:, None]
    assert (y[count:].view(np.uint32) == places.reshape(-1)).all()


@pytest.mark.parametrize("elements", [1, 63, 64, 65, 192])
def test_in_counter_mode_a_mask_counts_elements(kernels, elements):
    y = np.zeros(192, np.float32)
    kernels("api")["masked"](y, elements, 0)
    assert (y == 1 + (np.arange(192) < elements)).all()


@pytest.mark.parametrize("low", [1, 0xF0F0, 2**64 - 1])
def test_a_mask_that_is_set_before_selects_elements_of_each_repeat(kernels, low):
    y = np.zeros(192, np.float32)
    kernels("api")["masked"](y, 0, low)
    assert (y == 1 + np.array([low >> i % 64 & 1 for i in range(192)])).all()


def test_a_list_of_tensors_is_read(kernels, capfd):
    words = [8 * 6, 1 << 32 | 2, 3, 4, 0 << 32 | 1, 5, 0x1000, 0x2000]  # index and dimensions in one word
    kernels("api")["listed"](np.array(words, np.uint64))
    expected = "0: 2 dimensions, first 3, at 1000\n1: 1 dimensions, first 5, at 2000\n"
    assert capfd.readouterr().out == expected


def test_an_allocator_gives_out_the_unified_buffer(kernels):
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    kernels("api")["allocated"](x, y)
    assert (y == 2 * x).all()


def test_what_a_kernel_says_is_on_the_standard_output(kernels, capfd):
    with pytest.raises(KernelError, match=r"ASCENDC_ASSERT\(data.in.GetSize\(\) == 9\) does not hold"):
        kernels("api")["says"](np.arange(8, dtype=np.float32) / 4)
    assert capfd.readouterr().out == (
        "half 0.5, int 4\n"
        "DumpTensor: desc=7, block=0, data_type=float, position=UB, dump_size=3\n[0, 0.25, 0.5]\n"
        "DumpTensor: desc=8, block=0, data_type=float, position=GM, dump_size=2\n[1.5, 1.75]\n"
        "DumpTensor: desc=9, block=0, data_type=float, position=UB, dump_size=7\n"
        "[[[0, 0.25], [0.5, 0.75]], [[1, 1.25], [1.5]]]\n"
        "DumpTensor: desc=10, block=0, data_type=float, position=GM, dump_size=4\n[[0, 0.25], [0.5, 0.75]]\n"
        "[ERROR] there are 8\n"
    )


def test_the_page_has_the_names_that_are_there():
    page = (Path(__file__).parents[2] / api_names.PAGE).read_text()
    assert page.endswith("\n\n" + api_names.table())


def test_a_queue_of_device_memory_may_be_there_but_not_be_used(kernels):
    y = np.zeros(8, np.float32)
    kernel = kernels("api")["queue_of_co2"]
    kernel(y, False, checks=False)
    assert (y == 1).all()
    with pytest.raises(KernelError, match="InitBuffer: this chip has no memory of cores for the queue's position"):
        kernel(y, False, checks=True)
    with pytest.raises(KernelError, match="AllocTensor"):
        kernel(y, True, checks=False)


def test_a_tensor_s_place_may_be_told_by_hand(kernels):
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    kernels("api")["placed_by_hand"](x, y)
    assert (y == x + 1).all()
