"""npu_sparse_flash_attention_pto as an operator: its result's form, opcheck, and every way to it gives the same."""

import pytest
import torch
import torch_npu  # noqa: F401
from attention_calls import CALLS, VALUE_DIM
from indexer_calls import BATCH, HEADS, TOKENS

import custom_pypto

ops = torch.ops.custom_pypto


def on_npu(arguments, device="npu"):
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}


@pytest.mark.parametrize("call", CALLS)
def test_opcheck(call):
    arguments = on_npu(CALLS[call]())
    names = ("query", "key", "value", "sparse_indices", "scale_value")
    positional = tuple(arguments.pop(name) for name in names)
    torch.library.opcheck(ops.npu_sparse_flash_attention_pto.default, positional, arguments)


@pytest.mark.parametrize("call", CALLS)
def test_the_python_function_is_the_operator(call):
    arguments = on_npu(CALLS[call]())
    expected = ops.npu_sparse_flash_attention_pto(**arguments)
    assert torch.equal(custom_pypto.npu_sparse_flash_attention_pto(**arguments).cpu(), expected.cpu())


def test_the_result_is_new_contiguous_and_of_the_dtype_of_the_query():
    arguments = on_npu(CALLS["BSND on PA_BSND"]())
    before = {name: value.clone() for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    result = ops.npu_sparse_flash_attention_pto(**arguments)
    assert result.shape == (BATCH, TOKENS, HEADS, VALUE_DIM)
    assert result.dtype == torch.bfloat16
    assert result.is_contiguous()
    assert all(torch.equal(arguments[name].cpu(), value.cpu()) for name, value in before.items())


def test_the_defaults_are_paged_keys_and_causal():
    arguments = CALLS["BSND on PA_BSND"]()
    expected = ops.npu_sparse_flash_attention_pto(**on_npu(arguments | {"sparse_mode": 3})).cpu()
    for name in ("layout_query", "layout_kv"):
        del arguments[name]
    assert torch.equal(ops.npu_sparse_flash_attention_pto(**on_npu(arguments)).cpu(), expected)


def test_it_runs_on_the_device_of_its_tensors():
    torch.npu.set_device(0)
    arguments = CALLS["TND on PA_BSND"]()
    expected = ops.npu_sparse_flash_attention_pto(**on_npu(arguments, "npu:0"))
    result = ops.npu_sparse_flash_attention_pto(**on_npu(arguments, "npu:1"))
    assert result.device == torch.device("npu:1")
    assert torch.npu.current_device() == 0
    assert torch.equal(result.cpu(), expected.cpu())


def test_it_takes_what_the_indexer_gives():
    arguments = on_npu(CALLS["BSND on PA_BSND"]())
    sequences = {name: arguments[name] for name in ("actual_seq_lengths_kv", "block_table")}
    weights = torch.randn(BATCH, TOKENS, HEADS).npu()
    selected = ops.npu_lightning_indexer_pto(
        arguments["query"],
        arguments["key"],
        weights,
        actual_seq_lengths_key=sequences["actual_seq_lengths_kv"],
        block_table=sequences["block_table"],
        sparse_count=5,
    )
    result = ops.npu_sparse_flash_attention_pto(**arguments | {"sparse_indices": selected})
    assert (result.cpu() != 0).any(dim=-1).all()


# ---- values that only the device sees


BAD_VALUES = {
    "negative key length": {"actual_seq_lengths_kv": [-1, 9]},
    "key length beyond the block table": {"actual_seq_lengths_kv": [25, 9]},
    "block number out of range": {"block_table": [[3, 5, 4], [1, 2, -1]]},
    "query length beyond the query": {"actual_seq_lengths_query": [3, 4]},
    "index below -1": {"sparse_indices": [[[[0, 1, -2], [3, -1, -1]]] * 3] * 2},
}


@pytest.mark.parametrize("case", BAD_VALUES)
def test_bad_values_are_errors_of_the_stream_and_the_process_goes_on(case):
    good = on_npu(CALLS["BSND on PA_BSND"]())
    changes = {name: torch.tensor(value, dtype=torch.int32).npu() for name, value in BAD_VALUES[case].items()}
    expected = ops.npu_sparse_flash_attention_pto(**good).cpu()
    ops.npu_sparse_flash_attention_pto(**good | changes)
    (name,) = changes
    with pytest.raises(RuntimeError, match=f"SparseFlashAttentionPto.*{name}"):
        torch.npu.synchronize()
    assert torch.equal(ops.npu_sparse_flash_attention_pto(**good).cpu(), expected)
