# SPDX-License-Identifier: Apache-2.0
"""The attention of a decode step with multi-head latent attention: over the tokens that the indexer has selected."""

import torch

import custom_pypto

torch.manual_seed(0)
heads, latent, rope, page, top = 16, 512, 64, 128, 256
lengths = torch.tensor([1000, 130], dtype=torch.int32)  # tokens per sequence, the new one included
block_table = torch.tensor([[3, 9, 0, 7, 4, 1, 8, 2], [6, 5, -1, -1, -1, -1, -1, -1]], dtype=torch.int32)


def random(*sizes):
    return torch.randn(*sizes, dtype=torch.bfloat16)


query, query_rope = random(2, 1, heads, latent), random(2, 1, heads, rope)
kv_cache, kr_cache = random(10, page, 1, latent), random(10, page, 1, rope)

# What npu_lightning_indexer_pto gives: positions in the sequence, the second one's 130 followed by -1.
selected = torch.full((2, 1, 1, top), -1, dtype=torch.int32)
selected[0, 0, 0] = torch.randperm(1000)[:top]
selected[1, 0, 0, :130] = torch.arange(130)

kv = kv_cache.npu()
out = custom_pypto.npu_sparse_flash_attention_pto(
    query.npu(),
    kv,
    kv,  # the latent is key and value at once
    selected.npu(),
    (latent + rope) ** -0.5,
    block_table=block_table.npu(),
    actual_seq_lengths_kv=lengths.npu(),
    query_rope=query_rope.npu(),
    key_rope=kr_cache.npu(),
).cpu()

# The second sequence has no more tokens than are selected, so this is its whole attention.
keys, keys_rope = (cache[[6, 5]].flatten(0, 2)[:130].float() for cache in (kv_cache, kr_cache))
scores = query[1, 0].float() @ keys.T + query_rope[1, 0].float() @ keys_rope.T
expected = (scores * (latent + rope) ** -0.5).softmax(-1) @ keys
print(f"{tuple(out.shape)}, largest error {(out[1, 0] - expected).abs().max():.1e}")
