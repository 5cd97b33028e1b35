// SPDX-License-Identifier: Apache-2.0
// The lightning indexers on cube and vector cores.
//
// Query tokens that share a key head form tiles, and the keys of a tile units. The units of all tiles, one after the
// other, are divided among the vector cores. A block's cube core multiplies the next unit of each of its two vector
// cores in turn; the vector core weights and sums the heads, and keeps the best keys of each query token as a sorted
// run. The runs of tiles that several cores have in part are merged when all have come so far: positions ascend from
// core to core and within a core, so that of equal scores the lower position comes first.
#pragma once

#include "lightning_indexer_tiling.h"
#include "matrix.h"
#include "sequences.h"

namespace opp {

using namespace AscendC;

// Device memory of a call.
struct IndexerArguments {
  GM_ADDR query;
  GM_ADDR key;
  GM_ADDR weights;
  GM_ADDR query_scales;
  GM_ADDR key_scales;
  GM_ADDR query_lengths;
  GM_ADDR key_lengths;
  GM_ADDR block_table;
  GM_ADDR indices;
  GM_ADDR values;
  GM_ADDR workspace;
};

// Query tokens [first_query, first_query + queries) of a sequence under one key head.
struct Tile {
  Sequence sequence;
  int64_t key_head;
  int64_t first_query;
  int64_t queries;
  int64_t keys;        // seen by any of them
  int64_t first_unit;  // among those of all tiles
  int64_t units;
};

class Tiles {
 public:
  __aicore__ inline Tiles(const LightningIndexerTiling& tiling, const Sequences& sequences)
      : tiling_(tiling), sequences_(sequences) {
    tile_.key_head = tiling.key_heads - 1;
  }

  // Goes to the next one; there is none behind the last.
  __aicore__ inline bool Next() {
    tile_.first_unit += tile_.units;
    tile_.first_query += tile_.queries;
    tile_.units = tile_.queries = 0;
    const Sequence& sequence = tile_.sequence;
    while (tile_.first_query == sequence.rows) {
      tile_.first_query = 0;
      if (++tile_.key_head < tiling_.key_heads) continue;
      tile_.key_head = 0;
      if (next_ == sequences_.Count()) return false;
      tile_.sequence = sequences_.Read(next_++);
    }
    const int64_t end = tile_.first_query < sequence.queries ? sequence.queries : sequence.rows;
    const int64_t left = end - tile_.first_query;
    tile_.queries = left < tiling_.tile_queries ? left : tiling_.tile_queries;
    tile_.keys = sequence.Visible(tile_.first_query + tile_.queries - 1);
    tile_.units = tile_.keys == 0 ? 1 : CeilDivision(tile_.keys, static_cast<int64_t>(tiling_.unit_keys));
    return true;
  }

  __aicore__ inline const Tile& Get() const { return tile_; }

 private:
  const LightningIndexerTiling& tiling_;
  const Sequences& sequences_;
  Tile tile_{};
  int64_t next_ = 0;  // sequence
};

// The units of all tiles, and which vector core has them.
class Division {
 public:
  __aicore__ inline Division(const LightningIndexerTiling& tiling, const Sequences& sequences)
      : cores_(tiling.vector_cores()) {
    Tiles tiles(tiling, sequences);
    while (tiles.Next()) units_ += tiles.Get().units;
  }

  __aicore__ inline int64_t First(int64_t core) const { return units_ * core / cores_; }
  __aicore__ inline int64_t Count(int64_t core) const { return First(core + 1) - First(core); }
  __aicore__ inline int64_t CoreOf(int64_t unit) const {
    int64_t core = unit * cores_ / units_;
    while (First(core + 1) <= unit) ++core;
    return core;
  }
  // The cores of a block take as many steps.
  __aicore__ inline int64_t Steps(int64_t block) const {
    const int64_t one = Count(2 * block), other = Count(2 * block + 1);
    return one > other ? one : other;
  }

 private:
  const int64_t cores_;
  int64_t units_ = 0;
};

// Goes through the units of a vector core.
class Cursor {
 public:
  __aicore__ inline Cursor(const LightningIndexerTiling& tiling, const Sequences& sequences, const Division& division,
                           int64_t core)
      : tiling_(tiling),
        sequences_(sequences),
        tiles_(tiling, sequences),
        begin_(division.First(core)),
        end_(division.First(core + 1)),
        next_(begin_) {}

  __aicore__ inline bool Next() {
    if (next_ == end_) return false;
    while (tiles_.Get().first_unit + tiles_.Get().units <= next_) tiles_.Next();
    first_ = (next_ - GetTile().first_unit) * tiling_.unit_keys;
    ++next_;
    return true;
  }

  __aicore__ inline const Tile& GetTile() const { return tiles_.Get(); }
  // Of the keys that the core has of the tile, or of the tile's.
  __aicore__ inline bool BeginsPiece() const { return BeginsTile() || next_ == begin_ + 1; }
  __aicore__ inline bool EndsPiece() const { return EndsTile() || next_ == end_; }
  __aicore__ inline bool BeginsTile() const { return first_ == 0; }
  __aicore__ inline bool EndsTile() const { return next_ == GetTile().first_unit + GetTile().units; }

  // The first run of the unit's keys from a position on, and that behind another.
  __aicore__ inline KeyRun FirstRun() const { return RunFrom(first_); }
  __aicore__ inline KeyRun RunBehind(const KeyRun& run) const { return RunFrom(run.position + run.count); }

