// SPDX-License-Identifier: Apache-2.0
// Sparse flash attention on the vector cores: gathering keys and values, softmax weights, merging of pieces.
#pragma once

#include "workspace.h"

namespace opp {

template <class T>
class AttentionSoftmax {
  using Tiling = SparseFlashAttentionTiling;

 public:
  __aicore__ inline AttentionSoftmax(const Tiling& tiling, const AttentionTensors<T>& tensors,
                                     const Sequences& sequences, GM_ADDR workspace, TPipe& pipe)
      : tiling_(tiling),
        tensors_(tensors),
        sequences_(sequences),
        tokens_(tiling.sequences, sequences),
        workspace_(tiling, workspace, static_cast<uint32_t>(GetBlockIdx()) / Tiling::kVectorCores),
        core_(static_cast<uint32_t>(GetSubBlockIdx())),
        unit_(static_cast<uint32_t>(GetBlockIdx()) / Tiling::kVectorCores) {
    pipe.InitBuffer(in_, 2, kElements * sizeof(float));
    pipe.InitBuffer(out_, 2, kElements * sizeof(float));
    pipe.InitBuffer(rows_, 2, kRowElements * sizeof(T));
    pipe.InitBuffer(statesIn_, 1, 2 * kMerged * kHeads * sizeof(float));
    pipe.InitBuffer(statesOut_, 2, 2 * kHeads * sizeof(float));
    pipe.InitBuffer(workBuffer_, kElements * sizeof(float));
    pipe.InitBuffer(indexBuffer_, Tiling::kHalf * sizeof(int32_t));
    pipe.InitBuffer(placeBuffer_, Tiling::kHalf * sizeof(int64_t));
    pipe.InitBuffer(noteBuffer_, kBlock * sizeof(int64_t));
    pipe.InitBuffer(spreadBuffer_, kHeads * kBlock * sizeof(float));
    pipe.InitBuffer(factorBuffer_, (3 + 2 * kMerged) * kHeads * sizeof(float));
    work_ = workBuffer_.template Get<float>();
    indices_ = indexBuffer_.template Get<int32_t>();
    places_ = placeBuffer_.template Get<int64_t>();
    note_ = noteBuffer_.template Get<int64_t>();
    spread_ = spreadBuffer_.template Get<float>();
    maxima_ = factorBuffer_.template Get<float>();
    totals_ = maxima_[kHeads];
    next_ = maxima_[2 * kHeads];
    factors_ = maxima_[3 * kHeads];
    // Instructions take whole blocks of these, of which fewer elements count.
    Duplicate(maxima_, 0.0f, (3 + 2 * kMerged) * kHeads);
  }

  __aicore__ inline void Run() {
    // Others have written there what the scalar unit reads.
    DataCacheCleanAndInvalid<int32_t, CacheLine::ENTIRE_DATA_CACHE, DcciDst::CACHELINE_OUT>(workspace_.Named());
    Gather(0);
    if (Piece(0).row != kNoRow) Gather(1);
    for (uint32_t n = 0; Piece(n).row != kNoRow; ++n) {
      if (Piece(n + 1).row != kNoRow) Gather(n + 2);
      Weigh(n);
      if (n > 0) Merge(n - 1);
      if (Piece(n + 1).row == kNoRow) Merge(n);
    }
    if (tiling_.whole_rows < tiling_.rows) {
      SyncAll();
      MergeDivided();
    }
  }

 private:
  static constexpr uint32_t kBlock = 8;            // floats in 32 bytes
  static constexpr uint32_t kRepeat = 64;          // floats that an instruction takes at a time
  static constexpr uint32_t kElements = 4096;      // of scores and sums in a buffer
  static constexpr uint32_t kRowElements = 12288;  // of gathered rows
  static constexpr uint32_t kHeads = Tiling::kHeads / Tiling::kVectorCores;  // of a vector core
  static constexpr uint32_t kMerged = 8;                                     // pieces at a time
  static constexpr uint32_t kPending = 4;    // pieces of a block's row that wait to be merged
  static constexpr uint32_t kColumns = 512;  // of sums in a buffer
  static constexpr float kNone = -__builtin_huge_valf();

