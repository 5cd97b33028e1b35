# SPDX-License-Identifier: Apache-2.0
"""What a kernel does wrong is reported with its line, and what it does right is not."""

import itertools
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cann_cpu.kernel import KernelError, KernelFile

BROKEN = Path(__file__).parent / "kernels/broken.cpp"
MANUAL = (Path(__file__).parents[2] / "cann_cpu/README.md").read_text()

# The reports on the kernels in broken.cpp, after file, line, kernel and block.
MESSAGES = {
    "copy_of_no_whole_blocks": "DataCopy: 13 elements are 52 bytes, no multiple of 32; use DataCopyPad",
    "copy_to_an_unaligned_address": "DataCopy: the tensor begins 4 bytes into in .*; it must be a multiple of 32",
    "vector_at_an_unaligned_address": "Adds: the tensor begins 16 bytes into in .*; it must be a multiple of 32",
    "unified_buffer_exceeded": "InitBuffer: 2 buffers of 98304 bytes, .* exceed the unified buffer of 196608 bytes",
    "queue_deeper_than_its_depth": "EnQue: the queue in .* has depth 1 and holds as many tensors; call DeQue first",
    "more_tensors_than_buffers": "AllocTensor: none of the 2 buffers of in .* is free, .*; call FreeTensor",
    "tensor_never_freed": "AllocTensor: the tensor of in .* was not given back when the kernel ended; call FreeTensor",
    "dequeued_before_queued": r"DeQue: the queue in \(InitBuffer in line 15\) is empty; call EnQue first",
    "queued_twice": "EnQue: the tensor of in .* waits in the queue already; call DeQue first",
    "queued_in_another_queue": "EnQue: the tensor of in .* is not one that this queue's AllocTensor gave",
    "freed_twice": r"FreeTensor: the tensor of in \(InitBuffer in line 15\) is free already; free it once",
    "freed_while_queued": "FreeTensor: the tensor is in the queue in .*; call DeQue first",
    "used_after_it_was_freed": "Adds: the tensor of in .* was given back by FreeTensor; use it before",
    "queue_without_buffers": "AllocTensor: the queue has no buffers; call TPipe::InitBuffer first",
    "buffer_without_memory": "TBuf: it has no memory; call TPipe::InitBuffer first",
    "more_than_the_buffer_has": "TBuf: bytes 160 to 288 are wanted of a buffer of 256 bytes",
    "tensor_without_memory": "SetValue: the tensor has no memory; take one from a queue or a TBuf",
    "vector_outside_its_tensor": r"Duplicate writes elements 0 to 64 of a tensor of in \(InitBuffer in line 15\), "
    r"which has 64; take fewer, or a larger buffer: InitBuffer takes bytes",
    "repeats_outside_its_tensor": "Duplicate writes elements 0 to 71 of a tensor of in .*, which has 64",
    "element_outside_its_tensor": "SetValue writes element 16 of a tensor of buffer .*, which has 16",
    "outside_its_global_tensor": "DataCopy reads elements 8 to 71 of x, which ends at 64 by SetGlobalBuffer",
    "outside_the_device_buffer": r"GetValue reads element 64 of x, which has 64 \(256 bytes\); take what is left of it",
    "in_no_device_buffer": "GetValue reads 4 bytes from the address .* on, which lies in none of the launch's buffers",
    "reads_what_was_never_written": r"Adds reads element 13 of buffer \(InitBuffer in line 17\), which nothing has "
    r"written; line \d+ wrote what lies before it",
    "reads_what_its_buffer_had_before": "Adds reads element 0 of in .*, which nothing has written; copy or",
    "vector_reads_before_the_copy_has_ended": "hazard: Adds on pipe V reads elements 0 to 63 of buffer .*, which "
    "DataCopy on pipe MTE2 wrote in line .*HardEvent::MTE2_V",
    "copies_out_before_the_vector_unit_has_ended": "hazard: DataCopy on pipe MTE3 reads .*, which Duplicate on pipe V "
    "wrote in line .*HardEvent::V_MTE3",
    "overwrites_what_is_being_copied_out": "hazard: Duplicate on pipe V writes .*, which DataCopy on pipe MTE3 read",
    "copies_in_over_what_is_being_read": "hazard: DataCopy on pipe MTE2 writes .*, which Adds on pipe V read in line",
    "scalar_reads_what_the_vector_unit_waited_for": "hazard: GetValue on pipe S reads element 0 of in .*, which "
    "DataCopy "
    "on pipe MTE2 wrote .*HardEvent::MTE2_S",
    "copies_out_what_the_scalar_unit_wrote": "hazard: DataCopy on pipe MTE3 reads .* SetValue on pipe S wrote",
    "copies_in_what_is_being_copied_out": "hazard: DataCopy on pipe MTE2 reads .* DataCopy on pipe MTE3 wrote",
    "barrier_of_one_pipe_alone": "hazard: DataCopy on pipe MTE3 reads .* Duplicate on pipe V wrote",
    "flag_for_another_pipe": "hazard: Adds on pipe V reads .* DataCopy on pipe MTE2 wrote",
    "flag_set_too_early": "hazard: Adds on pipe V reads .* DataCopy on pipe MTE2 wrote",
    "flag_never_waited_for": "SetFlag: MTE2_V 3 has no wait when the kernel ends; call WaitFlag",
    "flag_never_set": "WaitFlag: V_MTE2 3 is not set; call SetFlag before, or the pipe waits indefinitely",
    "flag_set_twice": "SetFlag: MTE2_V 3 is set already, in line .*, without a wait for it since",
    "event_id_that_is_none": "SetFlag: event id 8; there are 0 to 7",
    "more_event_ids_than_there_are": "AllocEventID: all 8 ids of this event are in use",
    "mask_larger_than_a_repeat": "Duplicate: a mask of 65 elements; a repeat has 64 of this dtype",
    "padding_larger_than_a_block": "DataCopyPad: paddings of 36 and 0 bytes; each is at most 32",
    "rounding_mode_that_the_dtypes_lack": "Cast: this pair of dtypes has no rounding mode 6",
    "assertion": r"ASSERT\(p.x.GetSize\(\) == 63\) does not hold",
    "pipe_that_was_never_made": "GetTPipePtr: the kernel has made no TPipe",
    "blocks_that_write_the_same_bytes": "both write bytes 32 to 63 of y, the other one in line .* give each block "
    "its own elements",
    "block_that_reads_what_another_writes": "block [01] reads bytes 0 to 31 of y, which the other one writes in line "
    ".*, and neither waits",
    "barrier_of_the_scalar_unit": "PipeBarrier: PIPE_S is not allowed, hardware stops at it",
    "copies_in_over_a_copy": "hazard: DataCopy on pipe MTE2 writes elements 8 to 15 of buffer .* DataCopy on pipe "
    "MTE2 wrote in "
    "line .*; use PipeBarrier<PIPE_MTE2>",
    "copies_out_over_a_copy": "hazard: DataCopy on pipe MTE3 writes elements 8 to 15 of y, .*; use "
    "PipeBarrier<PIPE_MTE3>",
    "repeat_of_256": "Adds: 256 repeats; there are at most 255, the device makes 0 of it; divide the call",
    "work_buffer_too_small": "ReduceMax: the work buffer has 8 elements and needs 16",
    "overlap_in_part": r"Adds: source and destination overlap in part, at elements 8 to 15 of in \(InitBuffer in "
    r"line 15\)",
    "repeat_that_reads_what_another_wrote": "Cast: repeat 1 reads elements 64 to 79 of large .*, which an earlier "
    "repeat "
    "has written; let source and destination lie apart",
    "event_id_of_a_queue": "SetFlag: MTE2_V 0 belongs to the queue that took it in line .*; take an id of FetchEventID",
    "queue_takes_an_id_in_use": "EnQue: the queue takes MTE2_V 0, which SetFlag has set in line .*, "
    "without a wait for it since",
    "more_buffers_than_event_ids": "FreeTensor: all 8 ids of this event are in use; each buffer of a queue",
    "scalar_write_that_stays_in_the_cache": "SetValue: what it wrote to y is in the data cache when the kernel ends; "
    "call "
    "DataCacheCleanAndInvalid after it",
    "copy_of_what_is_in_the_cache": "DataCopy reads elements 0 to 7 of y, where SetValue in line .* wrote to the data "
    "cache; call DataCacheCleanAndInvalid between",
    "blocks_in_one_cache_line": "SetValue writes a line of the data cache, 64 bytes of y, in which the other one "
    "writes",
    "block_that_does_not_wait": "block 1 reads bytes 0 to 31 of y, which the other one writes in line .*, and neither "
    "waits for the other; .* SyncAll",
    "plain_write_beside_atomic_ones": "both write bytes 0 to 31 of y",
    "block_that_does_not_come": "SyncAll: the block waits indefinitely: block 1 has ended without coming here",
    "flag_of_a_block_never_set": "IBWait: the block waits indefinitely: block 1 has ended",
    "soft_sync_with_too_little_memory": "SyncAll: the workspaces have 256 and 32 bytes and need 64 each: 32 for each "
    "block",
    "allocated_instead_of_dequeued": "Adds reads element 0 of in .*, which nothing has written; copy or compute it",
    "last_block_out_of_range": "DataCopy reads elements 48 to 95 of x, which ends at 64 by SetGlobalBuffer; take "
    "what is left of it",
    "input_length_in_elements": "Adds reads element 16 of in .*, which nothing has written; line .* wrote",
    "input_length_in_bytes": "DataCopy reads elements 0 to 2047 of x, which ends at 64 by SetGlobalBuffer",
    "output_length_in_bytes": "DataCopy reads elements 0 to 2047 of a tensor of buffer .*, which has 64; take fewer",
    "buffer_of_elements_and_not_bytes": "DataCopy writes elements 0 to 63 of a tensor of small .*, which has 16; .* or "
    "a larger buffer: InitBuffer takes bytes",
    "overwrites_what_is_read_once_more": "hazard: DataCopy on pipe MTE2 writes .* Adds on pipe V read in line",
    "used_after_its_buffer_was_taken_again": "Duplicate: the tensor of queue .* was given back by FreeTensor",
    "freed_after_its_buffer_was_taken_again": "FreeTensor: the tensor of queue .* is free already",
    "before_the_device_buffer": "GetValue reads element -1 of x, which has 64",
    "wait_for_the_flag_of_a_queue": "WaitFlag: MTE2_V 0 belongs to the queue that took it in line",
    "event_id_below_0": "WaitFlag: event id -1; there are 0 to 7",
    "queue_of_no_bytes": "InitBuffer: a queue needs at least one buffer of at least one byte",
    "address_outside_the_unified_buffer": "LocalTensor: bytes 196576 to 196612 of the unified buffer, which has 196608",
    "copy_into_a_line_in_the_cache": "DataCopy writes elements 8 to 15 of y, where SetValue in line .* wrote to the "
    "data cache",
    "another_line_than_the_one_cleaned": "SetValue: what it wrote to y is in the data cache when the kernel ends",
    "more_blocks_than_there_are": "SyncAll: 3 blocks; there are 1",
    "tiling_of_another_size": "Tiling has 24 bytes, and x, from which it is read, has 256",
    "scalar_reads_what_nobody_wrote": "GetValue reads element 8 of buffer .*, which nothing has written; copy or",
    "scalar_of_the_second_block_reads_what_nobody_wrote": "GetValue reads element 0 of buffer .*, which nothing has",
    "scalar_reads_more_than_it_wrote": "GetValue reads element 1 of buffer .*, which nothing has written; line",
    "scalar_reads_before_it_writes": "GetValue reads element 3 of buffer .*, which nothing has written",
    "scalar_wrote_every_second_element": "Adds reads element 17 of buffer .*, which nothing has written; line .* wrote",
    "scalar_wrote_in_more_lines_than_are_counted": "hazard: DataCopy on pipe MTE3 reads element 16 of buffer .*, which "
    "SetValue on pipe S wrote",
    "vector_writes_what_the_scalar_unit_read": "hazard: Duplicate on pipe V writes element 63 of buffer .*, which "
    "GetValue on pipe S read in line",
    "scalar_writes_what_the_vector_unit_reads": "hazard: SetValue on pipe S writes element 31 of buffer .*, which Adds "
    "on pipe V read in line",
    "scalar_writes_what_is_being_copied_in": "hazard: SetValue on pipe S writes element 0 of buffer .*, which DataCopy "
    "on pipe MTE2 wrote in line",
    "copies_out_what_the_scalar_unit_changed_in_a_copy": "hazard: SetValue on pipe S writes element 3 of buffer .*, "
    "which DataCopy on pipe MTE2 wrote in line",
    "scalar_waited_for_another_copy": "hazard: Adds on pipe V reads elements 0 to 63 of in .*, which DataCopy on pipe "
    "MTE2 wrote in line",
    "scalar_reads_once_more_what_is_being_copied_in": "hazard: GetValue on pipe S reads element 0 of buffer .*, which "
    "DataCopy on pipe MTE2 wrote in line",
    "scalar_writes_where_it_reads": "hazard: DataCopy on pipe MTE3 reads element 5 of buffer .*, which SetValue on "
    "pipe S wrote",
    "scalar_writes_to_two_buffers": "hazard: DataCopy on pipe MTE3 reads elements 0 to 63 of other .*, which SetValue "
    "on pipe S wrote",
    "scalar_writes_what_was_freed": "SetValue: the tensor of in .* was given back by FreeTensor; use it before",
    "scalar_writes_again_what_was_freed": "SetValue: the tensor of in .* was given back by FreeTensor; use it before",
    "scalar_writes_again_what_was_given_away": "SetValue: the tensor of in .* was given back by FreeTensor; use it",
    "scalar_writes_behind_a_smaller_tensor": "SetValue writes element 16 of a tensor of buffer .*, which has 16; take",
    "scalar_writes_behind_its_flag": "hazard: DataCopy on pipe MTE3 reads element 7 of buffer .*, which SetValue on "
    "pipe S wrote",
    "buffer_of_what_the_scalar_unit_wrote_before": "GetValue reads element 0 of .*, which nothing has written",
    "scalar_writes_behind_its_buffer": "hazard: DataCopy on pipe MTE3 reads elements 56 to 63 of next .*, which "
    "SetValue on pipe S wrote",
    "repeat_whose_rest_overlaps": "Adds: repeat 1 reads elements 64 to 71 of large .*, which an earlier repeat has",
    "repeat_that_reaches_behind_the_last": "Adds: source and destination overlap in part, at elements 112 to 119 of",
    "first_source_that_accumulates": "Add: repeat 1 reads elements 0 to 7 of large .*, which an earlier repeat has",
    "second_source_that_moves_on": "Add: repeat 1 reads elements 64 to 71 of large .*, which an earlier repeat has",
}
# Kernels that run in two blocks, and which are reported.
BLOCKS = {
    "blocks_that_write_the_same_bytes": "blocks 0 and 1",
    "block_that_reads_what_another_writes": "blocks 0 and 1",
    "blocks_in_one_cache_line": "blocks 0 and 1",
    "block_that_does_not_wait": "blocks 0 and 1",
    "plain_write_beside_atomic_ones": "blocks 0 and 1",
    "block_that_does_not_come": "block 0",
    "flag_of_a_block_never_set": "block 0",
    "soft_sync_with_too_little_memory": "block 0",
    "last_block_out_of_range": "block 1",
    "scalar_of_the_second_block_reads_what_nobody_wrote": "block 1",
}