  // How many columns the runs take, each from a fractal on.
  __aicore__ inline uint32_t Columns() const {
    uint32_t columns = 0;
    for (KeyRun run = FirstRun(); run.count > 0; run = RunBehind(run)) columns = ColumnBehind(columns, run);
    return columns;
  }
  __aicore__ static inline uint32_t ColumnBehind(uint32_t column, const KeyRun& run) {
    return AlignUp(column + static_cast<uint32_t>(run.count), kFractal);
  }

 private:
  __aicore__ inline KeyRun RunFrom(int64_t position) const {
    const int64_t end = first_ + tiling_.unit_keys, keys = GetTile().keys;
    return sequences_.RunOf(GetTile().sequence, position, end < keys ? end : keys);
  }

  const LightningIndexerTiling& tiling_;
  const Sequences& sequences_;
  Tiles tiles_;
  const int64_t begin_, end_;
  int64_t next_;
  int64_t first_ = 0;  // key of the unit
};

// Flags between a cube core and its vector cores: the products of a turn are there, and may be overwritten.
constexpr uint16_t kProductsReady = 0, kProductsRead = 2;

template <class T>
using SumOf = std::conditional_t<sizeof(T) == 1, int32_t, float>;

// Multiplies the heads of query tokens with keys: positive products alone go to the workspace.
template <class T>
class IndexerCube {
  using Sum = SumOf<T>;
  static constexpr uint32_t kSlice = 512 / sizeof(T);  // of depth, in L1
  static constexpr uint32_t kStep = 128 / sizeof(T);   // in L0A and L0B

