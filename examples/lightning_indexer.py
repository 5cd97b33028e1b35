# SPDX-License-Identifier: Apache-2.0
"""A decode step's call of the lightning indexer: which of the cached tokens shall each new token attend to?"""

import torch

import custom_pypto

torch.manual_seed(0)
batch, new_tokens, heads, dim, page = 4, 2, 64, 128, 128
lengths = torch.tensor([300, 1, 5000, 2], dtype=torch.int32)  # tokens per sequence, the new ones included

# The key cache is a pool of pages; a sequence's row of the block table names its pages in order, -1 past its end.
pages = (lengths + page - 1) // page
pool = torch.randperm(int(pages.sum()), dtype=torch.int32)
block_table = torch.full((batch, int(pages.max())), -1, dtype=torch.int32)
for row, mine in zip(block_table, pool.split(pages.tolist()), strict=True):
    row[: len(mine)] = mine
key_cache = torch.randn(len(pool), page, 1, dim, dtype=torch.bfloat16)

query = torch.randn(batch, new_tokens, heads, dim, dtype=torch.bfloat16)
weights = torch.randn(batch, new_tokens, heads, dtype=torch.bfloat16)

selected = custom_pypto.npu_lightning_indexer_pto(
    query.npu(),
    key_cache.npu(),
    weights.npu(),
    actual_seq_lengths_key=lengths.npu(),
    block_table=block_table.npu(),
    sparse_count=2048,
).cpu()

for sequence in range(batch):
    for token in range(new_tokens):
        positions = selected[sequence, token, 0]
        chosen = positions[positions >= 0]
        print(
            f"sequence {sequence}, new token {token}: {len(chosen)} of {lengths[sequence]} tokens,"
            f" the best at {chosen[:4].tolist()}"
        )