# What the compiler orders by --cce-auto-sync: the scalar unit with the others.
ORDERED_BY_THE_COMPILER = {
    "scalar_reads_what_the_vector_unit_waited_for",
    "copies_out_what_the_scalar_unit_wrote",
    "scalar_wrote_in_more_lines_than_are_counted",
    "vector_writes_what_the_scalar_unit_read",
    "scalar_writes_what_the_vector_unit_reads",
    "scalar_writes_what_is_being_copied_in",
    "copies_out_what_the_scalar_unit_changed_in_a_copy",
    "scalar_reads_once_more_what_is_being_copied_in",
    "scalar_writes_where_it_reads",
    "scalar_writes_to_two_buffers",
    "scalar_writes_behind_its_flag",
    "scalar_writes_behind_its_buffer",
}

# The same with the option that leaves the order of vector instructions to the author.
MESSAGES_WITHOUT_AUTO_SYNC = {
    "vector_reads_what_it_just_wrote": "hazard: Adds on pipe V reads elements 0 to 63 .* Duplicate on pipe V wrote in "
    "line .*; use PipeBarrier<PIPE_V>",
    "vector_reads_what_it_wrote_in_the_round_before": "hazard: Adds on pipe V reads .* Adds on pipe V wrote",
    "vector_overwrites_what_it_just_read": "hazard: Duplicate on pipe V writes .* Adds on pipe V read in line",
    "vector_writes_twice": "hazard: Duplicate on pipe V writes elements 8 to 15 .* Duplicate on pipe V wrote",
}


