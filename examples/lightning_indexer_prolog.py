# SPDX-License-Identifier: Apache-2.0
"""Computes the quantised lightning indexer's inputs from a decode step's tokens, and writes the caches in place."""

import torch

import custom_pypto

torch.manual_seed(0)
tokens, hidden, q_lora, heads, dim, rope, page = 4, 1024, 256, 16, 128, 64, 128


def random(*sizes):
    return torch.randn(*sizes, dtype=torch.bfloat16).npu()


def random_int8(*sizes):
    return torch.randint(-127, 128, sizes, dtype=torch.int8).npu()


key_cache = torch.zeros(10, page, 1, dim, dtype=torch.int8).npu()
scale_cache = torch.zeros(10, page, 1, dtype=torch.float16).npu()
slots = torch.tensor([5 * page + 17, 5 * page + 18, 2 * page, -1]).npu()  # page * page size + offset; -1 is not written
hadamard = torch.tensor([[1.0]])
while len(hadamard) < dim:
    hadamard = torch.cat([torch.cat([hadamard, hadamard], 1), torch.cat([hadamard, -hadamard], 1)]) / 2**0.5
hadamard = hadamard.bfloat16().npu()
angles = torch.rand(tokens, rope // 2).repeat(1, 2).npu()

query, query_scale, weights = custom_pypto.npu_lightning_indexer_prolog_pto(
    token_x=random(tokens, hidden),
    q_norm=random_int8(tokens, q_lora),
    q_norm_scale=torch.rand(tokens, 1).npu() / 127,
    wq_b=random_int8(q_lora, heads * dim),
    wq_b_scale=torch.rand(heads * dim, 1).npu() / 127,
    wk=random(hidden, dim),
    weights_proj=random(hidden, heads),
    ln_gamma_k=random(dim),
    ln_beta_k=random(dim),
    cos_idx_rope=angles.cos().bfloat16(),
    sin_idx_rope=angles.sin().bfloat16(),
    hadamard_q=hadamard,
    hadamard_k=hadamard,
    idx_k_cache=key_cache,
    idx_k_scale_cache=scale_cache,
    idx_k_cache_index=slots,
    layernorm_epsilon_k=1e-6,
    rope_mode="half",
)

written = key_cache.cpu().flatten(0, 2).any(-1).nonzero().flatten().tolist()
print(f"query {tuple(query.shape)} {query.dtype}, weights {tuple(weights.shape)}; written slots: {written}")
