# SPDX-License-Identifier: Apache-2.0
"""The results of all kernels are bitwise equal for one thread and for many."""

import hashlib
import json

import pytest
import torch
from kernels import in_a_process

from opp import (
    test_advance_step_flashattn,
    test_lightning_indexer,
    test_lightning_indexer_prolog,
    test_lightning_indexer_quant,
    test_reshape_and_cache,
    test_sparse_attention,
    test_sparse_flash_attention,
)

RESULTS = {
    "advance_step_flashattn": test_advance_step_flashattn.some_results,
    "npu_lightning_indexer_pto": test_lightning_indexer.some_results,
    "npu_lightning_indexer_prolog_pto": test_lightning_indexer_prolog.some_results,
    "npu_lightning_indexer_quant_pto": test_lightning_indexer_quant.some_results,
    "reshape_and_cache": test_reshape_and_cache.some_results,
    "npu_sparse_attention_pto": test_sparse_attention.some_results,
    "npu_sparse_flash_attention_pto": test_sparse_flash_attention.some_results,
}


def print_digests():
    def digest(tensors):
        data = b"".join(tensor.contiguous().view(torch.uint8).numpy().tobytes() for tensor in tensors)
        return hashlib.sha256(data).hexdigest()

    print(json.dumps({name: digest(results()) for name, results in RESULTS.items()}))


@pytest.fixture(scope="module")
def digests():
    """Of one thread, and of as many as divide each kernel's work in another way: heads and keys as well as tokens."""
    return [json.loads(in_a_process(print_digests, OMP_NUM_THREADS=threads)) for threads in "17"]


@pytest.mark.always
@pytest.mark.parametrize("operator", RESULTS)
def test_the_result_does_not_depend_on_the_number_of_threads(operator, digests):
    of_one, of_many = digests
    assert of_one[operator] == of_many[operator]