def reported_lines():
    """The line marked as reported of every kernel in broken.cpp."""
    lines, name = {}, None
    for number, line in enumerate(BROKEN.read_text().splitlines(), 1):
        if found := re.match(r'extern "C" .* void (\w+)\(', line):
            name = found[1]
        if line.endswith("// reported"):
            lines[name] = number
    return lines


def test_every_broken_kernel_is_tested(kernels):
    assert set(kernels("broken").names) == set(reported_lines())
    assert set(kernels("broken").names) == set(MESSAGES) | set(MESSAGES_WITHOUT_AUTO_SYNC)


def run_broken(kernels, name):
    x, y = np.ones(64, np.float32), np.ones(64, np.float32)
    kernels("broken")[name](x, y, blocks=2 if name in BLOCKS else 1)


def report(kernels, name, message):
    with pytest.raises(KernelError) as error:
        run_broken(kernels, name)
    start = f"{BROKEN}:{reported_lines()[name]}: {name}, {BLOCKS.get(name, 'block 0')}: "
    assert str(error.value).startswith(start)
    assert re.match(message, str(error.value).removeprefix(start))


@pytest.mark.parametrize("auto_sync", ["", "1"])
@pytest.mark.parametrize("name", MESSAGES)
def test_a_broken_rule_is_reported_with_its_line(kernels, name, auto_sync, monkeypatch):
    monkeypatch.setenv("ASCENDC_CPU_AUTO_SYNC", auto_sync)
    if auto_sync and name in ORDERED_BY_THE_COMPILER:
        run_broken(kernels, name)
    else:
        report(kernels, name, MESSAGES[name])


