// SPDX-License-Identifier: Apache-2.0
// The products of sparse flash attention, on the cube core: of queries and keys, and of weights and values.
#pragma once

#include "../matrix.h"
#include "workspace.h"

namespace opp {

template <class T>
class AttentionProducts {
  using Tiling = SparseFlashAttentionTiling;

 public:
  __aicore__ inline AttentionProducts(const Tiling& tiling, const AttentionTensors<T>& tensors, GM_ADDR workspace,
                                      TPipe& pipe)
      : tiling_(tiling), tensors_(tensors), workspace_(tiling, workspace, GetBlockIdx()) {
    panels_ = PanelsOf(tiling.depth) + PanelsOf(tiling.rope_depth);
    pipe.InitBuffer(query_, 1, kQueryPanels * kPanelElements * sizeof(T));
    pipe.InitBuffer(weights_, 1, 2 * Tiling::kVectorCores * kPanelElements * sizeof(T));
    pipe.InitBuffer(keys_, kKeyBuffers, kPanelElements * sizeof(T));
    pipe.InitBuffer(left_, 2, kPanelElements * sizeof(T));
    pipe.InitBuffer(right_, 2, kPanelElements * sizeof(T));
    pipe.InitBuffer(sums_, 2, kPanelElements * sizeof(float));
  }

  __aicore__ inline void Run() {
    Piece now{}, next{};
    for (uint32_t n = 0;; ++n) {
      const bool any = Read(n, next);
      if (any) Score(n, next);
      if (n > 0) SumValues(n - 1, now);
      if (!any) break;
      now = next;
    }
    if (loadedRow_ != kNoRow) query_.FreeTensor(queryPanels_);
  }

 private:
  static constexpr uint32_t kPanel = 128;  // columns of a factor in L0A and L0B, and of sums in L0C
  static constexpr uint32_t kPanelElements = kPanel * Tiling::kHeads;
  static constexpr uint32_t kQueryPanels = 5;  // in L1: queries of 512 + 64 elements stay there for all of their keys
  static constexpr uint32_t kKeyBuffers = 4;
  static_assert(Tiling::kHalf <= kPanel, "the weights of half a piece are one factor");

  struct Piece {
    int64_t row;
    int64_t partial;
    uint32_t keys[Tiling::kVectorCores];
  };

  // A part of the products' depth: a matrix of the queries, and one of the gathered keys.
  struct Part {
    GlobalTensor<T> query, keys;
    int64_t depth;
    uint32_t pitch;  // of the keys
  };

  __aicore__ static inline uint32_t PanelsOf(int64_t depth) {
    return static_cast<uint32_t>((depth + kPanel - 1) / kPanel);
  }
  __aicore__ static inline uint32_t Smaller(int64_t a, int64_t b) { return static_cast<uint32_t>(a < b ? a : b); }
  __aicore__ inline bool QueryStays() const { return panels_ <= kQueryPanels; }

  // Waits for the n-th piece; gives whether there is one.
  __aicore__ inline bool Read(uint32_t n, Piece& piece) const {
    CrossCoreWaitFlag(kKeysGathered);
    for (uint32_t core = 0; core < Tiling::kVectorCores; ++core) {
      const GlobalTensor<int64_t> note = workspace_.Note(n, core);
      DataCacheCleanAndInvalid<int64_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(note);
      piece.row = note.GetValue(kNoteRow);
      piece.partial = note.GetValue(kNotePartial);
      piece.keys[core] = static_cast<uint32_t>(note.GetValue(kNoteKeys));
    }
    WaitFor<HardEvent::S_MTE2>();  // what comes of the piece says that the note is read
    return piece.row != kNoRow;
  }