 public:
  __aicore__ inline IndexerCube(const LightningIndexerTiling& tiling, const Sequences& sequences, TPipe& pipe,
                                const IndexerArguments& arguments)
      : tiling_(tiling), sequences_(sequences) {
    query_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(arguments.query));
    key_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(arguments.key));
    sums_.SetGlobalBuffer(reinterpret_cast<__gm__ Sum*>(arguments.workspace));
    for (auto& left : left_) pipe.InitBuffer(left.queue, 1, LightningIndexerTiling::kMaxRows * kSlice * sizeof(T));
    pipe.InitBuffer(right_, 2, tiling.columns * kSlice * sizeof(T));
    pipe.InitBuffer(a2_, 2, LightningIndexerTiling::kMaxRows * kStep * sizeof(T));
    pipe.InitBuffer(b2_, 2, tiling.columns * kStep * sizeof(T));
    pipe.InitBuffer(products_, 2, LightningIndexerTiling::kSums * sizeof(Sum));
  }

  __aicore__ inline void Run(const Division& division) {
    const int64_t block = GetBlockIdx(), steps = division.Steps(block);
    Cursor first(tiling_, sequences_, division, 2 * block), second(tiling_, sequences_, division, 2 * block + 1);
    for (int64_t step = 0; step < steps; ++step) {
      const auto turn = static_cast<uint16_t>(step % 2);
      if (step >= 2) CrossCoreWaitFlag(kProductsRead + turn);
      if (first.Next()) MultiplyUnit(first, 0, turn);
      if (second.Next()) MultiplyUnit(second, 1, turn);
      CrossCoreSetFlag<2, PIPE_FIX>(kProductsReady + turn);
    }
    for (int64_t step = steps < 2 ? 0 : steps - 2; step < steps; ++step) {
      CrossCoreWaitFlag(static_cast<uint16_t>(kProductsRead + step % 2));
    }
    for (Left& left : left_) left.Free();
  }

 private:
  // The heads of a vector core's query tokens in L1, which stay there for the next unit.
  struct Left {
    TQue<TPosition::A1, 1> queue;
    LocalTensor<T> held;
    int64_t first_unit = -1;  // of the tile
    uint32_t row, depth;

    __aicore__ inline void Free() {
      if (first_unit >= 0) queue.FreeTensor(held);
    }
  };

  __aicore__ inline void MultiplyUnit(const Cursor& cursor, uint32_t core, uint32_t turn) {
    const uint32_t columns = cursor.Columns();
    if (columns == 0) return;
    const Tile& tile = cursor.GetTile();
    const auto rows = static_cast<uint32_t>(tile.queries * tiling_.heads);
    const uint64_t to = ((GetBlockIdx() * 2 + core) * 2 + turn) * tiling_.products_of_turn();
    for (uint32_t row = 0; row < rows; row += LightningIndexerTiling::kMaxRows) {
      const uint32_t height = Smaller(LightningIndexerTiling::kMaxRows, rows - row);
      const LocalTensor<Sum> sums = products_.template AllocTensor<Sum>();
      for (uint32_t depth = 0; depth < tiling_.depth; depth += kSlice) {
        const uint32_t slice = Smaller(kSlice, static_cast<uint32_t>(tiling_.depth) - depth);
        CopyQueries(left_[core], tile, row, height, depth, slice);
        CopyKeys(cursor, columns, depth, slice);
        MultiplySlice(sums, left_[core].held, height, columns, depth, slice);
      }
      products_.EnQue(sums);
      CopyOut(sums_[to + uint64_t{row} * tiling_.columns], height, columns);
    }
  }

  __aicore__ inline void CopyQueries(Left& left, const Tile& tile, uint32_t row, uint32_t rows, uint32_t depth,
                                     uint32_t slice) {
    if (left.first_unit == tile.first_unit && left.row == row && left.depth == depth) return;
    left.Free();
    const LocalTensor<T> to = left.queue.template AllocTensor<T>();
    const auto heads = static_cast<uint32_t>(tiling_.heads);
    for (uint32_t at = row; at < row + rows;) {
      const uint32_t query = at / heads, end = Smaller((query + 1) * heads, row + rows);
      const int64_t token = tile.sequence.first_query + tile.first_query + query;
      const int64_t head = (token * tiling_.key_heads + tile.key_head) * heads + at % heads;
      CopyRows(to[(at - row) * kFractalColumns<T>], query_[head * tiling_.depth + depth], tiling_.depth, end - at,
               slice, AlignUp(rows, kFractal));
      at = end;
    }
    left.queue.EnQue(to);
    left.held = left.queue.template DeQue<T>();
    left.first_unit = tile.first_unit;
    left.row = row;
    left.depth = depth;
  }

  __aicore__ inline void CopyKeys(const Cursor& cursor, uint32_t columns, uint32_t depth, uint32_t slice) {
    const LocalTensor<T> to = right_.template AllocTensor<T>();
    uint32_t column = 0;
    for (KeyRun run = cursor.FirstRun(); run.count > 0; run = cursor.RunBehind(run)) {
      const int64_t from = (run.row * tiling_.key_heads + cursor.GetTile().key_head) * tiling_.depth + depth;
      CopyRows(to[column * kFractalColumns<T>], key_[from], tiling_.key_heads * tiling_.depth,
               static_cast<uint32_t>(run.count), slice, columns);
      column = Cursor::ColumnBehind(column, run);
    }
    right_.EnQue(to);
  }

  // Rows that lie `stride` elements apart become those of an NZ matrix of `height` rows.
  __aicore__ static inline void CopyRows(const LocalTensor<T>& to, const GlobalTensor<T>& from, int64_t stride,
                                         uint32_t rows, uint32_t columns, uint32_t height) {
    constexpr int64_t kMaxStride = 65535;  // of the instruction
    const uint32_t together = stride <= kMaxStride ? rows : 1;
    for (uint32_t row = 0; row < rows; row += together) {
      DataCopy(
          to[row * kFractalColumns<T>], from[row * stride],
          Nd2NzParams(1, together, columns, 0, together == 1 ? columns : static_cast<uint32_t>(stride), height, 1, 0));
    }
  }

  __aicore__ inline void MultiplySlice(const LocalTensor<Sum>& sums, const LocalTensor<T>& left, uint32_t rows,
                                       uint32_t columns, uint32_t depth, uint32_t slice) {
    const LocalTensor<T> right = right_.template DeQue<T>();
    const uint32_t height = AlignUp(rows, kFractal);
    for (uint32_t first = 0; first < slice; first += kStep) {
      const uint32_t step = Smaller(kStep, slice - first), deep = CeilDivision(step, kFractalColumns<T>);
      LocalTensor<T> a = a2_.template AllocTensor<T>(), b = b2_.template AllocTensor<T>();
      LoadLeft(a, left[first * height], height, rows, deep);
      LoadRightOfRows(b, right[first * columns], columns, columns, deep);
      a2_.EnQue(a);
      b2_.EnQue(b);
      a = a2_.template DeQue<T>();
      b = b2_.template DeQue<T>();
      Multiply(sums, a, b, rows, columns, step, depth + first == 0);
      a2_.FreeTensor(a);
      b2_.FreeTensor(b);
    }
    right_.FreeTensor(right);
  }

  __aicore__ inline void CopyOut(const GlobalTensor<Sum>& to, uint32_t rows, uint32_t columns) {
    const LocalTensor<Sum> sums = products_.template DeQue<Sum>();
    const FixpipeParamsV220 params(static_cast<uint16_t>(columns), static_cast<uint16_t>(rows),
                                   static_cast<uint16_t>(AlignUp(rows, kFractal)), tiling_.columns, true);
    Fixpipe(to, sums, params);
    products_.FreeTensor(sums);
  }

  __aicore__ static inline uint32_t Smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

  const LightningIndexerTiling& tiling_;
  const Sequences& sequences_;
  GlobalTensor<T> query_, key_;
  GlobalTensor<Sum> sums_;
  Left left_[2];
  TQue<TPosition::B1, 2> right_;
  TQue<TPosition::A2, 2> a2_;
  TQue<TPosition::B2, 2> b2_;
  TQue<TPosition::CO1, 2> products_;
};

// Numbers in device memory, which may be of several types, as floats.
class Floats {
 public:
  // `stride` apart, and at most `max` at a time.
  __aicore__ inline void Init(TPipe& pipe, GM_ADDR address, Number type, uint32_t max, int64_t stride = 1) {
    address_ = address;
    type_ = type;
    stride_ = stride;
    const uint32_t bytes = AlignUp(max, 16u) * sizeof(float);
    pipe.InitBuffer(in_, 2, stride == 1 ? bytes : max * kBlock);
    pipe.InitBuffer(floats_, bytes);
    if (stride != 1) pipe.InitBuffer(together_, bytes);
  }

  // `count` of them from an element on, and zeros that fill their last 32 bytes.
  __aicore__ inline LocalTensor<float> Load(int64_t first, uint32_t count) {
    LocalTensor<float> to = floats_.Get<float>();
    Load(to, first, count);
    return to;
  }
  __aicore__ inline void Load(const LocalTensor<float>& to, int64_t first, uint32_t count) {
    if (type_ == Number::kHalf) return LoadOf<half>(to, first, count);
    if (type_ == Number::kBfloat16) return LoadOf<bfloat16_t>(to, first, count);
    LoadOf<float>(to, first, count);
  }