@pytest.mark.parametrize("name", MESSAGES_WITHOUT_AUTO_SYNC)
def test_vector_instructions_need_barriers_where_the_compiler_inserts_none(kernels, name, monkeypatch):
    kernels("broken")[name](np.ones(64, np.float32), np.ones(64, np.float32))
    monkeypatch.setenv("ASCENDC_CPU_AUTO_SYNC", "0")
    report(kernels, name, MESSAGES_WITHOUT_AUTO_SYNC[name])


SYNCHRONIZED = """
#include "kernel_operator.h"
using namespace AscendC;

extern "C" __global__ __aicore__ void waits_for_nothing(GM_ADDR y) {
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, 64);
  LocalTensor<float> tensor = buffer.Get<float>();
  Duplicate(tensor, 1.0f, 16);
  Adds(tensor, tensor, 1.0f, 16);
  tensor.SetValue(0, 3.0f);
}
"""


def test_the_compilers_option_goes_before_the_environment(tmp_path, monkeypatch):
    (tmp_path / "synchronized.cpp").write_text(SYNCHRONIZED)
    said = {}
    for option, environment in {"--cce-auto-sync": "0", "--cce-auto-sync=off": "1"}.items():
        monkeypatch.setenv("ASCENDC_CPU_AUTO_SYNC", environment)
        kernel = KernelFile(tmp_path / "synchronized.cpp", ("-O0", option))["waits_for_nothing"]
        try:
            kernel(None)
        except KernelError as error:
            said[option] = str(error)
    assert list(said) == ["--cce-auto-sync=off"]
    assert "Adds on pipe V reads elements 0 to 15 of buffer" in said["--cce-auto-sync=off"]