  // Indices [first, end) of a row, of which this core's half names `keys` keys.
  struct IndexPiece {
    int64_t row;
    int64_t partial;
    int64_t first;
    bool last;     // of its row
    bool divided;  // the row is not this block's alone
    uint32_t keys;
  };

  struct Range {
    uint32_t begin;
    uint32_t end;
  };

  __aicore__ static inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
  __aicore__ inline IndexPiece& Piece(uint32_t n) { return pieces_[n % Tiling::kGathered]; }

  // The heads of a row that are this core's.
  __aicore__ inline Range OwnHeads(uint32_t heads) const {
    const uint32_t half = AlignUp(CeilDivision(heads, Tiling::kVectorCores), kFractal);
    const uint32_t first = half < heads ? half : heads;
    return core_ == 0 ? Range{0, first} : Range{first, heads};
  }

  // ---- which keys belong to a piece

  // Goes to the block's next piece that has indices, its n-th; what has none gets its result here.
  __aicore__ inline bool Next(uint32_t n, IndexPiece& piece) {
    while (position_ >= end_) {
      if (!OpenUnit()) return false;
      if (position_ < end_) break;
      if (divided_) {
        NoteNothing(workspace_.PartialOf(row_, position_ / Tiling::kPiece));
      } else {
        WriteNothing();
      }
    }
    piece.row = row_;
    piece.first = position_;
    piece.divided = divided_;
    piece.partial = divided_ ? workspace_.PartialOf(row_, position_ / Tiling::kPiece) : workspace_.PartialOf(n);
    position_ += Tiling::kPiece;
    piece.last = position_ >= end_;
    return true;
  }

  // Goes to the block's next row, or the next piece of one that is divided: [position_, end_) of its indices.
  __aicore__ inline bool OpenUnit() {
    const int64_t units = tiling_.whole_rows + (tiling_.rows - tiling_.whole_rows) * tiling_.pieces;
    const int64_t unit = nextUnit_ == kNoRow ? unit_ : nextUnit_;
    if (unit >= units) return false;
    nextUnit_ = unit + tiling_.blocks;
    divided_ = unit >= tiling_.whole_rows;
    row_ = divided_ ? tiling_.whole_rows + (unit - tiling_.whole_rows) / tiling_.pieces : unit;
    position_ = divided_ ? (unit - tiling_.whole_rows) % tiling_.pieces * Tiling::kPiece : 0;
    end_ = divided_ ? Smaller(tiling_.named, position_ + Tiling::kPiece) : tiling_.named;
    const AttentionRow row = AttentionRowOf(tiling_, row_);
    sequence_ = tokens_.Of(row.token);
    visible_ = sequence_.Visible(row.token - sequence_.first_query);
    end_ = visible_ > 0 ? Smaller(end_, workspace_.Named().GetValue(row.indices)) : 0;
    return true;
  }

  // The places of the keys that this core's half of a piece names and its query sees; gives how many.
  __aicore__ inline uint32_t FindKeys(int64_t first) {
    first += core_ * Tiling::kHalf;
    if (first >= end_) return 0;
    const auto count = static_cast<uint32_t>(Smaller(Tiling::kHalf, end_ - first));
    WaitFor<HardEvent::S_MTE2>();
    DataCopyPad(indices_, tensors_.indices[AttentionRowOf(tiling_, row_).indices * tiling_.named + first],
                BytesOf<int32_t>(count), DataCopyPadExtParams<int32_t>{});
    WaitFor<HardEvent::MTE2_S>();
    uint32_t keys = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const int64_t index = indices_.GetValue(i);
      if (index >= visible_) continue;
      const KeyRun place = sequences_.RunOf(sequence_, index, index + 1);
      if (place.count > 0) places_.SetValue(keys++, place.row);
    }
    return keys;
  }

  // ---- gathering

