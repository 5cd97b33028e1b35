# SPDX-License-Identifier: Apache-2.0
"""Operators without a gradient, under autograd: a backward through them raises, and says which operator it was."""

import pytest
import torch
import torch_npu  # noqa: F401
from calls import CALLS, WRITERS, caches_of, on, overload, results

import custom_pypto  # noqa: F401

FLOATING = ["npu_lightning_indexer_prolog_pto", "npu_sparse_attention_pto", "npu_sparse_flash_attention_pto"]


def call_of(operator, device):
    return on(device, next(iter(CALLS[operator].values()))())


@pytest.mark.parametrize("device", ["npu", "meta"])
@pytest.mark.parametrize("operator", FLOATING)
def test_a_backward_through_an_operator_without_a_gradient_raises(operator, device):
    arguments = call_of(operator, device)
    read = next(n for n, t in arguments.items() if isinstance(t, torch.Tensor) and t.is_floating_point())
    arguments[read].requires_grad_()
    for result in results(overload(operator)(**arguments)):
        if result.is_floating_point():
            with pytest.raises(RuntimeError, match=f"derivative for custom_pypto::{operator} is not implemented"):
                result.float().sum().backward()


@pytest.mark.parametrize("operator", FLOATING)
def test_without_a_gradient_to_compute_they_work_as_ever(operator):
    arguments = call_of(operator, "npu")
    assert not any(result.requires_grad for result in results(overload(operator)(**arguments)))
    read = next(n for n, t in arguments.items() if isinstance(t, torch.Tensor) and t.is_floating_point())
    arguments[read].requires_grad_()
    with torch.no_grad():
        assert not any(result.requires_grad for result in results(overload(operator)(**arguments)))


@pytest.mark.parametrize("operator", WRITERS)
def test_what_is_written_counts_as_written_though_something_requires_a_gradient(operator):
    arguments = call_of(operator, "npu")
    cache = arguments[caches_of(operator, arguments)[0]]
    version = cache._version
    for tensor in arguments.values():
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
            tensor.requires_grad_(tensor is not cache)
            break
    overload(operator)(**arguments)
    assert cache._version == version + 1
