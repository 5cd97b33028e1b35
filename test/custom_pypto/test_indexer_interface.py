"""npu_lightning_indexer_pto as an operator: its result's form, opcheck, and that every way to it gives the same."""

import pytest
import torch
import torch_npu  # noqa: F401
from indexer_calls import BATCH, CALLS, KEY_HEADS, TOKENS

import custom_pypto

ops = torch.ops.custom_pypto


def on_npu(arguments, device="npu"):
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}


@pytest.mark.parametrize("call", CALLS)
def test_opcheck(call):
    arguments = on_npu(CALLS[call]())
    names = ("query", "key", "weights")
    positional = tuple(arguments.pop(name) for name in names)
    torch.library.opcheck(ops.npu_lightning_indexer_pto.default, positional, arguments)


@pytest.mark.parametrize("call", CALLS)
def test_the_python_function_is_the_operator(call):
    arguments = on_npu(CALLS[call]())
    expected = ops.npu_lightning_indexer_pto(**arguments)
    assert torch.equal(custom_pypto.npu_lightning_indexer_pto(**arguments).cpu(), expected.cpu())


def test_the_result_is_new_and_has_no_gradient():
    arguments = on_npu(CALLS["BSND on PA_BSND"]())
    arguments["query"].requires_grad_()
    result = ops.npu_lightning_indexer_pto(**arguments)
    assert result.shape == (BATCH, TOKENS, KEY_HEADS, 7)
    assert result.dtype == torch.int32
    assert result.is_contiguous()
    assert not result.requires_grad


def test_the_defaults_are_paged_keys_causal_and_2048():
    arguments = CALLS["BSND on PA_BSND"]()
    explicit = on_npu(arguments | {"sparse_count": 2048, "sparse_mode": 3})
    for name in ("sparse_count", "layout_query", "layout_key"):
        del arguments[name]
    expected = ops.npu_lightning_indexer_pto(**explicit).cpu()
    assert expected.shape[-1] == 2048
    assert torch.equal(ops.npu_lightning_indexer_pto(**on_npu(arguments)).cpu(), expected)


def test_it_runs_on_the_device_of_its_tensors():
    torch.npu.set_device(0)
    arguments = CALLS["TND on PA_BSND"]()
    expected = ops.npu_lightning_indexer_pto(**on_npu(arguments, "npu:0"))
    result = ops.npu_lightning_indexer_pto(**on_npu(arguments, "npu:1"))
    assert result.device == torch.device("npu:1")
    assert torch.npu.current_device() == 0
    assert torch.equal(result.cpu(), expected.cpu())


# ---- values that only the device sees


BAD_VALUES = {
    "negative key length": {"actual_seq_lengths_key": [-1, 9]},
    "key length beyond the block table": {"actual_seq_lengths_key": [25, 9]},
    "block number out of range": {"block_table": [[3, 5, 4], [1, 2, -1]]},
    "negative query length": {"actual_seq_lengths_query": [3, -2]},
    "query length beyond the query": {"actual_seq_lengths_query": [3, 4]},
}


@pytest.mark.parametrize("case", BAD_VALUES)
def test_bad_values_are_errors_of_the_stream_and_the_process_goes_on(case):
    good = on_npu(CALLS["BSND on PA_BSND"]())
    changes = {name: torch.tensor(value, dtype=torch.int32).npu() for name, value in BAD_VALUES[case].items()}
    expected = ops.npu_lightning_indexer_pto(**good).cpu()
    ops.npu_lightning_indexer_pto(**good | changes)
    (name,) = changes
    with pytest.raises(RuntimeError, match=f"LightningIndexerPto.*{name}"):
        torch.npu.synchronize()
    assert torch.equal(ops.npu_lightning_indexer_pto(**good).cpu(), expected)