  // Gathers what the n-th piece needs, and tells the cube core of it, or that there is none.
  __aicore__ inline void Gather(uint32_t n) {
    IndexPiece& piece = Piece(n);
    piece = {kNoRow, 0, 0, false, false, 0};
    if (Next(n, piece)) {
      piece.keys = FindKeys(piece.first);
      const int64_t head = AttentionRowOf(tiling_, piece.row).keyHead;
      GatherRows(workspace_.Keys(n), tensors_.key, tiling_.depth, tiling_.key_pitch, head, piece.keys);
      GatherRows(workspace_.Ropes(n), tensors_.keyRope, tiling_.rope_depth, tiling_.rope_pitch, head, piece.keys);
      if (!tensors_.valueIsKey) {
        GatherRows(workspace_.Values(n), tensors_.value, tiling_.value_depth, tiling_.value_pitch, head, piece.keys);
      }
    }
    WaitFor<HardEvent::MTE3_S>();
    note_.SetValue(kNoteRow, piece.row);
    note_.SetValue(kNoteKeys, piece.keys);
    note_.SetValue(kNotePartial, piece.partial);
    WaitFor<HardEvent::S_MTE3>();
    DataCopyPad(workspace_.Note(n, core_), note_, BytesOf<int64_t>(kNoteSize));
    CrossCoreSetFlag<2, PIPE_MTE3>(kKeysGathered);
  }

  // Copies the keys' rows of `depth` elements to this core's half of a matrix; zeros fill the pitch.
  __aicore__ inline void GatherRows(const GlobalTensor<T>& to, const GlobalTensor<T>& from, int64_t depth,
                                    uint32_t pitch, int64_t head, uint32_t keys) {
    for (int64_t column = 0; column < depth; column += kRowElements) {
      const auto columns = static_cast<uint32_t>(Smaller(kRowElements, depth - column));
      const uint32_t whole = AlignUp(columns, kFractal), together = kRowElements / whole;
      for (uint32_t first = 0; first < keys; first += together) {
        const auto count = static_cast<uint32_t>(Smaller(together, keys - first));
        LocalTensor<T> buffer = rows_.template AllocTensor<T>();
        for (uint32_t i = 0; i < count;) {
          const int64_t row = places_.GetValue(first + i);
          const uint32_t run = CountInARow(first + i, count - i);
          const int64_t step = tiling_.key_heads * depth;
          DataCopyPad(buffer[i * whole], from[row * step + head * depth + column],
                      DataCopyExtParams{static_cast<uint16_t>(run), static_cast<uint32_t>(columns * sizeof(T)),
                                        static_cast<uint32_t>((step - columns) * sizeof(T)), 0, 0},
                      DataCopyPadExtParams<T>{true, 0, static_cast<uint8_t>(whole - columns), {}});
          i += run;
        }
        rows_.EnQue(buffer);
        buffer = rows_.template DeQue<T>();
        DataCopy(to[uint64_t{core_ * Tiling::kHalf + first} * pitch + column], buffer,
                 DataCopyParams(static_cast<uint16_t>(count), static_cast<uint16_t>(whole / kFractal), 0,
                                static_cast<uint16_t>((pitch - whole) / kFractal)));
        rows_.FreeTensor(buffer);
      }
    }
  }

  // How many keys from one on lie one behind the other.
  __aicore__ inline uint32_t CountInARow(uint32_t first, uint32_t max) const {
    uint32_t count = 1;
    while (count < max && places_.GetValue(first + count) == places_.GetValue(first) + count) ++count;
    return count;
  }

  // ---- softmax

  // Turns the scores of this core's heads into weights, and says the largest score and the sum of the weights.
  __aicore__ inline void Weigh(uint32_t n) {
    const IndexPiece& piece = Piece(n);
    CrossCoreWaitFlag(kScored);
    uint32_t keys[Tiling::kVectorCores];
    keys[core_] = piece.keys;
    keys[1 - core_] = KeysOfOther(n);
    WaitFor<HardEvent::S_MTE3>();  // the flag behind says that the note is read
    const Range heads = OwnHeads(AttentionRowOf(tiling_, piece.row).heads);
    if (keys[0] + keys[1] == 0) {
      NoteNothing(piece.partial);
    } else if (heads.begin < heads.end) {
      const LocalTensor<float> state = statesOut_.template AllocTensor<float>();
      Duplicate(state, 0.0f, 2 * kHeads);  // of the last block perhaps some count
      for (uint32_t first = heads.begin; first < heads.end; first += kElements / Tiling::kPiece) {
        const auto count = static_cast<uint32_t>(Smaller(kElements / Tiling::kPiece, heads.end - first));
        WeighRows(n, first, count, keys, state[first - heads.begin], state[kHeads + first - heads.begin]);
      }
      Note(piece.partial, heads, state);
    }
    CrossCoreSetFlag<2, PIPE_MTE3>(kWeighed);
  }

