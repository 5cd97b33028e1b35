"""The modes: each compiles with what it says, and gives what eager gives."""

import attention_calls
import indexer_calls
import pytest
import torch
import torch_npu  # noqa: F401

import custom_pypto
from custom_pypto.modes import MODES


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_the_modes_are_the_five():
    assert list(MODES) == ["eager", "GE static", "GE dynamic", "reduce-overhead", "npugraph_ex"]


def test_eager_is_the_function_itself():
    assert MODES["eager"](custom_pypto.add_custom) is custom_pypto.add_custom


@pytest.mark.parametrize("mode", MODES)
def test_add_custom_in_every_mode_equals_eager(mode):
    def function(x, y):
        return custom_pypto.add_custom(x, y) * 2

    in_mode = MODES[mode](function)
    for rows in (3, 5) if MODES[mode].dynamic else (3, 3):
        x, y = torch.randn(rows, 4).half().npu(), torch.randn(4).npu()
        assert torch.equal(in_mode(x, y).cpu(), function(x, y).cpu())


OPERATORS = [
    ("npu_lightning_indexer_pto", indexer_calls.CALLS),
    ("npu_sparse_flash_attention_pto", attention_calls.CALLS),
]


@pytest.mark.parametrize("call", ["BSND on PA_BSND", "TND on TND"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("operator", "calls"), OPERATORS)
def test_operators_on_paged_keys_in_every_mode_equal_eager(operator, calls, mode, call):
    arguments = {k: v.npu() if isinstance(v, torch.Tensor) else v for k, v in calls[call]().items()}

    def function(query, key):
        return getattr(custom_pypto, operator)(**arguments | {"query": query, "key": key})

    in_mode = MODES[mode](function)
    for _ in range(2):
        result = in_mode(arguments["query"], arguments["key"])
        assert torch.equal(result.cpu(), function(arguments["query"], arguments["key"]).cpu())


@pytest.mark.parametrize("mode", MODES)
def test_bad_input_is_refused_by_name_in_every_mode_and_the_next_call_works(mode):
    in_mode = MODES[mode](lambda x, y: custom_pypto.add_custom(x, y))
    x = torch.ones(3).npu()
    with pytest.raises(Exception, match="add_custom: argument 'other' must broadcast with 'self' of shape"):
        in_mode(x, torch.ones(4).npu())
    assert torch.equal(in_mode(x, x).cpu(), torch.full((3,), 2.0))
