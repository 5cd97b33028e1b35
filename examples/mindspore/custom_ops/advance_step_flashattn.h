// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// The kernel's launch, which is compiled with it. All addresses are of int32 in device memory.
void launch_advance_step_flashattn(uint32_t blocks, void* l2_control, void* stream, uint8_t* sampled_token_ids,
                                   uint8_t* block_tables, uint8_t* input_tokens, uint8_t* input_positions,
                                   uint8_t* seq_lens, uint8_t* slot_mapping, int32_t num_seqs, int32_t num_queries,
                                   int32_t block_size, int32_t table_width);