  __aicore__ inline uint32_t KeysOfOther(uint32_t n) const {
    const GlobalTensor<int64_t> note = workspace_.Note(n, 1 - core_);
    DataCacheCleanAndInvalid<int64_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(note);
    return static_cast<uint32_t>(note.GetValue(kNoteKeys));
  }

  // Writes the maxima and the sums of weights of a piece.
  __aicore__ inline void Note(int64_t partial, const Range& heads, LocalTensor<float> state) {
    statesOut_.EnQue(state);
    state = statesOut_.template DeQue<float>();
    DataCopyPad(workspace_.Maxima(partial)[heads.begin], state, BytesOf<float>(heads.end - heads.begin));
    DataCopyPad(workspace_.Totals(partial)[heads.begin], state[kHeads], BytesOf<float>(heads.end - heads.begin));
    statesOut_.FreeTensor(state);
  }

  // Those of a piece without keys, of which the cube core makes no sums.
  __aicore__ inline void NoteNothing(int64_t partial) {
    const Range heads = OwnHeads(tiling_.height);
    if (heads.begin == heads.end) return;
    const LocalTensor<float> state = statesOut_.template AllocTensor<float>();
    Duplicate(state, kNone, kHeads);
    Duplicate(state[kHeads], 0.0f, kHeads);
    Note(partial, heads, state);
  }

  __aicore__ inline void WeighRows(uint32_t n, uint32_t first, uint32_t rows, const uint32_t (&keys)[2],
                                   const LocalTensor<float>& maxima, const LocalTensor<float>& totals) {
    constexpr uint32_t kStep = Tiling::kPiece / kBlock;
    const uint32_t elements = rows * Tiling::kPiece;
    LocalTensor<float> scores = in_.template AllocTensor<float>();
    DataCopy(scores, workspace_.Scores(n)[first * Tiling::kPiece], elements);
    in_.EnQue(scores);
    scores = in_.template DeQue<float>();
    Muls(scores, scores, tiling_.scale, static_cast<int32_t>(elements));
    LeaveOut(scores, rows, keys);

    Reduce<true>(scores, rows);
    WholeReduceMax(maxima, work_, kRepeat, rows, 1, 1, kRepeat / kBlock, ReduceOrder::ORDER_ONLY_VALUE);
    Spread(spread_, maxima, rows);
    for (uint32_t column = 0; column < Tiling::kPiece; column += kRepeat) {
      Sub(scores[column], scores[column], spread_, kRepeat, rows, {1, 1, 0, kStep, kStep, 1});
    }
    Exp(scores, scores, static_cast<int32_t>(elements));
    Reduce<false>(scores, rows);
    WholeReduceSum(totals, work_, kRepeat, rows, 1, 1, kRepeat / kBlock);

    // In 16 bits a weight is off by up to 2^-9, and where few keys have most of the weight that is seen.
    LocalTensor<T> weights = out_.template AllocTensor<T>();
    const LocalTensor<T> rest = weights[kElements];
    Cast(weights, scores, RoundMode::CAST_RINT, elements);
    Cast(work_, weights, RoundMode::CAST_NONE, elements);
    Sub(work_, scores, work_, static_cast<int32_t>(elements));
    Cast(rest, work_, RoundMode::CAST_RINT, elements);
    in_.FreeTensor(scores);
    out_.EnQue(weights);
    weights = out_.template DeQue<T>();
    for (uint32_t part = 0; part < 2; ++part) {
      DataCopy(workspace_.Weights(n, part)[first * Tiling::kPiece], weights[part * kElements], elements);
    }
    out_.FreeTensor(weights);
  }