CORRECT = ["one_buffer", "two_buffers", "four_buffers", "barriers", "scalars", "bound_queue", "static_tensors", "pools"]


@pytest.mark.parametrize(("checks", "auto_sync"), [(True, "1"), (True, "0"), (False, "")])
@pytest.mark.parametrize("name", CORRECT)
@pytest.mark.parametrize(("blocks", "per_block"), [(1, 64), (1, 1), (3, 1000), (7, 65), (64, 13)])
def test_a_correct_kernel_is_not_reported(kernels, name, blocks, per_block, checks, auto_sync, monkeypatch):
    monkeypatch.setenv("ASCENDC_CPU_AUTO_SYNC", auto_sync)
    x = np.arange(blocks * per_block, dtype=np.float32)
    y = np.full_like(x, np.nan)
    kernels("correct")[name](x, y, per_block, blocks=blocks, checks=checks)
    assert np.array_equal(y, 2 * x + 1)


@pytest.mark.parametrize("buffers", [1, 2, 4])
def test_a_queue_hands_out_its_buffers_in_turn(kernels, buffers):
    y = np.zeros(16, np.int32)
    kernels("blocks")["addresses"](y, buffers)
    assert y[: 2 * buffers].tolist() == [64 * i for i in range(buffers)] * 2


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("blocks", [1, 2, 7, 24])
@pytest.mark.parametrize("kernel", ["sum_by_sync_all", "sum_by_soft_sync", "sum_by_flags"])
def test_blocks_wait_for_each_other(kernels, kernel, blocks, checks):
    x = np.arange(blocks * 8, dtype=np.int32)
    shared, workspace, y = np.zeros_like(x), np.zeros(blocks * 8, np.int32), np.zeros_like(x)
    for _ in range(5):
        kernels("blocks")[kernel](x, shared, workspace, y, blocks=blocks, checks=checks)
        assert (y.reshape(blocks, 8) == x.reshape(blocks, 8).sum(axis=0)).all()