 private:
  static constexpr uint32_t kBlock = 32;  // bytes

  template <class T>
  __aicore__ inline void LoadOf(const LocalTensor<float>& to, int64_t first, uint32_t count) {
    constexpr uint32_t kElements = kBlock / sizeof(T);
    GlobalTensor<T> from;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address_));
    const bool apart = stride_ != 1;
    const uint32_t run = apart ? 1 : count, runs = apart ? count : 1, padded = AlignUp(count, kElements);
    const uint32_t gap = apart ? static_cast<uint32_t>((stride_ - 1) * sizeof(T)) : 0;
    LocalTensor<T> raw = in_.AllocTensor<T>();
    DataCopyPad(raw, from[first],
                DataCopyExtParams{static_cast<uint16_t>(runs), static_cast<uint32_t>(run * sizeof(T)), gap, 0, 0},
                DataCopyPadExtParams<T>{true, 0, static_cast<uint8_t>(AlignUp(run, kElements) - run), T{}});
    in_.EnQue(raw);
    raw = in_.DeQue<T>();
    if constexpr (!std::is_same_v<T, bfloat16_t>) {
      if (apart) return SumBlocks(to, raw, count);
    }
    Convert(to, raw, padded);
    in_.FreeTensor(raw);
  }

  // One element of each block counts, and zeros beside it.
  template <class T>
  __aicore__ inline void SumBlocks(const LocalTensor<float>& to, const LocalTensor<T>& blocks, uint32_t count) {
    constexpr int32_t kElements = kBlock / sizeof(T), kBlocks = 8;  // of a repeat
    const LocalTensor<T> together = together_.Get<T>();
    Duplicate(together, T{}, static_cast<int32_t>(AlignUp(count, 16u)));
    const auto whole = static_cast<int32_t>(count) / kBlocks, rest = static_cast<int32_t>(count) % kBlocks;
    if (whole > 0) BlockReduceSum(together, blocks, whole, kBlocks * kElements, 1, 1, kBlocks);
    if (rest > 0) {
      BlockReduceSum(together[whole * kBlocks], blocks[whole * kBlocks * kElements], 1, rest * kElements, 1, 1,
                     kBlocks);
    }
    Convert(to, together, AlignUp(count, static_cast<uint32_t>(kElements)));
    in_.FreeTensor(blocks);
  }

  template <class T>
  __aicore__ static inline void Convert(const LocalTensor<float>& to, const LocalTensor<T>& from, uint32_t count) {
    if constexpr (sizeof(T) == sizeof(float)) {
      Adds(to, from, 0.0f, static_cast<int32_t>(count));
    } else {
      Cast(to, from, RoundMode::CAST_NONE, count);
    }
  }

  GM_ADDR address_ = nullptr;
  Number type_ = Number::kFloat;
  int64_t stride_ = 1;
  TQue<TPosition::VECIN, 2> in_;
  TBuf<TPosition::VECCALC> floats_, together_;
};

// A NaN comes before all numbers, as torch has it: among the keys that are sorted it is infinity, and infinities are
// the last numbers before it.
constexpr float kLargest = 3.40282347e38f;
__aicore__ inline float Infinity() { return 1.0f / 0.0f; }

// Writes the pairs of a query token: positions, and their scores if they are asked for. Where there are fewer keys, -1
// and -infinity.
template <class Value>
class RowWriter {
 public:
  __aicore__ inline RowWriter(const LightningIndexerTiling& tiling, TPipe& pipe, GM_ADDR indices, GM_ADDR values)
      : tiling_(tiling) {
    indices_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(indices));
    values_.SetGlobalBuffer(reinterpret_cast<__gm__ Value*>(values));
    pipe.InitBuffer(outIndices_, 1, tiling.kept * sizeof(int32_t));
    pipe.InitBuffer(scores_, Padded() * sizeof(float));
    Duplicate(scores_.Get<float>(), 0.0f, static_cast<int32_t>(Padded()));
    if (!tiling.return_value) return;
    pipe.InitBuffer(outValues_, 1, tiling.kept * sizeof(Value));
    pipe.InitBuffer(mask_, Padded() / 8);
  }

  __aicore__ inline void Write(const Tile& tile, int64_t query, const LocalTensor<float>& pairs) {
    const int64_t token = tile.sequence.first_query + tile.first_query + query;
    const int64_t to = (token * tiling_.key_heads + tile.key_head) * tiling_.count;
    LocalTensor<int32_t> indices = outIndices_.template AllocTensor<int32_t>();
    LocalTensor<float> scores = scores_.Get<float>();
    Extract(scores, indices.ReinterpretCast<uint32_t>(), pairs, static_cast<int32_t>(tiling_.kept / 32));
    outIndices_.EnQue(indices);
    indices = outIndices_.template DeQue<int32_t>();
    DataCopyPad(indices_[to], indices, Bytes(sizeof(int32_t)));
    outIndices_.FreeTensor(indices);
    if (tiling_.return_value) WriteScores(to, scores);
  }

 private:
  __aicore__ inline uint32_t Padded() const { return AlignUp(tiling_.kept, 64u); }  // repeats
  __aicore__ inline DataCopyExtParams Bytes(uint32_t itemsize) const {
    return {1, static_cast<uint32_t>(tiling_.count) * itemsize, 0, 0, 0};
  }

  __aicore__ inline void WriteScores(int64_t to, const LocalTensor<float>& scores) {
    LocalTensor<Value> values = outValues_.template AllocTensor<Value>();
    Replace(scores, Infinity(), CMPMODE::NE, Infinity() - Infinity());
    if constexpr (sizeof(Value) == sizeof(float)) {
      Replace(scores, kLargest, CMPMODE::NE, Infinity());
      Replace(scores, -kLargest, CMPMODE::NE, -Infinity());
      Adds(values, scores, 0.0f, static_cast<int32_t>(tiling_.kept));
    } else {
      Cast(values, scores, RoundMode::CAST_RINT, tiling_.kept);  // to infinities, too
    }
    outValues_.EnQue(values);
    values = outValues_.template DeQue<Value>();
    DataCopyPad(values_[to], values, Bytes(sizeof(Value)));
    outValues_.FreeTensor(values);
  }

  // Keeps the scores that compare so.
  __aicore__ inline void Replace(const LocalTensor<float>& scores, float with, CMPMODE mode, float other) {
    const LocalTensor<uint8_t> mask = mask_.Get<uint8_t>();
    CompareScalar(mask, scores, with, mode, Padded());
    Select(scores, mask, scores, other, SELMODE::VSEL_TENSOR_SCALAR_MODE, Padded());
  }

  const LightningIndexerTiling& tiling_;
  GlobalTensor<int32_t> indices_;
  GlobalTensor<Value> values_;
  TQue<TPosition::VECOUT, 1> outIndices_, outValues_;
  TBuf<TPosition::VECCALC> scores_, mask_;
};