  // Columns without a key get the score of no weight.
  __aicore__ inline void LeaveOut(const LocalTensor<float>& scores, uint32_t rows, const uint32_t (&keys)[2]) {
    for (uint32_t column = 0; column < Tiling::kPiece; column += kRepeat) {
      const uint32_t before = column % Tiling::kHalf, keysOfHalf = keys[column / Tiling::kHalf];
      if (keysOfHalf >= before + kRepeat) continue;
      const uint64_t mask[2] = {~uint64_t{0} << (keysOfHalf > before ? keysOfHalf - before : 0), 0};
      Duplicate(scores[column], kNone, mask, rows, 1, Tiling::kPiece / kBlock);
    }
  }

  // Combines the repeats of each row to one, in work_: to the largest numbers, or to sums.
  template <bool largest>
  __aicore__ inline void Reduce(const LocalTensor<float>& scores, uint32_t rows) {
    constexpr uint8_t kStep = Tiling::kPiece / kBlock, kOne = kRepeat / kBlock;
    LocalTensor<float> from = scores;
    uint8_t step = kStep;
    for (uint32_t column = kRepeat; column < Tiling::kPiece; column += kRepeat) {
      const BinaryRepeatParams strides{1, 1, 1, kOne, step, kStep};
      if constexpr (largest) {
        Max(work_, from, scores[column], kRepeat, rows, strides);
      } else {
        Add(work_, from, scores[column], kRepeat, rows, strides);
      }
      from = work_;
      step = kOne;
    }
  }

  // A block of 32 bytes for each number.
  __aicore__ inline void Spread(const LocalTensor<float>& to, const LocalTensor<float>& from, uint32_t count) {
    Brcb(to, from, CeilDivision(count, kBlock), {1, 8});
  }

  // ---- merging

  // Merges what waits, when the n-th piece's sums are there, if it is enough or the row ends.
  __aicore__ inline void Merge(uint32_t n) {
    const IndexPiece& piece = Piece(n);
    CrossCoreWaitFlag(kSummed);
    if (piece.divided) return;
    ++pending_;
    if (!piece.last && pending_ < kPending) return;
    const AttentionRow row = AttentionRowOf(tiling_, piece.row);
    const Range heads = OwnHeads(row.heads);
    if (heads.begin < heads.end) {
      if (!resumed_) Begin(row, heads);
      WaitFor<HardEvent::MTE3_MTE2>();
      int64_t partials[kMerged];
      for (uint32_t i = 0; i < pending_; ++i) partials[i] = workspace_.PartialOf(n + 1 - pending_ + i);
      MergePieces(row, heads, partials, pending_, resumed_, piece.last);
    }
    resumed_ = !piece.last;
    pending_ = 0;
  }

  // The rows whose pieces several blocks have: each vector core has the heads of some.
  __aicore__ inline void MergeDivided() {
    const int64_t shares = tiling_.height / kBlock, all = (tiling_.rows - tiling_.whole_rows) * shares;
    for (int64_t share = GetBlockIdx(); share < all; share += GetBlockNum() * Tiling::kVectorCores) {
      const int64_t index = tiling_.whole_rows + share / shares;
      const AttentionRow row = AttentionRowOf(tiling_, index);
      const auto first = static_cast<uint32_t>(share % shares) * kBlock;
      const Range heads{first, static_cast<uint32_t>(Smaller(row.heads, first + kBlock))};
      if (heads.begin >= heads.end) continue;
      Begin(row, heads);
      for (int64_t piece = 0; piece < tiling_.pieces; piece += kMerged) {
        const auto count = static_cast<uint32_t>(Smaller(kMerged, tiling_.pieces - piece));
        int64_t partials[kMerged];
        for (uint32_t i = 0; i < count; ++i) partials[i] = workspace_.PartialOf(index, piece + i);
        MergePieces(row, heads, partials, count, piece > 0, piece + count == tiling_.pieces);
        WaitFor<HardEvent::MTE3_MTE2>();
      }
    }
  }

  // The softmax of a row begins with the sink, whose exponential relative to itself is 1; without one it weighs
  // nothing.
  __aicore__ inline void Begin(const AttentionRow& row, const Range& heads) {
    if (tiling_.sinks) {
      const LocalTensor<float> sinks = LoadSinks(row, heads);
      Adds(maxima_, sinks, 0.0f, static_cast<int32_t>(heads.end - heads.begin));
      in_.FreeTensor(sinks);
    } else {
      Duplicate(maxima_, kNone, kHeads);
    }
    Duplicate(totals_, 1.0f, kHeads);
  }

