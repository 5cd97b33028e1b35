# SPDX-License-Identifier: Apache-2.0
"""A step of decoding that never leaves the device: from the sampled tokens to the inputs of the next forward pass."""

import torch

import custom_pypto

page = 4
sequences, padding = 3, 1  # a captured graph has a fixed number of rows
block_tables = torch.tensor([[5, 2, -1], [0, 7, -1], [4, -1, -1], [-1, -1, -1]], dtype=torch.int32).npu()
seq_lens = torch.tensor([7, 4, 4, 1], dtype=torch.int32).npu()
input_tokens, input_positions = torch.zeros(4, dtype=torch.int64).npu(), torch.zeros(4, dtype=torch.int64).npu()
slot_mapping = torch.zeros(4, dtype=torch.int64).npu()

custom_pypto.advance_step_flashattn(
    num_seqs=sequences + padding,
    num_queries=sequences,
    block_size=page,
    input_tokens=input_tokens,
    sampled_token_ids=torch.tensor([[101], [102], [103]]).npu(),
    input_positions=input_positions,
    seq_lens=seq_lens,
    slot_mapping=slot_mapping,
    block_tables=block_tables,
)

# The second sequence has come to its next page; the third one has none, and the last row is padding.
print(f"tokens {input_tokens.tolist()}, at {input_positions.tolist()}, slots {slot_mapping.tolist()}")
print(f"lengths {seq_lens.tolist()}")
assert slot_mapping.tolist() == [2 * page + 3, 7 * page, -1, -1]
