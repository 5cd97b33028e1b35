// SPDX-License-Identifier: Apache-2.0
// Makes the inputs of the next decode step of the tokens that were sampled in the last one.
//
// One block reads the lengths of all sequences and checks them before it writes anything; then it moves the rows on.
#include "advance_step_flashattn_tiling.h"
#include "kernel_operator.h"

using namespace AscendC;

namespace {

using Tiling = opp::AdvanceStepFlashattnTiling;

constexpr uint32_t kPitch = 32;  // bytes from number to number in the unified buffer

__aicore__ inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Integers of 4 or 8 bytes in device memory, and some of them in the unified buffer.
class Numbers {
 public:
  __aicore__ inline Numbers(uint32_t bytes, GM_ADDR address, TPipe& pipe) : bytes_(bytes) {
    device_.SetGlobalBuffer(address);
    pipe.InitBuffer(buffer_, Tiling::kRowsAtATime * kPitch);
    local_ = buffer_.Get<uint8_t>();
  }

  __aicore__ inline void Load(int64_t first, int64_t count) const {
    DataCopyPad(local_, device_[first * bytes_], Copies(count), DataCopyPadExtParams<uint8_t>{false, 0, 0, 0});
  }

  __aicore__ inline void Store(int64_t first, int64_t count) const {
    DataCopyPad(device_[first * bytes_], local_, Copies(count));
  }

  __aicore__ inline int64_t Get(int64_t i) const {
    const LocalTensor<uint8_t> number = local_[i * kPitch];
    return bytes_ == 8 ? number.ReinterpretCast<int64_t>().GetValue(0) : number.ReinterpretCast<int32_t>().GetValue(0);
  }

  __aicore__ inline void Set(int64_t i, int64_t value) const {
    const LocalTensor<uint8_t> number = local_[i * kPitch];
    if (bytes_ == 8) {
      number.ReinterpretCast<int64_t>().SetValue(0, value);
    } else {
      number.ReinterpretCast<int32_t>().SetValue(0, static_cast<int32_t>(value));
    }
  }

 private:
  // A block of the unified buffer for each number; in device memory they lie side by side.
  __aicore__ inline DataCopyExtParams Copies(int64_t count) const {
    return {static_cast<uint16_t>(count), bytes_, 0, 0, 0};
  }

  const uint32_t bytes_;
  GlobalTensor<uint8_t> device_;
  TBuf<TPosition::VECCALC> buffer_;
  LocalTensor<uint8_t> local_;
};

class AdvanceStep {
 public:
  __aicore__ inline AdvanceStep(const Tiling& tiling, GM_ADDR tokens, GM_ADDR sampled, GM_ADDR positions,
                                GM_ADDR lengths, GM_ADDR slots, GM_ADDR table, TPipe& pipe)
      : tiling_(tiling),
        tokens_(sizeof(int64_t), tokens, pipe),
        sampled_(sizeof(int64_t), sampled, pipe),
        positions_(sizeof(int64_t), positions, pipe),
        lengths_(tiling.seq_lens_bytes, lengths, pipe),
        slots_(tiling.slot_mapping_bytes, slots, pipe),
        table_(table) {}

  __aicore__ inline void CheckLengths() const {
    for (int64_t first = 0; first < tiling_.num_queries; first += Tiling::kRowsAtATime) {
      const int64_t count = Smaller(tiling_.num_queries - first, Tiling::kRowsAtATime);
      lengths_.Load(first, count);
      PipeBarrier<PIPE_ALL>();
      for (int64_t i = 0; i < count; ++i) {
        ascendc_assert(lengths_.Get(i) >= 0, "seq_lens[%lld] is %lld, but must be 0 or more",
                       static_cast<long long>(first + i), static_cast<long long>(lengths_.Get(i)));
      }
      PipeBarrier<PIPE_ALL>();
    }
  }

  __aicore__ inline void Advance() const {
    for (int64_t first = 0; first < tiling_.num_seqs; first += Tiling::kRowsAtATime) {
      AdvanceRows(first, Smaller(tiling_.num_seqs - first, Tiling::kRowsAtATime));
    }
  }

 private:
  __aicore__ inline void AdvanceRows(int64_t first, int64_t count) const {
    const int64_t queries = Smaller(count, tiling_.num_queries - first);
    if (queries > 0) {
      sampled_.Load(first, queries);
      lengths_.Load(first, queries);
    }
    PipeBarrier<PIPE_ALL>();
    for (int64_t i = 0; i < count; ++i) {
      if (i < queries) {
        AdvanceSequence(first, i);
      } else {
        SetRow(i, 0, 0, -1);
      }
    }
    PipeBarrier<PIPE_ALL>();
    tokens_.Store(first, count);
    positions_.Store(first, count);
    slots_.Store(first, count);
    if (queries > 0) lengths_.Store(first, queries);
    PipeBarrier<PIPE_ALL>();
  }

  __aicore__ inline void AdvanceSequence(int64_t first, int64_t i) const {
    const int64_t position = lengths_.Get(i);
    const int64_t slot = SlotOf(first + i, position);
    ascendc_assert(tiling_.slot_mapping_bytes == 8 || slot <= INT32_MAX,
                   "slot_mapping[%lld] would be %lld, which int32 does not hold; make it int64",
                   static_cast<long long>(first + i), static_cast<long long>(slot));
    SetRow(i, sampled_.Get(i), position, slot);
    lengths_.Set(i, position + 1);
  }

  __aicore__ inline void SetRow(int64_t i, int64_t token, int64_t position, int64_t slot) const {
    tokens_.Set(i, token);
    positions_.Set(i, position);
    slots_.Set(i, slot);
  }

  __aicore__ inline int64_t SlotOf(int64_t row, int64_t position) const {
    const int64_t column = position / tiling_.block_size;
    if (column >= tiling_.table_width) return -1;
    const int64_t block = TableAt(row * tiling_.table_width + column);
    return block < 0 ? -1 : block * tiling_.block_size + position % tiling_.block_size;
  }

  __aicore__ inline int64_t TableAt(int64_t i) const {
    return tiling_.block_tables_bytes == 8 ? TableAs<int64_t>(i) : TableAs<int32_t>(i);
  }

  template <class Integer>
  __aicore__ inline int64_t TableAs(int64_t i) const {
    GlobalTensor<Integer> table;
    table.SetGlobalBuffer(reinterpret_cast<__gm__ Integer*>(table_));
    return table.GetValue(i);
  }

  const Tiling& tiling_;
  Numbers tokens_, sampled_, positions_, lengths_, slots_;
  GM_ADDR table_;
};

}  // namespace

extern "C" __global__ __aicore__ void advance_step_flashattn(GM_ADDR, GM_ADDR sampled_token_ids, GM_ADDR, GM_ADDR,
                                                             GM_ADDR, GM_ADDR block_tables, GM_ADDR input_tokens,
                                                             GM_ADDR input_positions, GM_ADDR seq_lens,
                                                             GM_ADDR slot_mapping, GM_ADDR, GM_ADDR tiling_address) {
  REGISTER_TILING_DEFAULT(Tiling);
  GET_TILING_DATA(tiling, tiling_address);
  TPipe pipe;
  const AdvanceStep kernel(tiling, input_tokens, sampled_token_ids, input_positions, seq_lens, slot_mapping,
                           block_tables, pipe);
  kernel.CheckLengths();
  kernel.Advance();
}