  __aicore__ inline LocalTensor<float> LoadSinks(const AttentionRow& row, const Range& heads) {
    const LocalTensor<float> sinks = in_.template AllocTensor<float>();
    DataCopyPad(sinks, tensors_.sinks[row.firstHead + heads.begin], BytesOf<float>(heads.end - heads.begin),
                DataCopyPadExtParams<float>{});
    in_.EnQue(sinks);
    return in_.template DeQue<float>();
  }

  // Merges pieces into what is there of a row's heads, and writes the result behind the last.
  __aicore__ inline void MergePieces(const AttentionRow& row, const Range& heads, int64_t (&partials)[kMerged],
                                     uint32_t count, bool resumed, bool finish) {
    const uint32_t merged = FindFactors(heads, partials, count), size = heads.end - heads.begin;
    const auto columns = static_cast<uint32_t>(Smaller(kColumns, tiling_.value_pitch));
    const auto together = static_cast<uint32_t>(Smaller(kHeads, kElements / columns / kBlock * kBlock));
    for (uint32_t first = 0; first < size; first += together) {
      const auto rows = static_cast<uint32_t>(Smaller(together, size - first));
      for (uint32_t column = 0; column < tiling_.value_pitch; column += columns) {
        const Tile tile{first, rows, column, static_cast<uint32_t>(Smaller(columns, tiling_.value_pitch - column))};
        MergeTile(tile, heads.begin, partials, merged, resumed);
        if (finish) {
          WriteResult(row, heads.begin, tile);
        } else {
          Keep(tile);
        }
      }
    }
    if (finish && tiling_.with_lse) {
      Ln(next_, totals_, static_cast<int32_t>(size));
      LocalTensor<float> lse = out_.template AllocTensor<float>();
      Add(lse, maxima_, next_, static_cast<int32_t>(size));
      WriteLse(row, heads, lse);
    }
  }

  // Of sums: heads of this core, and columns.
  struct Tile {
    uint32_t first;
    uint32_t rows;
    uint32_t column;
    uint32_t columns;
  };