@pytest.mark.parametrize("checks", [True, False])
def test_blocks_that_do_not_take_part_in_a_sync_go_on(kernels, checks):
    x = np.arange(3 * 8, dtype=np.int32)
    y = np.zeros_like(x)
    kernels("blocks")["not_among_those_that_wait"](x, y, np.zeros_like(x), blocks=3, checks=checks)
    assert (y == x).all()


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int16, np.int32])
@pytest.mark.parametrize(("kind", "reference"), [(0, np.add), (1, np.maximum), (2, np.minimum)])
def test_blocks_combine_elements_atomically(kernels, kind, reference, dtype, checks):
    blocks, count = 16, 40
    x = np.random.default_rng(kind).integers(-5, 6, (blocks, count)).astype(dtype)
    y = np.full(count, 3, dtype)
    expected = reference(reference.reduce(x, axis=0, dtype=dtype), dtype(3))
    kernels("blocks")["atomically"](x, y, count, np.dtype(dtype).num, kind, blocks=blocks, checks=checks)
    assert np.array_equal(y, expected)


def test_what_looks_like_a_fault_and_is_none_is_not_reported(kernels):
    x, y, z = np.arange(16, dtype=np.float32), np.zeros(8, np.float32), np.zeros((3, 32), np.float32)
    kernel = kernels("blocks")["allowed"]
    kernel(x, y, z, blocks=3)
    assert (y == 6 * x[:8]).all()
    assert (z[:, [0, 16]] == [8, 9]).all()
    assert (z[:, 24:] == x[:8]).all()
    assert kernel.written == {"x": (0, 64), "y": (32, 32), "z": (3 * 40, 384)}


@pytest.mark.parametrize("name", ["allowed_in_queues", "allowed_to_accumulate", "allowed_halves"])
def test_what_asserts_its_own_results_is_not_reported(kernels, name):
    kernels("blocks")[name](np.zeros(8, np.float32))