// The best keys of each query token of a tile as runs of pairs, a score and its position, the best first.
class BestKeys {
 public:
  static constexpr uint32_t kChunk = 1024;  // scores that are sorted at a time

  __aicore__ inline BestKeys(const LightningIndexerTiling& tiling, TPipe& pipe) : tiling_(tiling) {
    pipe.InitBuffer(scores_, tiling.tile_queries * kChunk * sizeof(float));
    pipe.InitBuffer(positions_, tiling.tile_queries * kChunk * sizeof(int32_t));
    pipe.InitBuffer(counting_, tiling.columns * sizeof(int32_t));
    pipe.InitBuffer(pairs_, tiling.floats_of_piece() * sizeof(float));
    for (auto& sorted : sorted_) pipe.InitBuffer(sorted, kChunk * 2 * sizeof(float));
    pipe.InitBuffer(merged_, (tiling.kept + kChunk) * 2 * sizeof(float));
    CreateVecIndex(counting_.Get<int32_t>(), 0, tiling.columns);
  }

  __aicore__ inline LocalTensor<float> Pairs(int64_t query) { return pairs_.Get<float>()[query * tiling_.kept * 2]; }

  // No key yet.
  __aicore__ inline void Clear(int64_t query) {
    Fill(query, 0, kChunk);
    for (uint32_t first = 0; first < tiling_.kept; first += kChunk) {
      const uint32_t count = tiling_.kept - first < kChunk ? tiling_.kept - first : kChunk;
      Sort32(Pairs(query)[first * 2], Scores(query), Positions(query).ReinterpretCast<uint32_t>(),
             static_cast<int32_t>(count / 32));
    }
    filled_[query] = 0;
  }

  // Makes room for the scores of a unit.
  __aicore__ inline void Reserve(int64_t query) {
    if (filled_[query] + tiling_.columns > kChunk) Merge(query);
  }

  // Scores of keys that follow each other, and what fills their last fractal.
  __aicore__ inline void Add(int64_t query, const LocalTensor<float>& scores, int64_t position, uint32_t count) {
    const uint32_t at = filled_[query], padded = AlignUp(count, kFractal);
    Adds(Scores(query)[at], scores, 0.0f, static_cast<int32_t>(padded));
    Adds(Positions(query)[at], counting_.Get<int32_t>(), static_cast<int32_t>(position), static_cast<int32_t>(padded));
    if (const uint32_t valid = count % kFractal) {
      uint64_t mask[2] = {0xffffu & ~((1u << valid) - 1), 0};
      Duplicate(Scores(query)[at + padded - kFractal], -Infinity(), mask, 1, 1, 8);
      Duplicate(Positions(query)[at + padded - kFractal], -1, mask, 1, 1, 8);
    }
    filled_[query] = at + padded;
  }

  // Brings what was added since the last time into the pairs.
  __aicore__ inline void Merge(int64_t query) {
    const uint32_t filled = filled_[query];
    if (filled == 0) return;
    const uint32_t size = filled <= 128 ? 128 : filled <= 512 ? 512 : kChunk;
    if (filled < size) Fill(query, filled, size - filled);
    LocalTensor<float> one = sorted_[0].Get<float>(), other = sorted_[1].Get<float>();
    Sort32(one, Scores(query), Positions(query).ReinterpretCast<uint32_t>(), static_cast<int32_t>(size / 32));
    MergeFours(other, one, 32, size);
    uint32_t run = 128;
    if (size > 128) {
      MergeFours(one, other, 128, size);
      run = 512;
    }
    const LocalTensor<float> runs = size > 128 ? one : other;
    const LocalTensor<float> merged = merged_.Get<float>(), pairs = Pairs(query);
    const auto length = static_cast<uint16_t>(run);
    const uint16_t lengths[4] = {static_cast<uint16_t>(tiling_.kept), length, length, 0};
    const LocalTensor<float> second = size == kChunk ? runs[run * 2] : runs;
    MrgSort(merged, {pairs, runs, second, second}, MrgSort4Info(lengths, false, size == kChunk ? 7 : 3, 1));
    DataCopy(pairs, merged, tiling_.kept * 2);
    filled_[query] = 0;
  }

