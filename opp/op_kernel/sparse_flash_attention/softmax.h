// SPDX-License-Identifier: Apache-2.0
// Sparse flash attention on the vector cores: gathering keys and values, softmax weights, merging of pieces.
#pragma once

#include "index_rows.h"
#include "key_addresses.h"
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
        indexRows_(tiling, tensors.indices, pipe),
        addresses_(tiling.sequences, sequences, Tiling::kPiece, pipe),
        core_(static_cast<uint32_t>(GetSubBlockIdx())),
        unit_(static_cast<uint32_t>(GetBlockIdx()) / Tiling::kVectorCores) {
    pipe.InitBuffer(in_, kRequested, kElements * sizeof(float));
    pipe.InitBuffer(out_, 2, kElements * sizeof(float));
    pipe.InitBuffer(rows_, kRowBuffers, kRowElements * sizeof(T));
    pipe.InitBuffer(statesIn_, 1, 2 * kStates * kHeads * sizeof(float));
    pipe.InitBuffer(statesOut_, 2, 2 * kHeads * sizeof(float));
    pipe.InitBuffer(workBuffer_, kElements * sizeof(float));
    pipe.InitBuffer(noteBuffer_, Tiling::kGathered * Tiling::kNoteBytes);
    pipe.InitBuffer(spreadBuffer_, kHeads * kBlock * sizeof(float));
    pipe.InitBuffer(factorBuffer_, (3 + kStates) * kHeads * sizeof(float));
    work_ = workBuffer_.template Get<float>();
    note_ = noteBuffer_.template Get<int64_t>();
    spread_ = spreadBuffer_.template Get<float>();
    maxima_ = factorBuffer_.template Get<float>();
    totals_ = maxima_[kHeads];
    next_ = maxima_[2 * kHeads];
    factors_ = maxima_[3 * kHeads];
    // Instructions take whole blocks of these, but use fewer elements.
    Duplicate(maxima_, 0.0f, (3 + kStates) * kHeads);
    Duplicate(spread_, 0.0f, kHeads * kBlock);
  }

  __aicore__ inline void Run() {
    const int64_t cores = GetBlockNum() * Tiling::kVectorCores;
    if (tiling_.whole_rows > 0) {  // their results are written before other blocks have checked their rows
      CheckIndices(cores);
      SyncAll();  // a call that is rejected writes nothing
    }
    Gather(0);
    if (Piece(0).row != kNoRow) Gather(1);
    if (tiling_.whole_rows == 0) sequences_.CheckAll(GetBlockIdx(), cores);
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
  static constexpr uint32_t kBlock = 8;    // floats in 32 bytes
  static constexpr uint32_t kRepeat = 64;  // floats that an instruction takes at a time
  static constexpr uint8_t kStride = kRepeat / kBlock;
  static constexpr uint32_t kElements = Tiling::kElements;  // of scores and sums in a buffer
  static constexpr uint32_t kRowElements = 6144;            // of gathered rows
  static constexpr uint32_t kRowBuffers = 3;
  static constexpr int64_t kMaxGap = 0xffffffff;  // bytes, between rows that are copied at once
  static constexpr uint32_t kHeads = Tiling::kHeads / Tiling::kVectorCores;  // of a vector core
  static constexpr uint32_t kStates = 1 + Tiling::kMerged;  // of what is merged already, and of the pieces to be merged
  static constexpr uint32_t kColumns = 128;                 // of sums in a buffer
  static constexpr uint32_t kRequested = 2;                 // scores and sums that are on their way at the same time
  static constexpr float kNone = -__builtin_huge_valf();

  // The indices of a row from `first` on, which name `keys` keys.
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

  // Stops the kernel at a length or an index out of range, of this core's share.
  __aicore__ inline void CheckIndices(int64_t cores) {
    sequences_.CheckAll(GetBlockIdx(), cores);
    TokenSequences tokens(tiling_.sequences, sequences_);  // separate, as it only goes forward
    for (int64_t row = GetBlockIdx(); row < tiling_.rows / tiling_.tiles; row += cores) {
      const int64_t token = row / tiling_.key_heads;
      const Sequence& sequence = tokens.Of(token);
      if (token - sequence.first_query < sequence.queries) indexRows_.Count(row, tiling_.named, in_, work_);
    }
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
    const AttentionRow row = AttentionRowOf(tiling_, row_);
    sequence_ = tokens_.Of(row.token);
    const int64_t query = row.token - sequence_.first_query;
    visible_ = sequence_.Visible(query);
    end_ = 0;
    if (query >= sequence_.queries) return true;  // indices of padding are not read
    end_ = divided_ ? Smaller(tiling_.named, position_ + Tiling::kPiece) : tiling_.named;
    // The vector unit does that while the scalar unit counts.
    if (visible_ > 0 && position_ < end_) FindKeys(position_);
    end_ = indexRows_.Count(row.indices, end_, in_, work_);
    if (visible_ <= 0) end_ = 0;
    return true;
  }

  // Finds the keys of the piece that begins at an index, which may be more than the row names.
  __aicore__ inline void FindKeys(int64_t first) {
    const int64_t row = AttentionRowOf(tiling_, row_).indices;
    addresses_.Find(sequence_, visible_, tensors_.indices[row * tiling_.named + first],
                    static_cast<uint32_t>(Smaller(Tiling::kPiece, tiling_.named - first)));
    found_ = true;
  }

  // ---- gathering

  // Gathers what the n-th piece needs, and notifies the cube core of the piece, or that there is none.
  __aicore__ inline void Gather(uint32_t n) {
    IndexPiece& piece = Piece(n);
    piece = {kNoRow, 0, 0, false, false, 0};
    int64_t head = 0;
    if (Next(n, piece)) {
      head = AttentionRowOf(tiling_, piece.row).keyHead;
      if (!found_) FindKeys(piece.first);
      found_ = false;
      piece.keys = addresses_.Take(static_cast<uint32_t>(Smaller(Tiling::kPiece, end_ - piece.first)));
    }
    if (core_ == 0) Tell(n, piece);
    uint32_t first = 0;
    do {
      const auto all = static_cast<uint32_t>(Smaller(Tiling::kStep, piece.keys - first));
      const auto half = static_cast<uint32_t>(Smaller(all, AlignUp(CeilDivision(all, Tiling::kVectorCores), 2u)));
      const uint32_t begin = core_ == 0 ? first : first + half, keys = core_ == 0 ? half : all - half;
      if (keys > 0) {
        GatherRows(workspace_.Keys(n), tensors_.key, tiling_.depth, tiling_.key_pitch, head, begin, keys);
        GatherRows(workspace_.Ropes(n), tensors_.keyRope, tiling_.rope_depth, tiling_.rope_pitch, head, begin, keys);
        if (!tensors_.valueIsKey) {
          GatherRows(workspace_.Values(n), tensors_.value, tiling_.value_depth, tiling_.value_pitch, head, begin, keys);
        }
      }
      CrossCoreSetFlag<2, PIPE_MTE3>(kKeysGathered);
      first += Tiling::kStep;
    } while (first < piece.keys);
  }

  __aicore__ inline void Tell(uint32_t n, const IndexPiece& piece) {
    const LocalTensor<int64_t> note = note_[n % Tiling::kGathered * AttentionWorkspace<T>::kNoteElements];
    note.SetValue(kNoteRow, piece.row);
    note.SetValue(kNoteKeys, piece.keys);
    note.SetValue(kNotePartial, piece.partial);
    WaitFor<HardEvent::S_MTE3>();
    DataCopyPad(workspace_.Note(n), note, BytesOf<int64_t>(kNoteSize));
  }

  // Copies rows of `depth` elements, of `count` keys from the first-th on, to their places in a matrix; zeros fill the
  // pitch. An instruction copies rows of equal distance: at least two, the nearer first.
  __aicore__ inline void GatherRows(const GlobalTensor<T>& to, const GlobalTensor<T>& from, int64_t depth,
                                    uint32_t pitch, int64_t head, uint32_t first, uint32_t count) {
    const int64_t step = tiling_.key_heads * depth;
    for (int64_t column = 0; column < depth; column += kRowElements / 2) {
      const auto columns = static_cast<uint32_t>(Smaller(kRowElements / 2, depth - column));
      const uint32_t whole = AlignUp(columns, kFractal), together = kRowElements / whole / 2 * 2;
      for (uint32_t done = 0; done < count; done += together) {
        const auto rows = static_cast<uint32_t>(Smaller(together, count - done));
        LocalTensor<T> buffer = rows_.template AllocTensor<T>();
        RowRun next = RunAt(first + done, rows);
        for (uint32_t i = 0; i < rows;) {
          RowRun run = next;
          while (i + run.count < rows) {
            next = RunAt(first + done + i + run.count, rows - i - run.count);
            if (next.distance != run.distance || next.row != run.row + run.count * run.distance) break;
            run.count += next.count;
          }
          CopyRows(buffer[i * whole], from[run.row * step + head * depth + column], run, columns, step);
          i += run.count;
        }
        rows_.EnQue(buffer);
        buffer = rows_.template DeQue<T>();
        DataCopy(to[uint64_t{first + done} * pitch + column], buffer,
                 DataCopyParams(static_cast<uint16_t>(rows), static_cast<uint16_t>(whole / kFractal), 0,
                                static_cast<uint16_t>((pitch - whole) / kFractal)));
        rows_.FreeTensor(buffer);
      }
    }
  }

  // Rows of key at equal distances.
  struct RowRun {
    int64_t row;
    int64_t distance;
    uint32_t count;
  };

  // The i-th key and the next, in the order of their rows.
  __aicore__ inline RowRun RunAt(uint32_t i, uint32_t max) const {
    const int64_t row = addresses_.Get(i);
    if (max < 2) return {row, 1, 1};
    const int64_t other = addresses_.Get(i + 1);
    return row < other ? RowRun{row, other - row, 2} : RowRun{other, row - other, 2};
  }

  __aicore__ inline void CopyRows(const LocalTensor<T>& to, const GlobalTensor<T>& from, const RowRun& run,
                                  uint32_t columns, int64_t step) {
    const auto bytes = static_cast<uint32_t>(columns * sizeof(T));
    const auto padding = static_cast<uint8_t>(AlignUp(columns, kFractal) - columns);
    const int64_t gap = (run.distance * step - columns) * static_cast<int64_t>(sizeof(T));
    const bool atOnce = gap >= 0 && gap <= kMaxGap;
    for (uint32_t i = 0; i < run.count; i += atOnce ? run.count : 1) {
      DataCopyPad(to[i * (columns + padding)], from[i * run.distance * step],
                  DataCopyExtParams{static_cast<uint16_t>(atOnce ? run.count : 1), bytes,
                                    static_cast<uint32_t>(atOnce ? gap : 0), 0, 0},
                  DataCopyPadExtParams<T>{true, 0, padding, {}});
    }
  }

  // ---- softmax

  // Turns the scores of this core's heads into weights, and says the largest score and the sum of the weights.
  __aicore__ inline void Weigh(uint32_t n) {
    const IndexPiece& piece = Piece(n);
    CrossCoreWaitFlag(kScored);
    const Range heads = OwnHeads(AttentionRowOf(tiling_, piece.row).heads);
    if (piece.keys == 0) {
      NoteNothing(piece.partial);
    } else if (heads.begin < heads.end) {
      const LocalTensor<float> state = statesOut_.template AllocTensor<float>();
      Duplicate(state, 0.0f, 2 * kHeads);  // of the last block perhaps some count
      constexpr uint32_t kTogether = kElements / Tiling::kScoreRow / kBlock * kBlock;
      for (uint32_t first = heads.begin; first < heads.end; first += kTogether) {
        const auto count = static_cast<uint32_t>(Smaller(kTogether, heads.end - first));
        WeighRows(n, first, count, piece.keys, state[first - heads.begin], state[kHeads + first - heads.begin]);
      }
      Note(piece.partial, heads, state);
    }
    CrossCoreSetFlag<2, PIPE_MTE3>(kWeighed);
  }

  // Writes the maxima and the sums of weights of a piece.
  __aicore__ inline void Note(int64_t partial, const Range& heads, LocalTensor<float> state) {
    statesOut_.EnQue(state);
    state = statesOut_.template DeQue<float>();
    DataCopyPad(workspace_.Maxima(partial)[heads.begin], state, BytesOf<float>(heads.end - heads.begin));
    DataCopyPad(workspace_.Totals(partial)[heads.begin], state[kHeads], BytesOf<float>(heads.end - heads.begin));
    statesOut_.FreeTensor(state);
  }

  // The states of a piece without keys. The cube core computes no sums for it.
  __aicore__ inline void NoteNothing(int64_t partial) {
    const Range heads = OwnHeads(tiling_.height);
    if (heads.begin == heads.end) return;
    const LocalTensor<float> state = statesOut_.template AllocTensor<float>();
    Duplicate(state, kNone, kHeads);
    Duplicate(state[kHeads], 0.0f, kHeads);
    Note(partial, heads, state);
  }

  __aicore__ inline void WeighRows(uint32_t n, uint32_t first, uint32_t rows, uint32_t keys,
                                   const LocalTensor<float>& maxima, const LocalTensor<float>& totals) {
    constexpr uint32_t kStep = Tiling::kScoreRow / kBlock;
    const uint32_t elements = rows * Tiling::kScoreRow;
    LocalTensor<float> scores = in_.template AllocTensor<float>();
    DataCopy(scores, workspace_.Scores(n)[first * Tiling::kScoreRow], elements);
    in_.EnQue(scores);
    scores = in_.template DeQue<float>();
    Muls(scores, scores, tiling_.scale, static_cast<int32_t>(elements));
    LeaveOut(scores, rows, keys);

    Reduce<true>(scores, rows);
    BlockReduceMax(spread_, work_, rows, kRepeat, 1, 1, kStride);
    BlockReduceMax(maxima, spread_, CeilDivision(rows, kBlock), kRepeat, 1, 1, kStride);
    Spread(spread_, maxima, rows);
    for (uint32_t column = 0; column < Tiling::kScoreRow; column += kRepeat) {
      Sub(scores[column], scores[column], spread_, kRepeat, rows, {1, 1, 0, kStep, kStep, 1});
    }
    Exp(scores, scores, static_cast<int32_t>(elements));
    Reduce<false>(scores, rows);
    BlockReduceSum(spread_, work_, rows, kRepeat, 1, 1, kStride);
    BlockReduceSum(totals, spread_, CeilDivision(rows, kBlock), kRepeat, 1, 1, kStride);

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
      constexpr uint16_t kBlocks = Tiling::kScoreRow / kFractal;
      DataCopy(workspace_.Weights(n)[(2 * first + part) * Tiling::kScoreRow], weights[part * kElements],
               DataCopyParams(static_cast<uint16_t>(rows), kBlocks, 0, kBlocks));
    }
    out_.FreeTensor(weights);
  }

  // Columns without a key get a score whose weight is 0.
  __aicore__ inline void LeaveOut(const LocalTensor<float>& scores, uint32_t rows, uint32_t keys) {
    for (uint32_t column = keys / kRepeat * kRepeat; column < Tiling::kScoreRow; column += kRepeat) {
      const uint64_t mask[2] = {~uint64_t{0} << (keys > column ? keys - column : 0), 0};
      Duplicate(scores[column], kNone, mask, rows, 1, Tiling::kScoreRow / kBlock);
    }
  }

  // Combines the repeats of each row to one, in work_: to the largest numbers, or to sums.
  template <bool largest>
  __aicore__ inline void Reduce(const LocalTensor<float>& scores, uint32_t rows) {
    constexpr uint8_t kStep = Tiling::kScoreRow / kBlock, kOne = kRepeat / kBlock;
    LocalTensor<float> from = scores;
    uint8_t step = kStep;
    for (uint32_t column = kRepeat; column < Tiling::kScoreRow; column += kRepeat) {
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

  // Pieces that are merged at the same time.
  struct Merged {
    int64_t partials[Tiling::kMerged];
    bool hasKeys[Tiling::kMerged];
    uint32_t count;
  };

  // Merges what waits, when the n-th piece's sums are there, if it is enough or the row ends.
  __aicore__ inline void Merge(uint32_t n) {
    const IndexPiece& piece = Piece(n);
    CrossCoreWaitFlag(kSummed);
    if (piece.divided) return;
    ++pending_;
    if (!piece.last && pending_ < Tiling::kMerged) return;
    const AttentionRow row = AttentionRowOf(tiling_, piece.row);
    const Range heads = OwnHeads(row.heads);
    if (heads.begin < heads.end) {
      if (!resumed_) Begin(row, heads);
      WaitFor<HardEvent::MTE3_MTE2>();
      Merged merged{{}, {}, pending_};
      for (uint32_t i = 0; i < pending_; ++i) merged.partials[i] = workspace_.PartialOf(n + 1 - pending_ + i);
      MergePieces(row, heads, merged, resumed_, piece.last);
    }
    resumed_ = !piece.last;
    pending_ = 0;
  }

  // The rows whose pieces several blocks have: each vector core has some heads and columns.
  __aicore__ inline void MergeDivided() {
    const int64_t columns = tiling_.merged_columns, parts = CeilDivision(tiling_.value_pitch, tiling_.merged_columns);
    const int64_t groups = CeilDivision(tiling_.height, Tiling::kMergedHeads);
    const int64_t all = (tiling_.rows - tiling_.whole_rows) * groups * parts;
    for (int64_t share = GetBlockIdx(); share < all; share += GetBlockNum() * Tiling::kVectorCores) {
      const int64_t index = tiling_.whole_rows + share / parts / groups;
      const AttentionRow row = AttentionRowOf(tiling_, index);
      const auto first = static_cast<uint32_t>(share / parts % groups) * Tiling::kMergedHeads;
      const Range heads{first, static_cast<uint32_t>(Smaller(row.heads, first + Tiling::kMergedHeads))};
      if (heads.begin >= heads.end) continue;
      const int64_t column = share % parts * columns;
      const Tile tile{0, heads.end - heads.begin, static_cast<uint32_t>(column),
                      static_cast<uint32_t>(Smaller(columns, tiling_.value_pitch - column))};
      Begin(row, heads);
      bool any = false;
      for (int64_t piece = 0; piece < tiling_.pieces; piece += Tiling::kMerged) {
        Merged merged{{}, {}, static_cast<uint32_t>(Smaller(Tiling::kMerged, tiling_.pieces - piece))};
        for (uint32_t i = 0; i < merged.count; ++i) merged.partials[i] = workspace_.PartialOf(index, piece + i);
        LoadStates(heads, merged);
        const auto requested = static_cast<uint32_t>(Smaller(kRequested, merged.count));
        for (uint32_t i = 0; i < requested; ++i) RequestSums(workspace_.Sums(merged.partials[i]), heads.begin, tile);
        FindFactors(heads, merged);
        any = MergeTile(tile, heads.begin, merged, any, requested);
      }
      WriteResult(row, heads.begin, tile, any);
      if (column == 0) WriteLse(row, heads);
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

  // Merges pieces into the present results of a row's heads, and writes the result after the last.
  __aicore__ inline void MergePieces(const AttentionRow& row, const Range& heads, Merged& merged, bool resumed,
                                     bool finish) {
    LoadStates(heads, merged);
    FindFactors(heads, merged);
    const uint32_t size = heads.end - heads.begin;
    const auto columns = static_cast<uint32_t>(Smaller(kColumns, tiling_.value_pitch));
    const auto together = static_cast<uint32_t>(Smaller(kHeads, kElements / columns / kBlock * kBlock));
    for (uint32_t first = 0; first < size; first += together) {
      const auto rows = static_cast<uint32_t>(Smaller(together, size - first));
      for (uint32_t column = 0; column < tiling_.value_pitch; column += columns) {
        const Tile tile{first, rows, column, static_cast<uint32_t>(Smaller(columns, tiling_.value_pitch - column))};
        if (resumed) LoadMerged(tile);
        const bool any = MergeTile(tile, heads.begin, merged, resumed, 0);
        if (finish) {
          WriteResult(row, heads.begin, tile, any);
        } else {
          Keep(tile, any);
        }
      }
    }
    if (finish) WriteLse(row, heads);
  }

  // A tile of sums: heads of this core, and columns.
  struct Tile {
    uint32_t first;
    uint32_t rows;
    uint32_t column;
    uint32_t columns;
  };

  // Begins to read the maxima and the sums of weights of pieces.
  __aicore__ inline void LoadStates(const Range& heads, const Merged& merged) {
    const uint32_t size = heads.end - heads.begin;
    const LocalTensor<float> maxima = statesIn_.template AllocTensor<float>();
    for (uint32_t i = 0; i < merged.count; ++i) {
      DataCopyPad(maxima[(1 + i) * 2 * kHeads], workspace_.Maxima(merged.partials[i])[heads.begin],
                  DataCopyExtParams{2, static_cast<uint32_t>(size * sizeof(float)),
                                    static_cast<uint32_t>((tiling_.height - size) * sizeof(float)),
                                    (kHeads - AlignUp(size, kBlock)) / kBlock, 0},
                  DataCopyPadExtParams<float>{});
    }
    statesIn_.EnQue(maxima);
    statesRead_ = static_cast<event_t>(GetTPipePtr()->FetchEventID(HardEvent::MTE2_S));
    SetFlag<HardEvent::MTE2_S>(statesRead_);
  }

  // By what the merged sums and those of each piece are multiplied, in factors_, and which of the pieces have keys.
  __aicore__ inline void FindFactors(const Range& heads, Merged& merged) {
    const uint32_t size = heads.end - heads.begin;
    const auto count = static_cast<uint8_t>(1 + merged.count);
    const LocalTensor<float> maxima = statesIn_.template DeQue<float>();
    const LocalTensor<float> totals = maxima[kHeads];
    WaitFlag<HardEvent::MTE2_S>(statesRead_);
    bool any = false;
    for (uint32_t i = 0; i < merged.count; ++i) {
      merged.hasKeys[i] = totals.GetValue((1 + i) * 2 * kHeads) != 0.0f;
      any |= merged.hasKeys[i];
    }
    WaitFor<HardEvent::S_V>();
    if (any) {
      const auto elements = static_cast<int32_t>(size);
      Adds(maxima, maxima_, 0.0f, elements);
      Adds(totals, totals_, 0.0f, elements);
      for (uint32_t i = 1; i < count; ++i) Max(maxima_, maxima_, maxima[2 * i * kHeads], elements);
      Sub(factors_, maxima, maxima_, uint64_t{size}, count, {1, 1, 1, kStride, 2 * kStride, 0});
      Exp(factors_, factors_, uint64_t{size}, count, {1, 1, kStride, kStride});
      Mul(totals, totals, factors_, uint64_t{size}, count, {1, 1, 1, 2 * kStride, 2 * kStride, kStride});
      Add(totals_, totals, totals[2 * kHeads], elements);
      for (uint32_t i = 2; i < count; ++i) Add(totals_, totals_, totals[2 * i * kHeads], elements);
    }
    statesIn_.FreeTensor(maxima);
  }

  // Adds pieces to the merged sums of a tile in work_, in rows of its columns. The sums of the first piece are already
  // requested. `any`: whether there are merged sums. Returns whether there are now.
  __aicore__ inline bool MergeTile(const Tile& tile, uint32_t firstHead, const Merged& merged, bool any,
                                   uint32_t requested) {
    bool isScaled = false;
    for (uint32_t i = 0; i < merged.count; ++i) {
      if (i >= requested && !merged.hasKeys[i]) continue;
      if (i >= requested) RequestSums(workspace_.Sums(merged.partials[i]), firstHead + tile.first, tile);
      const LocalTensor<float> sums = in_.template DeQue<float>();
      if (!merged.hasKeys[i]) {
        in_.FreeTensor(sums);
        continue;
      }
      if (any && !isScaled) {
        Spread(spread_, factors_[tile.first], tile.rows);
        Scale(work_, work_, tile);
      }
      Spread(spread_, factors_[(1 + i) * kHeads + tile.first], tile.rows);
      Scale(any ? sums : work_, sums, tile);
      if (any) Add(work_, work_, sums, static_cast<int32_t>(tile.rows * tile.columns));
      in_.FreeTensor(sums);
      any = isScaled = true;
    }
    return any;
  }

  __aicore__ inline void LoadMerged(const Tile& tile) {
    RequestSums(workspace_.Merged(core_), tile.first, tile);
    const LocalTensor<float> kept = in_.template DeQue<float>();
    DataCopy(work_, kept, tile.rows * tile.columns);
    in_.FreeTensor(kept);
  }

  __aicore__ inline void RequestSums(const GlobalTensor<float>& from, uint32_t row, const Tile& tile) {
    const LocalTensor<float> sums = in_.template AllocTensor<float>();
    DataCopy(sums, from[uint64_t{row} * tiling_.value_pitch + tile.column], RowsOf(tile, 0));
    in_.EnQue(sums);
  }

  // A tile's rows are consecutive in the unified buffer, and value_pitch apart in device memory.
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

  __aicore__ inline void Keep(const Tile& tile, bool any) {
    if (!any) Duplicate(work_, 0.0f, static_cast<int32_t>(tile.rows * tile.columns));
    LocalTensor<float> sums = out_.template AllocTensor<float>();
    DataCopy(sums, work_, tile.rows * tile.columns);
    out_.EnQue(sums);
    sums = out_.template DeQue<float>();
    DataCopy(workspace_.Merged(core_)[uint64_t{tile.first} * tiling_.value_pitch + tile.column], sums,
             RowsOf(tile, true));
    out_.FreeTensor(sums);
  }

  // Divides a tile by the sums of its rows' weights.
  __aicore__ inline void WriteResult(const AttentionRow& row, uint32_t firstHead, const Tile& tile, bool any) {
    if (!any) Duplicate(work_, 0.0f, static_cast<int32_t>(tile.rows * tile.columns));
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

  // The logarithms of a row's sums, if they are wanted.
  __aicore__ inline void WriteLse(const AttentionRow& row, const Range& heads) {
    if (!tiling_.with_lse) return;
    const auto size = static_cast<int32_t>(heads.end - heads.begin);
    Ln(next_, totals_, size);
    const LocalTensor<float> lse = out_.template AllocTensor<float>();
    Add(lse, maxima_, next_, size);
    WriteLse(row, heads, lse);
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
  const IndexRows indexRows_;
  KeyAddresses addresses_;
  const uint32_t core_;  // of the block's vector cores
  const int64_t unit_;   // the block's first row or piece
  TQue<TPosition::VECIN, kRequested> in_;
  TQue<TPosition::VECOUT, 2> out_;
  TQueBind<TPosition::VECIN, TPosition::VECOUT, kRowBuffers> rows_;
  TQue<TPosition::VECIN, 1> statesIn_;
  TQue<TPosition::VECOUT, 2> statesOut_;
  TBuf<TPosition::VECCALC> workBuffer_, noteBuffer_, spreadBuffer_, factorBuffer_;
  LocalTensor<float> work_, spread_;
  LocalTensor<float> maxima_, totals_, next_;  // of the merged pieces of each head
  LocalTensor<float> factors_;
  event_t statesRead_;
  LocalTensor<int64_t> note_;

  IndexPiece pieces_[Tiling::kGathered];
  int64_t nextUnit_ = kNoRow;
  int64_t row_ = kNoRow;
  bool divided_ = false;
  int64_t position_ = 0;  // of the row's indices, where the next piece begins
  int64_t end_ = 0;
  Sequence sequence_{};
  int64_t visible_ = 0;
  bool found_ = false;  // the keys of the piece at position_ are
  uint32_t pending_ = 0;
  bool resumed_ = false;  // some of the row's pieces are merged
};

}  // namespace opp
