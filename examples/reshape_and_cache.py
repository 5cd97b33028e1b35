# SPDX-License-Identifier: Apache-2.0
"""The keys and values of new tokens, written from a fused projection to their slots in paged caches."""

import torch

import custom_pypto

torch.manual_seed(0)
tokens, heads, key_heads, dim, blocks, page = 5, 8, 2, 64, 10, 16

qkv = torch.randn(tokens, (heads + 2 * key_heads) * dim, dtype=torch.bfloat16).npu()
_, key, value = qkv.split([heads * dim, key_heads * dim, key_heads * dim], dim=-1)  # views: nothing is copied
key_cache = torch.zeros(blocks, page, key_heads, dim, dtype=torch.bfloat16).npu()
value_cache = torch.zeros_like(key_cache)
slots = torch.tensor([3 * page + 14, 3 * page + 15, 7 * page, 7 * page + 1, -1]).npu()  # page * page size + offset

custom_pypto.reshape_and_cache(key, value, key_cache, value_cache, slots)  # -1 is not written

assert torch.equal(key_cache[7, 1].flatten(), key[3])
written = value_cache.cpu().flatten(0, 1).flatten(1).any(-1).nonzero().flatten().tolist()
print(f"written slots: {written}")