 private:
  __aicore__ inline LocalTensor<float> Scores(int64_t query) { return scores_.Get<float>()[query * kChunk]; }
  __aicore__ inline LocalTensor<int32_t> Positions(int64_t query) { return positions_.Get<int32_t>()[query * kChunk]; }

  __aicore__ inline void Fill(int64_t query, uint32_t first, uint32_t count) {
    Duplicate(Scores(query)[first], -Infinity(), static_cast<int32_t>(count));
    Duplicate(Positions(query)[first], -1, static_cast<int32_t>(count));
  }

  // Runs of a length, four by four.
  __aicore__ static inline void MergeFours(const LocalTensor<float>& to, const LocalTensor<float>& from, uint32_t run,
                                           uint32_t size) {
    const auto length = static_cast<uint16_t>(run);
    const uint16_t lengths[4] = {length, length, length, length};
    MrgSort(to, {from, from[run * 2], from[run * 4], from[run * 6]},
            MrgSort4Info(lengths, false, 15, static_cast<uint16_t>(size / (4 * run))));
  }

  const LightningIndexerTiling& tiling_;
  TBuf<TPosition::VECCALC> scores_, positions_, counting_, pairs_, sorted_[2], merged_;
  uint32_t filled_[LightningIndexerTiling::kMaxTileQueries] = {};
};

// Where the runs of tiles lie that several cores have in part: a core has two at most, at the end of its units one that
// begins a tile, and before one that does not.
class Pieces {
 public:
  __aicore__ inline Pieces(const LightningIndexerTiling& tiling, GM_ADDR workspace) : tiling_(tiling) {
    pairs_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(workspace + tiling.bytes_of_products()));
  }

  __aicore__ inline GlobalTensor<float> Of(int64_t core, bool begins_tile, int64_t query) const {
    return pairs_[(core * 2 + (begins_tile ? 1 : 0)) * tiling_.floats_of_piece() + query * tiling_.kept * 2];
  }

 private:
  const LightningIndexerTiling& tiling_;
  GlobalTensor<float> pairs_;
};

// Makes scores of products, and keeps the best.
template <class T, class Value>
class IndexerVector {
  using Sum = SumOf<T>;
  static constexpr bool kQuantised = sizeof(T) == 1;
  static constexpr uint32_t kProducts = 4096;  // that are weighted at a time

 public:
  __aicore__ inline IndexerVector(const LightningIndexerTiling& tiling, const Sequences& sequences, TPipe& pipe,
                                  const IndexerArguments& arguments)
      : tiling_(tiling),
        sequences_(sequences),
        pieces_(tiling, arguments.workspace),
        rows_(kProducts / tiling.columns),
        best_(tiling, pipe),
        writer_(tiling, pipe, arguments.indices, arguments.values) {
    sums_.SetGlobalBuffer(reinterpret_cast<__gm__ Sum*>(arguments.workspace));
    pipe.InitBuffer(products_, 2, kProducts * sizeof(Sum));
    pipe.InitBuffer(scores_, tiling.columns * sizeof(float));
    pipe.InitBuffer(mask_, tiling.columns / 8);
    pipe.InitBuffer(spread_, rows_ * 32);
    weights_.Init(pipe, arguments.weights, tiling.weights, rows_);
    if constexpr (kQuantised) {
      queryScales_.Init(pipe, arguments.query_scales, tiling.query_scales, rows_);
      keyScales_.Init(pipe, arguments.key_scales, tiling.key_scales, tiling.columns, tiling.key_heads);
      pipe.InitBuffer(scalesOfKeys_, tiling.columns * sizeof(float));
      Duplicate(scalesOfKeys_.Get<float>(), 0.0f, static_cast<int32_t>(tiling.columns));
    }
  }

  __aicore__ inline void Run(const Division& division) {
    const int64_t core = GetBlockIdx(), steps = division.Steps(core / 2);
    Cursor cursor(tiling_, sequences_, division, core);
    for (int64_t step = 0; step < steps; ++step) {
      const auto turn = static_cast<uint16_t>(step % 2);
      CrossCoreWaitFlag(kProductsReady + turn);
      if (cursor.Next()) Select(cursor, sums_[(core * 2 + turn) * tiling_.products_of_turn()]);
      CrossCoreSetFlag<2, PIPE_MTE2>(kProductsRead + turn);
    }
  }