  // By what the merged sums and those of each piece are multiplied; gives how many of the pieces have keys, and moves
  // those to the front.
  __aicore__ inline uint32_t FindFactors(const Range& heads, int64_t (&partials)[kMerged], uint32_t count) {
    const auto size = heads.end - heads.begin;
    LocalTensor<float> states = statesIn_.template AllocTensor<float>();
    for (uint32_t i = 0; i < count; ++i) {
      DataCopyPad(states[2 * i * kHeads], workspace_.Maxima(partials[i])[heads.begin], BytesOf<float>(size),
                  DataCopyPadExtParams<float>{});
      DataCopyPad(states[(2 * i + 1) * kHeads], workspace_.Totals(partials[i])[heads.begin], BytesOf<float>(size),
                  DataCopyPadExtParams<float>{});
    }
    statesIn_.EnQue(states);
    states = statesIn_.template DeQue<float>();
    WaitFor<HardEvent::MTE2_S>();
    uint32_t merged = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const LocalTensor<float> maxima = states[2 * i * kHeads], totals = states[(2 * i + 1) * kHeads];
      if (totals.GetValue(0) == 0.0f) continue;
      const LocalTensor<float> old = factors_[2 * merged * kHeads], added = factors_[(2 * merged + 1) * kHeads];
      Max(next_, maxima_, maxima, size);
      Sub(old, maxima_, next_, size);
      Exp(old, old, size);
      Sub(added, maxima, next_, size);
      Exp(added, added, size);
      Adds(maxima_, next_, 0.0f, size);
      Mul(totals_, totals_, old, size);
      Mul(next_, totals, added, size);
      Add(totals_, totals_, next_, size);
      partials[merged++] = partials[i];
    }
    WaitFor<HardEvent::S_MTE2>();
    statesIn_.FreeTensor(states);
    return merged;
  }

  // The merged sums of a tile, in work_, in rows of its columns.
  __aicore__ inline void MergeTile(const Tile& tile, uint32_t firstHead, const int64_t (&partials)[kMerged],
                                   uint32_t merged, bool resumed) {
    const auto elements = static_cast<int32_t>(tile.rows * tile.columns);
    bool any = resumed;
    if (resumed) {
      const LocalTensor<float> kept = LoadSums(workspace_.Merged(core_), tile.first, tile);
      DataCopy(work_, kept, static_cast<uint32_t>(elements));
      in_.FreeTensor(kept);
    }
    for (uint32_t i = 0; i < merged; ++i) {
      const LocalTensor<float> sums = LoadSums(workspace_.Sums(partials[i]), firstHead + tile.first, tile);
      Spread(spread_, factors_[(2 * i + 1) * kHeads + tile.first], tile.rows);
      Scale(any ? sums : work_, sums, tile);
      if (any) {
        Spread(spread_, factors_[2 * i * kHeads + tile.first], tile.rows);
        Scale(work_, work_, tile);
        Add(work_, work_, sums, elements);
      }
      in_.FreeTensor(sums);
      any = true;
    }
    if (!any) Duplicate(work_, 0.0f, elements);
  }

  __aicore__ inline LocalTensor<float> LoadSums(const GlobalTensor<float>& from, uint32_t row, const Tile& tile) {
    const LocalTensor<float> sums = in_.template AllocTensor<float>();
    DataCopy(sums, from[uint64_t{row} * tiling_.value_pitch + tile.column], RowsOf(tile, 0));
    in_.EnQue(sums);
    return in_.template DeQue<float>();
  }

  // A tile's rows lie one behind the other in the unified buffer, and value_pitch apart in device memory.
  __aicore__ inline DataCopyParams RowsOf(const Tile& tile, bool out) const {
    const auto gap = static_cast<uint16_t>((tiling_.value_pitch - tile.columns) / kBlock);
    const auto blocks = static_cast<uint16_t>(tile.columns / kBlock);
    return {static_cast<uint16_t>(tile.rows), blocks, out ? uint16_t{0} : gap, out ? gap : uint16_t{0}};
  }

  // Elements of a row from a column on that one instruction takes.
  __aicore__ static inline uint64_t MaskOf(const Tile& tile, uint32_t column) {
    return static_cast<uint64_t>(Smaller(kRepeat, tile.columns - column));
  }

  // Multiplies each row by its number in spread_.
  __aicore__ inline void Scale(const LocalTensor<float>& to, const LocalTensor<float>& from, const Tile& tile) {
    const auto step = static_cast<uint8_t>(tile.columns / kBlock);
    for (uint32_t column = 0; column < tile.columns; column += kRepeat) {
      Mul(to[column], from[column], spread_, MaskOf(tile, column), tile.rows, {1, 1, 0, step, step, 1});
    }
  }

  __aicore__ inline void Keep(const Tile& tile) {
    LocalTensor<float> sums = out_.template AllocTensor<float>();
    DataCopy(sums, work_, tile.rows * tile.columns);
    out_.EnQue(sums);
    sums = out_.template DeQue<float>();
    DataCopy(workspace_.Merged(core_)[uint64_t{tile.first} * tiling_.value_pitch + tile.column], sums,
             RowsOf(tile, true));
    out_.FreeTensor(sums);
  }

  // Divides a tile by the sums of its rows' weights.
  __aicore__ inline void WriteResult(const AttentionRow& row, uint32_t firstHead, const Tile& tile) {
    const auto step = static_cast<uint8_t>(tile.columns / kBlock);
    Spread(spread_, totals_[tile.first], tile.rows);
    for (uint32_t column = 0; column < tile.columns; column += kRepeat) {
      Div(work_[column], work_[column], spread_, MaskOf(tile, column), tile.rows, {1, 1, 0, step, step, 1});
    }
    const LocalTensor<T> result = out_.template AllocTensor<T>();
    Cast(result, work_, RoundMode::CAST_RINT, tile.rows * tile.columns);
    WriteRows(row, firstHead, tile, result);
  }

  // Writes those of a tile's columns that value has.
  __aicore__ inline void WriteRows(const AttentionRow& row, uint32_t firstHead, const Tile& tile,
                                   LocalTensor<T> result) {
    const auto columns = static_cast<uint32_t>(Smaller(tile.columns, tiling_.value_depth - tile.column));
    const int64_t head = row.token * tiling_.heads + row.firstHead + firstHead + tile.first;
    out_.EnQue(result);
    result = out_.template DeQue<T>();
    DataCopyPad(tensors_.out[head * tiling_.value_depth + tile.column], result,
                DataCopyExtParams{static_cast<uint16_t>(tile.rows), static_cast<uint32_t>(columns * sizeof(T)), 0,
                                  static_cast<uint32_t>((tiling_.value_depth - columns) * sizeof(T)), 0});
    out_.FreeTensor(result);
  }

  __aicore__ inline void WriteLse(const AttentionRow& row, const Range& heads, LocalTensor<float> lse) {
    out_.EnQue(lse);
    lse = out_.template DeQue<float>();
    DataCopyPad(tensors_.lse[row.token * tiling_.heads + row.firstHead + heads.begin], lse,
                BytesOf<float>(heads.end - heads.begin));
    out_.FreeTensor(lse);
  }

  // The result of a row without indices: zeros, and the sinks as logarithms of sums.
  __aicore__ inline void WriteNothing() {
    const AttentionRow row = AttentionRowOf(tiling_, row_);
    const Range heads = OwnHeads(row.heads);
    if (heads.begin == heads.end) return;
    const auto columns = static_cast<uint32_t>(Smaller(kColumns, tiling_.value_pitch));
    const uint32_t together = kElements / columns;
    for (uint32_t first = 0; first < heads.end - heads.begin; first += together) {
      const auto rows = static_cast<uint32_t>(Smaller(together, heads.end - heads.begin - first));
      for (uint32_t column = 0; column < tiling_.value_pitch; column += columns) {
        const Tile tile{first, rows, column, static_cast<uint32_t>(Smaller(columns, tiling_.value_pitch - column))};
        const LocalTensor<T> result = out_.template AllocTensor<T>();
        Duplicate(result.template ReinterpretCast<uint16_t>(), uint16_t{0}, static_cast<int32_t>(rows * tile.columns));
        WriteRows(row, heads.begin, tile, result);
      }
    }
    if (!tiling_.with_lse) return;
    const LocalTensor<float> lse = out_.template AllocTensor<float>();
    if (tiling_.sinks) {
      const LocalTensor<float> sinks = LoadSinks(row, heads);
      Adds(lse, sinks, 0.0f, static_cast<int32_t>(heads.end - heads.begin));
      in_.FreeTensor(sinks);
    } else {
      Duplicate(lse, kNone, kHeads);
    }
    WriteLse(row, heads, lse);
  }

  const Tiling& tiling_;
  const AttentionTensors<T>& tensors_;
  const Sequences& sequences_;
  TokenSequences tokens_;
  const AttentionWorkspace<T> workspace_;
  const uint32_t core_;  // of the block's vector cores
  const int64_t unit_;   // the block's first row or piece
  TQue<TPosition::VECIN, 2> in_;
  TQue<TPosition::VECOUT, 2> out_;
  TQueBind<TPosition::VECIN, TPosition::VECOUT, 2> rows_;
  TQue<TPosition::VECIN, 1> statesIn_;
  TQue<TPosition::VECOUT, 2> statesOut_;
  TBuf<TPosition::VECCALC> workBuffer_, indexBuffer_, placeBuffer_, noteBuffer_, spreadBuffer_, factorBuffer_;
  LocalTensor<float> work_, spread_;
  LocalTensor<float> maxima_, totals_, next_;  // of the merged pieces of each head
  LocalTensor<float> factors_;
  LocalTensor<int32_t> indices_;
  LocalTensor<int64_t> places_, note_;

  IndexPiece pieces_[Tiling::kGathered];
  int64_t nextUnit_ = kNoRow;
  int64_t row_ = kNoRow;
  bool divided_ = false;
  int64_t position_ = 0;  // of the row's indices, where the next piece begins
  int64_t end_ = 0;
  Sequence sequence_{};
  int64_t visible_ = 0;
  uint32_t pending_ = 0;
  bool resumed_ = false;  // some of the row's pieces are merged
};

}  // namespace opp