  __aicore__ inline void Score(uint32_t n, const Piece& piece) {
    const AttentionRow row = AttentionRowOf(tiling_, piece.row);
    const int64_t head = row.token * tiling_.heads + row.firstHead;
    const Part parts[] = {
        {tensors_.query[head * tiling_.depth], workspace_.Keys(n), tiling_.depth, tiling_.key_pitch},
        {tensors_.queryRope[head * tiling_.rope_depth], workspace_.Ropes(n), tiling_.rope_depth, tiling_.rope_pitch}};
    if (QueryStays() && loadedRow_ != piece.row) LoadQuery(parts, piece.row, row.heads);
    for (uint32_t half = 0; half < Tiling::kVectorCores; ++half) {
      const uint32_t keys = piece.keys[half];
      if (keys == 0) continue;
      const LocalTensor<float> sums = sums_.template AllocTensor<float>();
      uint32_t panel = 0;
      for (const Part& part : parts) {
        for (int64_t column = 0; column < part.depth; column += kPanel, ++panel) {
          MultiplyKeys(sums, part, column, panel, half, row.heads, keys);
        }
      }
      Store(workspace_.Scores(n)[half * Tiling::kHalf], sums, row.heads, keys, Tiling::kPiece);
    }
    // Nothing was multiplied: the flag would not say by itself that the note is read.
    if (piece.keys[0] + piece.keys[1] == 0) PipeBarrier<PIPE_ALL>();
    CrossCoreSetFlag<2, PIPE_FIX>(kScored);
  }

  // Brings all of a row's queries to L1.
  __aicore__ inline void LoadQuery(const Part (&parts)[2], int64_t row, uint32_t heads) {
    if (loadedRow_ != kNoRow) query_.FreeTensor(queryPanels_);
    const LocalTensor<T> to = query_.template AllocTensor<T>();
    uint32_t panel = 0;
    for (const Part& part : parts) {
      for (int64_t column = 0; column < part.depth; column += kPanel, ++panel) {
        LoadQueryPanel(to[panel * kPanelElements], part, column, heads);
      }
    }
    query_.EnQue(to);
    queryPanels_ = query_.template DeQue<T>();
    loadedRow_ = row;
  }

  __aicore__ inline void LoadQueryPanel(const LocalTensor<T>& to, const Part& part, int64_t column, uint32_t heads) {
    Load(to, part.query[column], heads, Smaller(kPanel, part.depth - column), static_cast<uint32_t>(part.depth));
  }

  // Rows of a matrix in device memory to an NZ matrix in L1.
  __aicore__ inline void Load(const LocalTensor<T>& to, const GlobalTensor<T>& from, uint32_t rows, uint32_t columns,
                              uint32_t pitch) {
    DataCopy(to, from, Nd2NzParams(1, rows, columns, 0, pitch, AlignUp(rows, kFractal), 1, 0));
  }

  // Adds the products of a panel's columns to the scores of half a piece.
  __aicore__ inline void MultiplyKeys(const LocalTensor<float>& sums, const Part& part, int64_t column, uint32_t panel,
                                      uint32_t half, uint32_t heads, uint32_t keys) {
    const uint32_t depth = Smaller(kPanel, part.depth - column);
    const uint32_t deep = CeilDivision(depth, kFractal);
    LocalTensor<T> query = queryPanels_[panel * kPanelElements];
    if (!QueryStays()) {
      query = query_.template AllocTensor<T>();
      LoadQueryPanel(query, part, column, heads);
      query_.EnQue(query);
      query = query_.template DeQue<T>();
    }
    const LocalTensor<T> left = left_.template AllocTensor<T>();
    LoadLeft(left, query, AlignUp(heads, kFractal), heads, deep);
    left_.EnQue(left);
    if (!QueryStays()) query_.FreeTensor(query);

    const LocalTensor<T> rows =
        InL1(part.keys[uint64_t{half} * Tiling::kHalf * part.pitch + column], keys, depth, part.pitch);
    const LocalTensor<T> right = right_.template AllocTensor<T>();
    LoadRightOfRows(right, rows, AlignUp(keys, kFractal), keys, deep);
    right_.EnQue(right);
    keys_.FreeTensor(rows);

    const LocalTensor<T> a = left_.template DeQue<T>(), b = right_.template DeQue<T>();
    Multiply(sums, a, b, heads, keys, depth, panel == 0);
    left_.FreeTensor(a);
    right_.FreeTensor(b);
  }

  __aicore__ inline LocalTensor<T> InL1(const GlobalTensor<T>& from, uint32_t rows, uint32_t columns, uint32_t pitch) {
    const LocalTensor<T> to = keys_.template AllocTensor<T>();
    Load(to, from, rows, columns, pitch);
    keys_.EnQue(to);
    return keys_.template DeQue<T>();
  }

