# SPDX-License-Identifier: Apache-2.0
"""The kernel of a decode step, through torch.ops on npu tensors, against its reference."""

import pytest
import references
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import (
    Operator,
    columns_of_a_wider,
    dimensions_swapped,
    in_a_process,
    same,
    to_npu,
    viewed,
    with_value,
)

import custom_pypto

INTEGERS = [torch.int32, torch.int64]
WRITTEN = ("input_tokens", "input_positions", "seq_lens", "slot_mapping")

advance = Operator("advance_step_flashattn", WRITTEN)


def step(lengths, **options):
    return references.advance_step_flashattn_inputs(lengths, **options)


def lengths_of(count):
    return torch.randint(0, 500, (count,)).tolist()


def advanced(npu):
    assert advance(npu) is None
    return [npu[name].cpu() for name in WRITTEN]


def check(inputs, npu=None):
    assert same(advanced(to_npu(inputs) if npu is None else npu), references.advance_step_flashattn(**inputs))


@pytest.mark.parametrize("sequences", [2, 17, 130])
def test_one_sampled_token_for_all_sequences(sequences):
    """Expanded: its numbers lie at one address."""
    inputs = step(lengths_of(sequences))
    token = torch.tensor([77])
    inputs["sampled_token_ids"] = token.expand(sequences)
    check(inputs, to_npu(inputs) | {"sampled_token_ids": token.npu().expand(sequences)})


every_integer = pytest.mark.parametrize("dtype", INTEGERS, ids=str)


@every_integer
@pytest.mark.parametrize("padding", [0, 1, 130])
@pytest.mark.parametrize("sequences", [1, 2, 16, 17, 127, 128, 129, 256, 511, 512])
def test_moves_every_sequence_on(sequences, padding, dtype):
    check(step(lengths_of(sequences), padding=padding, dtype=dtype))


@pytest.mark.parametrize("table_dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("slot_dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("length_dtype", INTEGERS, ids=str)
def test_integers_of_both_widths_may_be_mixed(length_dtype, slot_dtype, table_dtype):
    dtypes = {"seq_lens": length_dtype, "slot_mapping": slot_dtype, "block_tables": table_dtype}
    inputs = step(lengths_of(20), padding=3)
    check(inputs | {name: inputs[name].to(dtype) for name, dtype in dtypes.items()})


@pytest.mark.parametrize("block_size", [1, 2, 16, 100, 128])
@every_integer
def test_sequences_cross_pages(block_size, dtype):
    """One step after the other, from the last token of a page to the first one of the next and on."""
    inputs = step(
        [block_size - 1, block_size, 2 * block_size - 1, 0], block_size=block_size, table_width=5, dtype=dtype
    )
    npu = to_npu(inputs)
    for _ in range(2 * block_size + 1):
        expected = references.advance_step_flashattn(**inputs)
        assert same(advanced(npu), expected)
        inputs |= dict(zip(WRITTEN, expected, strict=True))


@every_integer
@pytest.mark.parametrize("padding", [0, 5])
def test_padding_only(padding, dtype):
    check(step([], padding=padding, table_width=3, dtype=dtype))


@every_integer
def test_a_token_without_a_page_has_slot_minus_one(dtype):
    inputs = step([5, 31, 32, 500, 16], table_width=2, dtype=dtype)
    inputs["block_tables"][4, 1] = -1
    inputs["block_tables"][0, 0] = -3
    check(inputs)
    assert advanced(to_npu(inputs))[3].tolist()[2:] == [-1, -1, -1]


def test_a_block_table_without_columns():
    check(step([5, 31], table_width=0))


def test_numbers_of_64_bits():
    inputs = step([2**40 + 3, 7], block_size=2**39, table_width=3)
    inputs["block_tables"][:] = torch.tensor([[1, 2, 2**21 - 1], [2**23 - 1, 0, 0]])
    inputs["sampled_token_ids"][0] = 2**62
    check(inputs)


def test_tokens_may_have_one_dimension():
    inputs = step(lengths_of(9), padding=2)
    check(inputs, to_npu(inputs | {"sampled_token_ids": inputs["sampled_token_ids"].flatten()}))


@settings(deadline=None, max_examples=80)  # the machine may be busy
@given(data=st.data())
def test_any_step(data):
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 2**32)))
    inputs = step(
        draw(st.lists(st.integers(0, 300), max_size=40)),
        padding=draw(st.integers(0, 20)),
        block_size=draw(st.integers(1, 200)),
        table_width=draw(st.integers(0, 20)),
        dtype=draw(st.sampled_from(INTEGERS)),
    )
    table = inputs["block_tables"]
    table[torch.rand(table.shape) < 0.2] = -1
    view = draw(st.sampled_from([columns_of_a_wider, dimensions_swapped, lambda tensor: tensor]))
    check(inputs, viewed(to_npu(inputs), view))


@every_integer
@pytest.mark.parametrize(("row", "length"), [(0, -1), (299, -1), (150, -(2**31))])
def test_a_negative_length_is_rejected_and_nothing_is_written(row, length, dtype):
    inputs = step(lengths_of(300), padding=4, dtype=dtype)
    message = rf".*seq_lens\[{row}\] is {length}, but must be 0 or more"
    advance.rejects(with_value(inputs, "seq_lens", row, length), message)
    check(inputs)


def test_the_length_of_a_row_of_padding_is_not_looked_at():
    check(with_value(step([3, 4], padding=2), "seq_lens", 2, -5))


def test_a_slot_that_int32_does_not_hold_is_rejected():
    inputs = step([3, 4], dtype=torch.int32)
    inputs["block_tables"][1] = 2**27
    advance.rejects(inputs, r".*slot_mapping\[1\] would be 2147483652, which int32 does not hold; make it int64")
    check(inputs | {"slot_mapping": inputs["slot_mapping"].long()})


@pytest.mark.parametrize("view", [columns_of_a_wider, dimensions_swapped])
def test_strides_are_honoured_and_what_lies_between_stays(view):
    inputs = step(lengths_of(200), padding=7)
    npu = to_npu(inputs)
    wide = {name: torch.stack([npu[name], npu[name]], -1) for name in WRITTEN}
    check(inputs, viewed(npu, view) | {name: tensor[:, 1] for name, tensor in wide.items()})
    assert all(torch.equal(wide[name][:, 0].cpu(), inputs[name]) for name in WRITTEN)


def test_the_call_of_vllm():
    inputs = step(lengths_of(256), block_size=32)
    npu = to_npu(inputs)
    custom_pypto.advance_step_flashattn(
        num_seqs=256,
        num_queries=256,
        block_size=32,
        input_tokens=npu["input_tokens"],
        sampled_token_ids=npu["sampled_token_ids"],
        input_positions=npu["input_positions"],
        seq_lens=npu["seq_lens"],
        slot_mapping=npu["slot_mapping"],
        block_tables=npu["block_tables"],
    )
    assert same((npu[name].cpu() for name in WRITTEN), references.advance_step_flashattn(**inputs))


# ---- the checker, and other machines


def check_some_steps():
    for dtype in INTEGERS:
        for sequences, padding in ((1, 0), (130, 5), (300, 0), (0, 3)):
            inputs = step(lengths_of(sequences), padding=padding, table_width=20, dtype=dtype)
            check(inputs)
            check(inputs, viewed(to_npu(inputs), columns_of_a_wider))
    print("fine")


def test_the_kernel_breaks_no_rule_of_the_hardware():
    assert in_a_process(check_some_steps, ASCENDC_CPU_CHECKS="1") == "fine"


def some_results():
    return advanced(to_npu(step(lengths_of(500), padding=12)))
