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
    pipe.InitBuffer(weights_, kParts, 2 * kPanelElements * sizeof(T));
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
  static_assert(Tiling::kStep <= kPanel, "the keys of a step are one factor");
  static constexpr uint32_t kParts =
      (Tiling::kPiece + kPanel - 1) / kPanel;  // of a piece, whose weights are one factor

  struct Piece {
    int64_t row;
    int64_t partial;
    uint32_t keys;

    // How many of them lie in part number `part`, of up to `size` keys.
    __aicore__ inline uint32_t Of(uint32_t part, uint32_t size) const { return Smaller(size, keys - part * size); }
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
    const GlobalTensor<int64_t> note = workspace_.Note(n);
    DataCacheCleanAndInvalid<int64_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(note);
    piece.row = note.GetValue(kNoteRow);
    piece.partial = note.GetValue(kNotePartial);
    piece.keys = static_cast<uint32_t>(note.GetValue(kNoteKeys));
    WaitFor<HardEvent::S_MTE2>();  // the piece's results show that the note is read
    return piece.row != kNoRow;
  }

  __aicore__ inline void Score(uint32_t n, const Piece& piece) {
    const AttentionRow row = AttentionRowOf(tiling_, piece.row);
    const int64_t head = row.token * tiling_.heads + row.firstHead;
    const Part parts[] = {
        {tensors_.query[head * tiling_.depth], workspace_.Keys(n), tiling_.depth, tiling_.key_pitch},
        {tensors_.queryRope[head * tiling_.rope_depth], workspace_.Ropes(n), tiling_.rope_depth, tiling_.rope_pitch}};
    if (QueryStays() && loadedRow_ != piece.row) LoadQuery(parts, piece.row, row.heads);
    for (uint32_t step = 0; step * Tiling::kStep < piece.keys; ++step) {
      const uint32_t keys = piece.Of(step, Tiling::kStep);
      const LocalTensor<float> sums = sums_.template AllocTensor<float>();
      uint32_t panel = 0;
      for (const Part& part : parts) {
        for (int64_t column = 0; column < part.depth; column += kPanel, ++panel) {
          MultiplyKeys(sums, part, column, panel, step, row.heads, keys);
        }
      }
      Store(workspace_.Scores(n)[step * Tiling::kStep], sums, row.heads, keys, Tiling::kScoreRow);
    }
    // Nothing was multiplied: the flag would not say by itself that the note is read.
    if (piece.keys == 0) PipeBarrier<PIPE_ALL>();
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

  // Adds the products of a panel's columns to the scores of a step.
  __aicore__ inline void MultiplyKeys(const LocalTensor<float>& sums, const Part& part, int64_t column, uint32_t panel,
                                      uint32_t step, uint32_t heads, uint32_t keys) {
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
    if (step > 0 && panel == 0) CrossCoreWaitFlag(kKeysGathered);

    const LocalTensor<T> rows =
        InL1(part.keys[uint64_t{step} * Tiling::kStep * part.pitch + column], keys, depth, part.pitch);
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
    if (piece.keys > 0) LoadValues(n, piece, 0, 0);  // while the vector cores still work
    CrossCoreWaitFlag(kWeighed);
    if (piece.keys > 0) {
      const uint32_t heads = AttentionRowOf(tiling_, piece.row).heads;
      LocalTensor<T> weights[kParts];
      for (uint32_t column = 0; column < tiling_.value_pitch; column += kPanel) {
        const LocalTensor<float> sums = sums_.template AllocTensor<float>();
        for (uint32_t part = 0; part * kPanel < piece.keys; ++part) {
          if (column == 0) weights[part] = LoadWeights(n, piece, part, heads);
          if (column + part > 0) LoadValues(n, piece, part, column);
          SumPart(sums, weights[part], heads, Columns(column), piece.Of(part, kPanel), part == 0);
        }
        Store(workspace_.Sums(piece.partial)[column], sums, heads, Columns(column), tiling_.value_pitch);
      }
      for (uint32_t part = 0; part * kPanel < piece.keys; ++part) weights_.FreeTensor(weights[part]);
    }
    CrossCoreSetFlag<2, PIPE_FIX>(kSummed);
  }

  // The columns of a panel of weighted values. The columns that fill its last fractal are 0.
  __aicore__ inline uint32_t Columns(uint32_t column) const { return Smaller(kPanel, tiling_.value_pitch - column); }

  // Makes a factor of a panel's columns of the values of a part of the keys.
  __aicore__ inline void LoadValues(uint32_t n, const Piece& piece, uint32_t part, uint32_t column) {
    const uint32_t pitch = tensors_.valueIsKey ? tiling_.key_pitch : tiling_.value_pitch;
    const GlobalTensor<T> values = tensors_.valueIsKey ? workspace_.Keys(n) : workspace_.Values(n);
    const uint32_t keys = piece.Of(part, kPanel), columns = Columns(column);
    const LocalTensor<T> rows = InL1(values[uint64_t{part} * kPanel * pitch + column], keys, columns, pitch);
    const LocalTensor<T> right = right_.template AllocTensor<T>();
    LoadRight(right, rows, AlignUp(keys, kFractal), keys, CeilDivision(columns, kFractal));
    right_.EnQue(right);
    keys_.FreeTensor(rows);
  }

  // The weights of a part of the keys, rounded, and then the rounding errors.
  __aicore__ inline LocalTensor<T> LoadWeights(uint32_t n, const Piece& piece, uint32_t part, uint32_t heads) {
    const LocalTensor<T> to = weights_.template AllocTensor<T>();
    for (uint32_t i = 0; i < 2; ++i) {
      Load(to[i * kPanelElements], workspace_.Weights(n)[i * Tiling::kScoreRow + part * kPanel], heads,
           piece.Of(part, kPanel), 2 * Tiling::kScoreRow);
    }
    weights_.EnQue(to);
    return weights_.template DeQue<T>();
  }

  // Adds the products of a part's weights and the values that are a factor to the sums, or begins with them.
  __aicore__ inline void SumPart(const LocalTensor<float>& sums, const LocalTensor<T>& weights, uint32_t heads,
                                 uint32_t columns, uint32_t keys, bool begins) {
    const LocalTensor<T> right = right_.template DeQue<T>();
    for (uint32_t i = 0; i < 2; ++i) {
      const LocalTensor<T> to = left_.template AllocTensor<T>();
      LoadLeft(to, weights[i * kPanelElements], AlignUp(heads, kFractal), heads, CeilDivision(keys, kFractal));
      left_.EnQue(to);
      const LocalTensor<T> left = left_.template DeQue<T>();
      Multiply(sums, left, right, heads, columns, keys, begins && i == 0);
      left_.FreeTensor(left);
    }
    right_.FreeTensor(right);
  }

  const Tiling& tiling_;
  const AttentionTensors<T>& tensors_;
  const AttentionWorkspace<T> workspace_;
  uint32_t panels_;  // of a query
  int64_t loadedRow_ = kNoRow;
  LocalTensor<T> queryPanels_;
  TQue<TPosition::A1, 1> query_;
  TQue<TPosition::A1, kParts> weights_;
  TQue<TPosition::B1, kKeyBuffers> keys_;
  TQue<TPosition::A2, 2> left_;
  TQue<TPosition::B2, 2> right_;
  TQue<TPosition::CO1, 2> sums_;
};

}  // namespace opp