  __aicore__ inline void Store(const GlobalTensor<float>& to, const LocalTensor<float>& sums, uint32_t heads,
                               uint32_t columns, uint32_t pitch) {
    sums_.EnQue(sums);
    const LocalTensor<float> done = sums_.template DeQue<float>();
    Fixpipe(to, done, FixpipeParamsV220(columns, heads, AlignUp(heads, kFractal), pitch, false));
    sums_.FreeTensor(done);
  }

  __aicore__ inline void SumValues(uint32_t n, const Piece& piece) {
    CrossCoreWaitFlag(kWeighed);
    if (piece.keys[0] + piece.keys[1] > 0) {
      const uint32_t heads = AttentionRowOf(tiling_, piece.row).heads;
      const LocalTensor<T> weights = LoadWeights(n, piece, heads);
      for (uint32_t column = 0; column < tiling_.value_pitch; column += kPanel) {
        SumPanel(n, piece, weights, heads, column);
      }
      weights_.FreeTensor(weights);
    }
    CrossCoreSetFlag<2, PIPE_FIX>(kSummed);
  }

  __aicore__ inline LocalTensor<T> LoadWeights(uint32_t n, const Piece& piece, uint32_t heads) {
    const LocalTensor<T> to = weights_.template AllocTensor<T>();
    for (uint32_t half = 0; half < Tiling::kVectorCores; ++half) {
      if (piece.keys[half] == 0) continue;
      for (uint32_t part = 0; part < 2; ++part) {
        Load(to[(half * 2 + part) * kPanelElements], workspace_.Weights(n, part)[half * Tiling::kHalf], heads,
             piece.keys[half], Tiling::kPiece);
      }
    }
    weights_.EnQue(to);
    return weights_.template DeQue<T>();
  }

  // A panel of columns of the piece's weighted values. The columns that fill its last fractal are 0.
  __aicore__ inline void SumPanel(uint32_t n, const Piece& piece, const LocalTensor<T>& weights, uint32_t heads,
                                  uint32_t column) {
    const uint32_t columns = Smaller(kPanel, tiling_.value_pitch - column);
    const uint32_t pitch = tensors_.valueIsKey ? tiling_.key_pitch : tiling_.value_pitch;
    const GlobalTensor<T> values = tensors_.valueIsKey ? workspace_.Keys(n) : workspace_.Values(n);
    const LocalTensor<float> sums = sums_.template AllocTensor<float>();
    bool first = true;
    for (uint32_t half = 0; half < Tiling::kVectorCores; ++half) {
      const uint32_t keys = piece.keys[half];
      if (keys == 0) continue;
      const LocalTensor<T> rows = InL1(values[uint64_t{half} * Tiling::kHalf * pitch + column], keys, columns, pitch);
      LocalTensor<T> right = right_.template AllocTensor<T>();
      LoadRight(right, rows, AlignUp(keys, kFractal), keys, CeilDivision(columns, kFractal));
      right_.EnQue(right);
      keys_.FreeTensor(rows);
      right = right_.template DeQue<T>();
      for (uint32_t part = 0; part < 2; ++part) {
        const LocalTensor<T> to = left_.template AllocTensor<T>();
        LoadLeft(to, weights[(half * 2 + part) * kPanelElements], AlignUp(heads, kFractal), heads,
                 CeilDivision(keys, kFractal));
        left_.EnQue(to);
        const LocalTensor<T> left = left_.template DeQue<T>();
        Multiply(sums, left, right, heads, columns, keys, first);
        left_.FreeTensor(left);
        first = false;
      }
      right_.FreeTensor(right);
    }
    Store(workspace_.Sums(piece.partial)[column], sums, heads, columns, tiling_.value_pitch);
  }

  const Tiling& tiling_;
  const AttentionTensors<T>& tensors_;
  const AttentionWorkspace<T> workspace_;
  uint32_t panels_;  // of a query
  int64_t loadedRow_ = kNoRow;
  LocalTensor<T> queryPanels_;
  TQue<TPosition::A1, 1> query_, weights_;
  TQue<TPosition::B1, kKeyBuffers> keys_;
  TQue<TPosition::A2, 2> left_;
  TQue<TPosition::B2, 2> right_;
  TQue<TPosition::CO1, 2> sums_;
};

}  // namespace opp
