# SPDX-License-Identifier: Apache-2.0
"""A decode step's call of the lightning indexer on int8: a quarter of the bytes of float32, half of bfloat16's."""

import torch

import custom_pypto

torch.manual_seed(0)
batch, heads, dim, page, top = 2, 64, 128, 128, 64
lengths = torch.tensor([1000, 130], dtype=torch.int32)  # tokens per sequence, the new one included
block_table = torch.tensor([[3, 9, 0, 7, 4, 1, 8, 2], [6, 5, -1, -1, -1, -1, -1, -1]], dtype=torch.int32)


def quantised(x):
    """As npu_lightning_indexer_prolog_pto quantises: each row, to int8 and a scale."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().to(torch.int8), scale.half()


query, keys = torch.randn(batch, 1, heads, dim), torch.randn(10, page, 1, dim)
weights = torch.randn(batch, 1, heads)
query_int8, query_scale = quantised(query)  # of npu_lightning_indexer_prolog_pto: query and query_scale
keys_int8, keys_scale = quantised(keys)  # idx_k_cache, and idx_k_scale_cache, which has no dimension D
sequences = {"actual_seq_lengths_key": lengths.npu(), "block_table": block_table.npu(), "sparse_count": top}

positions, scores = custom_pypto.npu_lightning_indexer_quant_pto(
    query_int8.npu(),
    keys_int8.npu(),
    weights.half().npu(),
    query_scale.npu(),
    keys_scale[..., 0].npu(),
    **sequences,
    return_value=True,
)
exact = custom_pypto.npu_lightning_indexer_pto(
    query.bfloat16().npu(), keys.bfloat16().npu(), weights.bfloat16().npu(), **sequences
)
for sequence in range(batch):
    same = set(positions[sequence].flatten().tolist()) & set(exact[sequence].flatten().tolist())
    pairs = zip(positions[sequence, 0, 0, :3], scores[sequence, 0, 0, :3], strict=True)
    best = ", ".join(f"{position} ({score:.1f})" for position, score in pairs)
    print(f"sequence {sequence}: the best at {best}; {len(same)} of {top} tokens as in bfloat16")