def run_flags(kernels, skipped, with_its_wait, checks=True):
    x = np.arange(3 * 200, dtype=np.float32)
    y = np.zeros_like(x)
    kernels("correct")["flags"](x, y, 200, skipped, with_its_wait, blocks=3, checks=checks)
    assert np.array_equal(y, 2 * x + 1)


def test_a_queue_of_no_bytes_stops_no_kernel_that_is_not_checked(kernels):
    kernels("broken")["queue_of_no_bytes"](np.zeros(64, np.float32), np.zeros(64, np.float32), checks=False)


def test_flags_that_are_all_there_are_not_reported(kernels):
    run_flags(kernels, -1, False)


@pytest.mark.parametrize(("skipped", "with_its_wait"), list(itertools.product(range(4), [False, True])))
def test_a_missing_flag_is_reported_in_every_run(kernels, skipped, with_its_wait):
    run_flags(kernels, skipped, with_its_wait, checks=False)
    reported = {}
    for _ in range(100):
        with pytest.raises(KernelError, match="hazard" if with_its_wait else "is not set; call SetFlag") as error:
            run_flags(kernels, skipped, with_its_wait)
        reported[str(error.value)] = reported.get(str(error.value), 0) + 1
    assert list(reported.values()) == [100]


@pytest.mark.parametrize("block", [0, 3, 39])
def test_the_lowest_block_of_several_is_reported(kernels, block):
    for _ in range(20):
        with pytest.raises(KernelError, match=f"fails_from, block {block}: "):
            kernels("blocks")["fails_from"](block, blocks=40)


PROGRAM = """
#include "kernel_operator.h"

extern "C" __global__ __aicore__ void early(GM_ADDR x) {
  AscendC::TPipe pipe;
  AscendC::TBuf<> buffer;
  pipe.InitBuffer(buffer, 64);
  AscendC::GlobalTensor<float> device;
  device.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x));
  AscendC::DataCopy(buffer.Get<float>(), device, 16);
  AscendC::DataCopy(device, buffer.Get<float>(), 16);
}

int main(int count, char**) {
  if (count > 1) {
    const AscendC::cpu::DeviceBuffer none[] = {{nullptr, 0, "bias"}, {nullptr, 0, "scale"}};
    const AscendC::cpu::KnownMemory known(none, count - 1);
    ICPU_RUN_KF(early, 1, nullptr);
  }
  auto* x = static_cast<uint8_t*>(AscendC::GmAlloc(28));
  ICPU_RUN_KF(early, 1, x);
  AscendC::GmFree(x);
}
"""


def test_a_plain_program_checks_as_the_environment_says(tmp_path):
    source, program = tmp_path / "program.cpp", tmp_path / "program"
    source.write_text(PROGRAM)
    shown = re.search(r"```bash\n(CANN=.*?)```", MANUAL, flags=re.DOTALL)[1]
    subprocess.run(["bash", "-ec", shown], cwd=tmp_path, check=True)
    environment = {name: value for name, value in os.environ.items() if name != "ASCENDC_CPU_CHECKS"}
    assert subprocess.run(program, env=environment).returncode == 0
    checked = subprocess.run(program, env={**environment, "ASCENDC_CPU_CHECKS": "1"}, capture_output=True, text=True)
    assert checked.returncode != 0
    assert f"{source.name}:10: early, block 0: DataCopy reads elements 0 to 15 of a buffer of GmAlloc" in checked.stderr
    environment["ASCENDC_CPU_CHECKS"] = "1"
    for none, named in {"1": "'bias'", "1 2": "'bias' or 'scale'"}.items():
        checked = subprocess.run([program, *none.split()], env=environment, capture_output=True, text=True)
        assert f"DataCopy reads 64 bytes of argument {named}, which is None" in checked.stderr


