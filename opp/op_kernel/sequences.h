// SPDX-License-Identifier: Apache-2.0
// The sequences of a call whose query and key tokens lie padded (BSND), packed (TND) or in pages (PA_BSND): their
// lengths and block tables, read and checked on the device.
#pragma once

#include "kernel_operator.h"
#include "sequences_tiling.h"

namespace opp {

// One batch entry: `queries` query tokens and `keys` key tokens. Rows of the output past the queries are without keys.
struct Sequence {
  int64_t batch;
  int64_t first_query;  // row of query
  int64_t first_key;    // row of key, without pages
  int64_t queries;
  int64_t rows;
  int64_t keys;
  bool causal;

  // How many keys query token `query` sees.
  __aicore__ inline int64_t Visible(int64_t query) const {
    if (query >= queries) return 0;
    const int64_t seen = causal ? keys - queries + query + 1 : keys;
    return seen < 0 ? 0 : seen;
  }
};

// Keys [position, position + count) of a sequence, which lie side by side in key from row `row` on.
struct KeyRun {
  int64_t position;
  int64_t count;
  int64_t row;
};

// What messages call the arguments.
struct SequenceNames {
  const char* key_lengths;
  const char* key;
};

class Sequences {
 public:
  __aicore__ inline Sequences(const SequencesTiling& tiling, const SequenceNames& names, GM_ADDR query_lengths,
                              GM_ADDR key_lengths, GM_ADDR block_table)
      : tiling_(tiling), names_(names) {
    queryLengths_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(query_lengths), tiling.batch);
    keyLengths_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(key_lengths), tiling.batch);
    blockTable_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(block_table), tiling.batch * tiling.pages_of_row);
  }

  // The tokens of a packed query past the last sequence count as one more, without keys.
  __aicore__ inline int64_t Count() const { return tiling_.batch + (tiling_.packed ? 1 : 0); }

  // Stops the kernel at a length that is out of range.
  __aicore__ inline Sequence Read(int64_t i) const {
    const bool packed = tiling_.packed;
    if (i == tiling_.batch) {
      const int64_t total = QueryStart(i);
      return {i, total, 0, 0, tiling_.queries - total, 0, false};
    }
    const int64_t queries = Queries(i), start = QueryStart(i);
    return {i,
            packed ? start : i * tiling_.queries,
            packed ? KeyStart(i) : i * tiling_.keys,
            queries,
            packed ? queries : tiling_.queries,
            Keys(i),
            tiling_.causal != 0};
  }

  // Stops the kernel at a page of the sequence that key does not have; each of some cores looks at a share of them.
  __aicore__ inline void CheckPages(const Sequence& sequence, int64_t core, int64_t cores) const {
    if (!tiling_.paged) return;
    const int64_t pages = AscendC::CeilDivision(sequence.keys, tiling_.page_size);
    for (int64_t page = pages * core / cores; page < pages * (core + 1) / cores; ++page) Page(sequence, page);
  }
  __aicore__ inline void CheckAll(int64_t core, int64_t cores) const {
    for (int64_t i = 0; i < Count(); ++i) CheckPages(Read(i), core, cores);
  }

  // The blocks of a sequence's pages.
  __aicore__ inline AscendC::GlobalTensor<int32_t> Blocks(const Sequence& sequence) const {
    return blockTable_[sequence.batch * tiling_.pages_of_row];
  }

  // The first run of keys in [first, end) that have a page; of none the count is 0.
  __aicore__ inline KeyRun RunOf(const Sequence& sequence, int64_t first, int64_t end) const {
    if (!tiling_.paged) return {first, end > first ? end - first : 0, sequence.first_key + first};
    while (first < end) {
      const int64_t page = first / tiling_.page_size, offset = first % tiling_.page_size;
      const int64_t count = tiling_.page_size - offset < end - first ? tiling_.page_size - offset : end - first;
      const int64_t block = Page(sequence, page);
      if (block >= 0) return {first, count, block * tiling_.page_size + offset};
      first += count;
    }
    return {end, 0, 0};
  }

 private:
  __aicore__ inline int64_t QueryStart(int64_t i) const {
    return tiling_.packed && i > 0 ? queryLengths_.GetValue(i - 1) : 0;
  }
  __aicore__ inline int64_t KeyStart(int64_t i) const {
    return tiling_.packed && !tiling_.paged && i > 0 ? keyLengths_.GetValue(i - 1) : 0;
  }

  __aicore__ inline int64_t Queries(int64_t i) const {
    if (!tiling_.query_lengths) return tiling_.queries;
    const int64_t start = QueryStart(i), length = queryLengths_.GetValue(i);
    Check("actual_seq_lengths_query", i, length, start, tiling_.packed, tiling_.queries,
          tiling_.packed ? "the tokens of query" : "S1 of query");
    return length - start;
  }

  __aicore__ inline int64_t Keys(int64_t i) const {
    if (!tiling_.key_lengths) return tiling_.keys;
    const bool totals = tiling_.packed && !tiling_.paged;
    const int64_t start = KeyStart(i), length = keyLengths_.GetValue(i);
    Check(names_.key_lengths, i, length, start, totals, tiling_.keys,
          tiling_.paged ? "the tokens that a row of block_table holds"
          : totals      ? "the tokens of key"
                        : "S2 of key");
    return length - start;
  }

  // A count, or a running total.
  __aicore__ static inline void Check(const char* name, int64_t i, int64_t length, int64_t first, bool total,
                                      int64_t limit, const char* what) {
    ascendc_assert(first <= length && length <= limit, "%s[%lld] is %lld, but must lie between %lld%s and %lld (%s)",
                   name, static_cast<long long>(i), static_cast<long long>(length), static_cast<long long>(first),
                   total ? " (the running total before it)" : "", static_cast<long long>(limit), what);
  }

  __aicore__ inline int64_t Page(const Sequence& sequence, int64_t page) const {
    const int64_t block = blockTable_.GetValue(sequence.batch * tiling_.pages_of_row + page);
    ascendc_assert(-1 <= block && block < tiling_.pages,
                   "block_table[%lld][%lld] is %lld, but must lie between 0 and %lld (the blocks of %s), or be -1 for "
                   "no block",
                   static_cast<long long>(sequence.batch), static_cast<long long>(page), static_cast<long long>(block),
                   static_cast<long long>(tiling_.pages - 1), names_.key);
    return block;
  }

  const SequencesTiling& tiling_;
  const SequenceNames names_;
  AscendC::GlobalTensor<int32_t> queryLengths_, keyLengths_, blockTable_;
};

}  // namespace opp
