# SPDX-License-Identifier: Apache-2.0
"""DeepSeek's sparse attention of a decode step in one operator: two new tokens of each of three sequences."""

import torch

import custom_pypto

torch.manual_seed(0)
hidden, q_lora, heads, depth, rope, latent = 512, 128, 8, 64, 32, 128  # DeepSeek-V3.2: 7168, 1536, 128, 128, 64, 512
index_heads, index_dim, page = 16, 64, 128
lengths = torch.tensor([300, 2, 129], dtype=torch.int32)  # tokens per sequence, the two new ones included
block_table = torch.tensor([[4, 0, 6], [2, -1, -1], [5, 1, -1]], dtype=torch.int32)
positions = lengths[:, None] - 2 + torch.arange(2)
slots = block_table.gather(1, positions // page) * page + positions % page
angles = (positions[..., None] * 10000 ** -torch.linspace(0, 1, rope // 2 + 1)[:-1]).repeat(1, 1, 2)


def random(*sizes):
    return torch.randn(*sizes, dtype=torch.bfloat16).npu()


def weight(*sizes):
    return random(*sizes) * sizes[-2] ** -0.5


caches = {
    "kv_cache": random(7, page, 1, latent),
    "kr_cache": random(7, page, 1, rope),
    "index_k_cache": random(7, page, 1, index_dim),
}
before = {name: cache.clone() for name, cache in caches.items()}

out = custom_pypto.npu_sparse_attention_pto(
    x=random(3, 2, hidden),
    w_dq=weight(hidden, q_lora),
    w_uq_qr=weight(q_lora, heads * (depth + rope)),
    w_uk=weight(heads, depth, latent),
    w_dkv_kr=weight(hidden, latent + rope),
    gamma_cq=random(q_lora),
    gamma_ckv=random(latent),
    sin=angles.sin().bfloat16().npu(),
    cos=angles.cos().bfloat16().npu(),
    cache_index=slots.npu(),
    block_table=block_table.npu(),
    act_seqs=lengths.npu(),
    w_idx_qb=weight(q_lora, index_heads * index_dim),
    w_idx_k=weight(hidden, index_dim),
    w_idx_proj=weight(hidden, index_heads),
    in_gamma_k=random(index_dim),
    in_beta_k=random(index_dim),
    **caches,
    sparse_count=64,
    indexer_rope_mode="half",
)

print(tuple(out.shape))
for name, cache in caches.items():
    changed = (cache != before[name]).flatten(0, 2).any(-1).nonzero().flatten().cpu()
    print(f"{name}: written {sorted(changed.tolist())}, the slots are {sorted(slots.flatten().tolist())}")