 private:
  __aicore__ inline void Select(const Cursor& cursor, const GlobalTensor<Sum>& sums) {
    const Tile& tile = cursor.GetTile();
    if (cursor.BeginsPiece()) {
      begins_tile_ = cursor.BeginsTile();
      for (int64_t query = 0; query < tile.queries; ++query) best_.Clear(query);
    }
    const uint32_t columns = cursor.Columns();
    if (columns > 0) {
      if constexpr (kQuantised) LoadKeyScales(cursor);
      for (int64_t query = 0; query < tile.queries; ++query) {
        const int64_t visible = tile.sequence.Visible(tile.first_query + query);
        if (cursor.FirstRun().position >= visible) continue;
        SumHeads(tile, query, sums[query * tiling_.heads * tiling_.columns], columns);
        OrderNan(columns);
        AddVisible(cursor, query, visible);
      }
    }
    if (!cursor.EndsPiece()) return;
    for (int64_t query = 0; query < tile.queries; ++query) {
      best_.Merge(query);
      if (begins_tile_ && cursor.EndsTile()) {
        writer_.Write(tile, query, best_.Pairs(query));
      } else {
        Store(pieces_.Of(GetBlockIdx(), begins_tile_, query), best_.Pairs(query));
      }
    }
  }

  // scores = the sum over the heads of weight * product
  __aicore__ inline void SumHeads(const Tile& tile, int64_t query, const GlobalTensor<Sum>& sums, uint32_t columns) {
    const LocalTensor<float> scores = scores_.Get<float>();
    Duplicate(scores, 0.0f, static_cast<int32_t>(tiling_.columns));
    const int64_t token = tile.sequence.first_query + tile.first_query + query;
    const int64_t head = (token * tiling_.key_heads + tile.key_head) * tiling_.heads;
    for (int64_t first = 0; first < tiling_.heads; first += rows_) {
      const auto rows = static_cast<uint32_t>(tiling_.heads - first < rows_ ? tiling_.heads - first : rows_);
      const LocalTensor<float> weighted = Weighted(sums[first * tiling_.columns], head + first, rows, columns);
      for (uint32_t left = rows; left > 1;) {
        const uint32_t half_of = left / 2;
        Add(weighted, weighted, weighted[(left - half_of) * columns], static_cast<int32_t>(half_of * columns));
        left -= half_of;
      }
      Add(scores, scores, weighted, static_cast<int32_t>(columns));
      products_.FreeTensor(weighted);
    }
    if constexpr (kQuantised) Mul(scores, scores, scalesOfKeys_.Get<float>(), static_cast<int32_t>(columns));
  }

  // Rows of products, each times the weight of its head.
  __aicore__ inline LocalTensor<float> Weighted(const GlobalTensor<Sum>& sums, int64_t head, uint32_t rows,
                                                uint32_t columns) {
    const auto blocks = static_cast<uint8_t>(columns / 8);
    LocalTensor<Sum> products = products_.template AllocTensor<Sum>();
    DataCopy(
        products, sums,
        DataCopyParams(static_cast<uint16_t>(rows), blocks, static_cast<uint16_t>(tiling_.columns / 8 - blocks), 0));
    products_.EnQue(products);
    const LocalTensor<float> weights = weights_.Load(head, rows);
    if constexpr (kQuantised) {
      Mul(weights, weights, queryScales_.Load(head, rows), static_cast<int32_t>(AlignUp(rows, 8u)));
    }
    const LocalTensor<float> spread = spread_.Get<float>();
    Brcb(spread, weights, static_cast<uint8_t>(CeilDivision(rows, 8u)), BrcbRepeatParams(1, 8));
    products = products_.template DeQue<Sum>();
    const LocalTensor<float> weighted = products.template ReinterpretCast<float>();
    if constexpr (kQuantised) Cast(weighted, products, RoundMode::CAST_RINT, rows * columns);
    for (uint32_t column = 0; column < columns; column += 64) {
      const uint64_t lanes = columns - column < 64 ? columns - column : 64;
      Mul(weighted[column], weighted[column], spread, lanes, static_cast<uint8_t>(rows),
          BinaryRepeatParams(1, 1, 0, blocks, blocks, 1));
    }
    return weighted;
  }

  __aicore__ inline void OrderNan(uint32_t columns) {
    const LocalTensor<float> scores = scores_.Get<float>();
    const LocalTensor<uint8_t> numbers = mask_.Get<uint8_t>();
    const uint32_t count = AlignUp(columns, 64u);
    Compare(numbers, scores, scores, CMPMODE::EQ, count);
    Mins(scores, scores, kLargest, static_cast<int32_t>(count));
    Maxs(scores, scores, -kLargest, static_cast<int32_t>(count));
    AscendC::Select(scores, numbers, scores, Infinity(), SELMODE::VSEL_TENSOR_SCALAR_MODE, count);
  }

  // Of the unit's keys those that the query token sees, runs that follow each other together.
  __aicore__ inline void AddVisible(const Cursor& cursor, int64_t query, int64_t visible) {
    best_.Reserve(query);
    KeyRun together{0, 0, 0};
    uint32_t first = 0, column = 0;  // of what is together, and of the next run
    for (KeyRun run = cursor.FirstRun(); run.count > 0 && run.position < visible; run = cursor.RunBehind(run)) {
      const int64_t count = visible - run.position < run.count ? visible - run.position : run.count;
      if (together.count > 0 && run.position == together.position + together.count &&
          column == first + together.count) {
        together.count += count;
      } else {
        AddRun(query, together, first);
        together = {run.position, count, 0};
        first = column;
      }
      column = Cursor::ColumnBehind(column, run);
    }
    AddRun(query, together, first);
  }

  __aicore__ inline void AddRun(int64_t query, const KeyRun& run, uint32_t column) {
    if (run.count > 0) best_.Add(query, scores_.Get<float>()[column], run.position, static_cast<uint32_t>(run.count));
  }

