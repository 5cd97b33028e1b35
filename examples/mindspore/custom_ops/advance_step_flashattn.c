// SPDX-License-Identifier: Apache-2.0
// Makes the inputs of the next decode step of the tokens that were sampled in the last one. One block does all of it.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr int32_t kRows = 256;  // at a time

// Rows of a column of int32, in the unified buffer and in device memory.
class Column {
 public:
  __aicore__ inline Column(GM_ADDR address, TPipe& pipe) {
    device_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(address));
    pipe.InitBuffer(buffer_, kRows * sizeof(int32_t));
    rows = buffer_.Get<int32_t>();
  }

  __aicore__ inline void Load(int32_t first, int32_t count) {
    DataCopyPad(rows, device_[first], Bytes(count), DataCopyPadExtParams<int32_t>{false, 0, 0, 0});
  }
  __aicore__ inline void Store(int32_t first, int32_t count) { DataCopyPad(device_[first], rows, Bytes(count)); }

  LocalTensor<int32_t> rows;

 private:
  __aicore__ inline DataCopyExtParams Bytes(int32_t count) const {
    return {1, static_cast<uint32_t>(count * sizeof(int32_t)), 0, 0, 0};
  }

  GlobalTensor<int32_t> device_;
  TBuf<TPosition::VECCALC> buffer_;
};

// The slot of a position, or -1 where the sequence has no block for it.
__aicore__ inline int32_t SlotOf(const GlobalTensor<int32_t>& table, int32_t row, int32_t position, int32_t block_size,
                                 int32_t table_width) {
  const int32_t column = position / block_size;
  if (column >= table_width) return -1;
  const int32_t block = table.GetValue(static_cast<uint64_t>(row) * table_width + column);
  return block < 0 ? -1 : block * block_size + position % block_size;
}

}  // namespace

extern "C" __global__ __aicore__ void advance_step_flashattn(GM_ADDR sampled_token_ids, GM_ADDR block_tables,
                                                             GM_ADDR input_tokens, GM_ADDR input_positions,
                                                             GM_ADDR seq_lens, GM_ADDR slot_mapping, int32_t num_seqs,
                                                             int32_t num_queries, int32_t block_size,
                                                             int32_t table_width) {
  TPipe pipe;
  Column sampled(sampled_token_ids, pipe), tokens(input_tokens, pipe), positions(input_positions, pipe);
  Column lengths(seq_lens, pipe), slots(slot_mapping, pipe);
  GlobalTensor<int32_t> table;
  table.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(block_tables));
  for (int32_t first = 0; first < num_seqs; first += kRows) {
    const int32_t count = num_seqs - first < kRows ? num_seqs - first : kRows;
    const int32_t left = num_queries - first;
    const int32_t queries = left < 0 ? 0 : left < count ? left : count;  // the other rows are padding
    if (queries > 0) {
      sampled.Load(first, queries);
      lengths.Load(first, queries);
    }
    PipeBarrier<PIPE_ALL>();
    for (int32_t i = 0; i < count; ++i) {
      const bool is_query = i < queries;
      const int32_t position = is_query ? lengths.rows.GetValue(i) : 0;
      tokens.rows.SetValue(i, is_query ? sampled.rows.GetValue(i) : 0);
      positions.rows.SetValue(i, position);
      slots.rows.SetValue(i, is_query ? SlotOf(table, first + i, position, block_size, table_width) : -1);
      if (is_query) lengths.rows.SetValue(i, position + 1);
    }
    PipeBarrier<PIPE_ALL>();
    tokens.Store(first, count);
    positions.Store(first, count);
    slots.Store(first, count);
    if (queries > 0) lengths.Store(first, queries);
    PipeBarrier<PIPE_ALL>();
  }
}

void launch_advance_step_flashattn(uint32_t blocks, void* l2_control, void* stream, uint8_t* sampled_token_ids,
                                   uint8_t* block_tables, uint8_t* input_tokens, uint8_t* input_positions,
                                   uint8_t* seq_lens, uint8_t* slot_mapping, int32_t num_seqs, int32_t num_queries,
                                   int32_t block_size, int32_t table_width) {
  advance_step_flashattn<<<blocks, l2_control, stream>>>(sampled_token_ids, block_tables, input_tokens, input_positions,
                                                         seq_lens, slot_mapping, num_seqs, num_queries, block_size,
                                                         table_width);
}
