// SPDX-License-Identifier: Apache-2.0
// Sparse flash attention in bfloat16 by the tiles of x86 processors (AMX).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "cpu/attention_operands.h"
#include "cpu/buffer.h"
#include "cpu/matmul.h"

namespace opp {

class AmxAttention;

// Heads of a tile, from a block on that begins with token `first`.
struct AttentionPart {
  AttentionTile tile;
  int64_t first;
  bool again;          // whether the tile's tokens are gone through a second time
  AmxAttention* from;  // has what the blocks before have given
};

// Threads that find no tile left, and what others give them of theirs: with few rows, or cores of different speed, they
// would be idle.
class Helpers {
 public:
  // A thread that works on tiles, then helps.
  class Thread {
   public:
    explicit Thread(Helpers& helpers);
    Thread(const Thread&) = delete;
    ~Thread();
    // Waits for a part of a tile of another thread; none comes when no thread works any more.
    std::optional<AttentionPart> wait();

   private:
    Helpers& helpers_;
    bool works_ = true;
  };

  bool are_waiting() const { return waiting_ > 0; }
  // Gives a part to a thread that waits, if there still is one.
  bool give(const AttentionPart& part);

 private:
  std::mutex mutex_;
  std::atomic<int64_t> waiting_ = 0;  // threads that no part is given to yet; read without the mutex
  int64_t working_ = 0;               // the others
  std::vector<AttentionPart> parts_;  // that threads have not taken yet
};

// Takes block after block of a row's tokens, all of whose numbers stay in a core's L2 cache. Keys are needed for the
// scores alone, which are computed chunk by chunk: the product of keys and transposed queries, so that a key's numbers
// lie side by side in the tiles as they do in memory. Softmax weights are rounded to bfloat16 where that is not seen in
// the result, else they are the sums of two.
class AmxAttention {
 public:
  AmxAttention(const SparseFlashAttentionPto& call, const AttentionTiling& tiling, Helpers& helpers);
  AmxAttention(const AmxAttention&) = delete;
  ~AmxAttention();

  // What a head's result is does not depend on the others of its tile, nor on the thread that computes its last blocks.
  void run(const AttentionTile& tile);
  void run(const AttentionPart& part);

 private:
  struct Block {
    int64_t first;
    int64_t count;
    int64_t padded;  // to whole tiles
  };

  // Places what follows `memory_` below at `memory`; returns how many bytes that takes.
  int64_t place(std::byte* memory);
  void open(const AttentionTile& tile, int64_t first);
  void begin();
  void attend(int64_t first, bool again);
  void share(int64_t first, bool again);
  void take_over(const AttentionPart& part);
  bool doubt();
  void load_queries();
  void add(const Block& block);
  void load(const Block& block, int64_t first);
  Token<at::BFloat16> stage(const Block& block, int64_t row);
  uint32_t weigh(const Block& block, int64_t first, int64_t heads);
  void raise_maxima(const Block& block, int64_t head);
  void raise(int64_t head, float maximum, bool has_sums);
  float* sums_of(int64_t head) const;
  void finish(bool again);
  void wait_for_takers() const;
  void write();
  void write_zeros();

  Helpers& helpers_;
  std::atomic<int64_t> given_ = 0;  // parts of the tile that no thread has taken over yet
  AttentionOperands<at::BFloat16> operands_;
  const TileProducts multiply_;  // sets up the tiles
  const float scale_;
  const int64_t depth_;
  const int64_t columns_;
  const int64_t max_heads_;
  const bool values_are_keys_;
  const bool rows_are_whole_;  // keys and values can be loaded from where they are
  const int64_t key_columns_;  // of a key without its rope part, if that lies elsewhere
  Buffer<std::byte> memory_;   // for all that follows: together it gets huge pages
  // In tiles. Tiles that lie beside each other are consecutive:
  at::BFloat16* query_;    // (depth, heads), but those below each other
  at::BFloat16* keys_;     // (tokens, depth), of a chunk
  at::BFloat16* values_;   // (tokens, columns)
  float* scores_;          // (tokens, heads), but those below each other
  float* exact_;           // the weights of one tile's heads, as scores_
  at::BFloat16* weights_;  // (heads, tokens), of kWeighed heads, and so the next
  at::BFloat16* lacking_;  // what the rounded weights lack
  float* sums_;            // (heads, columns)
  // For each head:
  float* maxima_;
  float* totals_;
  float* variances_;  // that rounding the weights so far may give the result, as kLargestVariance has it
  float* allowed_;    // what they may be of the squared totals so far
  bool* doubted_;     // whether that has been too much once
  // In rows, for what has to be copied first:
  at::BFloat16* staged_;         // queries, or two keys
  at::BFloat16* staged_values_;  // two
  at::BFloat16* zeros_;
  at::BFloat16* row_;  // of the result
  float* squares_;     // the mean of each token's squared values
  int64_t heads_ = 0;  // of the tile, padded
};

}  // namespace opp