  __aicore__ inline void LoadKeyScales(const Cursor& cursor) {
    uint32_t column = 0;
    for (KeyRun run = cursor.FirstRun(); run.count > 0; run = cursor.RunBehind(run)) {
      keyScales_.Load(scalesOfKeys_.Get<float>()[column], run.row * tiling_.key_heads + cursor.GetTile().key_head,
                      static_cast<uint32_t>(run.count));
      column = Cursor::ColumnBehind(column, run);
    }
  }

  __aicore__ inline void Store(const GlobalTensor<float>& to, const LocalTensor<float>& pairs) {
    const auto computed = GetTPipePtr()->FetchEventID(HardEvent::V_MTE3);
    SetFlag<HardEvent::V_MTE3>(computed);
    WaitFlag<HardEvent::V_MTE3>(computed);
    DataCopy(to, pairs, tiling_.kept * 2);
    const auto stored = GetTPipePtr()->FetchEventID(HardEvent::MTE3_V);
    SetFlag<HardEvent::MTE3_V>(stored);
    WaitFlag<HardEvent::MTE3_V>(stored);
  }

  const LightningIndexerTiling& tiling_;
  const Sequences& sequences_;
  const Pieces pieces_;
  const uint32_t rows_;  // of products that are weighted at a time
  BestKeys best_;
  RowWriter<Value> writer_;
  GlobalTensor<Sum> sums_;
  TQue<TPosition::VECIN, 2> products_;
  TBuf<TPosition::VECCALC> scores_, mask_, spread_, scalesOfKeys_;
  Floats weights_, queryScales_, keyScales_;
  bool begins_tile_ = false;  // the piece at work
};

// Merges the runs of tiles that several cores have in part.
template <class Value>
class IndexerMerge {
 public:
  __aicore__ inline IndexerMerge(const LightningIndexerTiling& tiling, const Sequences& sequences, TPipe& pipe,
                                 const IndexerArguments& arguments)
      : tiling_(tiling),
        sequences_(sequences),
        pieces_(tiling, arguments.workspace),
        writer_(tiling, pipe, arguments.indices, arguments.values) {
    const uint32_t bytes = tiling.kept * 2 * sizeof(float);
    pipe.InitBuffer(runs_, 2, bytes);
    pipe.InitBuffer(merged_, 2 * bytes);
    pipe.InitBuffer(best_, bytes);
  }

  __aicore__ inline void Run(const Division& division) {
    int64_t rows = 0;  // that are merged, by the cores in turn
    for (Tiles tiles(tiling_, sequences_); tiles.Next();) {
      const Tile& tile = tiles.Get();
      const int64_t first = division.CoreOf(tile.first_unit), last = division.CoreOf(tile.first_unit + tile.units - 1);
      if (first == last) continue;
      for (int64_t query = 0; query < tile.queries; ++query) {
        if (rows++ % tiling_.vector_cores() == GetBlockIdx()) MergeRow(tile, query, first, last, division);
      }
    }
  }

 private:
  __aicore__ inline void MergeRow(const Tile& tile, int64_t query, int64_t first, int64_t last,
                                  const Division& division) {
    const LocalTensor<float> best = best_.Get<float>(), merged = merged_.Get<float>();
    const auto kept = static_cast<uint16_t>(tiling_.kept);
    const uint16_t lengths[4] = {kept, kept, 0, 0};
    LoadRun(pieces_.Of(first, true, query));
    LocalTensor<float> run = runs_.DeQue<float>();
    DataCopy(best, run, tiling_.kept * 2);
    runs_.FreeTensor(run);
    for (int64_t core = first + 1; core <= last; ++core) {
      if (division.Count(core) == 0) continue;
      LoadRun(pieces_.Of(core, false, query));
      run = runs_.DeQue<float>();
      MrgSort(merged, {best, run, run, run}, MrgSort4Info(lengths, false, 3, 1));
      DataCopy(best, merged, tiling_.kept * 2);
      runs_.FreeTensor(run);
    }
    writer_.Write(tile, query, best);
  }

  __aicore__ inline void LoadRun(const GlobalTensor<float>& from) {
    const LocalTensor<float> run = runs_.AllocTensor<float>();
    DataCopy(run, from, tiling_.kept * 2);
    runs_.EnQue(run);
  }

  const LightningIndexerTiling& tiling_;
  const Sequences& sequences_;
  const Pieces pieces_;
  RowWriter<Value> writer_;
  TQue<TPosition::VECIN, 2> runs_;
  TBuf<TPosition::VECCALC> merged_, best_;
};

template <class T, class Value>
__aicore__ inline void RunIndexer(const LightningIndexerTiling& tiling, const IndexerArguments& arguments) {
  TPipe pipe;
  const Sequences sequences(tiling.sequences, {"actual_seq_lengths_key", "key"}, arguments.query_lengths,
                            arguments.key_lengths, arguments.block_table);
  const Division division(tiling, sequences);
  if ASCEND_IS_AIC {
    IndexerCube<T>(tiling, sequences, pipe, arguments).Run(division);
  }
  if ASCEND_IS_AIV {
    for (int64_t i = GetBlockIdx(); i < tiling.sequences.batch; i += tiling.vector_cores()) {
      sequences.CheckPages(sequences.Read(i));
    }
    IndexerVector<T, Value>(tiling, sequences, pipe, arguments).Run(division);
    SyncAll();
    pipe.Reset();
    IndexerMerge<Value>(tiling, sequences, pipe, arguments).Run(division);
  }
}

}  // namespace opp
