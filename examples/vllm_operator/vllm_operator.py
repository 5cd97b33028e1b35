# SPDX-License-Identifier: Apache-2.0
"""A plugin of vLLM, which it loads in each of its processes: an author's operators in place of vllm-ascend's.

vllm-ascend calls `torch.ops._C_ascend.npu_lightning_indexer` and `npu_sparse_flash_attention`. A kernel that is
registered for them here is called instead, on an NPU and on cann_cpu, eagerly and in graphs.
"""

import torch
from vllm.logger import init_logger

import custom_pypto  # noqa: F401

logger = init_logger("vllm.vllm_operator")


def npu_lightning_indexer(query, key, weights, **options):
    logger.info_once("npu_lightning_indexer is custom_pypto's")
    indices = torch.ops.custom_pypto.npu_lightning_indexer_pto(query, key, weights, **options)
    return indices, query.new_empty(0)


def npu_sparse_flash_attention(query, key, value, sparse_indices, scale_value, **options):
    logger.info_once("npu_sparse_flash_attention is custom_pypto's")
    out = torch.ops.custom_pypto.npu_sparse_flash_attention_pto(
        query, key, value, sparse_indices, scale_value, **options
    )
    return out, query.new_empty(0, dtype=torch.float32), query.new_empty(0, dtype=torch.float32)


def register():
    global library  # the kernels live as long as it does
    library = torch.library.Library("_C_ascend", "IMPL")
    library.impl("npu_lightning_indexer", npu_lightning_indexer, "PrivateUse1")
    library.impl("npu_sparse_flash_attention", npu_sparse_flash_attention, "PrivateUse1")