def test_what_does_not_compile_is_an_error_that_says_why(tmp_path):
    source = tmp_path / "wrong.cpp"
    source.write_text('#include "kernel_operator.h"\nextern "C" __global__ __aicore__ void wrong() { Subtract(); }\n')
    with pytest.raises(KernelError, match=r"wrong.cpp does not compile:\n(.*\n)*.*wrong.cpp:2:.*Subtract"):
        KernelFile(source)
    source.write_text(
        '#include "kernel_operator.h"\n'
        'extern "C" __global__ __aicore__ void wrong() { AscendC::DeepNorm(); Conv2D(); '
        "AscendC::Hccl().GetQueueNum(); }\n"
    )
    with pytest.raises(KernelError) as error:
        KernelFile(source)
    for line, name in zip(str(error.value).splitlines(), ("Conv2D", "DeepNorm", "GetQueueNum"), strict=False):
        assert line == f"{source}:2: {name} is not in Ascend C on the CPU; docs/ascendc_names.md has what is"
    source.write_text("int x;\n")
    with pytest.raises(KernelError, match="no kernel; one is defined by"):
        KernelFile(source)
    source.write_text('extern "C" __global__ __aicore__ void wrong() { AscendC::GetBlockIdx(); }\n')
    with pytest.raises(KernelError, match=r'wrong.cpp: does not include "kernel_operator.h"'):
        KernelFile(source)


def test_arguments_that_do_not_fit_are_rejected(kernels):
    kernel = kernels("correct")["one_buffer"]
    x = np.ones(64, np.float32)
    with pytest.raises(KernelError, match=r"one_buffer takes 3 arguments \(x, y, per_block\), but 2 were given"):
        kernel(x, x)
    with pytest.raises(KernelError, match="y is an address; give a numpy array, a torch tensor or None, not list"):
        kernel(x, [1.0], 1)
    with pytest.raises(KernelError, match="x must be a contiguous array"):
        kernel(x[::2], x, 1)
    with pytest.raises(KernelError, match="no kernel two; there is"):
        kernels("correct")["two"]


# ---- whole blocks of what does not fill them: memory of the device is padded, and that of other tensors is not


def padded(kernels, name, shape, *numbers, checks=True, **options):
    """Returns y as a kernel computes it from x, and asserts that it does not write past their ends."""
    around = np.full((2, np.prod(shape) + 64), np.nan, np.float32)
    x, y = around[:, : np.prod(shape)]
    x[:] = np.arange(x.size)
    kernels("padded")[name](x, y, *numbers, checks=checks, **options)
    assert np.isnan(around[:, x.size :]).all()
    return x + 1, y


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("count", [1, 7, 8, 13, 31])
def test_a_copy_may_be_rounded_up_behind_the_end_of_a_tensor(kernels, count, checks, capfd):
    expected, y = padded(kernels, "rounds_up", count, count, checks=checks)
    assert np.array_equal(y, expected)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("checks", [True, False])
def test_rests_of_blocks_that_are_written_over_are_warned_of(kernels, checks, capfd):
    expected, y = padded(kernels, "rounds_rows_up", (5, 25), 5, 25, checks=checks)
    assert np.array_equal(y, expected)
    said = capfd.readouterr().err
    assert said.count("warning: ") == checks
    warned = (
        r"padded.cpp:\d+: rounds_rows_up, block 0: DataCopy copies elements 25 to 31 of out .*, which nothing has "
        r"written, to elements 25 to 31 of y: the rest of a block of 32 bytes; use DataCopyPad if nothing writes there"
    )
    assert not checks or re.search(warned, said), said


PADDED_WRONG = {
    "rounds_parts_up": "blocks 0 and 1: both write bytes 100 to 127 of y",
    "copies_two_blocks_more": "DataCopy reads elements 0 to 47 of x, which ends at 25 by SetGlobalBuffer",
    "computes_half": "DataCopy reads element 12 of out .*, which nothing has written; line 28 wrote what lies before",
    "pads_too_many": "DataCopyPad reads elements 0 to 31 of x, which ends at 25 by SetGlobalBuffer",
}


@pytest.mark.parametrize("name", PADDED_WRONG)
def test_what_goes_wrong_with_whole_blocks_stays_an_error(kernels, name):
    blocks = 2 if name == "rounds_parts_up" else 1
    with pytest.raises(KernelError, match=PADDED_WRONG[name]):
        padded(kernels, name, 25 * blocks, 25, blocks=blocks)
