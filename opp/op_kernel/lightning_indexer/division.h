// SPDX-License-Identifier: Apache-2.0
// The work of a call: tiles of query tokens, the units of their keys, and the vector cores that have them.
#pragma once

#include "cores.h"
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

  // Goes to the next one; there is none after the last.
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

// The units of all tiles, and which vector core has them: as many as there are units, if there are fewer.
class Division {
 public:
  __aicore__ inline Division(const LightningIndexerTiling& tiling, const Sequences& sequences) {
    for (Tiles tiles(tiling, sequences); tiles.Next();) units_ += tiles.Get().units;
    cores_ = tiling.vector_cores() < units_ ? tiling.vector_cores() : units_;
    for (Tiles tiles(tiling, sequences); tiles.Next();) {
      const int64_t pieces = LastCore(tiles.Get()) - FirstCore(tiles.Get()) + 1;
      if (pieces > max_pieces_) max_pieces_ = pieces;
    }
  }

  __aicore__ inline int64_t First(int64_t core) const { return core < cores_ ? units_ * core / cores_ : units_; }
  __aicore__ inline int64_t Count(int64_t core) const { return First(core + 1) - First(core); }
  // The cores of a block take as many steps.
  __aicore__ inline int64_t Steps(int64_t block) const {
    const int64_t one = Count(2 * block), other = Count(2 * block + 1);
    return one > other ? one : other;
  }

  // The cores that have a tile, each a piece.
  __aicore__ inline int64_t FirstCore(const Tile& tile) const { return CoreOf(tile.first_unit); }
  __aicore__ inline int64_t LastCore(const Tile& tile) const { return CoreOf(tile.first_unit + tile.units - 1); }
  __aicore__ inline int64_t MaxPieces() const { return max_pieces_; }
  // How many units of a tile the cores from one to before another have.
  __aicore__ inline int64_t Units(const Tile& tile, int64_t core, int64_t end) const {
    return Smaller(First(end), tile.first_unit + tile.units) - Greater(First(core), tile.first_unit);
  }

 private:
  __aicore__ inline int64_t CoreOf(int64_t unit) const {
    int64_t core = unit * cores_ / units_;
    while (First(core + 1) <= unit) ++core;
    return core;
  }

  int64_t units_ = 0;
  int64_t cores_ = 0;
  int64_t max_pieces_ = 0;
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
  // Whether the unit begins or ends the core's keys of the tile, or all keys of the tile.
  __aicore__ inline bool BeginsPiece() const { return BeginsTile() || next_ == begin_ + 1; }
  __aicore__ inline bool EndsPiece() const { return EndsTile() || next_ == end_; }
  __aicore__ inline bool BeginsTile() const { return first_ == 0; }
  __aicore__ inline bool EndsTile() const { return next_ == GetTile().first_unit + GetTile().units; }

  // The first run of the unit's keys, and the run after another.
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

}  // namespace opp
